"""Trials as tables: pandas frames, CSV with a fixed schema, and the best of them."""

from __future__ import annotations

from sweeper.table.table import (
    COLUMNS,
    Column,
    best,
    best_per_shape,
    csv_bytes,
    frame,
    rankable,
    read_csv,
    status_counts,
    write_csv,
)

__all__ = [
    "COLUMNS",
    "Column",
    "best",
    "best_per_shape",
    "csv_bytes",
    "frame",
    "rankable",
    "read_csv",
    "status_counts",
    "write_csv",
]
