"""Proof without a GPU: a configuration's blocks run on the CPU and every result is compared.

Nothing is timed, because emulated seconds say nothing of a GPU's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.emulator_verify import Verifier
from sweeper.build.cache import BuildCache
from sweeper.build.host import HostBuilder
from sweeper.build.source import translation_unit
from sweeper.device import DeviceIdentity, Target
from sweeper.device import target as known_target
from sweeper.emulation import find_compiler, launcher_path
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, KernelSpec, Launch, Point, Stage, Status
from sweeper.problem import Problem

__all__ = ["EmulatorBackend"]

_DEFAULT_TARGET = "h200"
_BUILD_DEADLINE_S = 120.0


class EmulatorBackend:
    """Runs modules of `HostBuilder` and compares their results with the problem's reference.

    Every configuration runs whole at a reduced shape, once with the threads of a block in order and
    once in reverse, which a missing barrier seldom survives. Then the true shape runs: whole where that
    is affordable, else a sample of its blocks. `workers` OS threads share the blocks of a launch.
    """

    name = "emulator"

    def __init__(self, *, cache: BuildCache | None = None, workers: int | None = None) -> None:
        self._cache = cache
        self._workers = workers or len(os.sched_getaffinity(0))
        self._target: Target | None = None
        self._launcher = Path()
        self._verifier: Verifier | None = None

    def open(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """The limits of `target` (default: h200). Raises SetupError without a C++ compiler."""
        self._target = known_target(target or _DEFAULT_TARGET)
        self._launcher = launcher_path(find_compiler())
        identity = DeviceIdentity(f"emulated {self._target.name}", index=device)
        return self._target, identity

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Make `problem` the one that `measure` verifies; its arrays are filled when first needed.

        Raises TrialFailed where the target's memory could not hold it.
        """
        target = self._opened()
        self._release()
        if problem.total_bytes > target.memory_bytes:
            wanted, free = problem.total_bytes, target.memory_bytes
            raise TrialFailed(
                Status.OUT_OF_MEMORY,
                Stage.LOAD,
                f"the arrays need {wanted / 1e9:.1f} GB, {target.name} has {free / 1e9:.1f} GB",
                details={"wanted_bytes": wanted, "free_bytes": free},
            )
        self._verifier = Verifier(
            problem,
            target,
            self._launcher,
            workers=self._workers,
            reference_build=lambda: self._build_reference(spec, target),
        )

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        """Verify one configuration; `check.note` says which blocks ran, `note` what else was seen."""
        if self._verifier is None:
            raise SetupError("the emulator was asked to run before a problem was prepared")
        if build.kind != HostBuilder.kind:
            raise SetupError(
                f"the emulator cannot run what {build.kind} builds", hint="build with HostBuilder"
            )
        check, remarks = self._verifier.verify(point, launch, build, protocol)
        return Outcome(check=check, build=build, launch=launch, note="; ".join(remarks))

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """Raises SetupError: libraries need a GPU."""
        del protocol
        raise SetupError(
            f"{library} cannot be run without a GPU", hint="leave baseline empty with backend=emulator"
        )

    def close(self) -> None:
        self._release()

    def _opened(self) -> Target:
        if self._target is None:
            raise SetupError("the emulator was asked to run before it was opened")
        return self._target

    def _release(self) -> None:
        if self._verifier is not None:
            self._verifier.close()
            self._verifier = None

    def _build_reference(self, spec: KernelSpec, target: Target) -> Build:
        """The module of the plain kernel that the description names as reference."""
        unit = translation_unit(spec, spec.default_point)
        name = spec.reference.text
        unit = replace(unit, entry=name, template_args=(), signature=name, digest=f"{unit.digest}:{name}")
        self._cache = self._cache or BuildCache()
        builder = HostBuilder(self._cache)
        return builder.build(unit, arch=target.arch, deadline_s=_BUILD_DEADLINE_S)
