"""`hydra/launcher=slurm`: jobs as a SLURM array, submitted by submitit and waited for by records and queue."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.cli.job_record import JOBS_FOLDER
from sweeper.cli.launchers.handed import HandedJob
from sweeper.cli.launchers.queue import cancel, queued
from sweeper.cli.launchers.watch import Watch, say
from sweeper.errors import ConfigError, SetupError, SweeperError

__all__ = ["run_on_slurm"]

# The array of the command that this folder belongs to, for as long as it runs.
_ARRAY_FILE = ".array"
# What interrupted tasks have to close their stores; then they are cancelled.
_CLOSING_S = 20.0
# More than a cluster's grace time between SIGTERM and SIGKILL.
_TAKEN_AWAY_S = 600.0
_UNSEEN = 3


def run_on_slurm(jobs: Sequence[HandedJob], settings: Mapping[str, Any]) -> None:
    """Submit `jobs` as an array with these settings and return when each has ended or is lost.

    An interrupt cancels the array. Raises SetupError where submitit or SLURM is missing, ConfigError where SLURM
    refuses the settings, and SweeperError where an earlier command's array still works on these results.
    """
    settings = dict(settings)
    poll_s = float(settings.pop("poll_s"))
    note = jobs[0].results / JOBS_FOLDER / _ARRAY_FILE
    _refuse_second(note)
    array, folder = _submit(jobs, settings)
    atomic_write(note, array.encode())
    say(f"SLURM job {array}: {len(jobs)} task{'s' * (len(jobs) > 1)}; what they print: {folder}")
    watch = Watch(jobs, tell=say)
    with _cancelled_on_interrupt(array):
        _wait(array, jobs, watch, poll_s)
    # A task that somebody requeued when it was as good as done has nothing left to do.
    cancel(array, "--state=PENDING")
    note.unlink(missing_ok=True)
    for place, job in enumerate(jobs):
        if job.number in watch.lost:
            name = f"{array}_{place}" if len(jobs) > 1 else array
            say(f"job {job.number} ({job.asked}): SLURM job {name} ended before it was done")


def _refuse_second(note: Path) -> None:
    with contextlib.suppress(OSError):
        earlier = note.read_text(encoding="utf-8").strip()
        if earlier.isdigit() and queued(earlier):
            raise SweeperError(
                f"SLURM job {earlier} of an earlier command still works on {note.parents[1]}",
                hint=f"wait until it has ended, or `scancel {earlier}`; what it measures is kept",
            )


def _submit(jobs: Sequence[HandedJob], settings: dict[str, Any]) -> tuple[str, Path]:
    """The array's number, and the folder that holds its output."""
    try:
        import submitit
    except ImportError:
        raise SetupError("hydra/launcher=slurm needs submitit", hint="pip install submitit") from None
    for program in ("sbatch", "squeue", "scancel"):
        if shutil.which(program) is None:
            raise SetupError(
                f"hydra/launcher=slurm needs SLURM's commands, and there is no {program} on PATH",
                hint="run it on the cluster's login node, or use hydra/launcher=local",
            )
    folder = str(settings.pop("submitit_folder"))
    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=int(settings.pop("max_num_timeout")))
    parameters = {
        _SBATCH.get(name, name): value for name, value in settings.items() if value not in (None, [], {})
    }
    if "mem" in parameters:
        parameters["mem"] = f"{parameters['mem']}GB"
    if parameters.get("gres"):
        parameters.pop("gpus_per_node", None)
    try:
        executor.update_parameters(**parameters)
        handed = executor.map_array(_run, jobs)
    except (ValueError, submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"SLURM does not take the array: {str(error).strip().splitlines()[-1]}",
            hint="hydra.launcher.partition, .account and .gres are those of your cluster",
        ) from None
    array = handed[0].job_id.partition("_")[0]
    return array, Path(folder.replace("%j", f"{array}_*" if len(jobs) > 1 else array))


# What submitit calls sbatch's options by, where our settings have names of Hydra's launchers.
_SBATCH = {"name": "job_name", "timeout_min": "time", "mem_gb": "mem", "tasks_per_node": "ntasks_per_node"}


class _Preempted(SystemExit):
    """SLURM takes the node away: whatever dies now says nothing about a configuration."""


def _preempted(*_: object) -> None:
    raise _Preempted


class _Run:
    """What submitit calls in the task's process, and asks for what to queue when its time is up."""

    def __call__(self, job: HandedJob) -> None:
        # SLURM tells all processes of a task at once, and a worker ends of it: its death must not become a row.
        signal.signal(signal.SIGTERM, _preempted)
        try:
            job()
        except _Preempted:
            # A task that ends by itself counts as done; one that is killed in the end is queued again.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(_TAKEN_AWAY_S)
            raise

    def checkpoint(self, job: HandedJob) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self, job)


_run = _Run()


def _wait(array: str, jobs: Sequence[HandedJob], watch: Watch, poll_s: float) -> None:
    """Return when no job is left; say what keeps one waiting that only a person can let go on."""
    said: set[str] = set()
    unseen = 0
    while True:
        tasks = queued(array)
        alive = None if tasks is None else {jobs[task.place].number for task in tasks}
        if watch.look(alive):
            return
        unseen = 0 if tasks is not None else unseen + 1
        if unseen == _UNSEEN:
            say("squeue does not answer; waiting for the jobs' own records")
        for task in tasks or ():
            told = f"job {jobs[task.place].number} waits: {task.reason}"
            if task.stuck and told not in said:
                said.add(told)
                say(f"{told}; `scontrol release` or Ctrl-C ends that")
        time.sleep(poll_s)


@contextlib.contextmanager
def _cancelled_on_interrupt(array: str) -> Iterator[None]:
    """On any way out but the usual one nothing of the array stays: first asked to end, then made to."""
    try:
        yield
    except BaseException:
        say(f"SLURM job {array} is being cancelled")
        try:
            cancel(array, "--state=PENDING")
            cancel(array, "--signal=INT")
            until = time.monotonic() + _CLOSING_S
            while queued(array) and time.monotonic() < until:
                time.sleep(0.5)
        finally:
            cancel(array)
        raise
