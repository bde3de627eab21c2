"""`hydra/launcher=local`: jobs in processes of their own on this host, each with a GPU of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sweeper.cli.job_record import JOBS_FOLDER
from sweeper.cli.launchers.handed import HandedJob
from sweeper.cli.launchers.watch import Watch, say
from sweeper.device.present import count_gpus
from sweeper.errors import ConfigError, SetupError

__all__ = ["VISIBLE", "run_here", "slots"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
_MODULE = "sweeper.cli.launchers.process"
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[3])
_POLL_S = 0.05
# What an interrupted job has to close its store; then it is killed.
_CLOSING_S = 15.0


def slots(gpus: Sequence[str] | None, jobs: int | None) -> list[str | None]:
    """What each of the places for a job sets CUDA_VISIBLE_DEVICES to; None leaves it as it is.

    With `jobs` above the number of GPUs a GPU has several places, which takes `backend.allow_shared`. Raises
    ConfigError, and SetupError where the driver does not answer.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"hydra.launcher.jobs={jobs} runs nothing", hint="give 1 or more, or null")
    if gpus is None:
        given = os.environ.get(VISIBLE)
        if given is not None:
            gpus = [name.strip() for name in given.split(",") if name.strip()]
        else:
            try:
                gpus = [str(number) for number in range(count_gpus())]
            except TimeoutError as error:
                raise SetupError(str(error), hint="name the GPUs: hydra.launcher.gpus=[0,1]") from None
    if len(set(gpus)) < len(gpus):
        raise ConfigError(f"hydra.launcher.gpus={list(gpus)} names a GPU twice")
    names: Sequence[str | None] = gpus or [None]
    return [names[place % len(names)] for place in range(len(names) if jobs is None else jobs)]


def run_here(jobs: Sequence[HandedJob], gpus: Sequence[str] | None, side_by_side: int | None) -> None:
    """Run `jobs` in their order, as many at once as there are places. A job that dies leaves the others alone.

    Raises KeyboardInterrupt when the jobs under way have been told and have ended. Raises as `slots` does.
    """
    free = slots(gpus, side_by_side)
    watch = Watch(jobs, grace_s=0)
    waiting = list(jobs)
    running: dict[int, tuple[subprocess.Popen[bytes], str | None]] = {}
    folder = jobs[0].results / JOBS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".handed-", dir=folder) as handed:
        try:
            while waiting or running:
                while waiting and free:
                    job, place = waiting.pop(0), free.pop(0)
                    running[job.number] = _start(job, Path(handed), place), place
                for number, (process, place) in list(running.items()):
                    code = process.poll()
                    if code is None:
                        continue
                    del running[number]
                    free.append(place)
                    watch.look({*running, *(job.number for job in waiting)})
                    if number in watch.lost:
                        say(f"job {number}: its process ended {_ending(code)} before it was done")
                time.sleep(_POLL_S)
        finally:
            _end([process for process, _ in running.values()])


def _start(job: HandedJob, folder: Path, place: str | None) -> subprocess.Popen[bytes]:
    path = folder / f"{job.number}.pkl"
    path.write_bytes(pickle.dumps(job))
    search = os.pathsep.join(filter(None, [_PACKAGE_PARENT, os.environ.get("PYTHONPATH")]))
    chosen = {"PYTHONPATH": search} | ({} if place is None else {VISIBLE: place})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(path)],
            env={**os.environ, **chosen},
            stdin=subprocess.DEVNULL,
            # The terminal's Ctrl-C comes here alone, and each job hears of it once.
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(f"a job's process cannot be started: {error.strerror or error}") from None


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Have `processes` close their stores and end; kill what does not."""
    for process in processes:
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGINT)
    until = time.monotonic() + _CLOSING_S
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"
