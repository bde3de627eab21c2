"""From a built cubin to a kernel that can be launched, or the reason why it cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.launching import ExtendedLauncher
from sweeper.backend.cuda.verification import Launcher
from sweeper.build.elf import CubinError, KernelImage, choose_kernel, read_kernels
from sweeper.device import Target
from sweeper.errors import KernelError, TrialFailed
from sweeper.model import Build, KernelSpec, Launch, Point, Stage, Status
from sweeper.resources.geometry import evaluate_launch, point_scope, why_not_launchable

__all__ = ["LoadedKernel", "load_kernel", "plain_kernel"]

# What a block has without asking for more.
_OPT_IN_BYTES = 48 * 1024


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A module on the device and its entry, `build` and `launch` with the figures that loading revealed."""

    device: CudaDevice
    module: Any
    image: bytes
    function: Any
    build: Build
    launch: Launch

    def launcher(self, arguments: Arguments) -> Launcher:
        if arguments.problem.tensor_maps or self.launch.cluster is not None:
            return ExtendedLauncher(self.device, self.image, self.build.entry, self.launch)
        return _launcher(self.device, self.function, self.launch, arguments)


def load_kernel(device: CudaDevice, target: Target, build: Build, launch: Launch) -> LoadedKernel:
    """The build's entry, ready for `launch`.

    Raises TrialFailed where it cannot be loaded, or where the launch breaks a limit that only the
    compiled kernel knows; nothing is launched then.
    """
    try:
        image = build.artifact.read_bytes()
    except OSError as error:
        raise TrialFailed(Status.BUILD_ERROR, Stage.LOAD, f"the built kernel is gone: {error}") from None
    known = device.drv.function_attribute
    with device.doing(Stage.LOAD):
        module = device.drv.module_from_buffer(image)
        function = _function(device, module, build.entry, image)
        registers = int(function.get_attribute(known.NUM_REGS))
        shared_bytes = int(function.get_attribute(known.SHARED_SIZE_BYTES))
        local_bytes = int(function.get_attribute(known.LOCAL_SIZE_BYTES))
        most_threads = int(function.get_attribute(known.MAX_THREADS_PER_BLOCK))
    build = replace(build, registers=registers, static_shared_bytes=shared_bytes, local_bytes=local_bytes)
    launch = replace(launch, static_shared_bytes=shared_bytes)
    broken = why_not_launchable(launch, target, registers, kernel_max_threads=most_threads)
    if broken:
        figures = {"registers": registers, "threads": launch.threads, "kernel_max_threads": most_threads}
        raise TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, broken, details={**figures, "launch": launch})
    if launch.shared_bytes + shared_bytes > _OPT_IN_BYTES:
        with device.doing(Stage.LOAD):
            function.set_attribute(known.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
    return LoadedKernel(device, module, image, function, build, launch)


def plain_kernel(
    kernel: LoadedKernel, spec: KernelSpec, point: Point, target: Target, arguments: Arguments
) -> Launcher:
    """The kernel of the same source that is `spec`'s reference. Raises KernelError where it is not there."""
    if spec.reference.launch is None:
        raise KernelError(f"{spec.name}: reference.launch is missing", hint="give its block and grid")
    try:
        symbol = choose_kernel(_kernels(kernel.image), spec.reference.text, ()).symbol
    except CubinError as error:
        raise KernelError(f"{spec.name}: reference kernel: {error}", hint=error.hint) from None
    scope = point_scope(spec, point, arguments.problem.dims, target)
    launch = evaluate_launch(spec.reference.launch, scope, where=f"{spec.name}: reference")
    return _launcher(kernel.device, kernel.module.get_function(symbol), launch, arguments)


def _launcher(device: CudaDevice, function: Any, launch: Launch, arguments: Arguments) -> Launcher:
    function.prepare(arguments.letters)
    stream, call = device.stream, function.prepared_async_call
    grid, block, shared_bytes = launch.grid, launch.block, launch.shared_bytes

    def run(given: Arguments) -> None:
        call(grid, block, stream, *given.numbers, shared_size=shared_bytes)

    return run


def _function(device: CudaDevice, module: Any, entry: str, image: bytes) -> Any:
    try:
        return module.get_function(entry)
    except device.drv.LogicError as error:
        if "not found" not in str(error):
            raise
        kernels = _kernels(image)
        held = ", ".join(kernel.readable for kernel in kernels) or "none"
        raise TrialFailed(
            Status.BUILD_ERROR,
            Stage.LOAD,
            f"no kernel {entry!r} in the build, whose kernels are: {held}",
            details={"kernels": [kernel.symbol for kernel in kernels]},
        ) from None


def _kernels(image: bytes) -> tuple[KernelImage, ...]:
    """What is in the image, for messages; nothing where only the driver can read it."""
    try:
        return read_kernels(image)
    except CubinError:
        return ()
