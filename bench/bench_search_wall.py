"""Wall time until a search has found the best of a recorded space, beside Kernel Tuner's: on one GPU, in turns.

    python bench/bench_search_wall.py results/h200/spaces/warp_tile-2048.csv.gz [--seeds 5] [--limit 90]

Both search the recording's own kernel, parameters and sizes, anew and on the GPU. A search has arrived once it has
measured a configuration whose recorded time is within `--within` (1 %) of the recording's best: the same yardstick
for both, whatever each measures that day. Its seconds count from the start of its process. Ours is the command
`python -m sweeper` with an empty cache of builds; it has arrived when the row is in its store, built by NVRTC and
proved right. Kernel Tuner (`kernel_tuner_live.py`) compiles with nvcc and verifies nothing; it has arrived when it
tells the time. For each seed both run one after the other, the first of them in turns. Who has not arrived after
`--limit` seconds is stopped, and its ratio is the least it can be. Writes NAME.csv, .json and .md (search-wall)
into FOLDER (results/h200/search) after each run. Ends with 3 where there is no GPU, with 2 where Kernel Tuner is
missing.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import importlib.util
import json
import math
import os
import shlex
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeper.device.present import why_no_gpu
from sweeper.model import Point, Role
from sweeper.provenance import run_record, write_json
from sweeper.recording import Recorded, read_recorded
from sweeper.recording.compact import notes_of

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("seed", "side", "arrived", "seconds", "configurations", "first_s", "params", "recorded_ms")
OURS, THEIRS = "sweeper", "Kernel Tuner"
Params = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """What there is to find: `times_ms` of every recorded configuration by its key, and the slowest that will do."""

    times_ms: Mapping[str, float]
    enough_ms: float

    def time_ms(self, params: Params) -> float:
        """The recorded time; infinite for what failed or was not recorded."""
        return self.times_ms.get(Point.of(params).key, math.inf)

    def reached(self, params: Params) -> bool:
        return self.time_ms(params) <= self.enough_ms


def goal_of(rows: Sequence[Recorded], within: float) -> Goal:
    """The goal within `within`, a fraction, of the best among `rows`."""
    times = {
        Point.of(row.params).key: row.usable_ms
        for row in rows
        if row.role is Role.CANDIDATE and row.usable_ms is not None
    }
    return Goal(times, (1 + within) * min(times.values()))


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], said: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all that it starts, which ends with the block; `said` is what it prints."""
    with said.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def watched(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    found: Callable[[], list[Params]],
    goal: Goal,
    limit_s: float,
) -> dict[str, Any]:
    """Run `command` until what it has `found` reaches the goal, it ends, or the time is over."""
    said = folder / "said.txt"
    began = time.monotonic()
    first: float | None = None
    with running(command, environment, said) as process:
        while True:
            # Asked before: what it finished last is not missed.
            ended = process.poll() is not None
            measured = found()
            now = time.monotonic() - began
            first = now if first is None and measured else first
            hit = next((each for each in measured if goal.reached(each)), None)
            if hit or ended or now > limit_s:
                break
            time.sleep(0.02)
    if not measured:
        print(said.read_text(encoding="utf-8", errors="replace")[-3000:], flush=True)
    count = measured.index(hit) + 1 if hit else len(measured)
    best = hit or min(measured, key=goal.time_ms, default={})
    return {
        "arrived": hit is not None,
        "seconds": round(now, 3),
        "configurations": count,
        "first_s": None if first is None else round(first, 3),
        "params": best,
        "recorded_ms": goal.time_ms(best),
    }


def ours(overrides: Sequence[str], seed: int, folder: Path, goal: Goal, limit_s: float) -> dict[str, Any]:
    """One search by the command."""
    results = folder / "results"
    command = [
        *(sys.executable, "-m", "sweeper", *overrides, "search=guided", f"search.seed={seed}"),
        *("search.budget=200", "measure=quick", "measure.confirm=0", "build.compiler=nvrtc", "baseline=[]"),
        *("resume=false", f"results_dir={results}"),
    ]
    store = results / "study.db"

    def found() -> list[Params]:
        if not store.exists():
            return []
        try:
            with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as database:
                rows = database.execute(
                    "select params from trials where role = 'candidate' and status = 'ok' order by id"
                ).fetchall()
        except sqlite3.OperationalError:
            # It is being made.
            return []
        return [json.loads(params) for (params,) in rows]

    environment = {"SWEEPER_CACHE": str(folder / "cache")}
    return watched(command, environment, folder, found, goal, limit_s)


def theirs(table: Path, strategy: str, seed: int, folder: Path, goal: Goal, limit_s: float) -> dict[str, Any]:
    """One search by Kernel Tuner."""
    script = ROOT / "bench" / "kernel_tuner_live.py"
    command = [sys.executable, str(script), str(table.resolve()), str(seed), "--strategy", strategy]

    def found() -> list[Params]:
        lines = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        return [json.loads(line)["params"] for line in lines if line.startswith('{"params"')]

    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return watched(command, {"PYTHONPATH": paths}, folder, found, goal, limit_s)


def summary(rows: Sequence[Mapping[str, Any]], within: float) -> str:
    """A Markdown table of the seeds, and the ratios."""
    lines = [
        "| seed | sweeper, s | configurations | Kernel Tuner, s | configurations | Kernel Tuner / sweeper |",
        "|---|---|---|---|---|---|",
    ]
    ratios, least = [], False
    for seed in dict.fromkeys(row["seed"] for row in rows):
        pair = {row["side"]: row for row in rows if row["seed"] == seed}
        mine, other = pair.get(OURS), pair.get(THEIRS)
        ratio = ""
        # Who has measured nothing has failed, which says nothing of how long it takes.
        if mine and other and mine["arrived"] and other["configurations"]:
            ratios.append(other["seconds"] / mine["seconds"])
            least = least or not other["arrived"]
            ratio = f"{'' if other['arrived'] else '≥ '}{ratios[-1]:.1f}"
        cells = [
            cell
            for row in (mine, other)
            for cell in (
                (f"{'' if row['arrived'] else '> '}{row['seconds']:.2f}", str(row["configurations"]))
                if row
                else ("", "")
            )
        ]
        lines.append(f"| {seed} | {' | '.join(cells)} | {ratio} |")
    text = "\n".join(lines) + "\n"
    if ratios:
        said = "at least " if least else ""
        text += (
            f"\nMedian ratio of the wall times until a configuration within {100 * within:g} % of the best was"
            f" measured: {said}{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f},"
            f" {len(ratios)} seeds).\n"
        )
    return text


def save(rows: Sequence[Mapping[str, Any]], chosen: argparse.Namespace, started: datetime) -> None:
    """All runs so far, with where they come from."""
    record = run_record(
        command=["python", "bench/bench_search_wall.py", *sys.argv[1:]],
        config={
            "table": str(chosen.table),
            "within": chosen.within,
            "limit_s": chosen.limit,
            "strategy": chosen.strategy,
        },
        started=started,
        facts={"kernel_tuner": importlib.metadata.version("kernel_tuner")},
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    with (chosen.out / f"{chosen.name}.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()
        lines.writerows({**row, "params": json.dumps(row["params"])} for row in rows)
    write_json(record, chosen.out / f"{chosen.name}.json")
    (chosen.out / f"{chosen.name}.md").write_text(summary(rows, chosen.within), encoding="utf-8")


def main(given: Sequence[str] | None = None) -> int:
    """Both sides for each seed; 0 where ours arrived at least once, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--within", type=float, default=0.01, help="a fraction of the best time")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds a run")
    parser.add_argument("--strategy", default="adaptive_tabu_greywolf", help="Kernel Tuner's")
    parser.add_argument("--out", type=Path, default=Path("results/h200/search"))
    parser.add_argument("--name", default="search-wall")
    chosen = parser.parse_args(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: wall time is measured on a GPU", file=sys.stderr)
        return 3
    if importlib.util.find_spec("kernel_tuner") is None:
        print("Kernel Tuner is not installed (pip install kernel_tuner)", file=sys.stderr)
        return 2
    goal = goal_of(read_recorded(chosen.table), chosen.within)
    asked = shlex.split(notes_of(chosen.table)["command"])
    overrides = [word for word in asked if word.startswith(("kernel=", "kernel.", "shape"))]
    started = datetime.now(UTC)
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        for side in (OURS, THEIRS) if seed % 2 == 0 else (THEIRS, OURS):
            with tempfile.TemporaryDirectory(prefix="search-wall-") as root:
                folder = Path(root)
                if side == OURS:
                    found = ours(overrides, seed, folder, goal, chosen.limit)
                else:
                    found = theirs(chosen.table, chosen.strategy, seed, folder, goal, chosen.limit)
            rows.append({"seed": seed, "side": side, **found})
            print(f"seed {seed}, {side}: {json.dumps(found)}", flush=True)
            save(rows, chosen, started)
    print("\n" + summary(rows, chosen.within) + f"\nresults: {chosen.out}")
    return 0 if any(row["arrived"] for row in rows if row["side"] == OURS) else 1


if __name__ == "__main__":
    sys.exit(main())
