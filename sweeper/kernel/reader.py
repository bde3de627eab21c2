"""Reading a mapping of a description: every value of its type, and every error with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.errors import KernelError, did_you_mean
from sweeper.expressions import Expression, parse

__all__ = ["IDENTIFIER", "Reader"]

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class Reader:
    """A mapping of the description, with its place for error messages.

    Each method gives the value of a key, and raises KernelError where it is missing or of another type.
    """

    node: Mapping[str, Any]
    where: str

    def error(self, key: str, problem: str, hint: str | None = None) -> KernelError:
        return KernelError(f"{self.where}.{key}: {problem}", hint=hint)

    def only(self, *known: str) -> None:
        for key in self.node:
            if key not in known:
                raise self.error(
                    str(key), f"unknown key{did_you_mean(str(key), known)}", "known: " + ", ".join(known)
                )

    def child(self, key: str) -> Reader:
        value = self.node.get(key)
        if not isinstance(value, Mapping):
            raise self.error(key, "missing, or not a mapping")
        return Reader(value, f"{self.where}.{key}")

    def text(self, key: str, default: str | None = None, *, pattern: re.Pattern[str] | None = None) -> str:
        value = self.node.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is not text")
        if pattern is not None and not pattern.fullmatch(value):
            raise self.error(key, f"{value!r} is not a valid name", f"a name matches {pattern.pattern}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.node.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(key, f"{value!r} is not a positive number")
        return float(value)

    def switch(self, key: str) -> bool:
        value = self.node.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r} is neither true nor false")
        return value

    def sequence(self, key: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self.node.get(key, default)
        if value is None or isinstance(value, str) or not isinstance(value, Sequence):
            raise self.error(key, "missing, or not a list")
        return value

    def texts(self, key: str) -> list[str]:
        values = list(self.sequence(key, ()))
        if not all(isinstance(v, str) for v in values):
            raise self.error(key, f"{values!r} holds something that is not text")
        return values

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.node.get(key, {})
        if not isinstance(value, Mapping):
            raise self.error(key, f"{value!r} is not a mapping")
        return value

    def expression(self, key: str, default: Any = None) -> Expression:
        value = self.node.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        return parse(value, where=f"{self.where}.{key}")

    def expression_or_none(self, key: str) -> Expression | None:
        return self.expression(key) if self.node.get(key) is not None else None

    def expressions(self, key: str) -> list[Expression]:
        return [
            parse(item, where=f"{self.where}.{key}[{i}]") for i, item in enumerate(self.sequence(key, ()))
        ]

    def expression_map(self, key: str) -> dict[str, Expression]:
        for name in self.mapping(key):
            if not IDENTIFIER.fullmatch(str(name)):
                raise self.error(key, f"{name!r} is not an identifier")
        return {str(n): parse(v, where=f"{self.where}.{key}.{n}") for n, v in self.mapping(key).items()}
