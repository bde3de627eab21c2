"""A comparison as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from sweeper.compare.api import Change, Compared, Comparison
from sweeper.compare.row import Row
from sweeper.statistics import RatioInterval, Verdict

__all__ = ["COLUMNS", "FORMATS", "csv_cell", "render", "summary_lines"]

FORMATS = ("text", "md", "csv", "json")
_WIDTH = 100
_WHAT = 44
_USUAL_DTYPE = "float32"
_ORDER = {Verdict.SLOWER: 0, Verdict.FASTER: 1, Verdict.UNSURE: 2, Verdict.SAME: 3}

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("verdict", "", "faster, slower, same, unsure; worse, mended, changed; unlike, only_a, only_b"),
    ("too_slow", "", "true where it is surely slower than --fail-on-slower, for all rows at once"),
    ("kernel", "", "the kernel's name, or the library's"),
    ("dtype", "", "precision class"),
    ("shape", "", "the shape's name, or its sizes"),
    ("role", "", "candidate, or baseline for a library's kernel"),
    ("cache", "", "cold or warm L2 before each sample"),
    ("time_source", "", "measured, predicted or replayed"),
    ("a_ms", "ms", "median time in A"),
    ("b_ms", "ms", "median time in B"),
    ("ratio", "", "time in B / time in A"),
    ("low", "", "lower end of the ratio's 95 % interval, for this row alone"),
    ("high", "", "upper end of the ratio's 95 % interval"),
    ("chance", "", "p-value of no difference, adjusted for all rows"),
    ("status_a", "", "how it ended in A"),
    ("status_b", "", "how it ended in B"),
    ("reason", "", "why it failed, or why it does not compare"),
    ("dims", "", "every size of the problem, as JSON"),
    ("params_a", "", "every parameter in A, as JSON"),
    ("params_b", "", "every parameter in B, as JSON"),
    ("study_a", "", "the study in A"),
    ("trial_a", "", "number within that study"),
    ("study_b", "", "the study in B"),
    ("trial_b", "", "number within that study"),
)
"""The columns of the CSV and the keys of a row in JSON: name, unit, meaning."""


def render(comparison: Comparison, form: str, top: int | None = None) -> str:
    """`comparison` in one of `FORMATS`, without a line break at its end; text and Markdown show `top` rows."""
    if form == "csv":
        return _csv(comparison)
    if form == "json":
        return _json(comparison)
    return _markdown(comparison, top) if form == "md" else _text(comparison, top)


def summary_lines(comparison: Comparison) -> list[str]:
    """What came of it: counts, the mean, what changed its status, what has no counterpart."""
    counts = comparison.counts()
    lines = []
    if comparison.rows:
        counted = ", ".join(f"{counts[one]} {one.value.upper()}" for one in _ORDER)
        lines.append(f"{_plural(len(comparison.rows), 'row')}: {counted}")
    if comparison.mean is not None:
        of = (
            ""
            if comparison.mean.blocks == len(comparison.rows)
            else f" of the {comparison.mean.blocks} with an interval"
        )
        lines.append(f"geometric mean of B / A{of}: {_interval(comparison.mean)}")
    lines += [line for line in (_changes(comparison), _sides(comparison), _again(comparison)) if line]
    if comparison.settings.threshold is not None:
        limit = f"{100 * comparison.settings.threshold:g} %"
        slow = len(comparison.too_slow)
        lines.append(
            f"{_plural(slow, 'row is', 'rows are')} surely more than {limit} slower"
            if slow
            else f"no row is surely more than {limit} slower"
        )
    return lines


def _changes(comparison: Comparison) -> str:
    worse, mended = len(comparison.worse), sum(change.mended for change in comparison.changes)
    other = len(comparison.changes) - worse - mended
    told = [
        (worse, "valid in A, failed in B"),
        (mended, "failed in A, valid in B"),
        (other, "failed otherwise"),
    ]
    if comparison.failed:
        told.append((comparison.failed, "failed alike"))
    return "; ".join(f"{count} {what}" for count, what in told if count)


def _sides(comparison: Comparison) -> str:
    told = [
        (len(comparison.only_a), "only in A"),
        (len(comparison.only_b), "only in B"),
        (len(comparison.unlike), "in both, not compared"),
    ]
    return "; ".join(f"{count} {what}" for count, what in told if count)


def _again(comparison: Comparison) -> str:
    told = [f"{count} in {side}" for count, side in zip(comparison.again, "AB", strict=True) if count]
    return f"measured again, the latest row counts: {', '.join(told)}" if told else ""


def _plural(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _text(comparison: Comparison, top: int | None) -> str:
    lines = [f"A: {comparison.a}", f"B: {comparison.b}"]
    for line in comparison.differences:
        lines += textwrap.wrap(f"  {line}", _WIDTH, subsequent_indent="    ")
    lines += _prediction(comparison)
    shown, left = _shown(comparison, top)
    if shown:
        head = f"{'':8}{'':{_WHAT}}  {'A':>9}  {'B':>9}  {'B / A':>6}  {'95 % interval':>15}"
        lines += ["", head.rstrip(), *(line for row in shown for line in _row_lines(row))]
        lines += (
            [f"… {_plural(left, 'more row')}: --top {len(comparison.rows)}, or --format csv"] if left else []
        )
    lines += _change_lines(comparison, top)
    lines += [""]
    for line in summary_lines(comparison):
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _prediction(comparison: Comparison) -> list[str]:
    predicted = any(row.a.source == "predicted" for row in comparison.rows)
    return ["  times are predicted by the static model, and exact"] if predicted else []


def _shown(comparison: Comparison, top: int | None) -> tuple[list[Compared], int]:
    """The rows by verdict, the largest difference first."""
    ordered = sorted(
        comparison.rows,
        key=lambda row: (not row.too_slow, _ORDER[row.verdict], -abs(math.log(row.ratio.ratio))),
    )
    count = len(ordered) if top is None else top
    return ordered[:count], len(ordered) - len(ordered[:count])


def _row_lines(row: Compared) -> Iterator[str]:
    what = textwrap.wrap(_what(row.a, row.cache), _WHAT, subsequent_indent="  ") or [""]
    if row.changed:
        other = "" if row.a.kernel == row.b.kernel else f"{row.b.kernel} "
        what += textwrap.wrap(f"→ {other}{row.b.point}", _WHAT, initial_indent="  ", subsequent_indent="    ")
    yield (
        f"{row.verdict.value.upper():8}{what[0]:{_WHAT}}  {_ms(row.a_ms):>9}  {_ms(row.b_ms):>9}"
        f"  {row.ratio.ratio:6.3f}  {_bounds(row):>15}"
    )
    for line in what[1:]:
        yield f"{'':8}{line}"


def _bounds(row: Compared) -> str:
    if row.ratio.exact:
        return "exact"
    low, high = row.interval.low, row.interval.high
    return "too few samples" if math.isnan(low) else f"{low:.3f} to {high:.3f}"


def _what(row: Row, cache: str) -> str:
    dtype = "" if row.dtype in ("", _USUAL_DTYPE) else f" {row.dtype}"
    params = "" if row.role == "baseline" or not row.params else f" {row.point}"
    return f"{row.kernel} {row.shape}{dtype}{params}" + ("" if cache in ("", "cold") else f" ({cache})")


def _ms(value: float) -> str:
    """Four significant digits with the unit that suits."""
    for factor, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} ns"


def _interval(interval: RatioInterval) -> str:
    if math.isnan(interval.low):
        return f"{interval.ratio:.4f}, without an interval: too few samples"
    if interval.low == interval.high:
        return f"{interval.ratio:.4f}, exact"
    return f"{interval.ratio:.4f} ({interval.low:.4f} to {interval.high:.4f})"


def _change_lines(comparison: Comparison, top: int | None) -> list[str]:
    lines: list[str] = []
    count = len(comparison.changes) if top is None else top
    for change in sorted(comparison.changes, key=lambda change: not change.worse)[:count]:
        text = f"{_kind(change).upper():8}{_what(change.a, '')}: {_said(change)}"
        lines += textwrap.wrap(text, _WIDTH, subsequent_indent=" " * 10)
    left = len(comparison.changes) - count
    lines += [f"… {_plural(left, 'more change')} of status"] if left > 0 else []
    for row in comparison.unlike[:top]:
        lines += textwrap.wrap(
            f"{'UNLIKE':8}{_what(row.a, '')}: {row.why}", _WIDTH, subsequent_indent=" " * 10
        )
    return ["", *lines] if lines else []


def _kind(change: Change) -> str:
    return "worse" if change.worse else "mended" if change.mended else "changed"


def _said(change: Change) -> str:
    reason = change.b.reason or change.a.reason
    return f"{change.a.status} → {change.b.status}" + (f" ({reason})" if reason else "")


def _markdown(comparison: Comparison, top: int | None) -> str:
    lines = [f"# {_cell(comparison.b)} against {_cell(comparison.a)}", ""]
    told = [*comparison.differences, *(line.strip() for line in _prediction(comparison))]
    lines += [*(f"- {_cell(line)}" for line in told), ""] if told else []
    lines += [f"{line}  " for line in summary_lines(comparison)]
    shown, left = _shown(comparison, top)
    if shown:
        lines += ["", "| verdict | what | A | B | B / A | 95 % interval |", "|---|---|---|---|---|---|"]
        for row in shown:
            what = _what(row.a, row.cache)
            other = "" if row.a.kernel == row.b.kernel else f"{row.b.kernel} "
            what += f" → {other}{row.b.point}" if row.changed else ""
            cells = [
                row.verdict.value.upper(),
                what,
                _ms(row.a_ms),
                _ms(row.b_ms),
                f"{row.ratio.ratio:.3f}",
                _bounds(row),
            ]
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
        lines += ["", f"and {_plural(left, 'more row')}"] if left else []
    if comparison.changes:
        lines += ["", "| status | what | A → B |", "|---|---|---|"]
        for change in comparison.changes:
            cells = [_kind(change).upper(), _what(change.a, ""), _said(change)]
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """A row as plain values under the names of `COLUMNS`."""
    for row in comparison.rows:
        yield {
            **_pair(row.a, row.b),
            "verdict": row.verdict.value,
            "too_slow": row.too_slow,
            "cache": row.cache,
            "a_ms": row.a_ms,
            "b_ms": row.b_ms,
            "ratio": row.ratio.ratio,
            "low": _number(row.interval.low),
            "high": _number(row.interval.high),
            "chance": row.chance,
        }
    for change in comparison.changes:
        yield {
            **_pair(change.a, change.b),
            "verdict": _kind(change),
            "reason": change.b.reason or change.a.reason,
        }
    for apart in comparison.unlike:
        yield {**_pair(apart.a, apart.b), "verdict": "unlike", "time_source": "", "reason": apart.why}
    for side in (comparison.only_a, comparison.only_b):
        for row_of in side:
            there = "a" if side is comparison.only_a else "b"
            yield {**_of_one(row_of, there), "verdict": f"only_{there}", "reason": row_of.reason}


def _pair(a: Row, b: Row) -> dict[str, Any]:
    return {**_of_one(b, "b"), **_of_one(a, "a")}


def _of_one(row: Row, side: str) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "dtype": row.dtype,
        "shape": row.shape,
        "role": row.role,
        "cache": row.cache,
        "time_source": row.source,
        "dims": dict(row.dims),
        f"{side}_ms": row.ms if row.times else None,
        f"status_{side}": row.status,
        f"params_{side}": dict(row.params),
        f"study_{side}": row.study,
        f"trial_{side}": row.trial,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _csv(comparison: Comparison) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for name, _, _ in COLUMNS])
    for record in _records(comparison):
        writer.writerow([csv_cell(record.get(name)) for name, _, _ in COLUMNS])
    return out.getvalue().rstrip("\n")


def csv_cell(value: Any) -> str:
    """Shortest text that reads back equal; mappings as JSON."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _json(comparison: Comparison) -> str:
    mean, settings = comparison.mean, comparison.settings
    content = {
        "a": comparison.a,
        "b": comparison.b,
        "differences": list(comparison.differences),
        "least_effect": settings.least_effect,
        "between_runs": settings.between_runs,
        "fail_on_slower": settings.threshold,
        "counts": {one.value: count for one, count in comparison.counts().items()},
        "worse": len(comparison.worse),
        "too_slow": len(comparison.too_slow),
        "failed_alike": comparison.failed,
        "geometric_mean": None
        if mean is None
        else {"ratio": mean.ratio, "low": _number(mean.low), "high": _number(mean.high)},
        "rows": [{name: record.get(name) for name in _names()} for record in _records(comparison)],
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _names() -> Sequence[str]:
    return [name for name, _, _ in COLUMNS]
