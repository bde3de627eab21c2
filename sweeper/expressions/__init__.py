"""Expressions of a description: parsed from a whitelisted syntax, evaluated on values or whole columns."""

from __future__ import annotations

from sweeper.expressions.expression import (
    Expression,
    Value,
    parse,
)

__all__ = [
    "Expression",
    "Value",
    "parse",
]
