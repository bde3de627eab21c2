"""The seam between the loop and whatever runs a kernel; each backend is one file behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeper.device import DeviceIdentity, Target
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Timing
from sweeper.problem import Problem

__all__ = ["Backend", "Entrant", "Finalist", "MeasureProtocol", "Outcome", "Rounds", "Turns"]


@dataclass(frozen=True, slots=True)
class MeasureProtocol:
    """How a configuration is verified and timed.

    `warmup_ms` is how long the device must have worked without a rest before the first sample; verified
    launches, of which there is at least one, count. `min_samples` to `max_samples` samples, stopped early
    once `stopping` holds or `max_seconds` have passed: `width` that the 95 % interval of the median is
    narrower than `relative_width` of it, `entropy` that the entropy of the samples changes by no more than
    `entropy_bits` over their later half, `either` or `both`. `cache` is `cold`, `warm`, or `both`, one after
    the other, the cold one ranking. A launch shorter than `graph_below_ms` is timed by replaying a graph of
    many (0: never). `verify_launches` launches are checked before timing, and one after it.
    `emulated_blocks` bounds the sample of blocks the emulator runs at shapes too large to run whole (0:
    always whole).

    Samples taken at a clock that is more than `clock_tolerance` below the run's are taken again, after
    pauses of together `recovery_s` (`clock_tolerance` None: all count). `lock_clocks` says at what clock
    the device has been held: `base`, `max` or MHz (None: at none). With `transfers` the copies between host
    and device and the CPU's own product are timed too, once a problem, and told in each outcome's details.

    `stop_above_ms` is the time beyond which nobody cares how slow a configuration is: it is verified, but
    sampled only until it is surely slower (an error of at most 1 %), and its timing's note says so.

    `objective` is what the best has least of: `time`, `energy` or `both`. With the last two a configuration,
    once timed, is launched back to back for at least `energy_seconds`, and its timing has the energy.
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
    stopping: str = "width"
    entropy_bits: float = 0.05
    graph_below_ms: float = 0.01
    clock_tolerance: float | None = 0.05
    recovery_s: float = 0.5
    lock_clocks: str | int | None = None
    transfers: bool = False
    objective: str = "time"
    energy_seconds: float = 0.3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running one configuration gave. A failed one is a `TrialFailed` instead.

    `timing` is None where nothing was measured (emulator). `build` is the given build, with the
    figures that only loading it reveals. `phases_s` are wall-clock seconds by phase (`load`, `verify`,
    `warmup`, `measure`, `finish`), None where nobody counted them. `details` are for the trial's own.
    """

    check: Check
    build: Build | None
    launch: Launch | None
    timing: Timing | None = None
    note: str = ""
    phases_s: Mapping[str, float] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finalist:
    """One of several that are timed in turns: a configuration with its build, or a library's kernel.

    `chosen` says which of a library's ways to compute the problem is meant, as its outcome's details did.
    """

    point: Point | None = None
    build: Build | None = None
    library: str | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A finalist with the problem that it has to solve and the launch that it needs."""

    finalist: Finalist
    problem: Problem
    launch: Launch | None = None


@dataclass(frozen=True, slots=True)
class Rounds:
    """`count` blocks, in each of which everyone is timed once, in an order drawn anew for every block.

    `seed` and the block's number, counted from `first`, fix the order. A block that would end more than
    `seconds` after the beginning is not begun, except the first. `cache` is the state of the L2 before each
    time, `cold` or `warm` (empty: what the protocol ranks by).
    """

    count: int
    first: int = 0
    seed: int = 0
    seconds: float = 30.0
    cache: str = ""


@dataclass(frozen=True, slots=True)
class Turns:
    """What one of several gave: `times_ms` (milliseconds a launch) has one entry a block.

    `reason` says why it failed, if it did; the others have one number of entries, all of them. `held_ms`
    are those of blocks that were taken again. `build` and `launch` have the figures that loading reveals.
    """

    times_ms: tuple[float, ...] = ()
    held_ms: tuple[float, ...] = ()
    reason: str = ""
    note: str = ""
    build: Build | None = None
    launch: Launch | None = None


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

    # Optional, for a backend that has a clock:
    #
    # def confirm(
    #     self, entrants: Sequence[Entrant], protocol: MeasureProtocol, rounds: Rounds
    # ) -> tuple[Turns, ...]: verify each of the entrants and time all of them in turns, on the device
    #     that they share; one that fails does not end the others. A failure after which the process is not
    #     usable is raised, with its place in `details["entrant"]`.

    def close(self) -> None: ...
