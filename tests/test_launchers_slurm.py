"""Jobs in processes of our own launchers: `local` on this host, `slurm` against a queue that is pretended."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from command_rig import kernel_in, python, rows
from test_table import timed

from sweeper.cli.app import main
from sweeper.cli.carried import CarriedStore
from sweeper.cli.job_record import JobRecord, job_folder, read_records, write_record
from sweeper.cli.launchers.handed import HandedJob
from sweeper.cli.launchers.here import slots
from sweeper.cli.launchers.queue import Task, cancel, queued
from sweeper.cli.launchers.slurm import _run, _wait, run_on_slurm
from sweeper.cli.launchers.watch import Watch
from sweeper.cli.scratch import on_a_disk, scratch
from sweeper.errors import INTERRUPTED, ConfigError, SetupError, StorageError, SweeperError
from sweeper.store import Store

ROOT = Path(__file__).parents[1]
LOCAL = ("-m", "backend=emulator", "hydra/launcher=local")


def handed(results: Path, *numbers: int) -> list[HandedJob]:
    unused: Any = None
    return [HandedJob(n, (f"kernel=k{n}",), results, unused, unused, unused, {}) for n in numbers]


def record(results: Path, number: int, **changes: Any) -> None:
    folder = job_folder(results, [f"kernel=k{number}"])
    folder.mkdir(parents=True, exist_ok=True)
    write_record(JobRecord(number, f"kernel=k{number}", **changes), folder)


# Waiting


def test_a_job_is_waited_for_while_something_runs_it_or_will(tmp_path: Path) -> None:
    watch = Watch(handed(tmp_path, 1, 2), grace_s=0)
    record(tmp_path, 1)
    assert not watch.look({1, 2})
    record(tmp_path, 1, ended=True)
    assert not watch.look({2})
    record(tmp_path, 2, begun=False)
    assert watch.look({2}), "fail_fast kept it from beginning"
    assert watch.lost == set()


def test_a_job_that_nothing_runs_is_lost_once_its_record_has_had_time_to_arrive(tmp_path: Path) -> None:
    now = [0.0]
    watch = Watch(handed(tmp_path, 1, 2), grace_s=15, clock=lambda: now[0])
    record(tmp_path, 2, ended=True)
    assert not watch.look(set())
    now[0] = 14
    assert not watch.look(set())
    now[0] = 15
    assert watch.look(set())
    assert watch.lost == {1}


def test_a_job_that_comes_back_into_the_queue_is_not_lost(tmp_path: Path) -> None:
    now = [0.0]
    watch = Watch(handed(tmp_path, 1), grace_s=15, clock=lambda: now[0])
    for now[0], alive in ((0, set()), (10, {1}), (20, set()), (30, set())):
        assert not watch.look(alive)


def test_a_job_requeued_after_its_end_is_waited_for_once_it_has_begun_again(tmp_path: Path) -> None:
    told: list[str] = []
    watch = Watch(handed(tmp_path, 1, 2), grace_s=0, tell=told.append)
    record(tmp_path, 1, ended=True, facts={"statuses": {"ok": 3}})
    assert not watch.look({1, 2})
    record(tmp_path, 1)
    record(tmp_path, 2, ended=True, facts={"error": "broken\nat"})
    assert not watch.look({1})
    record(tmp_path, 1, ended=True, facts={"statuses": {"ok": 4}})
    assert watch.look(set())
    assert told == ["job 1 (kernel=k1): 3 ok", "job 2 (kernel=k2): broken"]


def test_where_the_queue_cannot_be_asked_the_records_are_waited_for(tmp_path: Path) -> None:
    watch = Watch(handed(tmp_path, 1), grace_s=0)
    assert not watch.look(None)
    record(tmp_path, 1, ended=True)
    assert watch.look(None)


# The queue


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script in the place of one of SLURM's commands."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return put


def test_the_queue_tells_the_places_of_an_array_that_run_or_wait(
    commands: Callable[[str, str], None],
) -> None:
    commands("squeue", "echo '7_0|RUNNING|None'; echo '7_3|PENDING|Resources'; echo '7_11|COMPLETING|None'")
    assert queued("7") == [
        Task(0, "RUNNING", "None"),
        Task(3, "PENDING", "Resources"),
        Task(11, "COMPLETING", "None"),
    ]


def test_a_job_that_is_no_array_has_the_first_place(commands: Callable[[str, str], None]) -> None:
    commands("squeue", "echo '7|RUNNING|None'")
    assert queued("7") == [Task(0, "RUNNING", "None")]


def test_a_job_that_the_controller_has_forgotten_is_in_no_queue_and_a_silent_controller_tells_nothing(
    commands: Callable[[str, str], None],
) -> None:
    commands("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queued("7") == []
    commands("squeue", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    assert queued("7") is None


@pytest.mark.parametrize(
    ("state", "reason", "stuck"),
    [
        ("PENDING", "Resources", False),
        ("PENDING", "BeginTime", False),
        ("PENDING", "JobHeldUser", True),
        ("PENDING", "launch_failed_requeued_held", True),
        ("PENDING", "PartitionConfig", True),
        ("RUNNING", "None", False),
    ],
)
def test_a_task_is_stuck_where_only_a_person_can_let_it_go_on(state: str, reason: str, stuck: bool) -> None:
    assert Task(0, state, reason).stuck is stuck


def test_cancelling_passes_its_options(commands: Callable[[str, str], None], tmp_path: Path) -> None:
    commands("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    cancel("7", "--state=PENDING")
    cancel("7")
    assert (tmp_path / "cancelled").read_text().splitlines() == ["--state=PENDING 7", "7"]


# The array


SETTINGS = {
    "name": "sweeper",
    "gpus_per_node": 1,
    "gres": None,
    "cpus_per_task": 4,
    "mem_gb": 8,
    "timeout_min": 30,
    "signal_delay_s": 60,
    "max_num_timeout": 3,
    "array_parallelism": 4,
    "setup": [],
    "additional_parameters": {"requeue": True},
    "poll_s": 0.01,
}


@pytest.fixture
def slurm(commands: Callable[[str, str], None], tmp_path: Path) -> dict[str, Any]:
    """A cluster that takes any array as number 7 and has none in its queue; settings for it."""
    pytest.importorskip("submitit")
    commands("srun", "exit 1")
    commands("sbatch", 'cp "$1" "$(dirname "$0")/../batch.sh"; echo Submitted batch job 7')
    commands("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    commands("scancel", "exit 0")
    return {**SETTINGS, "submitit_folder": str(tmp_path / "out" / "jobs" / ".slurm" / "%j")}


def test_an_array_asks_for_a_gpu_a_task_and_its_script_holds_no_secret(
    slurm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEPER_STORE_URL", "postgresql://me:hunter2@host/db")
    monkeypatch.setattr("sweeper.cli.launchers.watch.GRACE_S", 0.0)
    out = tmp_path / "out"
    record(out, 1, ended=True)
    record(out, 2, ended=True)
    run_on_slurm(handed(out, 1, 2), slurm)
    script = (tmp_path / "batch.sh").read_text()
    for line in (
        "--array=0-1%2",
        "--gpus-per-node=1",
        "--cpus-per-task=4",
        "--mem=8GB",
        "--time=30",
        "--requeue",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "signal=USR2@60" in script
    told = script + "".join(path.read_text(errors="replace") for path in out.rglob("*.pkl"))
    assert "hunter2" not in told
    assert "SLURM job 7: 2 tasks" in capsys.readouterr().err
    assert not (out / "jobs" / ".array").exists()


def test_a_named_kind_of_gpu_takes_the_place_of_the_number(slurm: dict[str, Any], tmp_path: Path) -> None:
    record(tmp_path / "out", 1, ended=True)
    run_on_slurm(handed(tmp_path / "out", 1), {**slurm, "gres": "gpu:h200:1"})
    script = (tmp_path / "batch.sh").read_text()
    assert "#SBATCH --gres=gpu:h200:1\n" in script
    assert "gpus-per-node" not in script


def test_a_task_whose_time_is_up_is_queued_as_it_was(slurm: dict[str, Any], tmp_path: Path) -> None:
    (job,) = handed(tmp_path, 1)
    again = _run.checkpoint(job)
    assert (again.function, again.args) == (_run, (job,))


def test_a_task_whose_node_is_taken_away_stops_and_waits_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it to end by itself, SLURM would not queue it again; were it to go on, dying workers would become rows."""
    waited: list[float] = []
    monkeypatch.setattr("sweeper.cli.launchers.slurm.time.sleep", waited.append)

    def job() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it went on")

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            _run(cast(Any, job))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert waited


def test_a_job_that_was_put_back_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweeper.cli.apart.set_runner", lambda run: None)

    def taken(*_: Any) -> int:
        raise SystemExit

    monkeypatch.setattr("sweeper.cli.session.run", taken)
    main(["-m", "backend=emulator", "kernel=tiled,naive", "+shape=tiny", "results_dir=out"])
    ((_, one),) = read_records(Path("out"))
    assert not one.ended


def test_settings_that_slurm_refuses_are_one_error(
    slurm: dict[str, Any], commands: Callable[[str, str], None], tmp_path: Path
) -> None:
    commands("sbatch", "echo 'sbatch: error: invalid partition specified: none' >&2; exit 1")
    with pytest.raises(ConfigError, match="invalid partition"):
        run_on_slurm(handed(tmp_path / "out", 1, 2), {**slurm, "partition": "none"})


def test_without_slurm_the_error_names_what_is_missing(
    slurm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="no sbatch on PATH"):
        run_on_slurm(handed(tmp_path / "out", 1), slurm)


def test_without_submitit_the_error_names_the_package(
    slurm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SetupError, match="pip install submitit"):
        run_on_slurm(handed(tmp_path / "out", 1), slurm)


def test_a_second_command_waits_for_the_array_of_the_first(
    slurm: dict[str, Any], commands: Callable[[str, str], None], tmp_path: Path
) -> None:
    note = tmp_path / "out" / "jobs" / ".array"
    note.parent.mkdir(parents=True)
    note.write_text("5")
    commands("squeue", "echo '5_0|RUNNING|None'")
    with pytest.raises(SweeperError, match="SLURM job 5 of an earlier command"):
        run_on_slurm(handed(tmp_path / "out", 1), slurm)


def test_an_interrupted_wait_cancels_the_array(
    slurm: dict[str, Any],
    commands: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands("scancel", f'echo "$@" >> {tmp_path}/cancelled')

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweeper.cli.launchers.slurm._wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_on_slurm(handed(tmp_path / "out", 1), slurm)
    assert (tmp_path / "cancelled").read_text().splitlines() == ["--state=PENDING 7", "--signal=INT 7", "7"]


def test_a_held_task_is_told_once(
    commands: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked").touch()
    commands(
        "squeue",
        f"echo >> {tmp_path}/asked; [ $(wc -l < {tmp_path}/asked) -lt 3 ] && echo '7_0|PENDING|JobHeldUser'; exit 0",
    )
    _wait("7", handed(tmp_path, 1), Watch(handed(tmp_path, 1), grace_s=0), 0.001)
    assert capsys.readouterr().err.count("job 1 waits: JobHeldUser") == 1


# On this host


def test_a_place_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-77")
    assert slots(None, None) == ["2", "GPU-77"]
    assert slots(["0", "1"], None) == ["0", "1"]
    assert slots(["0", "1"], 1) == ["0"]
    assert slots(["0", "1"], 3) == ["0", "1", "0"]


def test_without_a_gpu_there_is_one_place_or_as_many_as_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("sweeper.cli.launchers.here.count_gpus", lambda: 0)
    assert slots(None, None) == [None]
    assert slots(None, 2) == [None, None]
    monkeypatch.setattr("sweeper.cli.launchers.here.count_gpus", lambda: 2)
    assert slots(None, None) == ["0", "1"]


@pytest.mark.parametrize(("gpus", "jobs"), [(["0", "0"], None), (None, 0)])
def test_places_that_make_no_sense_are_an_error(gpus: list[str] | None, jobs: int | None) -> None:
    with pytest.raises(ConfigError):
        slots(gpus, jobs)


def test_a_setting_that_a_launcher_does_not_have_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*LOCAL, "kernel=tiled,naive", "+shape=tiny", "hydra.launcher.gpu=0"]) == 2
    captured = capfd.readouterr()
    assert "gpu" in captured.err
    assert "Traceback" not in captured.err


def test_a_configuration_for_slurm_is_composed_where_nothing_of_slurm_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["backend=emulator", "hydra/launcher=slurm", "+shape=tiny"]
    assert main([*command, "--cfg", "hydra"]) == 0
    assert "gpus_per_node: 1" in capfd.readouterr().out
    assert main(["-m", *command, "kernel=tiled,naive", "results_dir=out"]) == 3
    captured = capfd.readouterr()
    assert "error: hydra/launcher=slurm needs" in captured.err
    assert "Traceback" not in captured.err


def test_a_launcher_of_ones_own_is_a_shipped_one_with_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the page on clusters shows it."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(defaults: \[slurm\].*?)```", page, re.DOTALL)
    own = tmp_path / "mine" / "hydra" / "launcher" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(shown)
    assert main(["--config-dir", "mine", "hydra/launcher=mine", "+shape=tiny", "--cfg", "hydra"]) == 0
    told = capfd.readouterr().out
    for line in ("partition: gpu", "gres: gpu:h200:1", "cpus_per_task: 4", "SlurmLauncher"):
        assert line in told
    own.write_text(shown + "partitoin: gpu\n")
    assert main(["--config-dir", "mine", "hydra/launcher=mine", "+shape=tiny", "--cfg", "hydra"]) == 2
    assert "partitoin" in capfd.readouterr().err


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Three jobs two at a time, the first of which lost its process when it had begun."""
    folder = tmp_path_factory.mktemp("killed")
    own = kernel_in(folder / "mine", params={"block": [4, 8]})
    command = [
        sys.executable, "-m", "sweeper", *own, *LOCAL, "hydra.launcher.gpus=[5,GPU-9]",
        "shape=40x40x8,48x48x8,56x56x8", "search=grid", "build.workers=1", f"results_dir={folder / 'out'}",
    ]  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT), "SWEEPER_CACHE": str(folder / "cache")}
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        seen: set[str] = set()
        while time.monotonic() < deadline and process.poll() is None:
            begun = [one for _, one in read_records(folder / "out") if one.number == 1 and not one.ended]
            if begun:
                environ = Path(f"/proc/{begun[0].pid}/environ").read_bytes().split(b"\0")
                seen = {word.decode() for word in environ if word.startswith(b"CUDA_VISIBLE_DEVICES=")}
                os.kill(begun[0].pid, signal.SIGKILL)
                break
            time.sleep(0.005)
        out, err = process.communicate(timeout=90)
    again = python(*command[1:], **environment)
    return SimpleNamespace(folder=folder, code=process.returncode, out=out, err=err, seen=seen, again=again)


def test_a_job_that_is_killed_costs_itself_alone(killed: SimpleNamespace) -> None:
    assert killed.code == 3, killed.err
    assert "Traceback" not in killed.err
    assert "job 1: its process ended by SIGKILL before it was done" in killed.err
    assert "in 2 jobs: 4 ok" in killed.out
    assert "a job is missing; the same command again" in killed.out
    assert killed.seen == {"CUDA_VISIBLE_DEVICES=5"}


def test_the_same_command_again_does_what_is_missing(killed: SimpleNamespace) -> None:
    assert killed.again.returncode == 0, killed.again.stderr
    found = sorted((row["shape"], row["param_block"]) for row in rows(killed.folder / "out"))
    shapes = ("40x40x8", "48x48x8", "56x56x8")
    assert found == sorted((shape, block) for shape in shapes for block in ("4", "8"))
    assert not list((killed.folder / "out" / "jobs").glob(".handed-*"))


def test_an_interrupted_command_ends_its_jobs_and_keeps_what_they_had(tmp_path: Path) -> None:
    own = kernel_in(tmp_path / "mine", params={"block": [2, 4, 8, 16, 32]})
    command = [
        sys.executable, "-m", "sweeper", *own, *LOCAL, "shape=400x400x80,480x480x80", "search=grid",
        f"results_dir={tmp_path / 'out'}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list((tmp_path / "out").glob("jobs/*/study.db-wal")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, err
    assert "Traceback" not in err
    assert out.splitlines()[-1] == f"results: {tmp_path / 'out'}"
    (one,) = [one for _, one in read_records(tmp_path / "out")]
    assert one.facts["error"] == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(one.pid, 0)


# A results folder on a network file system


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is said to be on NFS, and scratch beside it that is not."""
    folder, disk = tmp_path / "home", tmp_path / "scratch"
    folder.mkdir()
    disk.mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(disk))

    def kind(path: Path, **_: Any) -> str | None:
        return "nfs4" if path.resolve().is_relative_to(folder) else None

    for module in ("sqlite_file", "cli.scratch", "cli.storing"):
        monkeypatch.setattr(f"sweeper.{module}.network_file_system", kind)
    return folder


def stored(path: Path) -> list[int]:
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM trials ORDER BY number")]


def test_scratch_is_the_jobs_own_folder_and_never_on_the_network(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scratch() == network.parent / "scratch"
    for name in ("SLURM_TMPDIR", "TMPDIR"):
        monkeypatch.setenv(name, str(network))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(network))
    with pytest.raises(StorageError, match="no folder on a disk"):
        scratch()


def test_a_carried_store_is_in_its_place_when_it_is_closed_and_goes_on_from_there(network: Path) -> None:
    home = network / "study.db"
    with CarriedStore(home) as store:
        store.add(timed(1, 1.0))
        assert not home.exists()
    with CarriedStore(home) as store:
        assert [trial.number for trial in store.trials()] == [1]
        store.add(timed(2, 2.0))
    assert stored(home) == [1, 2]
    assert [path.name for path in network.iterdir()] == ["study.db"], "and no log beside it"
    assert list((network.parent / "scratch").iterdir()) == []


def test_a_carried_store_comes_back_now_and_then_owned_by_nobody(network: Path) -> None:
    home = network / "study.db"
    with CarriedStore(home, period_s=0.01) as store:
        store.claim("s")
        store.add(timed(1, 1.0))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not (home.exists() and stored(home)):
            time.sleep(0.01)
        assert stored(home) == [1]
        with sqlite3.connect(f"file:{home}?immutable=1", uri=True) as connection:
            assert connection.execute("SELECT owner FROM studies WHERE owner IS NOT NULL").fetchall() == []


def test_what_another_process_has_put_in_its_place_is_not_overwritten(network: Path, tmp_path: Path) -> None:
    home = network / "study.db"
    with Store(tmp_path / "other.db") as other:
        other.add(timed(1, 7.0))
    with CarriedStore(home) as store:
        store.add(timed(1, 1.0))
        home.write_bytes((tmp_path / "other.db").read_bytes())
    assert stored(home) == [1, 2]


def test_a_store_that_cannot_be_put_back_is_kept_where_it_is(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, data: bytes) -> None:
        raise StorageError(f"{path} cannot be written: no space")

    store = CarriedStore(network / "study.db")
    store.add(timed(1, 1.0))
    monkeypatch.setattr("sweeper.cli.carried.atomic_write", refused)
    with pytest.raises(StorageError, match="whole in") as raised:
        store.close()
    assert stored(Path(str(raised.value.hint).rpartition(" in ")[2])) == [1]
    store.close()


def test_a_store_on_the_network_is_read_from_a_copy(network: Path, tmp_path: Path) -> None:
    with CarriedStore(network / "study.db") as store:
        store.add(timed(1, 1.0))
    with on_a_disk(network / "study.db") as file:
        assert not file.is_relative_to(network)
        assert stored(file) == [1]
    assert not file.exists()


def test_jobs_and_their_command_work_in_a_network_folder(
    network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a cluster with homes on NFS; a command without a launcher is refused there as before."""
    monkeypatch.chdir(network)
    command = [
        "-m",
        "backend=emulator",
        "kernel=tiled",
        "kernel.params.tile=8,16",
        "+shape=tiny",
        "results_dir=out",
    ]
    assert main(command) == 4
    assert "network file system (nfs4)" in capsys.readouterr().err
    monkeypatch.setattr("sweeper.cli.apart.set_runner", lambda run: None)
    for _ in range(2):
        assert main(command) == 0
        assert {row["param_tile"] for row in rows(Path("out"))} == {"8", "16"}
    assert capsys.readouterr().out.count("1 of them reused") == 2
    assert list(network.rglob("*-wal")) == []
    assert list((network.parent / "scratch").iterdir()) == []
