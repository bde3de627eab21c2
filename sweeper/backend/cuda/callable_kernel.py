"""One configuration as something to call: `kernel(a, b, c)` on arrays of other libraries.

A build does not depend on the problem's sizes, so they are read off the arrays at each call: sizes from shapes,
leading dimensions from strides. What follows from them (scalars, grid, tensor maps, workspaces) is made at the
first call at these sizes and kept.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.backend.cuda import launching, shared_device
from sweeper.backend.cuda.arguments import scalar_format
from sweeper.backend.cuda.foreign import LEGACY_STREAM, ForeignArray, read_array, stream_handle
from sweeper.backend.cuda.kernel import LoadedKernel, load_kernel
from sweeper.backend.cuda.launching import LaunchApi, LaunchError, Parameters
from sweeper.backend.cuda.matching import require_alike, sizes_of
from sweeper.backend.cuda.shared_device import SharedDevice
from sweeper.backend.cuda.tensor_maps import EncodeError, encode
from sweeper.device import Target
from sweeper.errors import ConfigError, NoValidConfiguration, SetupError, TrialFailed, did_you_mean
from sweeper.expressions import Value
from sweeper.kernel.sizes import shape_text, sizes_behind
from sweeper.model import Build, Direction, KernelSpec, Launch, Point, ScalarSpec, Stage
from sweeper.problem import Problem, ResolvedArray, resolve
from sweeper.problem.arguments import ResolvedScalar, cast
from sweeper.resources.geometry import launch_of, why_infeasible, why_not_launchable

__all__ = ["CallableKernel", "launch_at"]

# Plans hold workspaces, packed arguments a few hundred bytes.
_MOST_PLANS = 64
_MOST_PACKED = 256
# What the widest load or store of a thread, and TMA, ask of an address.
_ALIGNMENT = 16
# PyCUDA takes the size of a fill as a 32-bit number.
_MOST_FILLED = 1 << 30


@dataclass(slots=True)
class _Plan:
    """What every call at the same sizes shares. `packed` are arguments in memory by pointers and stream."""

    problem: Problem
    launch: Launch
    function: int
    scratch: dict[int, dict[str, Any]] = field(default_factory=dict)
    packed: OrderedDict[tuple[Any, ...], Parameters] = field(default_factory=OrderedDict)


class CallableKernel:
    """A compiled configuration of a kernel on one device: `kernel(a, b, c, stream=None)`.

    Arrays are given in the order of the kernel's own (`arrays`; workspaces are made here), or by name. They are
    checked: type, shape, strides, device, alignment to 16 bytes, and that no output lies on another array. Scalars
    follow from the sizes; those that do not may be given by name (`a=3.0`). The launch is queued to `stream`
    (default: torch's current stream for torch tensors, else the stream that the arrays name, else the legacy default
    one) and returns at once. Calls raise ConfigError for arrays that do not fit, NoValidConfiguration where the
    configuration cannot run at their sizes, and TrialFailed where the driver refuses the launch.

    It may be called from several threads; one of them loads it and lets go of it.
    """

    def __init__(
        self,
        device: SharedDevice,
        spec: KernelSpec,
        point: Point,
        build: Build,
        dims: Mapping[str, int],
        source: str,
        row: Mapping[str, Any],
    ) -> None:
        """`dims` are the sizes that it was tuned at, `row` what is known of it.

        Raises TrialFailed where the build cannot be loaded, NoValidConfiguration where it cannot run at `dims`.
        """
        self.spec = spec
        self.point = point
        self.source = source
        """The translation unit that was compiled."""
        self.row = dict(row)
        """What this was loaded from."""
        self.dims = dict(dims)
        self._device = device
        self.target: Target = device.target()
        with device.current():
            self._loaded: LoadedKernel = load_kernel(
                device, self.target, build, launch_at(spec, point, dims, self.target)
            )
            try:
                self._api: LaunchApi = launching.load_launch_api()
                self._module = self._api.load(self._loaded.image)
            except LaunchError as error:
                raise SetupError(f"{spec.name} cannot be loaded: {error}") from None
            self._pointers = shared_device.load_pointer_api()
        # With the process everything goes; what the driver says of it earlier is of no consequence.
        weakref.finalize(self, _unload, device, self._api, self._module).atexit = False
        self._shared_bytes = -1
        self._plans: OrderedDict[tuple[Any, ...], _Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._scalars = {a.name: a for a in spec.args if isinstance(a, ScalarSpec)}
        self._arrays = tuple(a for a in spec.arrays if a.direction is not Direction.SCRATCH)

    # --- What it is -----------------------------------------------------------------------------------

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays to give, in order."""
        return tuple(a.name for a in self._arrays)

    @property
    def params(self) -> dict[str, Value]:
        return self.point.params

    @property
    def launch_config(self) -> Launch:
        """Block, grid, shared memory and cluster at the sizes that it was tuned at."""
        return self._loaded.launch

    @property
    def build(self) -> Build:
        """With the registers, shared and local memory that loading revealed."""
        return self._loaded.build

    @property
    def cubin(self) -> bytes:
        return self._loaded.image

    @property
    def function(self) -> Any:
        """PyCUDA's own function."""
        return self._loaded.function

    def __repr__(self) -> str:
        names = ", ".join(self.arrays)
        return (
            f"<{self.spec.name}({names}) with {self.point}, {self.spec.dtype.name}, on {self._device.name}>"
        )

    # --- Calling it -----------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, stream: Any = None, **named: Any) -> None:
        given, scalars = self._sorted(arrays, named)
        views = [read_array(spec.name, array) for spec, array in zip(self._arrays, given, strict=True)]
        handle = self._stream(views) if stream is None else stream_handle(stream)
        with self._device.current():
            plan = self._plan(views, scalars)
            parameters = self._parameters(plan, views, handle)
            self._wait(handle, views)
            try:
                self._api.launch(plan.function, plan.launch, handle, parameters.pointers)
            except LaunchError as error:
                raise self._device.failure(error, Stage.LAUNCH) from None

    def free(self) -> None:
        """Give back the workspaces, once what was queued is done; the next calls make new ones."""
        with self._lock, self._device.current():
            self._device.drv.Context.synchronize()
            self._plans.clear()

    def _sorted(self, arrays: Sequence[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """All arrays in order, and the scalars. Raises ConfigError for too many, too few, and unknown names."""
        names = self.arrays
        if len(arrays) > len(names):
            raise ConfigError(
                f"{self.spec.name} takes {len(names)} arrays ({', '.join(names)}), {len(arrays)} are given"
            )
        held = dict(zip(names, arrays, strict=False))
        scalars = {}
        for name, value in named.items():
            if name in names and name not in held:
                held[name] = value
            elif name in names:
                raise ConfigError(f"{self.spec.name}: array {name} is given twice")
            elif name in self._scalars:
                scalars[name] = self._scalar(name, value)
            else:
                known = [*names, *self._scalars]
                raise ConfigError(f"{self.spec.name} has no argument {name}{did_you_mean(name, known)}")
        missing = [name for name in names if name not in held]
        if missing:
            raise ConfigError(
                f"{self.spec.name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                hint=f"its arrays are {', '.join(names)}; outputs are given too, to be written",
            )
        return [held[name] for name in names], scalars

    def _scalar(self, name: str, value: Any) -> Any:
        spec = self._scalars[name]
        if sizes_behind(self.spec, spec.value.names):
            raise ConfigError(
                f"{self.spec.name}: {name} = {spec.value.text} follows from the sizes of the arrays",
                hint="leave it out",
            )
        if {param.name for param in self.spec.params} & spec.value.names:
            raise ConfigError(f"{self.spec.name}: {name} = {spec.value.text} belongs to the configuration")
        return cast(name, value, spec.dtype or self.spec.dtype)

    def _stream(self, views: Sequence[ForeignArray]) -> int:
        if any(view.by_torch for view in views):
            import torch

            return int(torch.cuda.current_stream(self._device.index).cuda_stream)
        return next((view.stream for view in views if view.stream is not None), 0)

    def _wait(self, handle: int, views: Sequence[ForeignArray]) -> None:
        """Let the launch wait for those streams on which arrays are still being made."""
        legacy = (0, LEGACY_STREAM)
        for other in {view.stream for view in views if view.stream is not None}:
            if other != handle and not (other in legacy and handle in legacy):
                self._pointers.wait(handle, other)

    # --- What is kept ---------------------------------------------------------------------------------

    def _plan(self, views: Sequence[ForeignArray], scalars: Mapping[str, Any]) -> _Plan:
        key = (tuple((v.shape, v.strides, v.dtype) for v in views), tuple(sorted(scalars.items())))
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                plan = self._plans[key] = self._planned(views, scalars)
                while len(self._plans) > _MOST_PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(key)
        return plan

    def _planned(self, views: Sequence[ForeignArray], scalars: Mapping[str, Any]) -> _Plan:
        spec = self.spec
        dims = sizes_of(spec, self._arrays, views, self.dims)
        problem = resolve(spec, dims, self.point, seed=0)
        args = tuple(
            replace(a, value=scalars[a.name]) if isinstance(a, ResolvedScalar) and a.name in scalars else a
            for a in problem.args
        )
        problem = replace(problem, args=args)
        for array, view in zip(problem.arrays, views, strict=True):
            require_alike(spec, array, view)
        launch = launch_at(spec, self.point, problem.dims, self.target)
        launch = replace(launch, static_shared_bytes=self._loaded.launch.static_shared_bytes)
        broken = why_not_launchable(launch, self.target, self._loaded.build.registers)
        if broken:
            raise ConfigError(f"{spec.name} with {self.point} at {dims}: {broken}")
        return _Plan(problem, launch, self._function(launch.shared_bytes))

    def _function(self, shared_bytes: int) -> int:
        """The driver's handle of the entry, which may have as much dynamic shared memory as was ever asked for."""
        self._shared_bytes = max(self._shared_bytes, shared_bytes)
        try:
            return self._api.function(self._module, self._loaded.build.entry, self._shared_bytes)
        except LaunchError as error:
            raise self._device.failure(error, Stage.LOAD) from None

    def _parameters(self, plan: _Plan, views: Sequence[ForeignArray], handle: int) -> Parameters:
        key = (handle, *(view.pointer for view in views))
        with self._lock:
            packed = plan.packed.get(key)
            if packed is None:
                self._require_usable(plan.problem.arrays, views)
                packed = plan.packed[key] = self._packed(plan, views, handle)
                while len(plan.packed) > _MOST_PACKED:
                    plan.packed.popitem(last=False)
            else:
                plan.packed.move_to_end(key)
        return packed

    def _packed(self, plan: _Plan, views: Sequence[ForeignArray], handle: int) -> Parameters:
        """The arguments in memory. Two launches of one stream follow each other and may share a workspace; of
        different streams, each has its own.
        """
        if handle not in plan.scratch:
            plan.scratch[handle] = {a.name: self._workspace(a) for a in plan.problem.scratch}
        pointers = {a.name: v.pointer for a, v in zip(plan.problem.arrays, views, strict=True)}
        pointers |= {name: int(held) for name, held in plan.scratch[handle].items()}
        letters, numbers = zip(
            *(
                scalar_format(a) if isinstance(a, ResolvedScalar) else ("P", pointers[a.name])
                for a in plan.problem.args
            ),
            strict=True,
        )
        try:
            maps = [
                encode(self._api.encoder, made, pointers[made.array]) for made in plan.problem.tensor_maps
            ]
        except EncodeError as error:
            raise ConfigError(str(error)) from None
        return Parameters(letters, numbers, maps)

    def _workspace(self, array: ResolvedArray) -> Any:
        """Memory for a workspace, zeroed once: from then on it is the kernel's. Raises TrialFailed."""
        nbytes = max(array.stored_bytes, _ALIGNMENT)
        held = self._device.allocate(nbytes)
        with self._device.doing(Stage.LOAD):
            for start in range(0, nbytes, _MOST_FILLED):
                self._device.drv.memset_d8(int(held) + start, 0, min(_MOST_FILLED, nbytes - start))
            # The stream of the launch need not wait for the one that this was queued to.
            self._device.drv.Context.synchronize()
        return held

    def _require_usable(self, arrays: Sequence[ResolvedArray], views: Sequence[ForeignArray]) -> None:
        """Raise ConfigError where an address cannot be the kernel's to use, or an output lies on another array."""
        for array, view in zip(arrays, views, strict=True):
            owner = view.device
            if owner is None:
                owner = self._pointers.device_of(view.pointer)
            if owner is None:
                raise ConfigError(f"{array.name}: address {view.pointer:#x} is not known to the CUDA driver")
            if owner != self._device.index:
                raise ConfigError(
                    f"{array.name} is on GPU {owner}, and the kernel on GPU {self._device.index}",
                    hint="load it there: load_kernel(…, device=" + f"{owner})",
                )
            if view.pointer % _ALIGNMENT:
                raise ConfigError(
                    f"{array.name} begins at {view.pointer:#x}, which is not a multiple of {_ALIGNMENT} bytes",
                    hint="give a copy; the start of an allocation is aligned",
                )
        for array, view in zip(arrays, views, strict=True):
            if not array.is_output:
                continue
            for other, beside in zip(arrays, views, strict=True):
                if other is not array and view.pointer < beside.end and beside.pointer < view.end:
                    raise ConfigError(f"{array.name}, which is written, lies on {other.name}")


def launch_at(spec: KernelSpec, point: Point, dims: Mapping[str, int], limits: Target) -> Launch:
    """The launch of `point` at `dims` on a device of `limits`.

    Raises NoValidConfiguration, with the constraint that does not hold, where it cannot run there.
    """
    why_not = why_infeasible(spec, point, dims, limits)
    if why_not is not None:
        raise NoValidConfiguration(f"{spec.name} with {point} cannot run at {shape_text(dims)}: {why_not}")
    return launch_of(spec, point, dims, limits)


def _unload(device: SharedDevice, api: LaunchApi, module: int) -> None:
    with contextlib.suppress(LaunchError, TrialFailed, device.drv.Error), device.current():
        api.unload(module)
