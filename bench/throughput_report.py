"""The table that `bench_throughput.py` writes: medians, ratios to Kernel Tuner, and where the time went."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.provenance import write_json

__all__ = ["summary", "write"]

COLUMNS = (
    "points", "repetition", "part", "gpus", "seconds", "process_seconds", "configurations_per_s", "valid",
    "best_ms", "best", "device_busy_share", "waiting_for_builds_s", "compile_s", "device_s", "search_s", "store_s",
    "phases",
)  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table: medians over repetitions, and the ratio to Kernel Tuner with its spread."""
    titles = [
        "points", "run", "configurations a second", "× Kernel Tuner (least to most)", "best, ms", "valid",
        "device busy", "s waiting for builds", "s searching and storing",
    ]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for points in dict.fromkeys(row["points"] for row in rows):
        ofs = [row for row in rows if row["points"] == points]
        theirs = {row["repetition"]: row["configurations_per_s"] for row in ofs if row["part"] == "kt"}
        for part in dict.fromkeys(row["part"] for row in ofs):
            own = [row for row in ofs if row["part"] == part]
            ratios = sorted(
                row["configurations_per_s"] / theirs[row["repetition"]]
                for row in own
                if row["repetition"] in theirs
            )
            middle = {
                name: statistics.median(row[name] for row in own)
                for name in ("configurations_per_s", "device_busy_share", "waiting_for_builds_s", "best_ms")
            }
            spread = f" ({ratios[0]:.2f} to {ratios[-1]:.2f})" if len(ratios) > 1 else ""
            said = f"{statistics.median(ratios):.2f}{spread}" if ratios else ""
            loop = statistics.median(row["search_s"] + row["store_s"] for row in own)
            lines.append(
                f"| {points} | {_title(part)} | {middle['configurations_per_s']:.2f} | {said}"
                f" | {middle['best_ms']:.4f} | {min(row['valid'] for row in own)}"
                f" | {100 * middle['device_busy_share']:.0f} % | {middle['waiting_for_builds_s']:.2f} | {loop:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _title(part: str) -> str:
    return {
        "kt": "Kernel Tuner (nvcc through PyCUDA, one at a time, nothing verified)",
        "nvcc": "nvcc, cold cache",
        "nvrtc": "nvrtc, cold cache",
        "warm": "warm cache",
        "early": "nvrtc, cold cache, early stop",
        "shipped": "nvrtc, cold cache, default protocol",
        "nvrtc2": "nvrtc, cold cache, 2 GPUs",
        "warm2": "warm cache, 2 GPUs",
    }.get(part, part)


def write(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any], folder: Path, name: str) -> None:
    """`name`.csv, .json and .md in `folder`, of all `rows` there are so far."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        lines.writeheader()
        lines.writerows(
            {**row, "best": json.dumps(row["best"]), "phases": json.dumps(row["phases"])} for row in rows
        )
    write_json(record, folder / f"{name}.json")
    (folder / f"{name}.md").write_text(summary(rows), encoding="utf-8")
