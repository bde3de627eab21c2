"""What a store takes a second, and what it keeps: `python bench/bench_store.py [--out FOLDER]`.

Rates: drivers that each own a study add trials as a search does, with what is begun next in the same write and
every commit on the disk; all into one SQLite file, or into one PostgreSQL server. The rate is that of all drivers
together, from the first write to the last; beside it stands the processor time of a driver for a row, which says
more where other work keeps the machine busy.

With `--drill` four commands replay 2 000 points each into one PostgreSQL server; one is killed by SIGKILL in the
middle and started again. Then every point must be there once, and every search must have come to the same.

The server is one of its own (`initdb` and `postgres` on the path), or the one in SWEEPER_STORE_URL.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from contract.store_contract import trial  # noqa: E402
from postgresql_server import Place, server  # noqa: E402

from sweeper.model import Timing  # noqa: E402
from sweeper.store import URL_VARIABLE, Store  # noqa: E402

SAMPLES = tuple(1.0 + i / 1000 for i in range(30))
SPACE = ROOT / "results" / "h200" / "spaces" / "register_tile-2048.csv.gz"
DRILL = [
    "kernel=register_tile", "shape=2048x2048x2048", "kernel.params.bm=[16,32,48,64,96,128]",
    "kernel.params.bn=[16,32,48,64,96,128,192,256]", "kernel.params.tm=[2,3,4,6,8]",
    "kernel.params.tn=[2,3,4,6,8]", "search=random", "search.budget=1000", "backend=replay",
    f"backend.path={SPACE}", "store=postgresql",
]  # fmt: skip
DRIVERS, POINTS = 4, 2000


def drive(study: str, rows: int) -> None:
    """One driver: claim the study, say so, and on a line of input add its rows. Prints when it began and ended."""
    made = trial(timing=Timing(SAMPLES, "events", "cold"))
    with Store(os.environ[URL_VARIABLE]) as store:
        store.claim(study)
        print("ready", flush=True)
        sys.stdin.readline()
        began, used = time.time(), time.process_time()
        for number in range(1, rows + 1):
            params = {"tile": number, "vector": 4}
            one = replace(made, study=study, context=study, number=number, params=params)
            store.add(one, begun=[{"tile": number + 1, "vector": 4}])
        print(began, time.time(), time.process_time() - used, flush=True)


def rate(url: str, drivers: int, rows: int) -> dict[str, Any]:
    """Rows a second of so many drivers together, and a driver's processor time for a row."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--study", f"{drivers} drivers, {i}", "--rows", str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, URL_VARIABLE: url},
        )
        for i in range(drivers)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    times = [tuple(map(float, child.communicate()[0].split())) for child in children]
    seconds = max(t[1] for t in times) - min(t[0] for t in times)
    used = sum(t[2] for t in times)
    return {
        "drivers": drivers,
        "rows_per_s": round(drivers * rows / seconds, 1),
        "cpu_ms_per_row": round(1000 * used / (drivers * rows), 2),
    }


@contextlib.contextmanager
def postgresql() -> Iterator[Place]:
    if os.environ.get(URL_VARIABLE):
        yield Place(os.environ[URL_VARIABLE])
    else:
        with server(durable=True) as own:
            yield own


def rates(drivers: Sequence[int], rows: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in drivers:
            found.append({"store": "sqlite", **rate(f"sqlite:///{folder}/{count}/study.db", count, rows)})
            print(found[-1])
    with postgresql() as place:
        for count in drivers:
            url = place.database(f"rates_{count}_{os.getpid()}")
            found.append({"store": "postgresql", **rate(url, count, rows)})
            print(found[-1])
    return found


def command(seeds: Sequence[int], folder: Path, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sweeper",
            "-m",
            *DRILL,
            f"seed={','.join(map(str, seeds))}",
            f"results_dir={folder}",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, URL_VARIABLE: url},
    )


def drill() -> dict[str, Any]:
    """Four commands, one of which is killed and started again. Raises AssertionError for a row lost or doubled."""
    with postgresql() as place, tempfile.TemporaryDirectory() as folder:
        name = f"drill_{os.getpid()}"
        url = place.database(name)
        with Store(url):
            pass
        seeds = [(2 * i + 1, 2 * i + 2) for i in range(DRIVERS)]
        began = time.monotonic()
        running = [command(own, Path(folder) / str(i), url) for i, own in enumerate(seeds)]
        # The first driver's first study is in the middle: a third of its rows are there.
        while place.execute(f"SELECT count(*) FROM trials WHERE seed = '{seeds[0][0]}'", name)[0][0] < 350:  # noqa: S608
            assert running[0].poll() is None, "the driver ended too soon"
            time.sleep(0.01)
        running[0].kill()
        running[0].wait()
        killed_at = place.execute("SELECT count(*) FROM trials", name)[0][0]
        running[0] = command(seeds[0], Path(folder) / "0", url)
        codes = [child.wait() for child in running]
        seconds = time.monotonic() - began
        assert codes == [0] * DRIVERS, codes
        per_study = place.execute(
            "SELECT study, count(*), count(DISTINCT params_key), max(number) FROM trials WHERE role = 'candidate'"
            " GROUP BY study",
            name,
        )
        wanted = POINTS // 2
        assert len(per_study) == 2 * DRIVERS, per_study
        assert all(tuple(row[1:]) == (wanted, wanted, wanted) for row in per_study), per_study
        with Store(url) as store:
            results = {
                study: {
                    t.point.key: (t.status, t.timing and t.timing.samples_ms) for t in store.trials(study)
                }
                for study, *_ in per_study
            }
        first = next(iter(results.values()))
        assert all(one == first for one in results.values())
        lines = [len((Path(folder) / str(i) / "trials.csv").read_text().splitlines()) for i in range(DRIVERS)]
        assert lines == [POINTS + 1] * DRIVERS, lines
        return {
            "drivers": DRIVERS,
            "points": DRIVERS * POINTS,
            "rows": sum(row[1] for row in per_study),
            "doubled": 0,
            "killed_after_rows": killed_at,
            "seconds": round(seconds, 1),
        }


def table(found: Sequence[dict[str, Any]]) -> str:
    drivers = sorted({row["drivers"] for row in found})
    lines = [
        "| rows/s (processor time of a row) | "
        + " | ".join(f"{n} driver{'s' * (n > 1)}" for n in drivers)
        + " |"
    ]
    lines.append("|---|" + "---|" * len(drivers))
    for kind in ("sqlite", "postgresql"):
        cells = [
            f"{r['rows_per_s']:,.0f} ({r['cpu_ms_per_row']:.1f} ms)"
            for n in drivers
            for r in found
            if (r["store"], r["drivers"]) == (kind, n)
        ]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the rates of the stores, or what the drill found, and write them where `--out` says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drivers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rows", type=int, default=500, help="rows a driver (default 500)")
    parser.add_argument("--drill", action="store_true", help="the drill alone")
    parser.add_argument(
        "--out", type=Path, help="write store.csv and store.md, or drill.json, into this folder"
    )
    parser.add_argument("--study", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.study:
        drive(options.study, options.rows)
        return
    if options.drill:
        told = json.dumps(drill(), indent=2)
        print(told)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "drill.json").write_text(told + "\n", encoding="utf-8")
        return
    found = rates(options.drivers, options.rows)
    print(table(found))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "store.md").write_text(table(found) + "\n", encoding="utf-8")
        with (options.out / "store.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
