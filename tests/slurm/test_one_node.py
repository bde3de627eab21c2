"""A multirun as an array on a real SLURM of one node: a job killed, a job requeued, a command interrupted."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_rig import kernel_in
from one_node import OneNode, why_not

ROOT = Path(__file__).parents[2]
BLOCKS = tuple(map(str, range(4, 33, 4)))
SHAPES = [f"{size}x{size}x16" for size in range(96, 288, 16)]

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(
        not any((Path(p) / "submitit").is_dir() for p in sys.path), reason="submitit is not installed"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneNode]:
    # A socket's path may have 107 characters, which a test's own folder uses up.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, OneNode(Path(folder) / "one") as one:
        yield one


class Multirun:
    """`python -m sweeper -m hydra/launcher=slurm` over `shapes`, its results in `folder/out`."""

    def __init__(self, cluster: OneNode, folder: Path, shapes: list[str]) -> None:
        self.cluster, self.folder, self.out = cluster, folder, folder / "out"
        own = kernel_in(folder / "mine", params={"block": list(map(int, BLOCKS))})
        self.command = [
            sys.executable, "-m", "sweeper", *own, "-m", "backend=emulator", "hydra/launcher=slurm",
            "hydra.launcher.cpus_per_task=1", "hydra.launcher.poll_s=0.5", f"shape={','.join(shapes)}",
            "search=grid", "build.workers=1", f"results_dir={self.out}",
        ]  # fmt: skip
        self.environment = {
            **cluster.environment, "PYTHONPATH": str(ROOT), "SWEEPER_CACHE": str(folder / "cache"),
        }  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def records(self) -> dict[int, dict[str, Any]]:
        found = [json.loads(path.read_text()) for path in self.out.glob("jobs/*/job.json")]
        return {record["number"]: record for record in found}

    def measuring(self, *, but: int = 0) -> dict[str, Any] | None:
        """The record of a job that has stored a row and has not ended."""
        for path in self.out.glob("jobs/*/job.json"):
            record: dict[str, Any] = json.loads(path.read_text())
            if not record["ended"] and record["number"] != but and _rows(path.with_name("study.db")):
                return record
        return None

    def rows(self) -> list[dict[str, str]]:
        with (self.out / "trials.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def measured(self) -> list[tuple[str, str]]:
        return sorted((row["shape"], row["param_block"]) for row in self.rows())


def _rows(store: Path) -> int:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def until(found: Callable[[], Any], process: subprocess.Popen[str], within_s: float = 180) -> Any:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and process.poll() is None:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    process.kill()
    out, err = process.communicate()
    raise AssertionError(f"it did not come to that:\n{out}\n{err}")


def test_twelve_jobs_of_which_one_is_killed_and_one_requeued_are_complete_after_the_second_call(
    cluster: OneNode, tmp_path: Path
) -> None:
    multirun = Multirun(cluster, tmp_path, SHAPES)
    with multirun.start() as process:
        killed = until(multirun.measuring, process)
        os.kill(killed["pid"], signal.SIGKILL)
        requeued = until(lambda: multirun.measuring(but=killed["number"]), process)
        array = (multirun.out / "jobs" / ".array").read_text()
        assert cluster.run("scontrol", "requeue", f"{array}_{requeued['number'] - 1}").returncode == 0
        out, err = process.communicate(timeout=500)
    (tmp_path / "first.txt").write_text(err + out)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert f"SLURM job {array}_{killed['number'] - 1} ended before it was done" in err
    assert "a job is missing; the same command again" in out
    again = multirun.records()[requeued["number"]]
    assert again["ended"]
    assert again["pid"] != requeued["pid"], "it began once more, in another process"
    assert {row["status"] for row in multirun.rows()} == {"ok"}, "a worker that SLURM ended is no crash"
    first = multirun.measured()
    assert len(first) == len(set(first)), "what the requeued job had measured it did not measure again"
    complete = sorted((shape, block) for shape in SHAPES for block in BLOCKS)
    assert {shape for shape, _ in complete if (shape, BLOCKS[-1]) not in first} <= {
        SHAPES[killed["number"] - 1]
    }

    with multirun.start() as process:
        out, err = process.communicate(timeout=500)
    (tmp_path / "second.txt").write_text(err + out)
    assert process.returncode == 0, err
    assert multirun.measured() == complete
    assert "11 of 12 jobs were done before" in err
    assert "missing" not in out
    assert f"results: {multirun.out}" in out


def test_each_task_sees_the_one_gpu_that_it_was_given(cluster: OneNode) -> None:
    told = [
        cluster.run("srun", "--gpus-per-node=1", "--nodes=1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout
        for _ in range(2)
    ]
    assert {answer.strip() for answer in told} <= {"0", "1"}


def test_an_interrupted_command_cancels_its_array_and_keeps_what_was_measured(
    cluster: OneNode, tmp_path: Path
) -> None:
    multirun = Multirun(cluster, tmp_path, SHAPES[:4])
    with multirun.start() as process:
        until(multirun.measuring, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "is being cancelled" in err
    assert cluster.run("squeue", "-h", "-t", "PENDING,RUNNING").stdout == ""
    assert multirun.measured(), "what was measured is in the table"
    assert out.splitlines()[-1] == f"results: {multirun.out}"
