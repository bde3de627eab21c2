"""From the command to the first trial: how long a user waits before the first configuration is on the disk.

    python bench/bench_start.py [--repeat 5] [--compiler nvrtc,nvcc] [--shape large] [--out FOLDER]

Each run is the whole command in a new process and a new results folder; the first has an empty cache of
builds, the others find its builds there unless `--cold`. The store is watched from outside: the clock stops
when its first row can be read. Writes start_up.json and .md into FOLDER (results/h200). Ends with 3 where
there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeper.device.present import why_no_gpu
from sweeper.provenance import run_record, write_json

_POLL_S = 0.005


def rows_in(store: Path) -> int:
    """How many trials another process has committed to `store` so far."""
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=0.1)) as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:  # it is being made
        return 0


def one_run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds to the first trial and to the end. Raises RuntimeError, with what it printed, where it fails."""
    began = time.monotonic()
    with subprocess.Popen(
        [*command, f"results_dir={folder}"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        first = 0.0
        while process.poll() is None and not first:
            if rows_in(folder / "study.db"):
                first = time.monotonic() - began
            time.sleep(_POLL_S)
        printed, _ = process.communicate()
    if process.returncode != 0 or not first:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-3000:]}")
    return {"first_trial_s": first, "total_s": time.monotonic() - began}


def runs_of(compiler: str, chosen: argparse.Namespace, root: Path) -> list[dict[str, Any]]:
    command = [
        sys.executable, "-m", "sweeper", f"+shape={chosen.shape}", "search.budget=10", "resume=false",
        "measure.confirm=0", f"build.compiler={compiler}",
    ]  # fmt: skip
    found = []
    for number in range(chosen.repeat):
        cache = root / (f"cache-{compiler}-{number}" if chosen.cold else f"cache-{compiler}")
        cold = not cache.exists()
        seconds = one_run(command, root / f"{compiler}-{number}", {**os.environ, "SWEEPER_CACHE": str(cache)})
        found.append({"compiler": compiler, "cold": cold, **seconds})
        print(f"{compiler:6s} {'cold' if cold else 'warm'}  {seconds['first_trial_s']:.2f} s", flush=True)
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| compiler | cache of builds | runs | s to the first trial (median) | least | most |",
        "|---|---|---|---|---|---|",
    ]
    for compiler, cold in dict.fromkeys((row["compiler"], row["cold"]) for row in rows):
        values = [row["first_trial_s"] for row in rows if (row["compiler"], row["cold"]) == (compiler, cold)]
        lines.append(
            f"| {compiler} | {'empty' if cold else 'full'} | {len(values)} | {statistics.median(values):.2f}"
            f" | {min(values):.2f} | {max(values):.2f} |"
        )
    return "\n".join(lines) + "\n"


def main(given: Sequence[str] | None = None) -> int:
    """Write start_up.json and start_up.md. Gives the exit code, 3 where there is no GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--compiler", default="nvrtc,nvcc")
    parser.add_argument("--shape", default="large")
    parser.add_argument("--cold", action="store_true", help="an empty cache of builds for every run")
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    chosen = parser.parse_args(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: the start is measured on a GPU", file=sys.stderr)
        return 3
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="start-") as root:
        rows = [row for name in chosen.compiler.split(",") for row in runs_of(name, chosen, Path(root))]
    chosen.out.mkdir(parents=True, exist_ok=True)
    command = ["python", "bench/bench_start.py", *sys.argv[1:]]
    config = {"repeat": chosen.repeat, "shape": chosen.shape, "cold": chosen.cold}
    record = run_record(command=command, config=config, started=started, facts={"runs": rows})
    write_json(record, chosen.out / "start_up.json")
    (chosen.out / "start_up.md").write_text(summary(rows), encoding="utf-8")
    print("\n" + summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
