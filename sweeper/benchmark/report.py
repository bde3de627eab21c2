"""A benchmark's tables and charts: `benchmark.md`, `benchmark.csv`, and two SVG files a space."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from sweeper.atomic import atomic_write
from sweeper.benchmark.chart import chart
from sweeper.benchmark.figures import Curves
from sweeper.benchmark.plan import CHECKPOINTS, BenchmarkConfig

__all__ = ["table", "write_report"]

_COLUMNS = ("space", "strategy", "seeds", "evaluations", "median", "p10", "p90", "seconds", "score")


def write_report(folder: Path, spaces: Sequence[Sequence[Curves]], config: BenchmarkConfig) -> list[Path]:
    """Write all files into `folder` and say which. Raises StorageError."""
    written = {"benchmark.md": _markdown(spaces, config), "benchmark.csv": _csv(spaces)}
    for curves in spaces:
        if not curves:
            continue
        best = sorted(curves, key=lambda one: -one.score)
        written[f"{curves[0].space}.svg"] = chart(best)
        if not any(math.isnan(float(one.seconds[-1])) for one in curves):
            written[f"{curves[0].space}-seconds.svg"] = chart(best, against="seconds")
    paths = []
    for name, text in written.items():
        atomic_write(folder / name, text.encode())
        paths.append(folder / name)
    return paths


def table(curves: Sequence[Curves]) -> str:
    """One space as a Markdown table, the best score first: median and 10th percentile at each checkpoint."""
    count = curves[0].runs.shape[1]
    points = [at for at in CHECKPOINTS if at <= count] or [count]
    lines = [
        f"| {curves[0].space} | {' | '.join(f'@{at}' for at in points)} | score | s to @{points[-1]} |",
        f"|---|{'---|' * len(points)}---|---|",
    ]
    for one in sorted(curves, key=lambda one: -one.score):
        median, low = one.median, one.percentile(10)
        cells = " | ".join(f"{median[at - 1]:.1f} ({low[at - 1]:.1f})" for at in points)
        seconds = float(one.seconds[points[-1] - 1])
        spent = "" if math.isnan(seconds) else f"{seconds:.0f}"
        lines.append(f"| {one.strategy} | {cells} | {one.score:.3f} | {spent} |")
    return "\n".join(lines)


def _markdown(spaces: Sequence[Sequence[Curves]], config: BenchmarkConfig) -> str:
    head = (
        "Percent of the best recorded speed after so many evaluations: median over the seeds, in brackets the 10th"
        " percentile.\nThe score is the share of what random search leaves to be gained that a search gains, mean"
        " over all evaluations.\nSeconds are those that the recording spent on the configurations asked: compiling,"
        f" verifying and timing.\n\nSeeds: {config.seeds}; asked ahead: {config.lookahead}"
        " (Kernel Tuner: 1).\n"
    )
    return "\n\n".join([head, *(table(curves) for curves in spaces if curves)]) + "\n"


def _csv(spaces: Sequence[Sequence[Curves]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for curves in spaces:
        for one in curves:
            median, low, high = one.median, one.percentile(10), one.percentile(90)
            for place in range(one.runs.shape[1]):
                seconds = float(one.seconds[place])
                writer.writerow([
                    one.space, one.strategy, len(one.runs), place + 1, f"{median[place]:.3f}", f"{low[place]:.3f}",
                    f"{high[place]:.3f}", "" if math.isnan(seconds) else f"{seconds:.3f}", f"{one.score:.4f}",
                ])  # fmt: skip
    return text.getvalue()
