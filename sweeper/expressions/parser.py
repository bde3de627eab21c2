"""Text → the tree of an expression; everything that is not whitelisted is refused.

Python's parser is used as a parser only: its tree is converted node by node into our own and dropped.
Nothing is ever compiled or run. Limits on length, depth and literals are checked before and while
converting, so that hostile text costs microseconds.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Mapping
from typing import Final, TypeVar

from sweeper.errors import ExpressionError
from sweeper.expressions.syntax import (
    MAX_MAGNITUDE,
    Binary,
    Call,
    Comparison,
    Conditional,
    Link,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
    shorten,
)

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "parse_tree"]

MAX_LENGTH: Final = 1000
MAX_DEPTH: Final = 100

FUNCTIONS: Final[dict[str, tuple[int, int | None]]] = {
    "min": (2, None),
    "max": (2, None),
    "abs": (1, 1),
    "ceil": (1, 1),
    "floor": (1, 1),
    "ceil_div": (2, 2),
    "log2": (1, 1),
    "int": (1, 1),
}
"""Function names with their least and greatest number of arguments (None: any)."""

_Operator = TypeVar("_Operator", bound=ast.AST)

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_UNARY: Final[dict[type[ast.unaryop], str]] = {ast.UAdd: "+", ast.USub: "-", ast.Not: "not"}
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_REFUSED_OPERATORS: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.BitAnd: ("&", "use `and`"),
    ast.BitOr: ("|", "use `or`"),
    ast.BitXor: ("^", "use `**` for a power"),
    ast.LShift: ("<<", "multiply by a power of two: `x * 2 ** n`"),
    ast.RShift: (">>", "divide by a power of two: `x // 2 ** n`"),
    ast.MatMult: ("@", "use `*`"),
    ast.Invert: ("~", "use `not`"),
    ast.Is: ("is", "use `==`"),
    ast.IsNot: ("is not", "use `!=`"),
}
_REFUSED_NODES: Final[dict[type[ast.AST], str]] = {
    ast.Attribute: "attribute access",
    ast.Subscript: "indexing",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Starred: "unpacking",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.List: "a list outside `in`",
    ast.Tuple: "a tuple outside `in`",
}

_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_LEADING_ZERO = re.compile(r"(?<![\w.])0[0-9_]*[0-9](?![\w.])")
_FOREIGN: Final = (
    (re.compile(r"&&"), "&&", "write `and`"),
    (re.compile(r"\|\|"), "||", "write `or`"),
    (re.compile(r"!(?!=)"), "!", "write `not`"),
    (re.compile(r"\?"), "?", "write `a if condition else b`"),
    (re.compile(r"(?<![<>=!:])=(?!=)"), "=", "write `==` to compare"),
)


def parse_tree(text: str, *, where: str) -> Node:
    """The tree of `text`; `where` names the place for error messages.

    Raises ExpressionError for anything that is not whitelisted, or beyond the limits.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"{where}: expression of {len(text)} characters, at most {MAX_LENGTH} are read: {shorten(text)}",
            hint="split it into several constraints",
        )
    _check_characters(text, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{where}: cannot read {shorten(text)!r}: {error.msg}") from None
    except (MemoryError, RecursionError, ValueError):
        raise ExpressionError(f"{where}: too deeply nested or malformed: {shorten(text)!r}") from None
    return _Converter(text, where).node(body, 0)


def _check_characters(text: str, where: str) -> None:
    """Refuse what Python's parser would misread or explain badly."""
    if not text.strip():
        raise ExpressionError(f"{where}: empty expression")
    control = next((c for c in text if not c.isprintable()), None)
    if control is not None:
        raise ExpressionError(f"{where}: character {control!r} in {shorten(text)!r} is not allowed")
    bare = _STRING.sub(lambda match: " " * len(match[0]), text)
    foreign_letter = next((c for c in bare if not c.isascii()), None)
    if foreign_letter is not None:
        raise ExpressionError(f"{where}: character {foreign_letter!r} in {shorten(text)!r} is not allowed")
    for pattern, piece, hint in _FOREIGN:
        if pattern.search(bare):
            raise ExpressionError(f"{where}: `{piece}` in {shorten(text)!r} is not an operator", hint=hint)
    zero = _LEADING_ZERO.search(bare)
    if zero is not None:
        right = zero[0].replace("_", "").lstrip("0") or "0"
        raise ExpressionError(
            f"{where}: number {shorten(zero[0])} in {shorten(text)!r} has leading zeros",
            hint=f"write {shorten(right)}",
        )


class _Converter:
    """Python's tree → ours, for one text."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where

    def refusal(self, piece: str, hint: str | None = None) -> ExpressionError:
        return ExpressionError(f"{self.where}: {piece} in {shorten(self.text)!r}", hint=hint)

    def node(self, tree: ast.AST, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.refusal(f"nesting deeper than {MAX_DEPTH}")
        deeper = depth + 1
        match tree:
            case ast.Constant():
                return self.literal(tree)
            case ast.Name():
                return Name(tree.id)
            case ast.UnaryOp():
                return self.unary(tree, deeper)
            case ast.BinOp():
                symbol = self.symbol(tree.op, _BINARY)
                return Binary(symbol, self.node(tree.left, deeper), self.node(tree.right, deeper))
            case ast.BoolOp():
                op = "and" if isinstance(tree.op, ast.And) else "or"
                return Logic(op, tuple(self.node(value, deeper) for value in tree.values))
            case ast.Compare():
                return self.comparison(tree, deeper)
            case ast.IfExp(test, then, otherwise):
                return Conditional(
                    self.node(test, deeper), self.node(then, deeper), self.node(otherwise, deeper)
                )
            case ast.Call():
                return self.call(tree, deeper)
            case _:
                raise self.refusal(f"{_REFUSED_NODES.get(type(tree), type(tree).__name__)} is not allowed")

    def symbol(self, op: _Operator, allowed: Mapping[type[_Operator], str]) -> str:
        if type(op) in allowed:
            return allowed[type(op)]
        symbol, hint = _REFUSED_OPERATORS[type(op)]
        raise self.refusal(f"operator `{symbol}` is not allowed", hint)

    def literal(self, tree: ast.Constant) -> Literal:
        value = tree.value
        if not isinstance(value, bool | int | float | str):
            raise self.refusal(f"{type(value).__name__} literal is not allowed")
        if isinstance(value, str) and not value.isprintable():
            raise self.refusal("a control character in text is not allowed")
        if isinstance(value, int) and value > MAX_MAGNITUDE:
            raise self.refusal("an integer literal does not fit 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refusal("a number literal is too large")
        return Literal(value)

    def unary(self, tree: ast.UnaryOp, depth: int) -> Node:
        symbol = self.symbol(tree.op, _UNARY)
        operand = self.node(tree.operand, depth)
        match symbol, operand:
            case "-", Literal(int() | float() as value) if not isinstance(value, bool):
                return Literal(-value)
        return Unary(symbol, operand)

    def comparison(self, tree: ast.Compare, depth: int) -> Comparison:
        links = []
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            symbol = self.symbol(op, _COMPARE)
            links.append(
                Link(symbol, self.members(right, depth))
                if symbol in ("in", "not in")
                else Link(symbol, self.node(right, depth))
            )
        if len(links) > 1 and any(link.op in ("in", "not in") for link in links):
            raise self.refusal(
                "`in` within a chained comparison is not allowed", "join two comparisons by `and`"
            )
        return Comparison(self.node(tree.left, depth), tuple(links))

    def members(self, tree: ast.AST, depth: int) -> tuple[Literal, ...]:
        if not isinstance(tree, ast.Tuple | ast.List):
            raise self.refusal("`in` needs a list of literals on its right", "write e.g. `x in (1, 2, 4)`")
        members = tuple(self.node(element, depth) for element in tree.elts)
        literals = tuple(member for member in members if isinstance(member, Literal))
        if len(literals) != len(members):
            raise self.refusal("a member of an `in` list is not a literal", "write e.g. `x == a or x == b`")
        return literals

    def call(self, tree: ast.Call, depth: int) -> Call:
        if not isinstance(tree.func, ast.Name):
            raise self.refusal("a call of something that is not a function's name is not allowed")
        name = tree.func.id
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise self.refusal(f"function {name!r} is not known", f"known functions: {known}")
        if tree.keywords:
            raise self.refusal(f"a keyword argument of {name} is not allowed")
        arguments = tuple(self.node(argument, depth) for argument in tree.args)
        least, most = FUNCTIONS[name]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = f"{least}" if most == least else f"at least {least}"
            plural = "" if wanted == "1" else "s"
            raise self.refusal(f"{name} takes {wanted} argument{plural}, {len(arguments)} given")
        return Call(name, arguments)
