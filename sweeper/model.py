"""The frozen values that flow through a run, and the columns of a result row.

KernelSpec → Point → Build → Timing → Trial → (elsewhere) Verdict. Nothing here computes: a module
that makes one of these values is the one place that knows how.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sweeper.dtypes import DType
from sweeper.expressions import Expression, Value
from sweeper.status import Stage, Status

__all__ = [
    "ArraySpec",
    "Build",
    "Check",
    "Confirmed",
    "Direction",
    "Energy",
    "KernelSpec",
    "Launch",
    "LaunchSpec",
    "Mismatch",
    "ParamSpec",
    "Point",
    "ReferenceSpec",
    "Requires",
    "Role",
    "ScalarSpec",
    "Stage",
    "Status",
    "TensorMapSpec",
    "TimeSource",
    "Timing",
    "Trial",
    "TripSpec",
    "WorkModel",
    "canonical_json",
    "digest",
]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, *, length: int = 16) -> str:
    """The first `length` hex digits of the SHA-256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


class TimeSource(StrEnum):
    """Where a time comes from: a clock, the static model, or somebody's recorded table."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    REPLAYED = "replayed"


class Role(StrEnum):
    """A configuration of the kernel under search, or a library's kernel beside it."""

    CANDIDATE = "candidate"
    BASELINE = "baseline"


class Direction(StrEnum):
    """What a kernel does with an array: reads it, writes all of it, both, or uses it as a workspace."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Point:
    """One choice of every parameter, in the order of the kernel's description."""

    items: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, params: Mapping[str, Value]) -> Point:
        return cls(tuple(params.items()))

    @property
    def params(self) -> dict[str, Value]:
        return dict(self.items)

    @property
    def key(self) -> str:
        """Equal for equal choices, whatever the order they were given in."""
        return canonical_json(self.params)

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.items)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items) or "(no parameters)"


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A tunable parameter: its explicit levels in order, and the one an untuned user would take."""

    name: str
    levels: tuple[Value, ...]
    default: Value


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array argument in C order, `shape` in elements over dims and params.

    `dtype` None stands for the kernel's own precision class (`T`); `fill` is `uniform`, `normal`,
    `integers`, `zeros` or `ones`; for an output it is what the array holds before an `inout` launch. That of
    a `scratch` array is `zeros` or `none`. `pitch` is how many elements lie from the start of one row to that
    of the next, a row being what the last size counts; None: rows follow each other without a gap.
    """

    name: str
    dtype: DType | None
    shape: tuple[Expression, ...]
    direction: Direction
    fill: str = "uniform"
    pitch: Expression | None = None


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A scalar argument, cast to `dtype` exactly as declared."""

    name: str
    dtype: DType | None
    value: Expression


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A tensor map that the kernel takes behind its other arguments: how TMA copies boxes of an array.

    Which of `arrays` that is `choice` says, counted from 0; None: there is one. `box` has the sizes of a box in
    elements, in the order of the array's shape. `swizzle` evaluates to 0, 32, 64 or 128 (bytes). What lies
    outside the array reads as `fill`: `zeros` or `nan`.
    """

    name: str
    arrays: tuple[str, ...]
    box: tuple[Expression, ...]
    swizzle: Expression
    fill: str = "zeros"
    choice: Expression | None = None

    @property
    def compiled_expressions(self) -> tuple[Expression, ...]:
        """Those that may follow from parameters only."""
        return (*self.box, self.swizzle)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Launch geometry as expressions over params, dims and device limits.

    `shared_bytes` is dynamic shared memory; `static_shared_bytes` what the source declares itself,
    so that a block too large for the target is pruned before it is compiled. `cluster` has the sizes of a
    thread block cluster in blocks; None: no clusters.
    """

    block: tuple[Expression, Expression, Expression]
    grid: tuple[Expression, Expression, Expression]
    shared_bytes: Expression
    static_shared_bytes: Expression
    cluster: tuple[Expression, Expression, Expression] | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch geometry at one point; `cluster` in blocks, None without clusters."""

    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared_bytes: int
    static_shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True)
class Requires:
    """What must hold beside the constraints: a compute capability, and conditions on the problem."""

    min_cc: tuple[int, int] = (0, 0)
    arch_specific: bool = False
    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceSpec:
    """Where right results come from.

    `kind` is `contraction` (`text` such as `mk,kn->mn`, operands in argument order), `kernel`
    (`text` names a plain kernel of the same source, one thread a work item, `launch` its geometry)
    or `python` (`path` and the function's name in `text`; called with the input arrays as float64
    and the scalars, by argument name; returns one array or a dict by output name). `digest` is that
    of the Python file's content, for what depends on it.
    """

    kind: str
    text: str
    path: Path | None = None
    launch: LaunchSpec | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class WorkModel:
    """What one block does, as expressions: the static model's input. None means `unknown`.

    `flops` and `global_bytes` (L2 to SM) and `shared_traffic_bytes` (shared memory to registers)
    are per block; `registers` per thread; `steps` counts barrier-separated steps.
    """

    flops: Expression | None = None
    global_bytes: Expression | None = None
    shared_traffic_bytes: Expression | None = None
    registers: Expression | None = None
    steps: Expression | None = None


@dataclass(frozen=True, slots=True)
class TripSpec:
    """What is timed is the whole way from the host's arrays to the host's arrays, in parts.

    The problem is cut along the size `axis` into `chunks` parts of whole rows, which take turns on `streams`
    streams: copies of one part go on beside the launch of another. Arrays whose first axis is that size are
    cut, all others are copied whole beforehand. `pinned` says whether the host's arrays are page-locked.
    """

    axis: str
    chunks: Expression
    streams: Expression
    pinned: Expression


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel's description, checked against its source; `kernel.load` makes it.

    `template` holds the C++ template arguments in order: "T" for the precision class's C++ type, or
    an expression; empty for a plain kernel. `defines` are macros and their values. `dims` names the
    problem's sizes as used in expressions (upper case) with the description's own defaults, if any;
    `optional_dims` those that follow from the others unless they are given, such as a leading dimension.
    `work_flops` is the problem's FLOP count (None: derived from the contraction, else unknown).
    `digest` covers the source and every header it includes; `node_json` is the description as given,
    from which another process loads the same kernel. With `forbid_spills` a build that uses local memory
    is not tried. With a `trip` not a launch is timed but the whole way from host to host.
    `layout` has a letter for each operand of a contraction, n as described or t transposed in memory, which
    shapes and contraction follow already.
    """

    name: str
    path: Path
    source: Path
    entry: str
    template: tuple[Expression | str, ...]
    dtype: DType
    dtypes: tuple[DType, ...]
    dims: Mapping[str, int | None]
    params: tuple[ParamSpec, ...]
    constraints: tuple[Expression, ...]
    launch: LaunchSpec
    args: tuple[ArraySpec | ScalarSpec, ...]
    requires: Requires
    reference: ReferenceSpec
    defines: Mapping[str, Expression]
    options: tuple[str, ...]
    tolerance: float
    model: WorkModel
    work_flops: Expression | None
    digest: str
    description: str = ""
    node_json: str = ""
    forbid_spills: bool = False
    optional_dims: Mapping[str, Expression] = field(default_factory=dict)
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    trip: TripSpec | None = None
    layout: str = ""

    @property
    def default_point(self) -> Point:
        return Point(tuple((p.name, p.default) for p in self.params))

    def point_of(self, params: Mapping[str, Value]) -> Point:
        """The configuration `params`, in the description's order.

        A parameter that they lack stands at its default: one that a kernel got after they were recorded leaves it, at
        its default, as it was. Raises ValueError that names what this kernel has no parameter for.
        """
        unknown = sorted(set(params) - {p.name for p in self.params})
        if unknown:
            raise ValueError(f"{self.name} has no parameter {', '.join(unknown)}")
        return Point(tuple((p.name, params.get(p.name, p.default)) for p in self.params))

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        return tuple(a for a in self.args if isinstance(a, ArraySpec))


@dataclass(frozen=True, slots=True)
class Build:
    """A compiled configuration: where it is, what to launch, and what the compiler said of it.

    `kind` is `nvcc`, `nvrtc` or `host`. Register and memory figures are None where the compiler
    does not know them; `spill_bytes` counts stores and loads.
    """

    key: str
    kind: str
    artifact: Path
    entry: str
    compiler: str
    options: tuple[str, ...] = ()
    registers: int | None = None
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    spill_bytes: int | None = None
    seconds: float = 0.0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One wrong element: where, what was found, what was expected, and the bound it broke."""

    array: str
    index: tuple[int, ...]
    got: float
    want: float
    bound: float


@dataclass(frozen=True, slots=True)
class Check:
    """A verification. `error_ratio` is the largest |got − want| / bound; at most 1 passes.

    `checked` counts compared elements (fewer than all where only a sample of blocks was run),
    `wrong` those outside the bound or not finite, `mismatches` the first of them in array order.
    """

    passed: bool
    checked: int
    wrong: int
    max_error: float
    error_ratio: float
    error_index: tuple[int, ...] | None
    mismatches: tuple[Mismatch, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Energy:
    """What a launch takes of the power supply: launches back to back, L2 as they leave it, idle power included.

    `joules` are a launch's, with the ends of their interval; `watts` the mean over all windows, of which
    `windows_w` has one each. `source` says where they come from: `counter`, the device's own meter, or `power`,
    readings summed up. `resolution` bounds the relative error that comes of not knowing better when the meter
    moved; the interval is no narrower. None in what was read from a table that does not tell.
    """

    joules: float
    low: float
    high: float
    watts: float
    source: str
    windows_w: tuple[float, ...] = ()
    launches: int = 0
    step_ms: float | None = None
    resolution: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Raw samples of one configuration in milliseconds a launch, and how they were taken.

    `cache` is `cold` or `warm` (L2); `method` names the clock and batching (`events`, `graph×32`).
    `stopped_by` is what ended the sampling: `precise`, `entropy` or `both` where the protocol's criterion
    was met, else `max_samples`, `max_seconds`, `deadline` or `early` (it is surely slower than others).
    `discarded` samples were taken at a clock held down and are not among these. `locked` is the clock that
    was asked to be held, if one was. `beside` are the samples of the other state of the cache, where both
    were asked for. `energy` is what a launch took beside its time, where that was asked for.
    """

    samples_ms: tuple[float, ...]
    method: str
    cache: str
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    note: str = ""
    stopped_by: str = ""
    discarded: int = 0
    locked: str = ""
    beside: Timing | None = None
    energy: Energy | None = None

    def of_cache(self, cache: str) -> Timing | None:
        """The samples taken with that state of the cache, if any were."""
        return next((t for t in (self, self.beside) if t is not None and t.cache == cache), None)


@dataclass(frozen=True, slots=True)
class Trial:
    """One finished configuration, failures included: one store row, one CSV row.

    `number` counts from 1 in asked order; a library's is 0 or less. `context` digests everything but the
    point that a result depends on: rows are reused only where it is equal.
    """

    study: str
    number: int
    context: str
    kernel: str
    dtype: str
    shape: str
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    status: Status
    stage: Stage
    role: Role = Role.CANDIDATE
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    time_source: TimeSource | None = None
    timing: Timing | None = None
    predicted_ms: float | None = None
    check: Check | None = None
    launch: Launch | None = None
    build: Build | None = None
    occupancy: float | None = None
    flops: int | None = None
    bytes: int | None = None
    backend: str = ""
    device: str = ""
    device_uuid: str = ""
    driver: str = ""
    kernel_digest: str = ""
    seed: int = 0
    build_s: float | None = None
    measure_s: float | None = None

    @property
    def point(self) -> Point:
        return Point.of(dict(self.params))

    @property
    def energy(self) -> Energy | None:
        """What a launch took of the power supply, where that was measured."""
        return self.timing.energy if self.timing is not None else None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One of several that were timed once more, in turns on one device, after the search that chose them.

    Those of one `confirmation` belong together: their times in `blocks_ms` (milliseconds a launch) at one
    place come from the same block. A failed one says why in `reason`, and has the times until then.
    `held_ms` are times of blocks that were taken again, since the clock was held down or others used the
    device. `wanted` is how many blocks were asked for, `started` when, in UTC.
    """

    confirmation: str
    started: str
    study: str
    kernel: str
    dtype: str
    shape: str
    params: Mapping[str, Value]
    role: Role = Role.CANDIDATE
    is_default: bool = False
    blocks_ms: tuple[float, ...] = ()
    held_ms: tuple[float, ...] = ()
    reason: str = ""
    note: str = ""
    cache: str = ""
    registers: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None
    device: str = ""
    device_uuid: str = ""
    wanted: int = 0
    least_effect: float = 0.01

    @property
    def key(self) -> tuple[Role, str]:
        """Equal for the same configuration or library."""
        return self.role, Point.of(dict(self.params)).key
