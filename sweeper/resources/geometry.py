"""Launch geometry: at one point, as expressions for a space's constraints, and against a target's limits.

The limits are checked from the description alone, so the same points are pruned with and without a
GPU, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sweeper.device import Target
from sweeper.errors import ConfigError
from sweeper.expressions import Expression, Value, parse
from sweeper.kernel.sizes import completed
from sweeper.model import KernelSpec, Launch, LaunchSpec, Point

__all__ = [
    "evaluate_launch",
    "implicit_constraints",
    "launch_derived",
    "launch_of",
    "point_scope",
    "register_cap",
    "scope_constants",
    "why_infeasible",
    "why_not_emulable",
    "why_not_launchable",
    "why_not_predictable",
    "why_unsupported",
]

_AXES = ("x", "y", "z")
_PORTABLE_CLUSTER = 8


def scope_constants(spec: KernelSpec, dims: Mapping[str, int], target: Target) -> dict[str, Value]:
    """What is the same at every point: the problem's sizes, `elem_bytes` and the target's limits."""
    return {**completed(spec, dims), "elem_bytes": spec.dtype.bytes, **target.limits()}


def launch_derived(spec: KernelSpec) -> dict[str, Expression]:
    """`block_x` … `grid_z`, `threads`, `shared_bytes` and `static_shared_bytes` over params and constants.

    The two shared sizes may name the others; `shared_bytes` is the dynamic part alone.
    """
    geometry = spec.launch
    derived = {f"block_{axis}": e for axis, e in zip(_AXES, geometry.block, strict=True)}
    derived |= {f"grid_{axis}": e for axis, e in zip(_AXES, geometry.grid, strict=True)}
    derived["threads"] = _product(geometry.block)
    derived["static_shared_bytes"] = geometry.static_shared_bytes
    derived["shared_bytes"] = geometry.shared_bytes
    return derived


@lru_cache(maxsize=256)
def _product(factors: tuple[Expression, ...]) -> Expression:
    texts = [f"({factor.text})" for factor in factors if factor.text != "1"]
    return parse(" * ".join(texts) or "1", where="threads")


def implicit_constraints(target: Target) -> tuple[Expression, ...]:
    """What the hardware asks of every launch, in the names of `launch_derived`."""
    texts = ["threads <= max_threads"]
    texts += [f"1 <= block_{a} <= {most}" for a, most in zip(_AXES, target.max_block_dim, strict=True)]
    texts += [f"1 <= grid_{a} <= {most}" for a, most in zip(_AXES, target.max_grid_dim, strict=True)]
    texts += [
        f"static_shared_bytes <= {target.static_shared_bytes}",
        "static_shared_bytes + shared_bytes <= max_shared_bytes",
    ]
    return tuple(parse(text, where="a limit of the target") for text in texts)


def why_unsupported(spec: KernelSpec, dims: Mapping[str, int], target: Target) -> str | None:
    """Why `spec` cannot run on `target`, or not for this problem; None where it can.

    `needs cc >= 8.0, have 7.0`; `requires K % 4 == 0: 2 != 0 (K = 130)`.
    """
    need, have = spec.requires.min_cc, target.cc
    if have < need:
        return f"needs cc >= {need[0]}.{need[1]}, have {have[0]}.{have[1]}"
    if spec.requires.arch_specific and have != need:
        return f"needs cc {need[0]}.{need[1]} exactly (sm_{need[0]}{need[1]}a), have {have[0]}.{have[1]}"
    scope = scope_constants(spec, dims, target)
    for condition in spec.requires.conditions:
        if not condition.evaluate(scope):
            return f"requires {condition.explain(scope)}"
    return None


def why_not_emulable(spec: KernelSpec) -> str | None:
    """Why no CPU can stand in for the GPU that `spec` is written for; None where one can."""
    for needed, what in (
        (spec.tensor_maps, "tensor maps (TMA)"),
        (spec.launch.cluster, "thread block clusters"),
    ):
        if needed:
            return f"needs {what}, which the emulator has not: it runs on a GPU only (backend=cuda)"
    return None


def why_not_predictable(spec: KernelSpec) -> str | None:
    """Why only a device can tell how long `spec` takes; None where the static model may."""
    if spec.trip is not None:
        return "times the way between host and device, which no model predicts: use a GPU (backend=cuda)"
    return None


def point_scope(spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target) -> dict[str, Value]:
    """Everything that a launch expression may name at `point`, the geometry itself excepted."""
    return {**scope_constants(spec, dims, target), **point.params}


def launch_of(spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target) -> Launch:
    """The launch geometry at `point`, in Python integers.

    Raises ConfigError (or ExpressionError, one of them) for a size that is not a whole number, a block
    or grid size below 1, and a negative shared memory size. Limits are `why_not_launchable`'s.
    """
    return evaluate_launch(spec.launch, point_scope(spec, point, dims, target), where=spec.name)


def why_infeasible(spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target) -> str | None:
    """Why the one `point` cannot run at `dims` on `target`, or None: what a whole space is pruned by, without one.

    Raises ConfigError, and ExpressionError, as `launch_of` does.
    """
    unsupported = why_unsupported(spec, dims, target)
    if unsupported:
        return unsupported
    scope = point_scope(spec, point, dims, target)
    evaluate_launch(spec.launch, scope, where=spec.name)
    rules = (*implicit_constraints(target), *spec.constraints)
    return next((rule.explain(scope) for rule in rules if not rule.evaluate(scope)), None)


def evaluate_launch(geometry: LaunchSpec, scope: dict[str, Value], *, where: str) -> Launch:
    """The launch at `scope`, to which the geometry's names are added on the way."""
    block = _sizes("block", geometry.block, scope, where)
    grid = _sizes("grid", geometry.grid, scope, where)
    scope["threads"] = block[0] * block[1] * block[2]
    static = _bytes("static_shared_bytes", geometry.static_shared_bytes, scope, where)
    dynamic = _bytes("shared_bytes", geometry.shared_bytes, scope, where)
    cluster = None if geometry.cluster is None else _sizes("cluster", geometry.cluster, {**scope}, where)
    return Launch(block, grid, dynamic, static, cluster)


def _sizes(
    kind: str, sizes: tuple[Expression, Expression, Expression], scope: dict[str, Value], where: str
) -> tuple[int, int, int]:
    x, y, z = (
        _at_least(1, f"{kind} {axis}", size, scope, where) for axis, size in zip(_AXES, sizes, strict=True)
    )
    scope.update({f"{kind}_x": x, f"{kind}_y": y, f"{kind}_z": z})
    return x, y, z


def _bytes(name: str, size: Expression, scope: dict[str, Value], where: str) -> int:
    scope[name] = value = _at_least(0, name.replace("_", " "), size, scope, where)
    return value


def _at_least(least: int, what: str, size: Expression, scope: Mapping[str, Value], where: str) -> int:
    value = size.evaluate_int(scope, what=what)
    if value < least:
        shown = f"{size.text} = {value}" if size.names else str(value)
        names = ", ".join(f"{name} = {scope[name]}" for name in sorted(size.names))
        raise ConfigError(
            f"{where}: {what} = {shown} is less than {least}" + (f" ({names})" if names else ""),
            hint="every size of the problem and every parameter that sizes a block must be at least 1",
        )
    return value


def register_cap(threads: int, target: Target) -> int:
    """The most registers a thread may have in a block of `threads`.

    A block's warps are dealt over the SM's four sub-partitions, each with a quarter of the registers,
    given out to whole warps in units of 8 a thread (CUDA Occupancy Calculator: warp allocation
    granularity 4, register allocation unit 256).
    """
    warps_per_partition = -(-_warps(threads, target) // 4)
    each = target.registers_per_sm // 4 // (warps_per_partition * target.warp_size)
    return min(target.max_registers_per_thread, each // 8 * 8)


def _warps(threads: int, target: Target) -> int:
    return -(-threads // target.warp_size)


def why_not_launchable(
    launch: Launch, target: Target, registers: int | None = None, *, kernel_max_threads: int | None = None
) -> str | None:
    """Every limit that `launch` breaks, with its value (`threads 2048 > 1024`); None where it can run.

    `registers` a thread and `kernel_max_threads` (the driver's MAX_THREADS_PER_BLOCK of the loaded
    function) are known only once it is compiled.
    """
    broken: list[str] = []
    if launch.threads > target.max_threads_per_block:
        broken.append(f"threads {launch.threads} > {target.max_threads_per_block}")
    for kind, sizes, limits in (
        ("block", launch.block, target.max_block_dim),
        ("grid", launch.grid, target.max_grid_dim),
    ):
        for axis, size, most in zip(_AXES, sizes, limits, strict=True):
            if size > most:
                broken.append(f"{kind} {axis} {size} > {most}")
    broken += _broken_shared(launch, target) + _broken_cluster(launch)
    if not broken:
        broken += _broken_registers(launch.threads, target, registers, kernel_max_threads)
    return "; ".join(broken) or None


def _broken_shared(launch: Launch, target: Target) -> list[str]:
    static, total = launch.static_shared_bytes, launch.static_shared_bytes + launch.shared_bytes
    if total > target.max_shared_bytes:
        return [f"shared memory {total} B > {target.max_shared_bytes} B"]
    if static > target.static_shared_bytes:
        room = f"(dynamic shared memory may have {target.max_shared_bytes} B)"
        return [f"static shared memory {static} B > {target.static_shared_bytes} B {room}"]
    return []


def _broken_cluster(launch: Launch) -> list[str]:
    """A grid is made of whole clusters, of at most 8 blocks each (CUDA C++ Programming Guide, "Thread Block
    Clusters": what every device with clusters takes).
    """
    if launch.cluster is None:
        return []
    blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    broken = [f"{blocks} blocks a cluster > {_PORTABLE_CLUSTER}"] if blocks > _PORTABLE_CLUSTER else []
    for axis, size, part in zip(_AXES, launch.grid, launch.cluster, strict=True):
        if size % part:
            broken.append(f"grid {axis} {size} is no multiple of the cluster's {part}")
    return broken


def _broken_registers(
    threads: int, target: Target, registers: int | None, kernel_max_threads: int | None
) -> list[str]:
    cap = register_cap(threads, target)
    if registers is not None and registers > cap:
        return [f"registers {registers} > {cap} a thread in a block of {threads} threads"]
    if kernel_max_threads is not None and threads > kernel_max_threads:
        return [f"threads {threads} > {kernel_max_threads}, the most that the compiled kernel allows"]
    return []
