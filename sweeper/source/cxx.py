"""A tokenizer for C++ and CUDA sources: comments, strings, raw strings, directives, continuations.

It knows no grammar. Text inside `#if 0` is dropped; every other branch of a condition is kept, because
which one is taken depends on the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

__all__ = ["Directive", "SourceText", "Token", "tokenize"]

_SCANNER = re.compile(
    r"""
    (?P<space>    (?: [ \t\r\f\v] | \\\r?\n )+ )
  | (?P<newline>  \n )
  | (?P<comment>  // (?: [^\\\n] | \\(?:.|\n) )* | /\* (?s:.*?) (?: \*/ | \Z ) )
  | (?P<string>   (?:u8|[uUL])? R"(?P<fence>[^()\\\s"]{0,16})\( (?s:.*?) \)(?P=fence)"
                | (?:u8|[uUL])? "(?: [^"\\\n] | \\(?:.|\n) )*" )
  | (?P<char>     (?:u8|[uUL])? '(?: [^'\\\n] | \\. )+' )
  | (?P<name>     [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<number>   \.?[0-9] (?: [eEpP][+-] | '[A-Za-z0-9_] | [A-Za-z0-9_.] )* )
  | (?P<sign>     :: | -> | \.\.\. | \#\# | . )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is `name`, `number`, `string`, `char` or `sign`; `line` counts from 1."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Directive:
    """One preprocessor line: `name` without `#`, `text` what follows it without comments.

    `conditional` is true inside `#if`, `#ifdef`, …, an include guard not counted; `condition` is the
    innermost one's directive and text (`ifndef TILE`).
    """

    name: str
    text: str
    line: int
    tokens: tuple[Token, ...]
    conditional: bool = False
    condition: str = ""


@dataclass(frozen=True)
class SourceText:
    """A file's tokens outside directives, and its directives, both in order."""

    tokens: tuple[Token, ...]
    directives: tuple[Directive, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier that occurs, in code or in a directive; none from a string or a comment."""
        code = (t.text for t in self.tokens if t.kind == "name")
        inside = (t.text for d in self.directives for t in d.tokens if t.kind == "name")
        return frozenset(code) | frozenset(inside)


def _raw_tokens(text: str) -> list[Token]:
    """All tokens, newlines included (kind `newline`)."""
    tokens: list[Token] = []
    line = 1
    for match in _SCANNER.finditer(text):
        kind, found = match.lastgroup or "sign", match.group()
        if kind not in ("space", "comment"):
            tokens.append(Token(kind, found, line))
        line += found.count("\n")
    return tokens


def _lines(tokens: Sequence[Token]) -> list[list[Token]]:
    """Tokens grouped into logical lines (a continued line, or one holding a long comment, is one)."""
    lines: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == "newline":
            lines.append([])
        else:
            lines[-1].append(token)
    return [line for line in lines if line]


def _directive(line: Sequence[Token]) -> Directive:
    if len(line) == 1:
        return Directive("", "", line[0].line, ())
    name, rest = line[1].text, tuple(line[2:])
    return Directive(name, " ".join(t.text for t in rest), line[0].line, rest)


@dataclass(slots=True)
class _Condition:
    text: str
    dead: bool
    guard: bool


class _Conditions:
    """The stack of open `#if`s."""

    def __init__(self) -> None:
        self.open: list[_Condition] = []

    @property
    def dead(self) -> bool:
        return any(c.dead for c in self.open)

    def enter(self, directive: Directive, *, guard: bool) -> None:
        dead = directive.name == "if" and directive.text in ("0", "false")
        self.open.append(_Condition(f"{directive.name} {directive.text}", dead, guard))

    def turn(self, directive: Directive) -> None:
        if self.open:
            self.open[-1] = _Condition(f"{directive.name} {directive.text}", False, False)

    def leave(self) -> None:
        if self.open:
            self.open.pop()

    def mark(self, directive: Directive) -> Directive:
        if not self.open:
            return directive
        conditional = any(not c.guard for c in self.open)
        return replace(directive, conditional=conditional, condition=self.open[-1].text)


def _is_guard(directive: Directive, following: Sequence[Token] | None) -> bool:
    """`#ifndef X` with `#define X` on the next line."""
    if directive.name != "ifndef" or following is None or len(following) < 3:
        return False
    return [t.text for t in following[:3]] == ["#", "define", directive.text]


@lru_cache(maxsize=128)
def tokenize(text: str) -> SourceText:
    """The tokens and directives of `text`. Never raises: what it cannot read becomes single signs."""
    tokens: list[Token] = []
    directives: list[Directive] = []
    conditions = _Conditions()
    lines = _lines(_raw_tokens(text))
    for number, line in enumerate(lines):
        if line[0].text != "#":
            if not conditions.dead:
                tokens.extend(line)
            continue
        directive = _directive(line)
        if directive.name in ("if", "ifdef", "ifndef"):
            if not conditions.dead:
                directives.append(conditions.mark(directive))
            following = lines[number + 1] if number + 1 < len(lines) else None
            guard = not tokens and not conditions.open and _is_guard(directive, following)
            conditions.enter(directive, guard=guard)
        elif directive.name in ("elif", "else", "elifdef", "elifndef"):
            conditions.turn(directive)
            if not conditions.dead:
                directives.append(conditions.mark(directive))
        elif directive.name == "endif":
            conditions.leave()
        elif not conditions.dead:
            directives.append(conditions.mark(directive))
    return SourceText(tuple(tokens), tuple(directives))
