"""Tables of shapes from several runs as one: `python bench/shapes_merge.py INTO NAME FIRST LATER…`.

    python bench/shapes_merge.py results/h200/shapes bf16-shapes results/h200/shapes/bf16-shapes /tmp/res/bf16-more

FIRST and LATER are tables that `bench_shapes.py` wrote, without their endings. A shape that several have is the
last one's, with all its rungs; one that a later run had no time for, or failed at, stays as it was. A parameter that
a kernel got since an earlier run stands in that run's rows at its default, which leaves the kernel as it was then.
Shapes come in the order of `shapes_data.py`, others after them. NAME.json holds the provenance of each run, the first
one's first.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shapes_data import FAMILIES
from shapes_table import save

from sweeper.check.compose import Composer
from sweeper.model import KernelSpec

__all__ = ["main"]


def merged(tables: Sequence[list[dict[str, Any]]], taken: Sequence[set[str]]) -> list[dict[str, Any]]:
    """Rows of each table for the shapes that are `taken` from it."""
    return [
        row for table, shapes in zip(tables, taken, strict=True) for row in table if row["shape"] in shapes
    ]


def completed(rows: Sequence[dict[str, Any]], composer: Composer) -> list[dict[str, Any]]:
    """`rows` with every parameter that their kernels have now; those of a kernel that is gone as they are."""
    specs: dict[str, KernelSpec] = {}
    for name in {row["kernel"] for row in rows} & set(composer.kernels):
        (specs[name], _) = composer.compose([f"kernel={name}"])
    found = []
    for row in rows:
        spec = specs.get(row["kernel"])
        if spec is not None and row["params"]:
            params = spec.point_of(json.loads(row["params"])).params
            row = {**row, "params": json.dumps(dict(sorted(params.items())))}  # noqa: PLW2901
        found.append(row)
    return found


def _read(path: Path) -> list[dict[str, Any]]:
    """Rows as they were before they were written: numbers where they are numbers, None for nothing."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _runs(path: Path) -> list[dict[str, Any]]:
    record = json.loads(path.read_text(encoding="utf-8"))
    return list(record["runs"]) if "runs" in record else [record]


def main(given: Sequence[str] | None = None) -> int:
    """Merge them; ends with 2 where a table is not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("into", type=Path)
    parser.add_argument("name")
    parser.add_argument("tables", nargs="+", help="NAME with its folder, the earliest first")
    chosen = parser.parse_args(given)
    try:
        parts = {
            ending: [_read(Path(f"{table}{ending}.csv")) for table in chosen.tables]
            for ending in ("", "-rungs", "-searched")
        }
        runs = [run for table in chosen.tables for run in _runs(Path(f"{table}.json"))]
    except OSError as error:
        parser.error(str(error))
    taken: list[set[str]] = []
    later: set[str] = set()
    for rows in reversed(parts[""]):
        # What has a time, or nobody after it knows better.
        here = {row["shape"] for row in rows if row["kernel"]} - later
        taken.insert(0, here)
        later |= here
    for place, rows in enumerate(parts[""]):
        unknown = {row["shape"] for row in rows} - later
        taken[place] |= unknown
        later |= unknown
    family = FAMILIES[parts[""][0][0]["dtype"]]
    order = {shape: place for place, shape in enumerate(family.shapes)}
    with Composer() as composer:
        tables = [completed(merged(parts[ending], taken), composer) for ending in ("", "-rungs", "-searched")]
    for table in tables:
        table.sort(key=lambda row: order.get(row["shape"], len(order)))
    save(chosen.into, chosen.name, *tables, {"runs": runs})
    print(f"{len(tables[0])} shapes: {', '.join(str(len(shapes)) for shapes in taken)} from each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
