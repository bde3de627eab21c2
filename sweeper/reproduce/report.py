"""What a reproduction says: a line a row, a summary, and `reproduced.csv`."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.compare.report import csv_cell
from sweeper.reproduce.agreement import Agreement, Outcome
from sweeper.table.row import without_paths

__all__ = ["COLUMNS", "FILE", "summary", "text", "write"]

FILE = "reproduced.csv"
_WIDTH, _WHAT = 100, 44
_ORDER = {one: place for place, one in enumerate(("failed", "slower", "faster", "unsure", "agrees"))}

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("agreement", "", "agrees, faster, slower, unsure or failed"),
    ("kernel", "", "the kernel's name, or the library's"),
    ("dtype", "", "precision class"),
    ("shape", "", "the shape's name, or its sizes"),
    ("role", "", "candidate, or baseline for a library's kernel"),
    ("cache", "", "cold or warm L2 before each sample"),
    ("then_ms", "ms", "median time as published; of its turns, where it was confirmed in turns"),
    ("now_ms", "ms", "median time as measured now"),
    ("ratio", "", "time now / time then"),
    ("low", "", "lower end of the ratio's 95 % interval, for this row alone"),
    ("high", "", "upper end of the ratio's 95 % interval"),
    ("confirmed", "", "true where the published time is that of its turns"),
    ("then_max_error", "", "largest absolute error as published"),
    ("now_max_error", "", "largest absolute error now"),
    ("reason", "", "why it failed"),
    ("dims", "", "every size of the problem, as JSON"),
    ("params", "", "every parameter, as JSON"),
    ("then_study", "", "the study as published"),
    ("then_trial", "", "number within that study"),
    ("study", "", "the study now"),
    ("trial", "", "number within it"),
)
"""The columns of `reproduced.csv`: name, unit, meaning."""


def write(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write `reproduced.csv` into `folder`, whole or not at all. Raises StorageError."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for name, _, _ in COLUMNS])
    for outcome in outcomes:
        record = _record(outcome)
        writer.writerow([csv_cell(record[name]) for name, _, _ in COLUMNS])
    atomic_write(folder / FILE, out.getvalue().encode("utf-8", "backslashreplace"))


def _record(outcome: Outcome) -> dict[str, Any]:
    then, now, ratio = outcome.then, outcome.now, outcome.ratio
    interval = ratio.interval() if ratio is not None else None
    return {
        "agreement": outcome.agreement.value,
        "kernel": then.kernel,
        "dtype": then.dtype,
        "shape": then.shape,
        "role": then.role,
        "cache": outcome.cache,
        "then_ms": then.ms,
        "now_ms": _now_ms(outcome),
        "ratio": None if ratio is None else ratio.ratio,
        "low": None if interval is None or math.isnan(interval.low) else interval.low,
        "high": None if interval is None or math.isnan(interval.high) else interval.high,
        "confirmed": then.confirmed,
        "then_max_error": then.cells.get("max_error") or None,
        "now_max_error": None if now is None else now.cells.get("max_error") or None,
        "reason": without_paths(outcome.reason),
        "dims": dict(then.dims),
        "params": dict(then.params),
        "then_study": then.study,
        "then_trial": then.trial,
        "study": None if now is None else now.study,
        "trial": None if now is None else now.trial,
    }


def _now_ms(outcome: Outcome) -> float | None:
    now = outcome.now
    return now.times[outcome.cache].ms if now is not None and outcome.ratio is not None else None


def text(outcomes: Sequence[Outcome]) -> str:
    """A line a row, what does not agree first, in at most 100 columns."""
    ordered = sorted(outcomes, key=lambda one: (_ORDER[one.agreement.value], -_off(one)))
    head = f"{'':8}{'':{_WHAT}}  {'then':>9}  {'now':>9}  {'ratio':>6}  {'95 % interval':>15}"
    return "\n".join([head, *(line for one in ordered for line in _lines(one))])


def _off(one: Outcome) -> float:
    return abs(math.log(one.ratio.ratio)) if one.ratio is not None else math.inf


def _lines(one: Outcome) -> Iterator[str]:
    then = one.then
    params = "" if then.role == "baseline" or not then.params else f" {then.point}"
    dtype = "" if then.dtype == "float32" else f" {then.dtype}"
    cache = f" ({one.cache})" if one.cache not in ("", "cold") else ""
    what = textwrap.wrap(f"{then.kernel} {then.shape}{dtype}{params}{cache}", _WHAT, subsequent_indent="  ")
    now = _now_ms(one)
    figures = f"  {_ms(then.ms):>9}  {'' if now is None else _ms(now):>9}"
    if one.ratio is not None:
        interval = one.ratio.interval()
        bounds = (
            "too few samples" if math.isnan(interval.low) else f"{interval.low:.3f} to {interval.high:.3f}"
        )
        bounds = "exact" if one.ratio.exact else bounds
        figures += f"  {one.ratio.ratio:6.3f}  {bounds:>15}"
    yield f"{one.agreement.value.upper():8}{what[0]:{_WHAT}}{figures}".rstrip()
    for line in what[1:]:
        yield f"{'':8}{line}"
    if one.reason:
        yield from textwrap.wrap(one.reason, _WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)


def _ms(value: float) -> str:
    """Four significant digits with the unit that suits."""
    for factor, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} ns"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many rows came to what, in a line."""
    counts = Counter(one.agreement for one in outcomes)
    told = ", ".join(f"{counts[one]} {one.value.upper()}" for one in Agreement if counts[one])
    exact = all(one.ratio is not None and one.ratio.exact for one in outcomes)
    how = "; predicted and replayed times are compared exactly" if exact else ""
    return f"{len(outcomes)} row{'' if len(outcomes) == 1 else 's'}: {told}{how}"
