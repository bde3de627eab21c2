"""How right the clock is: `python bench/bench_timing.py [--part spin,ncu,spread,searches] [--out FOLDER]`.

Four parts, on GPU 0, in two minutes together:

- `spin`: kernels that spin for a known time, by the global timer and by the SM's clock, 2 µs to 10 ms; right
  within 2 % or 0.5 µs, less what a kernel of no length takes;
- `ncu`: our times of shipped GEMM kernels beside Nsight Compute's durations; right within 2 %;
- `spread`: the same two configurations in fresh processes, as a search measures them;
- `searches`: two searches of one space in different orders; how alike they rank its configurations.

Writes timing_PART.csv and one timing.json and timing.md for all into FOLDER (results/h200/timing). Ends with 3
where there is no GPU, 1 where a part is not right or fails.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.device.present import why_no_gpu
from sweeper.errors import SweeperError

Rows = list[dict[str, Any]]


def _spin(_given: argparse.Namespace, _cache: Path) -> tuple[Rows, dict[str, Any]]:
    from timing_spin import spin_rows

    rows = spin_rows()
    timed = [row for row in rows if "within" in row]
    worst = max(timed, key=lambda row: abs(row["net_error_us"]) / max(0.5, 0.02 * row["known_us"]))
    return rows, {
        "right": len(timed) == len(rows) and all(row["within"] for row in timed),
        "timed": len(timed),
        "worst": {name: worst[name] for name in ("kernel", "known_us", "method", "net_error_us")},
    }


def _ncu(_given: argparse.Namespace, cache: Path) -> tuple[Rows, dict[str, Any]]:
    from timing_gemm import ncu_rows

    rows = ncu_rows(cache)
    judged = [row for row in rows if row["within"] is not None]
    return rows, {
        "right": all(row["within"] for row in judged),
        "judged": len(judged),
        "worst_percent": max((row["percent"] for row in judged), key=abs),
    }


def _spread(given: argparse.Namespace, cache: Path) -> tuple[Rows, dict[str, Any]]:
    from timing_gemm import spread_rows

    rows = spread_rows(cache, given.processes)
    told: dict[str, Any] = {}
    for case in dict.fromkeys(row["case"] for row in rows):
        medians = [row["median_us"] for row in rows if row["case"] == case]
        middle = statistics.median(medians)
        told[case] = {
            "median_us": middle,
            "between_std_percent": round(100 * statistics.stdev(medians) / middle, 4),
            "between_range_percent": round(100 * (max(medians) - min(medians)) / middle, 4),
            "within_iqr_percent": statistics.median(
                row["iqr_percent"] for row in rows if row["case"] == case
            ),
        }
    return rows, told


def _searches(given: argparse.Namespace, _cache: Path) -> tuple[Rows, dict[str, Any]]:
    from timing_searches import agreement, search_times

    first, second = (search_times(seed, given.shape, given.measure) for seed in (1, 2))
    rows = [
        {"params": key, "first_ms": first[key][0], "second_ms": second[key][0]}
        for key in sorted(set(first) & set(second), key=lambda key: first[key][0])
    ]
    return rows, {"shape": given.shape, "measure": given.measure, **agreement(first, second)}


PARTS: Mapping[str, Callable[[argparse.Namespace, Path], tuple[Rows, dict[str, Any]]]] = {
    "spin": _spin,
    "ncu": _ncu,
    "spread": _spread,
    "searches": _searches,
}


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(str(row.get(name, '')) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _save(folder: Path, part: str, rows: Rows, told: Mapping[str, Any]) -> None:
    """The part's own table, and its place in the files of all parts, which keep what others wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / f"timing_{part}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    whole = folder / "timing.json"
    known = json.loads(whole.read_text()) if whole.exists() else {}
    known[part] = {"summary": told, "rows": rows}
    whole.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    sections = [
        f"## {name}\n\n```json\n{json.dumps(known[name]['summary'], indent=1, ensure_ascii=False)}\n```\n\n"
        + _table(known[name]["rows"] if name != "searches" else known[name]["rows"][:25])
        for name in PARTS
        if name in known
    ]
    head = (
        "# How right the clock is\n\nWritten by `bench/bench_timing.py`, which says what each part does.\n\n"
    )
    (folder / "timing.md").write_text(head + "\n\n".join(sections) + "\n")


def main() -> int:
    """Write what each part finds. Gives 0, 1 where a part failed or the clock is wrong, 3 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("results/h200/timing"))
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--shape", default="1024x1024x1024")
    parser.add_argument("--measure", default="default")
    given = parser.parse_args()
    parts = given.part.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(PARTS)}")
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: clocks are judged on a GPU", file=sys.stderr)
        return 3
    wrong = []
    with tempfile.TemporaryDirectory(prefix="timing-") as cache:
        for part in parts:
            began = time.monotonic()
            try:
                rows, told = PARTS[part](given, Path(cache))
            except SweeperError as error:
                print(f"{part}: {error}", file=sys.stderr)
                wrong.append(part)
                continue
            _save(given.out, part, rows, told)
            if told.get("right") is False:
                wrong.append(part)
            print(
                f"{part}: {time.monotonic() - began:.1f} s, {json.dumps(told, ensure_ascii=False)}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
