"""One asked configuration on its way to a trial, whatever comes of it."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from sweeper.backend.base import Outcome
from sweeper.errors import TrialFailed
from sweeper.evaluate import Ticket
from sweeper.model import Build, Check, Launch, Point, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.problem import resolve
from sweeper.resources import Resources, resources, roofline_ms, suspect
from sweeper.table.row import time_ms
from sweeper.tune.study import Study

__all__ = ["STOPPED", "Asked"]

STOPPED = "stopped_above_ms"
"""The detail of a trial that need not have been sampled in full: it was slower than this."""


class Asked:
    """One asked configuration (or library) on its way to a trial."""

    def __init__(self, study: Study, point: Point | None, library: str | None) -> None:
        self.study = study
        self.point = point
        self.library = library
        self.role = Role.CANDIDATE if library is None else Role.BASELINE
        self.stored: Trial | None = None
        self.ticket: Ticket | None = None
        self.failed: TrialFailed | None = None
        self.outcome: Outcome | None = None

    def start(self) -> None:
        """Begin to build and run it."""
        world = self.study.evaluator
        try:
            self.ticket = (
                world.baseline(self.library or "") if self.point is None else world.submit(self.point)
            )
        except TrialFailed as failure:
            self.failed = failure

    def wait(self) -> None:
        """Wait for what comes of it."""
        if self.ticket is None:
            return
        try:
            self.outcome = self.study.evaluator.finish(self.ticket)
        except TrialFailed as failure:
            self.failed = failure

    @property
    def params(self) -> dict[str, Any]:
        return {"library": self.library} if self.point is None else self.point.params

    def finish(self) -> Trial:
        """Describe what came of it."""
        if self.failed is not None:
            return self._failure(self.failed)
        outcome = self.outcome
        if outcome is None:
            raise AssertionError("it is waited for first")
        trial = self._trial(Status.OK, Stage.DONE, outcome.build, outcome.launch, {})
        trial = replace(trial, check=outcome.check, timing=outcome.timing)
        notes = "; ".join(n for n in (outcome.note, self._suspicion(trial)) if n)
        found: dict[str, Any] = {"note": notes} if notes else {}
        value, limit = time_ms(trial), self.ticket.stop_above_ms if self.ticket else None
        if trial.timing is not None and value is not None and limit is not None and value > limit:
            found[STOPPED] = limit
        found = {**outcome.details, **found}
        return replace(trial, details={**trial.details, **found}) if found else trial

    def _suspicion(self, trial: Trial) -> str:
        """What makes a measured time implausible on this device, with a cold or a warm cache."""
        timings = [t for t in (trial.timing, trial.timing.beside if trial.timing else None) if t is not None]
        found = [(t.cache, self._why_suspect(t)) for t in timings]
        several = len(timings) > 1
        return "; ".join(f"suspect{f' ({cache})' if several else ''}: {why}" for cache, why in found if why)

    def _why_suspect(self, timing: Timing) -> str | None:
        study, world = self.study, self.study.evaluator
        value = median(timing.samples_ms) if timing.samples_ms else None
        if value is None:
            return None
        kind = study.spec.dtype, world.target
        # A clock's word on a flushed cache: a recorded row's may be somebody else's.
        is_cold = timing.cache == "cold" and world.time_source is TimeSource.MEASURED
        why = suspect(study.flops, study.bytes, value, *kind)
        if why is None and is_cold and suspect(0, 0, value, *kind, cold_bytes=study.bytes):
            why = suspect(study.flops, study.bytes, value, *kind, cold_bytes=self._input_bytes())
        return why

    def _input_bytes(self) -> int:
        """What a launch has to read at least."""
        study = self.study
        point = self.point or study.spec.default_point
        problem = resolve(study.spec, study.dims, point, seed=study.seed)
        return sum(array.nbytes for array in problem.arrays if array.is_input)

    def _failure(self, failure: TrialFailed) -> Trial:
        details = dict(failure.details)
        check = details.pop("check", None)
        launch = details.pop("launch", None)
        details.setdefault("exception", details.get("type") or type(failure.__cause__ or failure).__name__)
        build = self._finished_build()
        trial = self._trial(
            failure.status, failure.stage, build, launch if isinstance(launch, Launch) else None, details
        )
        checked = check if isinstance(check, Check) else None
        return replace(trial, reason=failure.reason, check=checked, time_source=None, predicted_ms=None)

    def _finished_build(self) -> Build | None:
        future = self.ticket.build if self.ticket else None
        ready = future is not None and future.done() and not future.cancelled() and future.exception() is None
        return future.result() if future is not None and ready else None

    def _trial(
        self,
        status: Status,
        stage: Stage,
        build: Build | None,
        launch: Launch | None,
        details: dict[str, Any],
    ) -> Trial:
        study, world = self.study, self.study.evaluator
        figures = self._figures(build)
        if figures is not None:
            details = {"roofline_ms": figures.roofline_ms, "limited_by": figures.limited_by, **details}
        elif status is Status.OK:
            # The static model knows nothing of a library's kernel; the device's limit is the same for it.
            limit = roofline_ms(study.flops, study.bytes, study.spec.dtype, world.target)
            details = {"roofline_ms": limit, **details}
        if study.objective != "time":
            details = {**details, "objective": study.objective}
        measured = world.time_source is TimeSource.MEASURED
        device = self.ticket.device if self.ticket is not None else None
        return Trial(
            study=study.name,
            number=0,
            context=study.context,
            kernel=self.library or study.spec.name,
            dtype=study.spec.dtype.name,
            shape=study.shape,
            dims=dict(study.dims),
            params=self.params,
            status=status,
            stage=stage,
            role=self.role,
            details=details,
            time_source=world.time_source,
            predicted_ms=figures.predicted_ms if figures else None,
            launch=launch or (figures.launch if figures else None),
            build=build,
            occupancy=figures.occupancy if figures else None,
            flops=study.flops,
            bytes=study.bytes,
            backend=world.backend,
            device=(device or world.identity).name,
            device_uuid=(device or world.identity).uuid,
            driver=world.identity.driver,
            kernel_digest=study.spec.digest if self.role is Role.CANDIDATE else "",
            seed=study.seed,
            build_s=_spent(build) if build is not None and measured else None,
            measure_s=self.ticket.measure_s if self.ticket is not None and measured else None,
        )

    def _figures(self, build: Build | None) -> Resources | None:
        """The static model's view of this point, with the compiler's registers where it gave them."""
        if self.point is None:
            return None
        study = self.study
        return resources(
            study.spec,
            self.point,
            study.dims,
            study.evaluator.target,
            registers=build.registers if build else None,
            flops=study.flops,
            bytes=study.bytes,
        )


def _spent(build: Build) -> float:
    """Seconds that this run spent on `build`: none where it was found in the cache."""
    return 0.0 if build.cached else build.seconds
