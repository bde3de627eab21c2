"""How each occurrence of a name reads: a use, a declaration, or either.

Tokens do not settle every case (`a * B` declares B where a is a type): `MAYBE` says so, and callers
treat it as whichever raises no alarm.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise

from sweeper.source.cxx import Directive, SourceText, Token

__all__ = ["CAPITALS", "Sight", "called_names", "sights", "type_names"]

CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")

_TYPE_WORDS = frozenset(
    {
        "auto", "bool", "char", "char16_t", "char32_t", "const", "constexpr", "double", "float", "half",
        "half2", "int", "int16_t", "int32_t", "int64_t", "int8_t", "long", "nv_bfloat16", "nv_bfloat162",
        "ptrdiff_t", "short", "signed", "size_t", "uint", "uint16_t", "uint32_t", "uint64_t", "uint8_t",
        "unsigned", "void", "volatile", "uintptr_t", "wchar_t", "__half", "__half2", "__nv_bfloat16",
        "__nv_bfloat162", "__nv_fp8_e4m3",
    }
)  # fmt: skip
_VECTOR_TYPE = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]")
_NOT_TYPES = frozenset(
    {
        "and", "break", "case", "catch", "co_await", "co_return", "co_yield", "continue", "default",
        "delete", "do", "else", "goto", "if", "new", "not", "or", "operator", "return", "sizeof", "switch",
        "throw", "typeof", "while", "xor",
    }
)  # fmt: skip
_BEFORE_BODY = frozenset(
    {"const", "do", "else", "final", "namespace", "noexcept", "override", "struct", "try", "union"}
)
_DECLARATOR_END = frozenset("=;,)[({:")


class Sight(IntEnum):
    """How one occurrence of a name reads."""

    USE = 0
    MAYBE = 1
    DECLARATION = 2


def _brackets(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """(index, innermost open bracket) of each token: `(`, `[`, `{` (a body), `=` (a braced list), or ``."""
    stack: list[str] = []
    enum_ahead = False
    for i, token in enumerate(tokens):
        yield i, stack[-1] if stack else ""
        text = token.text
        enum_ahead = (enum_ahead or text == "enum") and text != ";"
        if text in ("(", "["):
            stack.append(text)
        elif text == "{":
            listed = _opens_list(tokens, i)
            stack.append("enum" if enum_ahead else "=" if listed else "{")
            enum_ahead = False
        elif text in (")", "]", "}") and stack:
            stack.pop()


def _opens_list(tokens: Sequence[Token], i: int) -> bool:
    """Whether the `{` at `i` opens a braced list rather than a body."""
    if i == 0:
        return False
    before = tokens[i - 1]
    if before.kind != "name":
        return before.text in ("=", ",", "(", "{")
    if before.text in _BEFORE_BODY:
        return False
    return (
        before.text == "return"
        or i < 2
        or tokens[i - 2].text not in ("namespace", "struct", "class", "union")
    )


def _is_typeword(text: str, types: Collection[str]) -> bool:
    return text in _TYPE_WORDS or text in types or text.endswith("_t") or bool(_VECTOR_TYPE.fullmatch(text))


def _sight(tokens: Sequence[Token], i: int, bracket: str, types: Collection[str]) -> Sight:
    """How `tokens[i]`, a name, reads where the innermost open bracket is `bracket`."""
    before = tokens[i - 1] if i else Token("sign", ";", 0)
    after = tokens[i + 1].text if i + 1 < len(tokens) else ";"
    if bracket == "enum" and before.text in ("{", ","):
        return Sight.DECLARATION
    if before.text in ("::", ".", "->", "...") or after == "::":
        return Sight.MAYBE
    if before.kind == "name" and before.text not in _NOT_TYPES:
        return Sight.DECLARATION
    if before.text == ">" and after in "=;,)[":
        return Sight.MAYBE
    if before.text in ("*", "&"):
        return _pointer_sight(tokens, i, bracket, types)
    if before.text == "," and bracket in ("", "{") and after in _DECLARATOR_END:
        return Sight.MAYBE
    if after == ":" and before.text in (";", "{", "}"):
        return Sight.DECLARATION
    return Sight.USE


def _pointer_sight(tokens: Sequence[Token], i: int, bracket: str, types: Collection[str]) -> Sight:
    """`tokens[i]` after `*` or `&`: a pointer's declaration, or an operand."""
    after = tokens[i + 1].text if i + 1 < len(tokens) else ";"
    j = i - 1
    while j > 0 and tokens[j].text in ("*", "&"):
        j -= 1
    pointed = tokens[j]
    if _is_typeword(pointed.text, types):
        return Sight.DECLARATION
    may_be_type = pointed.kind == "name" and not CAPITALS.fullmatch(pointed.text) and _opens(tokens, j)
    unsure = may_be_type and after in ",)=;[" and bracket in ("(", "{", "")
    return Sight.MAYBE if unsure else Sight.USE


def _opens(tokens: Sequence[Token], j: int) -> bool:
    """Whether `tokens[j]` stands where a declaration may begin (an unknown type's name)."""
    before = tokens[j - 1]
    return (
        j == 0
        or before.text in ("(", ",", ";", "{", "}")
        or (before.kind == "name" and before.text not in _NOT_TYPES)
    )


def type_names(text: SourceText) -> set[str]:
    """Names declared as types: template type parameters, typedefs, aliases, classes, enumerations."""
    found = set()
    tokens = text.tokens
    for i, token in enumerate(tokens[:-1]):
        following = tokens[i + 1]
        if token.text == "typedef":
            end = next((j for j in range(i, len(tokens)) if tokens[j].text == ";"), None)
            if end is not None and tokens[end - 1].kind == "name":
                found.add(tokens[end - 1].text)
        elif token.text in ("typename", "class", "struct", "enum", "union", "using", "namespace"):
            named = tokens[i + 2] if following.text in ("class", "...") and i + 2 < len(tokens) else following
            if named.kind == "name":
                found.add(named.text)
    return found


def sights(text: SourceText, types: Collection[str]) -> Iterator[tuple[Token, Sight]]:
    """Each name in code, then in directives, with how it reads."""
    for i, bracket in _brackets(text.tokens):
        if text.tokens[i].kind == "name":
            yield text.tokens[i], _sight(text.tokens, i, bracket, types)
    for directive in text.directives:
        yield from _directive_sights(directive)


def _directive_sights(directive: Directive) -> Iterator[tuple[Token, Sight]]:
    tokens = directive.tokens
    if directive.name in ("define", "undef", "ifdef", "ifndef", "elifdef", "elifndef") and tokens:
        yield tokens[0], Sight.MAYBE
        parameters = _macro_parameters(directive) if directive.name == "define" else set()
        for i, token in enumerate(tokens[1:], 1):
            pasted = any(other.text == "##" for other in (tokens[i - 1], *tokens[i + 1 : i + 2]))
            if token.kind == "name" and token.text not in parameters and not pasted:
                yield token, Sight.USE
    elif directive.name in ("if", "elif"):
        # An undefined name in a condition is 0, and asking for it is legitimate.
        yield from ((t, Sight.MAYBE) for t in tokens if t.kind == "name")


def _macro_parameters(directive: Directive) -> set[str]:
    tokens = directive.tokens
    if len(tokens) < 2 or tokens[1].text != "(":
        return set()
    close = next((i for i, t in enumerate(tokens) if t.text == ")"), len(tokens))
    return {t.text for t in tokens[2:close] if t.kind == "name"}


def called_names(tokens: Sequence[Token]) -> set[str]:
    """Names followed by `(`: functions and function-like macros, which no parameter is."""
    return {t.text for t, after in pairwise(tokens) if t.kind == "name" and after.text == "("}
