"""A job in a process of its own, as Hydra's launchers for joblib, submitit and Ray run it.

Such a process has nothing of the command's memory: it may be on another machine. What it knows is the composed
configuration, and what lies in the results folder; what it leaves behind is a store and a record there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.cli.job_record import JOBS_FOLDER, JobRecord, job_folder, read_records, write_record
from sweeper.paths import START_VARIABLE

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["run_job", "set_runner"]

_runner: tuple[int, Callable[[Any], None]] | None = None


def set_runner(run: Callable[[Any], None] | None) -> None:
    """Have `run` do the jobs that Hydra runs in this process; None: nobody here does."""
    global _runner  # noqa: PLW0603
    _runner = None if run is None else (os.getpid(), run)


def run_job(node: DictConfig) -> None:
    """What Hydra calls for each job, here or elsewhere. Launchers find it by its name, so it holds nothing."""
    if _runner is not None and _runner[0] == os.getpid():
        _runner[1](node)
    else:
        _run_apart(node)


def _run_apart(node: DictConfig) -> None:
    from hydra.core.hydra_config import HydraConfig

    from sweeper.cli.command_line import Arguments
    from sweeper.cli.jobs import Jobs
    from sweeper.cli.planned import asked, command_folder, own_overrides

    composed = HydraConfig.get()
    results = Path(str(node.results_dir))
    start = command_folder(results) or Path(os.environ.get(START_VARIABLE) or Path.cwd())
    os.environ[START_VARIABLE] = str(start)
    overrides, number = own_overrides(), int(composed.job.num) + 1
    folder = job_folder(results, overrides)
    folder.mkdir(parents=True, exist_ok=True)
    if any(record.stops_others for _, record in read_records(results)):
        write_record(JobRecord(number, asked(), begun=False), folder)
        return
    write_record(JobRecord(number, asked()), folder)
    given = [
        str(source.path) for source in composed.runtime.config_sources if source.provider == "command-line"
    ]
    arguments = Arguments(
        hydra=(),
        folder=folder,
        multirun=True,
        shows=False,
        config_dirs=tuple(Path(path) for path in given),
        shapes={},
        # A folder that nobody named lies among those of earlier runs.
        earlier=results.parent if results.parent == start / "results" / "runs" else None,
    )
    others = [path for path in (results / JOBS_FOLDER).glob("*/study.db") if path.parent != folder]
    jobs = Jobs(
        arguments, overrides, beside=[results / "study.db", *sorted(others)], before=number - 1, apart=True
    )
    for path in arguments.config_dirs:
        jobs.find_kernels(path)
    put_back = False
    try:
        jobs.run(node)
    except SystemExit:
        # Its time was up, or its node taken away, and it is queued once more: that is no end.
        put_back = True
        raise
    finally:
        jobs.close_store()
        for record in () if put_back else jobs.records:
            write_record(record, folder)
