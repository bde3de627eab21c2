"""The syntax of expressions as a small tree of frozen nodes, and its way back to text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "MAX_MAGNITUDE",
    "Binary",
    "Call",
    "Comparison",
    "Conditional",
    "Link",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "Unary",
    "Value",
    "children",
    "names_in",
    "render",
    "shorten",
]

Value: TypeAlias = int | float | str | bool

MAX_MAGNITUDE: Final = 2**63 - 1
"""Largest magnitude of an integer, literal or result: what a signed 64-bit column holds."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    """`op` is `+`, `-` or `not`."""

    op: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """`op` is `+`, `-`, `*`, `/`, `//`, `%` or `**`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chained comparison; `right` is a tuple of literals for `in` and `not in`."""

    op: str
    right: Node | tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Node
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """`op` is `and` or `or`; the result is a bool whatever the operands are."""

    op: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Literal | Name | Unary | Binary | Comparison | Logic | Conditional | Call


def shorten(text: str, limit: int = 120) -> str:
    """`text` cut to `limit` characters, for error messages."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def children(node: Node) -> Iterator[Node]:
    """The direct sub-expressions of `node`, left to right."""
    match node:
        case Unary():
            yield node.operand
        case Binary():
            yield node.left
            yield node.right
        case Comparison():
            yield node.first
            yield from (link.right for link in node.links if not isinstance(link.right, tuple))
        case Logic():
            yield from node.operands
        case Conditional():
            yield node.test
            yield node.then
            yield node.otherwise
        case Call():
            yield from node.arguments


def names_in(node: Node) -> tuple[str, ...]:
    """The variables of `node`, each once, in order of appearance."""
    if isinstance(node, Name):
        return (node.name,)
    return tuple(dict.fromkeys(name for child in children(node) for name in names_in(child)))


_PRECEDENCE: Final = {"or": 2, "and": 3, "not": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9}


def _precedence(node: Node) -> int:
    match node:
        case Conditional():
            return 1
        case Logic() | Binary():
            return _PRECEDENCE[node.op]
        case Unary():
            return 4 if node.op == "not" else 8
        case Comparison():
            return 5
        case Literal(int() | float() as value) if value < 0:
            return 8
    return 10


def render(node: Node) -> str:
    """The text of `node` with as few parentheses as its meaning needs; parses to an equal tree."""

    def inner(child: Node, least: int) -> str:
        text = render(child)
        return text if _precedence(child) >= least else f"({text})"

    match node:
        case Literal():
            return repr(node.value)
        case Name():
            return node.name
        case Unary():
            return f"not {inner(node.operand, 4)}" if node.op == "not" else node.op + inner(node.operand, 8)
        case Binary():
            level = _PRECEDENCE[node.op]
            left, right = (level + 1, 8) if node.op == "**" else (level, level + 1)
            return f"{inner(node.left, left)} {node.op} {inner(node.right, right)}"
        case Comparison():
            links = (f" {link.op} {_render_right(link.right)}" for link in node.links)
            return inner(node.first, 6) + "".join(links)
        case Logic():
            level = _PRECEDENCE[node.op]
            return f" {node.op} ".join(inner(operand, level + 1) for operand in node.operands)
        case Conditional():
            return f"{inner(node.then, 2)} if {inner(node.test, 2)} else {inner(node.otherwise, 1)}"
        case Call():
            return f"{node.function}({', '.join(render(argument) for argument in node.arguments)})"


def _render_right(right: Node | tuple[Literal, ...]) -> str:
    if isinstance(right, tuple):
        members = ", ".join(render(member) for member in right)
        return f"({members},)" if len(right) == 1 else f"({members})"
    text = render(right)
    return text if _precedence(right) >= 6 else f"({text})"
