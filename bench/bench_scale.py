"""What saturates first on 1, 8, 64 and 512 GPUs: `python bench/bench_scale.py [--out FOLDER] [--quick]`.

10 000 shapes of one kernel, 50 configurations each, simulated event by event: drivers ask and tell in order, hosts of
8 GPUs and 128 cores build, GPUs measure, a store takes rows. What a driver takes is measured here on the real search
and the real store, without a device; so are composing a job, merging stores and writing tables. What a device and a
compiler take is recorded (results/h200/spaces, results/h200/throughput.csv), and what a PostgreSQL server takes is an
argument (`bench/bench_store.py` measures it).

`--check` holds the simulation against the real driver with pretended devices, which sleep.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scale_checks import check, check_recorded
from scale_driver import driver
from scale_table import ARRANGEMENTS, Arrangement, at_scale, costs_of, table

from sweeper.atomic import atomic_write

SCALES = (1, 8, 64, 512)
# What 8 drivers wrote together into one PostgreSQL 15 server that shared two busy cores with them
# (`bench/bench_store.py`), and what is assumed of a server that has a machine to itself.
POSTGRESQL_ROWS_PER_S = (73.0, 1000.0)
# To make a row durable on a host with a GPU and a disk of its own: results/h200/rungs-large/run.json, register_tile.
STORE_MS = 1.9


def main(given: Sequence[str] | None = None) -> None:
    """Measure the driver, simulate every arrangement at every scale, and print the table; `given` is a command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--search", default="guided")
    parser.add_argument("--space", default="register_tile-2048.csv.gz", help="recorded seconds")
    parser.add_argument(
        "--postgresql",
        type=float,
        nargs="*",
        default=POSTGRESQL_ROWS_PER_S,
        metavar="ROWS/S",
        help="what servers take",
    )
    parser.add_argument(
        "--store-ms", type=float, default=STORE_MS, help="a row into a file of the host's own"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer rows and studies")
    parser.add_argument("--out", type=Path, help="folder for scale.md, scale.csv and scale.json")
    chosen = parser.parse_args(given)
    began = datetime.now(UTC)
    own = driver(chosen.search, rows=(100,) if chosen.quick else (300,), repeat=1 if chosen.quick else 3)
    rows, used = [], {}
    servers = [
        Arrangement(f"a driver a GPU, one PostgreSQL server that takes {rate:g} rows/s", 1, rows_per_s=rate)
        for rate in chosen.postgresql
    ]
    for one in (*ARRANGEMENTS, *servers):
        costs = costs_of(one, own, chosen.space, chosen.store_ms / 1e3)
        used[one.name] = costs
        for gpus in SCALES[:2] if chosen.quick else SCALES:
            rows.append(at_scale(one, gpus, costs, own, most=20 if chosen.quick else 200))
            print(rows[-1], flush=True)
    checked = check(chosen.search, points=60 if chosen.quick else 200) if chosen.check else []
    recorded = check_recorded()
    text = table(rows, own, checked, recorded, chosen.search, chosen.store_ms)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        atomic_write(chosen.out / "scale.md", text.encode())
        with (chosen.out / "scale.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        from sweeper.provenance import run_record

        record = run_record(
            command=["python", "bench/bench_scale.py", *(given if given is not None else sys.argv[1:])],
            config={k: str(v) for k, v in vars(chosen).items()},
            started=began,
            facts={
                "driver": {**asdict(own), "by_rows": {str(k): v for k, v in own.by_rows.items()}},
                "costs": {one.name: asdict(used[one.name]) for one in (*ARRANGEMENTS, *servers)},
                "check": checked,
                "check_recorded": recorded,
            },
        )
        atomic_write(chosen.out / "scale.json", (json.dumps(record, indent=2, default=str) + "\n").encode())


if __name__ == "__main__":
    main()
