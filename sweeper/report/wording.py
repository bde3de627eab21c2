"""Numbers and names as they are read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.report.study import Problem

__all__ = [
    "configuration",
    "count",
    "digits",
    "energy",
    "library",
    "number",
    "percent",
    "problem_title",
    "rate",
    "setting",
    "short_titles",
    "span",
    "time",
]

_LIBRARIES = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt"}
_UNITS = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))


def time(ms: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µs`, `2.683 ms`."""
    factor, unit = _unit(ms)
    return f"{digits(ms / factor)} {unit}"


def span(low: float, high: float) -> str:
    """An interval of times in one unit: `2.494 to 2.497 ms`."""
    factor, unit = _unit(high)
    return f"{digits(low / factor)} to {digits(high / factor)} {unit}"


def _unit(ms: float) -> tuple[float, str]:
    return next((each for each in _UNITS if ms >= each[0]), _UNITS[-1])


def digits(value: float, count: int = 4) -> str:
    """`count` significant digits, zeros at the end kept, never an exponent below a million."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(count - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{places}f}"


def rate(gflops: float | None) -> str:
    """GFLOP/s without the unit: `55,085`; less than ten keeps two places."""
    if gflops is None or not math.isfinite(gflops):
        return ""
    return f"{gflops:,.0f}" if gflops >= 10 else f"{gflops:.2f}"


def library(name: str) -> str:
    """A library as its makers write it: `cuBLAS` for the row called `cublas`."""
    return _LIBRARIES.get(name, name)


def percent(value: float | None) -> str:
    """One place, without the sign; empty where it is unknown."""
    return "" if value is None or not math.isfinite(value) else f"{value:,.1f}"


def energy(joules: float) -> str:
    """Four significant digits with the unit that suits: `12.31 mJ`."""
    for factor, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")):
        if joules >= factor:
            return f"{digits(joules / factor)} {unit}"
    return f"{joules:.4g} J"


def number(value: Any) -> str:
    """A level as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def count(value: int, noun: str, plural: str = "") -> str:
    """`1 configuration`, `1,681 configurations`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def configuration(params: Mapping[str, Any] | str) -> str:
    """`bm=128 bn=64`, from a mapping or its JSON."""
    values = json.loads(params) if isinstance(params, str) else params
    return " ".join(f"{name}={number(value)}" for name, value in values.items())


def problem_title(problem: Problem) -> str:
    """`large (4096³), float32, NVIDIA H200`."""
    return ", ".join(part for part in _parts(problem)[1:-1] if part)


def setting(problem: Problem) -> str:
    """As a sentence begins: `At large (4096³) in float32 on NVIDIA H200`."""
    _, size, dtype, device, _ = _parts(problem)
    return f"At {size or 'one size'}{f' in {dtype}' if dtype else ''}{f' on {device}' if device else ''}"


def short_titles(problems: Sequence[Problem]) -> list[str]:
    """What tells each of several problems from the others: its size, and of the rest what they do not share."""
    parts = [_parts(problem) for problem in problems]
    differ = [len({each[i] for each in parts}) > 1 for i in range(len(parts[0]))] if parts else []
    return [
        ", ".join(part for i, part in enumerate(each) if part and (i == _SIZE or differ[i])) for each in parts
    ]


_SIZE = 1


def _parts(problem: Problem) -> tuple[str, ...]:
    """Result, size, class, device, and where times are not measured, their source."""
    named = problem.shape.replace("x", "×")
    cube = "×".join([problem.sizes.rstrip("³")] * 3) if problem.sizes.endswith("³") else problem.sizes
    plain = not problem.sizes or named in (problem.sizes, cube)
    size = (problem.sizes or problem.shape) if plain else f"{problem.shape} ({problem.sizes})"
    source = problem.source if problem.source in ("predicted", "replayed") else ""
    return problem.result.name, size, problem.dtype, problem.device, source
