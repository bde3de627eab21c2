"""What a fault costs the configurations after it: `python bench/bench_faults.py [--out FOLDER]`.

Ten right configurations are timed; then, for each fault, a configuration with it is run, and the ten again. Writes
faults.csv and faults.md into FOLDER (results/h200). Ends with 3 where there is no GPU, with 1 where a fault was not
told or one of the ten was not right.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fault_runs import FAULTS, FaultRun, Machine, stranger

from sweeper.device.present import why_no_gpu
from sweeper.errors import TrialFailed


def main(given: Sequence[str] | None = None) -> int:
    """Write faults.csv and faults.md. Gives 0, 1 where a fault went unnoticed, 3 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    chosen = parser.parse_args(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: what a fault costs is measured on a GPU", file=sys.stderr)
        return 3
    runs: list[FaultRun] = []
    with tempfile.TemporaryDirectory() as folder, closing(Machine(Path(folder))) as machine:
        machine.ten()
        clean = machine.ten()
        for fault in ("nothing", "out of memory", *FAULTS):
            runs.append(machine.after("right" if fault == "nothing" else fault, clean))
            said = runs[-1]
            print(f"{fault:20s} {said.status:14s} {said.ratio:.4f}  {said.reason[:90]}", flush=True)
        with stranger():
            note = machine.measure("right").note
        machine.measure("right")
        save(chosen.out, runs, note, f"{machine.identity.name}, driver {machine.identity.driver}")
    return 0 if all(run.status != "ok" for run in runs[1:]) and note else 1


def save(folder: Path, runs: Sequence[FaultRun], note: str, device: str) -> None:
    """The ten times behind each fault, and a line for each."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "faults.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "unroll", "time_ms", "clean_ms", "ratio"])
        for run in runs:
            for row in run.rows:
                writer.writerow(
                    [run.fault, row.unroll + 1, row.time_ms, row.clean_ms, row.time_ms / row.clean_ms]
                )
    lines = [
        "# What a fault costs the configurations after it",
        "",
        (
            f"Written by `python bench/bench_faults.py` on one {device}: a configuration with the fault, then ten right"
            " ones, all proved, over the times of the same ten before any fault. The first line is no fault: what two"
            " such runs differ by anyway."
        ),
        "",
        "| fault | its row | told after | the next one right after | ten times, median ratio | least | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        ratios = [row.time_ms / row.clean_ms for row in run.rows]
        name = "none" if run.fault == "right" else run.fault
        lines.append(
            f"| {name} | {run.status} | {run.failed_after_s:.2f} s | {run.next_right_after_s:.2f} s"
            f" | {run.ratio:.4f} | {min(ratios):.4f} | {max(ratios):.4f} |"
        )
    lines += ["", f"A process that comes to the device is noted in the rows it disturbs: “{note}”.", ""]
    (folder / "faults.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrialFailed as error:
        print(f"a right configuration failed: {error}", file=sys.stderr)
        sys.exit(1)
