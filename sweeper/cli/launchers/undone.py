"""Which jobs of a multirun an earlier command with the same results folder has left to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sweeper.cli.described import kernel_file
from sweeper.cli.job_record import JobRecord, job_folder, record_before, write_record
from sweeper.cli.launchers.handed import HandedJob
from sweeper.cli.launchers.watch import say
from sweeper.config import validate
from sweeper.errors import SweeperError
from sweeper.kernel.description import load

__all__ = ["undone"]


def undone(jobs: Sequence[HandedJob]) -> list[HandedJob]:
    """`jobs` without those that an earlier command has done, whose records count for this one.

    Done is what ended well, all of its configurations right, with this very configuration and the kernel's sources as
    they are now; with resume=false nothing is. Another driver or GPU is no reason to do it again: rows have theirs.
    Raises StorageError.
    """
    left = []
    for job in jobs:
        folder = job_folder(job.results, job.own)
        before = record_before(folder)
        if before is not None and _is_done(job, before):
            write_record(replace(before, number=job.number), folder)
        else:
            left.append(job)
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} jobs were done before; resume=false does them again")
    return left


def _is_done(job: HandedJob, before: JobRecord) -> bool:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if not before.ended or before.code or before.failed:
        return False
    try:
        runtime, plain = job.composed()
        if not plain["resume"] or json.loads(json.dumps(plain)) != before.config:
            return False
        spec = load(validate(plain).kernel, kernel_file(runtime))
    except (HydraException, OmegaConfBaseException, SweeperError, OSError):
        # The job itself says what is wrong.
        return False
    measured = before.facts.get("kernel")
    return isinstance(measured, dict) and measured.get("digest") == spec.digest
