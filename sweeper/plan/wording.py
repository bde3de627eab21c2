"""A plan as a person reads it, within 100 columns, and as a program does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from sweeper.plan.estimate import Estimated, Seconds, Work
from sweeper.plan.spread import in_better_order, longest_first, makespan

__all__ = ["as_json", "as_text", "duration"]

_WIDTH = 100
_SHAPE, _SOURCE = 14, 20
_HEADER = ("job", "kernel", "shape", "feasible", "asked", "stored", "GPU time (9 of 10)", "by")


def duration(seconds: float) -> str:
    """`42 s`, `3.1 min`, `2.5 h`, `12 days`: two digits that count."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_two(seconds / size)} {unit}"
    return f"{_two(seconds)} s"


def _two(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def as_text(jobs: Sequence[Estimated], gpus: int | None = None, *, notes: Sequence[str] = ()) -> list[str]:
    """The lines of a plan: the jobs, the longest first, what they come to, and how long `gpus` GPUs take.

    `gpus` None: the jobs run one after another, each on its own.
    """
    rows: list[tuple[str, ...]] = [_HEADER]
    for job in longest_first(jobs):
        rows += _rows(job)
    lines = _aligned(rows) if len(rows) > 1 else []
    for job in jobs:
        if job.job.error:
            lines += wrap(f"job {job.job.number}: {job.job.error}", _WIDTH, subsequent_indent="  ")
    return [*lines, *_sums(jobs), *_wall(jobs, gpus), *notes]


def _rows(job: Estimated) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for place, work in enumerate(job.job.works):
        first = place == 0
        source = job.sources[place] if place < len(job.sources) else "no GPU"
        rows.append(
            (
                str(job.job.number) if first else "",
                _cut(work.kernel if work.dtype == "float32" else f"{work.kernel} {work.dtype}", 24),
                _cut(work.shape, _SHAPE),
                str(work.feasible),
                str(work.evaluations),
                str(work.stored) if work.stored else "",
                _time(job) if first else "",
                _cut(source, _SOURCE),
            )
        )
    return rows


def _time(job: Estimated) -> str:
    if not job.job.on_gpu:
        return "none"
    return _range(job.gpu) if job.known else "not known"


def _range(seconds: Seconds) -> str:
    return f"{duration(seconds.likely)} ({duration(seconds.low)} to {duration(seconds.high)})"


def _sums(jobs: Sequence[Estimated]) -> list[str]:
    works = [work for job in jobs for work in job.job.works]
    asked, stored = sum(w.evaluations for w in works), sum(w.stored for w in works)
    libraries, entrants = sum(w.libraries for w in works), sum(w.entrants for w in works)
    parts = [f"{_plural(len(jobs), 'job')}: {_plural(asked, 'configuration')}"]
    if stored:
        parts.append(f"{stored} of them stored already")
    if libraries:
        parts.append(_plural(libraries, "library run"))
    if entrants:
        parts.append(f"{entrants} finalists in turns")
    lines = [", ".join(parts)]
    gpu = _total(job.gpu for job in jobs)
    if not any(job.job.on_gpu for job in jobs):
        return [*lines, "no GPU is used"]
    lines.append(
        f"GPU-hours: {_hours(gpu.likely)}, between {_hours(gpu.low)} and {_hours(gpu.high)}"
        " if all estimates err the same way"
    )
    unknown = sum(not job.known for job in jobs)
    if unknown:
        lines.append(f"not counted: the launches of {_plural(unknown, 'job')}, of which nothing is known")
    return lines


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def _wall(jobs: Sequence[Estimated], gpus: int | None) -> list[str]:
    if not any(job.job.on_gpu for job in jobs):
        return []
    walls = [job.wall.likely for job in jobs]
    each = max(job.job.devices for job in jobs)
    places = 1 if gpus is None else max(1, gpus // each)
    given = makespan(walls, places)
    if places == 1:
        return [f"wall time on {_plural(each, 'GPU')}: {duration(given)}, one job after another"]
    lines = [f"wall time on {_plural(places * each, 'GPU')}: {duration(given)} in the order given"]
    best = makespan(sorted(walls, reverse=True), places)
    if best < 0.99 * given:
        lines[0] += f", {duration(best)} the longest first"
        better = in_better_order(jobs)
        if better is not None:
            took = makespan([job.wall.likely for job in better[1]], places)
            if took < 0.99 * given:
                lines.append(f"  written {better[0]}: {duration(took)}")
    return lines


def as_json(jobs: Sequence[Estimated], gpus: int | None = None) -> str:
    """The same as one JSON object; times are seconds."""
    walls = [job.wall.likely for job in jobs]
    each = max((job.job.devices for job in jobs), default=1)
    places = 1 if gpus is None else max(1, gpus // each)
    node = {
        "jobs": [_job(job) for job in longest_first(jobs)],
        "evaluations": sum(work.evaluations for job in jobs for work in job.job.works),
        "stored": sum(work.stored for job in jobs for work in job.job.works),
        "gpu_s": _three(_total(job.gpu for job in jobs)),
        "gpus": places * each,
        "wall_s": {
            "given": makespan(walls, places),
            "longest_first": makespan(sorted(walls, reverse=True), places),
        },
    }
    return json.dumps(node, indent=2, allow_nan=False)


def _job(job: Estimated) -> dict[str, Any]:
    return {
        "number": job.job.number,
        "asked": job.job.asked,
        "error": job.job.error or None,
        "gpu_s": _three(job.gpu) if job.job.on_gpu and job.known else None,
        "wall_s": _three(job.wall) if job.job.on_gpu and job.known else None,
        "studies": [
            _study(work, job.sources[place] if place < len(job.sources) else None)
            for place, work in enumerate(job.job.works)
        ],
    }


def _study(work: Work, source: str | None) -> dict[str, Any]:
    return {
        "kernel": work.kernel,
        "dtype": work.dtype,
        "shape": work.shape,
        "dims": dict(work.dims),
        "feasible": work.feasible,
        "evaluations": work.evaluations,
        "stored": work.stored,
        "libraries": work.libraries,
        "confirmed": work.entrants,
        "source": source,
    }


def _three(seconds: Seconds) -> dict[str, float]:
    return {"low": seconds.low, "likely": seconds.likely, "high": seconds.high}


def _total(parts: Any) -> Seconds:
    total = Seconds()
    for part in parts:
        total += part
    return total


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = {1, 2, 7}
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[i]) if i in left else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip()[:_WIDTH])
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _plural(count: int, what: str) -> str:
    plural = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{count} {what if count == 1 else plural}"
