"""The seam between the loop and whatever runs a kernel; each backend is one file behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sweeper.device import DeviceIdentity, Target
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Timing
from sweeper.problem import Problem

__all__ = ["Backend", "MeasureProtocol", "Outcome"]


@dataclass(frozen=True, slots=True)
class MeasureProtocol:
    """How a configuration is verified and timed.

    `warmup_ms` is how long the device must have worked without a rest before the first sample; verified
    launches, of which there is at least one, count. `min_samples` to `max_samples` samples, stopped early
    once the 95 % interval of the median is narrower than `relative_width` of it or `max_seconds` have
    passed; `cache` is `cold` or `warm`. `verify_launches` launches are checked before timing, and one
    after it. `emulated_blocks` bounds the sample of blocks the emulator runs at shapes too large to run
    whole (0: always whole).

    `stop_above_ms` is the time beyond which nobody cares how slow a configuration is: it is verified, but
    sampled only until it is surely slower (an error of at most 1 %), and its timing's note says so.
    """

    warmup_ms: float = 20.0
    min_samples: int = 10
    max_samples: int = 100
    max_seconds: float = 1.0
    relative_width: float = 0.01
    cache: str = "cold"
    verify_launches: int = 2
    deadline_s: float = 60.0
    emulated_blocks: int = 12
    allow_nondeterministic: bool = False
    stop_above_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running one configuration gave. A failed one is a `TrialFailed` instead.

    `timing` is None where nothing was measured (emulator). `build` is the given build, with the
    figures that only loading it reveals. `phases_s` are wall-clock seconds by phase (`load`, `verify`,
    `warmup`, `measure`, `finish`), None where nobody counted them.
    """

    check: Check
    build: Build | None
    launch: Launch | None
    timing: Timing | None = None
    note: str = ""
    phases_s: Mapping[str, float] | None = None


class Backend(Protocol):
    """One way to run kernels. Lives in the process that owns the device; never in the parent.

    Every method may raise `SetupError` (the device is unusable) and, for one configuration,
    `TrialFailed`; with `details["sticky"]` true the process is no longer usable and ends itself.
    """

    name: str

    def open(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Acquire the device. `target` names limits to assume where there is no device to ask."""
        ...

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Allocate arrays, fill inputs and compute the reference for what follows."""
        ...

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        """Verify, and where the backend has a clock time, one configuration of the prepared kernel."""
        ...

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """The library's answer to the prepared problem, verified and timed in the same way."""
        ...

    def close(self) -> None: ...
