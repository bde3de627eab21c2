"""Best so far against evaluations or seconds, drawn as SVG: one line a strategy, a band for the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from sweeper.benchmark.figures import Curves

__all__ = ["chart"]

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 200, 40, 50
_COLOURS = (
    "#0b6e4f", "#c1121f", "#1d4e89", "#e07a00", "#6a4c93", "#8d6e63", "#00838f", "#ad1457", "#607d8b", "#9e9d24",
    "#455a64", "#ef6c00",
)  # fmt: skip
_LEAST = 40.0


def chart(curves: Sequence[Curves], *, against: str = "evaluations") -> str:
    """An SVG document; `against` is `evaluations` or `seconds`. The first strategy has its 10 to 90 % band."""
    steps = {one.strategy: _steps(one, against) for one in curves}
    right = max((float(x[-1]) for x in steps.values() if len(x)), default=1.0) or 1.0
    title = f"{curves[0].space}: percent of the best speed, median of {len(curves[0].runs)} seeds"
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
        *_axes(right, against),
    ]
    for place, one in enumerate(curves):
        colour, xs = _COLOURS[place % len(_COLOURS)], steps[one.strategy]
        if place == 0:
            low, high = one.percentile(10), one.percentile(90)
            there = _points(xs, high, right)
            back = _points(xs[::-1], low[::-1], right)
            lines.append(f'<polygon points="{there} {back}" fill="{colour}" opacity="0.15"/>')
        width = 2.5 if place == 0 else 1.3
        lines.append(
            f'<polyline points="{_points(xs, one.median, right)}" fill="none" stroke="{colour}" '
            f'stroke-width="{width}"/>'
        )
        y = _TOP + 14 + 17 * place
        x = _WIDTH - _RIGHT + 12
        lines.append(f'<rect x="{x}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 20}" y="{y - 3}">{escape(one.strategy)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _steps(one: Curves, against: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if against == "seconds":
        return np.asarray(one.seconds, dtype=np.float64)
    return np.arange(1, one.runs.shape[1] + 1, dtype=np.float64)


def _axes(right: float, against: str) -> list[str]:
    lines = []
    for percent in range(int(_LEAST), 101, 10):
        y = _y(percent)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
    for part in range(5):
        value = right * part / 4
        x = _x(value, right)
        lines.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:.0f}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(against)}</text>')
    return lines


def _points(xs: np.ndarray[tuple[int], np.dtype[np.float64]], ys: object, right: float) -> str:
    values = np.asarray(ys, dtype=np.float64)
    return " ".join(
        f"{_x(x, right):.1f},{_y(y):.1f}" for x, y in zip(xs.tolist(), values.tolist(), strict=True)
    )


def _x(value: float, right: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(value / right, 1.0)


def _y(percent: float) -> float:
    share = (max(percent, _LEAST) - _LEAST) / (100 - _LEAST)
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share
