"""Jobs in processes of their own: Hydra's joblib launcher, and what is left of jobs that fail or are killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_rig import kernel_in, python, rows, runs
from test_table import library, timed

from sweeper.cli.app import main
from sweeper.cli.command_line import gpus_named
from sweeper.cli.job_record import (
    JobRecord,
    job_folder,
    read_records,
    record_before,
    set_aside_records,
    write_record,
)
from sweeper.cli.merging import merge
from sweeper.errors import INTERRUPTED, StorageError
from sweeper.model import Confirmed
from sweeper.store import Store

ROOT = Path(__file__).parents[1]
MULTIRUN = ("-m", "backend=emulator")
LAUNCHER = (*MULTIRUN, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs find nothing of their command in their process, as in one that a launcher has started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweeper.cli.apart.set_runner", lambda run: None)


@pytest.fixture(autouse=True)
def no_kept_processes() -> Iterator[None]:
    """joblib keeps its processes for the next call, which would write where this test's output goes."""
    yield
    loky = sys.modules.get("joblib.externals.loky")
    if loky is not None:
        loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


# Records


def test_a_job_is_known_by_what_it_was_asked_whatever_its_number(tmp_path: Path) -> None:
    folder = job_folder(tmp_path, ["kernel=tiled", "+shape=256x512x64"])
    assert folder.name.startswith("tiled-256x512x64-")
    assert folder == job_folder(tmp_path, ["+shape=256x512x64", "kernel=tiled"])
    assert folder != job_folder(tmp_path, ["kernel=tiled", "+shape=256x512x65"])


def test_records_are_read_in_the_order_of_their_jobs_and_forgotten_without_the_stores(tmp_path: Path) -> None:
    for number in (10, 9):
        folder = job_folder(tmp_path, [f"kernel=k{number}"])
        folder.mkdir(parents=True)
        (folder / "study.db").touch()
        write_record(JobRecord(number, f"kernel=k{number}", facts={"statuses": {"ok": 1}}), folder)
    assert [record.number for _, record in read_records(tmp_path)] == [9, 10]
    assert not any(record.failed for _, record in read_records(tmp_path))
    set_aside_records(tmp_path)
    assert read_records(tmp_path) == []
    assert len(list(tmp_path.glob("jobs/*/study.db"))) == 2
    before = record_before(job_folder(tmp_path, ["kernel=k9"]))
    assert before is not None
    assert before.number == 9
    set_aside_records(tmp_path)
    assert record_before(job_folder(tmp_path, ["kernel=k9"])) is None


def test_a_record_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "x").mkdir(parents=True)
    (tmp_path / "jobs" / "x" / "job.json").write_text("{")
    with pytest.raises(StorageError, match=r"jobs/x/job\.json"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ({"facts": {"error": "broken"}}, True),
        ({"facts": {"statuses": {"ok": 3, "wrong_result": 1}}}, True),
        ({"facts": {"statuses": {"ok": 3}}}, False),
        ({"facts": {"statuses": {"infeasible": 1}}, "ruled_out": True}, False),
        ({"facts": {"error": "broken"}, "config": {}}, False),
    ],
)
def test_a_job_stops_others_where_it_failed_and_was_told_to(changes: dict[str, Any], stops: bool) -> None:
    assert replace(JobRecord(1, "", config={"fail_fast": True}), **changes).stops_others is stops


# Merging


def store(path: Path, *trials: Any) -> Path:
    with Store(path) as made:
        for trial in trials:
            made.add(trial)
    return path


def test_stores_are_merged_once_however_often_that_is_done(tmp_path: Path) -> None:
    first = store(tmp_path / "1.db", timed(1, 1.0), timed(2, 2.0), replace(library("cublas", 1.5), number=0))
    second = store(
        tmp_path / "2.db", timed(1, 3.0), timed(2, 2.0), replace(library("cublaslt", 1.4), number=0)
    )
    with Store(first) as one:
        one.add_run({"id": "a", "started": "2030", "command": ["job"]})
        one.add_confirmed([Confirmed("c", "2030", "s", "tiled", "float32", "tiny", {"tile": 8})])
    with Store(tmp_path / "all.db") as whole:
        for _ in range(2):
            merge([first, second], whole, ["sweeper", "-m"])
            numbers = [(t.number, t.kernel if t.number < 1 else t.point.params) for t in whole.trials()]
            assert [n for n, _ in numbers] == [1, 2, 0, 3, -1], "the second job's trial 2 is the first's"
            assert [run["command"] for run in whole.runs()] == [["sweeper", "-m"]]
            assert [one.confirmation for one in whole.confirmed()] == ["c"]


# Commands


joblib = pytest.mark.skipif(
    not any((Path(p) / "hydra_plugins" / "hydra_joblib_launcher").is_dir() for p in sys.path),
    reason="hydra-joblib-launcher is not installed",
)


def test_the_command_that_launches_elsewhere_starts_no_process_for_a_gpu_itself() -> None:
    assert gpus_named(["hydra/launcher=joblib"]) == 0
    assert gpus_named(["hydra/launcher=basic"]) == 1


def test_jobs_apart_give_the_table_that_they_give_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one-off shapes and kernels of one's own, too; and the same command again measures nothing."""
    monkeypatch.chdir(tmp_path)
    own = kernel_in(tmp_path / "mine", params={"block": [8, 16]})[:2]
    command = [*MULTIRUN, *own, "kernel=mine,tiled", "shape=16x24x8", "search.budget=2"]
    assert main([*command, "results_dir=one"]) == 0
    monkeypatch.setattr("sweeper.cli.apart.set_runner", lambda run: None)
    assert main([*command, "results_dir=two"]) == 0
    for table in ("trials.csv", "best.csv"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()
    told = runs(tmp_path / "two")
    assert [run["command"] for run in told] == [["python", "-m", "sweeper", *command, "results_dir=two"]] * 2
    assert all(run["exit_code"] == 0 for run in told)
    assert "4 configurations in 2 jobs: 4 ok" in capsys.readouterr().out

    assert main([*command, "results_dir=two"]) == 0
    assert capsys.readouterr().out.count("2 of them reused") == 2
    assert (tmp_path / "one/trials.csv").read_bytes() == (tmp_path / "two/trials.csv").read_bytes()


def test_jobs_apart_answer_from_what_one_process_has_measured(
    apart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*MULTIRUN, "kernel=tiled", "+shape=tiny", "kernel.params.tile=8,16", "results_dir=out"]
    with monkeypatch.context() as here:
        here.undo()
        here.chdir(tmp_path)
        assert main(command) == 0
    before = Path("out/trials.csv").read_bytes()
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out.count("1 of them reused") == 2
    assert Path("out/trials.csv").read_bytes() == before


def test_a_job_that_fails_leaves_the_others_and_gives_the_command_its_code(
    apart: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MULTIRUN, "kernel=tiled", "kernel.params.tile=x,8", "+shape=tiny", "results_dir=out"]) == 2
    assert [row["param_tile"] for row in rows(Path("out"))] == ["8"]
    captured = capsys.readouterr()
    which = "job 1 (backend=emulator kernel=tiled kernel.params.tile=x shape=tiny): "
    assert f"error: {which}" in captured.err
    assert f"  {which}" in captured.out


def test_no_job_begins_after_one_that_failed_where_that_was_asked_for(
    apart: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*MULTIRUN, "kernel=tiled", "kernel.params.tile=8,999,16", "+shape=tiny", "fail_fast=true"]
    assert main([*command, "results_dir=out"]) == 1
    assert {row["param_tile"] for row in rows(Path("out"))} == {"8", "999"}
    assert "1 job not begun, for fail_fast" in capsys.readouterr().out


def test_a_job_that_left_no_end_is_missing_and_one_without_a_record_was_never_begun(
    apart: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a launcher gives up after one of three processes was killed."""
    from sweeper.cli.jobs import Jobs

    def dies(jobs: Jobs, node: Any) -> None:
        if node.kernel.params.tile == 16:
            raise MemoryError("no more jobs")
        run(jobs, node)

    run = Jobs.run
    monkeypatch.setattr(Jobs, "run", dies)
    monkeypatch.setattr("sweeper.cli.app.launches", lambda overrides: True)
    command = [*MULTIRUN, "kernel=tiled", "kernel.params.tile=8,16,32", "+shape=tiny", "results_dir=out"]
    assert main(command) == 3
    captured = capsys.readouterr()
    assert (
        "job 2 (backend=emulator kernel=tiled kernel.params.tile=16 shape=tiny): its process ended"
        in captured.out
    )
    assert "2 jobs are missing; the same command again" in captured.out or "a job is missing" in captured.out
    kept = {row["param_tile"] for row in rows(Path("out"))}
    assert "8" in kept
    monkeypatch.setattr(Jobs, "run", run)
    assert main(command) == 0
    assert {row["param_tile"] for row in rows(Path("out"))} == {"8", "16", "32"}
    assert "missing" not in capsys.readouterr().out


def test_a_report_is_made_of_jobs_that_ran_apart(apart: None) -> None:
    command = ["experiment=ladder", "+shape=tiny", "kernel=naive,tma_pipeline", "search.budget=1"]
    assert main([*MULTIRUN, *command, "results_dir=out"]) == 0
    course = Path("out/course.md").read_text()
    assert "| naive |" in course
    assert "tma_pipeline" in course.partition("| naive |")[2], "with its reason, below the table"


@joblib
def test_a_command_that_hydra_cannot_compose_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*LAUNCHER, "kernel=tiled,tild", "+shape=tiny"]) == 2
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    assert "tild" in captured.err


@joblib
def test_joblib_runs_jobs_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*LAUNCHER, "kernel=naive,tiled", "+shape=tiny", "search.budget=1", "results_dir=out"]) == 0
    assert {row["kernel"] for row in rows(Path("out"))} == {"naive", "tiled"}
    pids = {record.pid for _, record in read_records(Path("out"))}
    assert os.getpid() not in pids
    assert "2 configurations in 2 jobs: 2 ok" in capfd.readouterr().out


@pytest.fixture
def killed(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A command of two jobs one after another, whose first lost its process after it had stored a row."""
    own = kernel_in(tmp_path / "mine", params={"block": [2, 4, 8, 16]})
    command = [
        sys.executable, "-m", "sweeper", *own, *LAUNCHER,
        "shape=40x40x8,48x48x8,56x56x8", "search=grid", "build.workers=1", f"results_dir={tmp_path / 'out'}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SWEEPER_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            for path in (tmp_path / "out").glob("jobs/*/study.db-wal"):
                record = json.loads((path.parent / "job.json").read_text())
                if not record["ended"]:
                    os.kill(record["pid"], signal.SIGKILL)
                    deadline = 0
                    break
            time.sleep(0.005)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@joblib
def test_a_job_that_is_killed_is_named_and_the_same_command_again_does_what_is_missing(
    killed: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert killed.returncode == 3, killed.stderr
    assert "Traceback" not in killed.stderr
    assert "error: the launcher has given up" in killed.stderr
    assert "its process ended before it was done" in killed.stdout
    assert "the same command again" in killed.stdout
    assert killed.stdout.splitlines()[-1] == f"results: {tmp_path / 'out'}"

    done = python(*killed.args[1:], SWEEPER_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/trials.csv").open(newline="", encoding="utf-8") as file:
        found = [(row["shape"], row["param_block"]) for row in csv.DictReader(file)]
    assert sorted(found) == sorted(
        (shape, block) for shape in ("40x40x8", "48x48x8", "56x56x8") for block in ("2", "4", "8", "16")
    )
    assert "missing" not in done.stdout


@joblib
def test_an_interrupted_command_keeps_what_its_jobs_had(tmp_path: Path) -> None:
    own = kernel_in(tmp_path / "mine", params={"block": [2, 4, 8, 16, 32]})
    command = [
        sys.executable, "-m", "sweeper", *LAUNCHER, *own, "shape=400x400x80,480x480x80", "search=grid",
        f"results_dir={tmp_path / 'out'}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list((tmp_path / "out").glob("jobs/*/study.db-wal")):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, err
    assert "Traceback" not in err
    assert out.splitlines()[-1] == f"results: {tmp_path / 'out'}"


# What an earlier command has done


class TestTheSameCommandAgain:
    """With launchers of ours: only jobs that are not done get a process, or a place in a queue."""

    @pytest.fixture
    def kernel(self, tmp_path: Path) -> list[str]:
        return kernel_in(tmp_path / "mine", params={"block": [4, 8]})

    def sweep(self, tmp_path: Path, kernel: Sequence[str], *more: str) -> subprocess.CompletedProcess[str]:
        done = python(
            *("-m", "sweeper", *kernel, *MULTIRUN, "hydra/launcher=local", "hydra.launcher.jobs=2"),
            *("shape=16x16x16,24x24x8,32x8x8", f"results_dir={tmp_path / 'out'}", *more),
            SWEEPER_CACHE=str(tmp_path / "cache"),
        )
        assert done.returncode == 0, done.stderr
        return done

    def pids(self, tmp_path: Path) -> dict[str, int]:
        return {record.asked.split()[-1]: record.pid for _, record in read_records(tmp_path / "out")}

    def test_does_nothing_where_all_is_done(self, tmp_path: Path, kernel: list[str]) -> None:
        first = self.sweep(tmp_path, kernel)
        assert "done before" not in first.stderr
        assert len(rows(tmp_path / "out")) == 6
        before, table = self.pids(tmp_path), (tmp_path / "out/trials.csv").read_bytes()
        second = self.sweep(tmp_path, kernel)
        assert "3 of 3 jobs were done before; resume=false does them again" in second.stderr
        assert self.pids(tmp_path) == before
        assert (tmp_path / "out/trials.csv").read_bytes() == table
        assert "6 configurations in 3 jobs: 6 ok" in second.stdout
        assert "3 of 3 jobs" not in self.sweep(tmp_path, kernel, "resume=false").stderr

    def test_does_what_is_missing_and_what_has_another_source_or_configuration(
        self, tmp_path: Path, kernel: list[str]
    ) -> None:
        self.sweep(tmp_path, kernel)
        before = self.pids(tmp_path)
        ((folder, lost),) = [pair for pair in read_records(tmp_path / "out") if pair[1].number == 2]
        write_record(replace(lost, ended=False), folder)
        assert "2 of 3 jobs were done before" in self.sweep(tmp_path, kernel).stderr
        assert len(rows(tmp_path / "out")) == 6
        after = self.pids(tmp_path)
        assert [shape for shape, pid in after.items() if pid != before[shape]] == [lost.asked.split()[-1]]

        assert "done before" not in self.sweep(tmp_path, kernel, "measure.max_samples=60").stderr
        source = tmp_path / "mine" / "mine.cu"
        source.write_text(source.read_text() + "// other\n")
        assert "done before" not in self.sweep(tmp_path, kernel, "measure.max_samples=60").stderr
