"""The tables that `bench_reads.py` writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reads_tried import KIB, SIZES

from sweeper.atomic import atomic_write
from sweeper.provenance import write_json

__all__ = ["save", "summary"]

_HINTS = ("no policy", "first to leave", "rank unchanged")
_COLUMNS = (
    "bytes", "cache", "way", "kernel", "blocks", "threads", "cluster", "chunk_bytes", "stages", "segment_bytes",
    "under_way_bytes", "hint", "us", "us_low", "us_high", "gbs", "percent_of_copy", "samples",
)  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]], copy_gbs: float, large_gbs: float, large_bytes: int) -> str:
    """The best of every way at every size, and all that was tried at N = K = 4096, as Markdown."""
    large = f"that of {large_bytes >> 20} MiB in this run {large_gbs:.0f}"
    lines = ["# Reading and nothing else", ""]
    lines += [
        f"Written by `bench/bench_reads.py`, which says how. A copy moves {copy_gbs:.0f} GB/s, {large}."
    ]
    for cache in ("cold", "warm"):
        here = [row for row in rows if row["cache"] == cache]
        ways = [way for way in dict.fromkeys(row["way"] for row in here) if way != "nothing"]
        titles = ["MB", "nothing, µs", *(f"{way}, µs (% of copy)" for way in ways), "the best reader"]
        lines += ["", f"## L2 {cache}", "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        lines += [f"| {' | '.join(_size_cells(here, size, ways))} |" for size in SIZES if _of(here, size)]
    lines += ["", "## All that was tried at 33.6 MB, L2 cold", ""]
    lines += ["| reader | µs | GB/s | % of copy |", "|---|---|---|---|"]
    for row in sorted(_of(rows, SIZES[2], "cold"), key=lambda row: float(row["us"])):
        cells = [_told(row), f"{row['us']:.2f}", str(row.get("gbs", "")), str(row.get("percent_of_copy", ""))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of(rows: Sequence[Mapping[str, Any]], size: int, cache: str = "") -> list[Mapping[str, Any]]:
    return [row for row in rows if row["bytes"] == size and cache in ("", row["cache"])]


def _size_cells(rows: Sequence[Mapping[str, Any]], size: int, ways: Sequence[str]) -> list[str]:
    best = {way: _least(_of(rows, size), way) for way in (*ways, "nothing")}
    reading = [row for way, row in best.items() if way not in ("nothing", "copy")]
    cells = [f"{size / 1e6:.1f}", f"{best['nothing']['us']:.2f}"]
    cells += [f"{best[way]['us']:.2f} ({best[way]['percent_of_copy']:.1f})" for way in ways]
    return [*cells, _told(min(reading, key=lambda row: float(row["us"])))]


def _least(rows: Sequence[Mapping[str, Any]], way: str) -> Mapping[str, Any]:
    return min((row for row in rows if row["way"] == way), key=lambda row: float(row["us"]))


def _told(row: Mapping[str, Any]) -> str:
    if row["way"] == "copy":
        return "copy of half as many bytes"
    parts = [str(row["way"]), f"{row['blocks']} × {row['threads']} threads"]
    parts += [f"clusters of {row['cluster']}"] if row["cluster"] > 1 else []
    parts += [f"{row['under_way_bytes'] / KIB:.0f} KiB under way"]
    parts += [f"in pieces of {row['segment_bytes']} B"] if row["segment_bytes"] else []
    return ", ".join([*parts, _HINTS[row["hint"]]])


def save(folder: Path, rows: Sequence[Mapping[str, Any]], text: str, record: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    lines = csv.DictWriter(table, _COLUMNS, restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    atomic_write(folder / "reads.csv", table.getvalue().encode())
    atomic_write(folder / "reads.md", text.encode())
    write_json(dict(record), folder / "reads.json")
