"""What a kernel's source does with names: which it declares, which it needs, which nobody uses.

This reads tokens, not C++. Where tokens do not settle a question it reports nothing: a compiler will
say it later, and a false alarm would stop a kernel that works.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from sweeper.cxx import Directive, SourceText, Token
from sweeper.includes import SourceTree

__all__ = ["SourceProblem", "check_names", "declared_types", "self_defined"]

_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")

_KNOWN_MACROS = re.compile(
    r"CUDA.*|CUDART_.*|CU_.*|CUBLAS.*|NV_.*|NVCC.*|WMMA.*|GLIBC.*|POSIX.*"
    r"|(?:U?INT|UINTPTR|INTPTR|SIZE|S?CHAR|UCHAR|U?SHRT|U?LONG|U?LLONG|WCHAR|PTRDIFF|RAND)[A-Z0-9_]*_(?:MAX|MIN|C)"
    r"|(?:FLT|DBL|LDBL|FP|M|HUGE)_.*|MATH_.*|CHAR_BIT|INFINITY|NAN|NULL|EOF|BUFSIZ|HUGE_VALF?|EXIT_(?:SUCCESS|FAILURE)"
    r"|CLOCKS_PER_SEC|FILE|FE_.*|SEEK_.*|STD.*|TRUE|FALSE|NDEBUG|DEBUG"
)

_KNOWN_HEADERS = re.compile(
    r"(?:c?assert|c?float|c?limits|c?math|c?stdint|c?stdio|c?stdlib|c?string|c?stddef|c?time)(?:\.h)?"
    r"|algorithm|array|chrono|cstdarg|functional|initializer_list|iomanip|iostream|limits|memory|numeric|ostream"
    r"|random|string|tuple|type_traits|utility|vector"
    r"|cuda\.h|cuda_.*\.h|device_.*\.h|cooperative_groups(?:/.*)?(?:\.h)?|mma\.h|math_constants\.h|vector_.*\.h"
    r"|crt/.*|cuda/(?:barrier|pipeline|ptx|std/.*|atomic|cmath)|sm_.*\.h|nv/target|nvtx3/.*|cuComplex\.h"
)

_TYPE_WORDS = frozenset(
    {
        "auto", "bool", "char", "char16_t", "char32_t", "const", "constexpr", "double", "float", "half",
        "half2", "int", "int16_t", "int32_t", "int64_t", "int8_t", "long", "nv_bfloat16", "nv_bfloat162",
        "ptrdiff_t", "short", "signed", "size_t", "uint", "uint16_t", "uint32_t", "uint64_t", "uint8_t",
        "unsigned", "void", "volatile", "uintptr_t", "wchar_t", "__half", "__half2", "__nv_bfloat16",
        "__nv_bfloat162",
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


class _Sight(IntEnum):
    """How one occurrence of a name reads."""

    USE = 0
    MAYBE = 1
    DECLARATION = 2


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A name on which the description and the source do not agree.

    `kind` is `undefined` (the source needs it, nothing gives it), `unused` (a parameter that nothing
    reads) or `redefined` (a parameter that the source fixes itself).
    """

    kind: str
    name: str
    file: str
    line: int

    @property
    def message(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        return (
            place
            + {
                "undefined": f"{self.name} is used, but neither the source nor the description defines it",
                "unused": f"parameter {self.name} is never used: not in {self.file}, nor in the description",
                "redefined": f"{self.name} is a parameter, but the source sets it itself",
            }[self.kind]
        )

    @property
    def hint(self) -> str:
        return {
            "undefined": f"add {self.name} to `params` or `defines`, or #define it in the source",
            "unused": f"remove {self.name} from `params`, or use it in the source",
            "redefined": f"guard it with `#ifndef {self.name}`, or pass it as a template argument",
        }[self.kind]


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
        return before.text in ("=", ",", "(", "{", "]", ">")
    if before.text in _BEFORE_BODY:
        return False
    return (
        before.text == "return"
        or i < 2
        or tokens[i - 2].text not in ("namespace", "struct", "class", "union")
    )


def _is_typeword(text: str, types: Collection[str]) -> bool:
    return text in _TYPE_WORDS or text in types or text.endswith("_t") or bool(_VECTOR_TYPE.fullmatch(text))


def _sight(tokens: Sequence[Token], i: int, bracket: str, types: Collection[str]) -> _Sight:
    """How `tokens[i]`, a name, reads where the innermost open bracket is `bracket`."""
    before = tokens[i - 1] if i else Token("sign", ";", 0)
    after = tokens[i + 1].text if i + 1 < len(tokens) else ";"
    if bracket == "enum" and before.text in ("{", ","):
        return _Sight.DECLARATION
    if before.text in ("::", ".", "->") or after == "::":
        return _Sight.MAYBE
    if before.kind == "name" and before.text not in _NOT_TYPES:
        return _Sight.DECLARATION
    if before.text == ">" and after in "=;,)[":
        return _Sight.MAYBE
    if before.text in ("*", "&"):
        return _pointer_sight(tokens, i, bracket, types)
    if before.text == "," and bracket in ("", "{") and after in _DECLARATOR_END:
        return _Sight.MAYBE
    if after == ":" and before.text in (";", "{", "}"):
        return _Sight.DECLARATION
    return _Sight.USE


def _pointer_sight(tokens: Sequence[Token], i: int, bracket: str, types: Collection[str]) -> _Sight:
    """`tokens[i]` after `*` or `&`: a pointer's declaration, or an operand."""
    after = tokens[i + 1].text if i + 1 < len(tokens) else ";"
    j = i - 1
    while j > 0 and tokens[j].text in ("*", "&"):
        j -= 1
    pointed = tokens[j]
    if _is_typeword(pointed.text, types):
        return _Sight.DECLARATION
    may_be_type = pointed.kind == "name" and not _CAPITALS.fullmatch(pointed.text) and _opens(tokens, j)
    unsure = may_be_type and after in ",)=;[" and bracket in ("(", "{", "")
    return _Sight.MAYBE if unsure else _Sight.USE


def _opens(tokens: Sequence[Token], j: int) -> bool:
    """Whether `tokens[j]` stands where a declaration may begin (an unknown type's name)."""
    return j == 0 or tokens[j - 1].text in ("(", ",", ";", "{", "}") or tokens[j - 1].kind == "name"


def _types_of(text: SourceText) -> set[str]:
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


def declared_types(tree: SourceTree) -> frozenset[str]:
    """Names that the files declare as types (or namespaces)."""
    return frozenset().union(*(_types_of(f.tokens) for f in tree.files))


def _guarded(directive: Directive) -> bool:
    """A `#define X` that gives way to one from outside."""
    name = directive.tokens[0].text
    condition = directive.condition.replace("(", " ").replace(")", " ").split()
    return condition in (["ifndef", name], ["if", "!", "defined", name])


def _definitions(text: SourceText) -> Iterator[Directive]:
    return (d for d in text.directives if d.name == "define" and d.tokens)


def self_defined(tree: SourceTree) -> frozenset[str]:
    """Macros that the files define whatever is given from outside (no `#ifndef` around them)."""
    definitions = (d for f in tree.files for d in _definitions(f.tokens))
    return frozenset(d.tokens[0].text for d in definitions if not d.conditional and not _guarded(d))


def _sights(text: SourceText, types: Collection[str]) -> Iterator[tuple[Token, _Sight]]:
    """Each name in code, then in directives, with how it reads."""
    for i, bracket in _brackets(text.tokens):
        if text.tokens[i].kind == "name":
            yield text.tokens[i], _sight(text.tokens, i, bracket, types)
    for directive in text.directives:
        yield from _directive_sights(directive)


def _directive_sights(directive: Directive) -> Iterator[tuple[Token, _Sight]]:
    tokens = directive.tokens
    if directive.name in ("define", "undef", "ifdef", "ifndef", "elifdef", "elifndef") and tokens:
        yield tokens[0], _Sight.MAYBE
        parameters = _macro_parameters(directive) if directive.name == "define" else set()
        for token in tokens[1:]:
            if token.kind == "name" and token.text not in parameters:
                yield token, _Sight.USE
    elif directive.name in ("if", "elif"):
        # An undefined name in a condition is 0, and asking for it is legitimate.
        yield from ((t, _Sight.MAYBE) for t in tokens if t.kind == "name")


def _macro_parameters(directive: Directive) -> set[str]:
    tokens = directive.tokens
    if len(tokens) < 2 or tokens[1].text != "(":
        return set()
    close = next((i for i, t in enumerate(tokens) if t.text == ")"), len(tokens))
    return {t.text for t in tokens[2:close] if t.kind == "name"}


def _foreign_headers(tree: SourceTree) -> bool:
    """Whether a header is included whose macros are not known here."""
    for file in tree.files:
        reached = {spelling for spelling, _ in file.includes}
        for directive in file.tokens.directives:
            if directive.name != "include":
                continue
            spelling = "".join(t.text for t in directive.tokens).strip('"<>')
            if spelling not in reached and not _KNOWN_HEADERS.fullmatch(spelling):
                return True
    return False


def _undefined(tree: SourceTree, given: Collection[str], types: Collection[str]) -> Iterator[SourceProblem]:
    if _foreign_headers(tree):
        return
    known = set(given) | set(types)
    uses: dict[str, tuple[str, int]] = {}
    for file in tree.files:
        for token, sight in _sights(file.tokens, types):
            if sight is not _Sight.USE:
                known.add(token.text)
            elif _CAPITALS.fullmatch(token.text) and not _KNOWN_MACROS.fullmatch(token.text):
                uses.setdefault(token.text, (file.path.name, token.line))
        known |= _called(file.tokens.tokens)
    yield from (SourceProblem("undefined", n, f, line) for n, (f, line) in uses.items() if n not in known)


def _called(tokens: Sequence[Token]) -> set[str]:
    """Names followed by `(`: functions and function-like macros, which no parameter is."""
    return {t.text for t, after in pairwise(tokens) if t.kind == "name" and after.text == "("}


def _redefined(tree: SourceTree, macros: Collection[str], types: Collection[str]) -> Iterator[SourceProblem]:
    for file in tree.files:
        for directive in _definitions(file.tokens):
            name = directive.tokens[0].text
            if name in macros and not directive.conditional and not _guarded(directive):
                yield SourceProblem("redefined", name, file.path.name, directive.line)
        for token, sight in _sights(file.tokens, types):
            if token.text in macros and sight is _Sight.DECLARATION:
                yield SourceProblem("redefined", token.text, file.path.name, token.line)


def check_names(
    tree: SourceTree,
    *,
    params: Collection[str],
    templated: Collection[str] = (),
    defined: Collection[str] = (),
    used_elsewhere: Iterable[str] = (),
) -> tuple[SourceProblem, ...]:
    """Names on which the source and the description disagree, each once, in source order.

    `params` are the tunable parameters, `templated` those that reach the source as template
    arguments (the others do as macros of their own names), `defined` the description's own macros,
    and `used_elsewhere` names used in its expressions (launch, shapes, defines). Only names in
    capitals can be `undefined`: others might be anything a header declares.
    """
    types = declared_types(tree)
    macros = (set(params) | set(defined)) - set(templated)
    problems = list(_redefined(tree, macros, types))
    problems += _undefined(tree, [*params, *defined, "T"], types)
    elsewhere = set(used_elsewhere) | set(templated)
    unused = [p for p in params if p not in elsewhere and p not in tree.names]
    problems += [SourceProblem("unused", name, tree.source.path.name, 0) for name in unused]
    first = {(p.kind, p.name): p for p in reversed(problems)}
    return tuple(p for p in problems if first[p.kind, p.name] is p)
