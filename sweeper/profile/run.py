"""Jobs under the profiler: each is built, launched in a process of its own under ncu, and its counters read.

A process a job: a kernel that loses its context costs itself alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sweeper import errors
from sweeper.build.make import make_builder
from sweeper.build.pool import Builder
from sweeper.build.source import translation_unit
from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError, SweeperError, TrialFailed
from sweeper.model import Build
from sweeper.profile.expected import expect
from sweeper.profile.job import Job
from sweeper.profile.metrics import METRICS
from sweeper.profile.ncu import (
    Finished,
    find_ncu,
    known_refusal,
    refusal,
    run_ncu,
    unknown_metric,
    version_of,
)
from sweeper.profile.profile import Profile, profile_of
from sweeper.profile.raw_csv import read_raw
from sweeper.profile.request import Reply, Request
from sweeper.wire import WireError, from_wire, to_wire
from sweeper.worker.pool import DeviceWorker

__all__ = ["Failed", "Profiler", "Settings"]

_TARGET = "sweeper.profile.target"
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SweeperError) and kind is not TrialFailed
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`ncu` names the program (None: found); `device` counts in PCI order; `compiler` and `cache` are those
    of a sweep; `timeout_s` bounds one job under ncu, `build_deadline_s` one compile."""

    ncu: Path | None = None
    device: int = 0
    allow_shared: bool = False
    compiler: str = "auto"
    cache: bool = True
    timeout_s: float = 300.0
    build_deadline_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that could not be profiled, and why in one line."""

    job: Job
    reason: str


class Profiler:
    """ncu, a compiler and a GPU that are there; use as a context.

    Raises SetupError where one of them is missing, before anything is built.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self.ncu = find_ncu(self._settings.ncu)
        self.version = version_of(self.ncu)
        self.target, self.identity = self._ask_device()
        self._metrics = list(METRICS)
        self._builder: Builder = make_builder("cuda", self._settings.compiler, cache=self._settings.cache)
        try:
            self._builder.check(self.target.arch)
        except BaseException:
            self._builder.close()
            raise

    def _ask_device(self) -> tuple[Target, DeviceIdentity]:
        """The device's limits and identity, from a process that has given it back when this returns."""
        chosen = self._settings
        with closing(DeviceWorker("cuda", device=chosen.device, allow_shared=chosen.allow_shared)) as worker:
            return worker.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.close()

    def run(
        self, jobs: Iterable[Job], say: Callable[[str], object] = lambda _: None
    ) -> Iterator[Profile | Failed]:
        """Each job's counters, or why that job failed. Raises SetupError for what would fail every job."""
        for job in jobs:
            say(f"profiling {job.title} ({' '.join(job.problem[1:3])})")
            try:
                yield self.profile(job)
            except TrialFailed as failure:
                yield Failed(job, failure.reason)

    def profile(self, job: Job) -> Profile:
        """The counters of one job. Raises TrialFailed where this job fails, SetupError, ConfigError."""
        build = None if job.library else self._build(job)
        with tempfile.TemporaryDirectory(prefix="sweeper-profile-") as folder:
            request, reply = Path(folder) / "request.json", Path(folder) / "reply.json"
            request.write_text(json.dumps(to_wire(self._request(job, build))), encoding="utf-8")
            finished = self._count(
                [sys.executable, "-P", "-m", _TARGET, str(request), str(reply)], cold=job.cold
            )
            launches = read_raw(finished.log)
            answered = _reply(reply)
        # Where ncu may not count, the program's launch may fail with it, and that is no fault of the program's.
        cause = None if launches else known_refusal(finished)
        if cause is not None:
            raise cause
        if answered is not None and answered.error:
            raise _error_of(answered)
        if not launches or answered is None:
            raise refusal(finished, answered=answered is not None)
        return profile_of(job, self.identity.name, expect(job, self.target, build), build, launches)

    def _count(self, program: Sequence[str], *, cold: bool) -> Finished:
        """Run `program` under ncu, again without each metric that this version does not know."""
        while True:
            finished = run_ncu(
                self.ncu,
                self._metrics,
                program,
                cold=cold,
                timeout_s=self._settings.timeout_s,
                env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONPATH": _python_path()},
            )
            unknown = unknown_metric(finished, self._metrics)
            if unknown is None:
                return finished
            self._metrics.remove(unknown)

    def _build(self, job: Job) -> Build:
        unit = translation_unit(job.spec, job.point)
        deadline = self._settings.build_deadline_s
        return self._builder.build(unit, arch=self.target.arch, deadline_s=deadline)

    def _request(self, job: Job, build: Build | None) -> Request:
        return Request(
            kernel=job.spec.node_json,
            path=job.spec.path,
            dims=dict(job.dims),
            seed=job.seed,
            params=job.point.params,
            build=build,
            device=self._settings.device,
            allow_shared=self._settings.allow_shared,
            library=job.library,
        )


def _python_path() -> str:
    """Where the profiled process finds this package, behind what is looked through already."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([*given, _PACKAGE_PARENT])


def _reply(path: Path) -> Reply | None:
    """What the profiled process wrote; None where it did not get that far."""
    try:
        return from_wire(Reply, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, WireError):
        return None


def _error_of(reply: Reply) -> SweeperError:
    """The profiled process's own error, as it was raised there."""
    if reply.status is not None and reply.stage is not None:
        return TrialFailed(reply.status, reply.stage, reply.error)
    kind = _ERRORS.get(reply.kind, SetupError)
    return kind(reply.error, hint=reply.hint or None)
