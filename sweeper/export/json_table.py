"""The dispatch table as JSON, which says by itself how it is to be read; and its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.errors import StorageError
from sweeper.export.chosen import Chosen, Export
from sweeper.export.lookup import Answer, find

__all__ = ["FORMAT", "VERSION", "DispatchTable", "json_table", "read_table", "record"]

FORMAT = "sweeper-dispatch"
VERSION = 1

_RULE = {
    "rows": "those of the kernel, or where none is named those whose `best` is true; of the device, dtype and"
    " layout (not named: the only one; a layout: nn where there is one), with the same names of sizes",
    "exact": "the first row whose dims are equal to the sizes asked for",
    "nearest": "else the row with the least sum over the sizes of (L(size) - L(dims))^2, of equal ones the first",
    "L": "floor(65536 * log2(size)) by 16 squarings of the 32-bit mantissa, each cut to an integer; any other"
    " log2 differs only where two rows are almost equally near",
    "validity": "a configuration need not be valid at a shape where it was not measured",
}


def record(row: Chosen) -> dict[str, Any]:
    """A row as plain values."""
    return {
        "kernel": row.kernel,
        "device": row.device,
        "dtype": row.dtype,
        "layout": row.layout,
        "dims": dict(row.dims),
        "params": dict(row.params),
        "time_ms": row.time_ms,
        "time_low_ms": row.time_low_ms,
        "time_high_ms": row.time_high_ms,
        "timed": row.timed,
        "cache": row.cache,
        "library": row.library,
        "library_ratio": row.ratio,
        "verdict": row.verdict,
        "slowdown": row.slowdown,
        "best": row.best,
    }


def json_table(export: Export) -> str:
    """The table's text; equal rows give equal bytes."""
    provenances = export.provenances
    place = {one: number for number, one in enumerate(provenances)}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "lookup": _RULE,
        "units": {"time_ms": "ms", "library_ratio": "library's time / time_ms"},
        "prices": [
            {name: getattr(price, name) for name in price.__dataclass_fields__} for price in export.prices
        ],
        "provenance": [
            {name: getattr(one, name) for name in one.__dataclass_fields__} for one in provenances
        ],
    }
    rows = [{**record(row), "provenance": place[row.provenance]} for row in export.rows]
    # A row a line: what changed between two tables is seen line by line.
    lines = ",\n".join("    " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    top = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False)[:-2]
    return f'{top},\n  "rows": [\n{lines}\n  ]\n}}\n'


@dataclass(frozen=True, slots=True)
class DispatchTable:
    """A table that was read."""

    rows: Sequence[Mapping[str, Any]]
    provenance: Sequence[Mapping[str, Any]] = ()
    prices: Sequence[Mapping[str, Any]] = ()

    def lookup(
        self,
        sizes: Mapping[str, int],
        kernel: str | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        device: str | None = None,
    ) -> Answer:
        """The row for `sizes` by the table's own rule; LookupError where there is none."""
        return find(self.rows, sizes, kernel, dtype, layout, device)


def read_table(path: Path | str) -> DispatchTable:
    """The table in the file at `path`. Raises StorageError for what is none, or of another version."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise StorageError(
                f"{path}: {content['format']} of version {content['version']}; this program reads {FORMAT} of"
                f" version {VERSION}"
            )
        return DispatchTable(content["rows"], content["provenance"], content["prices"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is no dispatch table: {error}") from error
