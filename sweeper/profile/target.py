"""The process that is profiled: `python -m sweeper.profile.target REQUEST REPLY`, started under a profiler.

It opens the device, fills the arguments, launches once and holds the result against the reference, and
launches again between `cuProfilerStart` and `cuProfilerStop`: with `--profile-from-start off` a profiler sees
that launch alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.errors import SetupError, SweeperError, TrialFailed
from sweeper.model import Point, Stage
from sweeper.profile.request import Reply, Request
from sweeper.wire import from_wire, to_wire

if TYPE_CHECKING:
    from sweeper.backend.cuda.arguments import Arguments
    from sweeper.backend.cuda.device import CudaDevice
    from sweeper.backend.cuda.verification import Launcher
    from sweeper.model import KernelSpec

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the request's file asks and write the reply's. Gives the exit code: 0, or 3 after an error."""
    request_path, reply_path = (Path(a) for a in (sys.argv[1:] if argv is None else argv))
    request = from_wire(Request, json.loads(request_path.read_text(encoding="utf-8")))
    try:
        reply = Reply(device=_launch(request))
    except TrialFailed as failure:
        reply = Reply(error=failure.reason, kind="TrialFailed", status=failure.status, stage=failure.stage)
    except SweeperError as error:
        reply = Reply(error=error.message, kind=type(error).__name__, hint=error.hint or "")
    reply_path.write_text(json.dumps(to_wire(reply)), encoding="utf-8")
    return 3 if reply.error else 0


def _launch(request: Request) -> str:
    """The device's name, once the launch is done. Raises SweeperError, TrialFailed for a wrong result among them."""
    from sweeper.backend.cuda.arguments import Arguments, allocated_bytes
    from sweeper.backend.cuda.cublas import neutral_environment
    from sweeper.backend.cuda.device import CudaDevice
    from sweeper.device.nvml import Nvml
    from sweeper.kernel import load
    from sweeper.problem import resolve

    spec = load(json.loads(request.kernel), request.path)
    point = Point.of(request.params) if request.params else spec.default_point
    problem = resolve(spec, request.dims, point, seed=request.seed)
    neutral_environment()
    device = CudaDevice(request.device, Nvml(), allow_shared=request.allow_shared)
    with device.doing(Stage.LAUNCH), contextlib.ExitStack() as held:
        device.require_memory(allocated_bytes(problem))
        shared = Arguments(device, problem, problem.inputs())
        shared.restore()
        arguments = shared.at(problem)
        run = held.enter_context(_launcher(request, device, spec, point, arguments))
        _prove(device, spec, shared, arguments, run)
        arguments.reset()
        device.synchronize()
        device.drv.start_profiler()
        run(arguments)
        device.synchronize()
        device.drv.stop_profiler()
    return device.identity().name


@contextlib.contextmanager
def _launcher(
    request: Request, device: CudaDevice, spec: KernelSpec, point: Point, arguments: Arguments
) -> Iterator[Launcher]:
    """What queues one launch of the requested kernel on given arguments; of a library its own first choice."""
    if request.library:
        from sweeper.backend.cuda.cublas_baselines import Baselines

        with Baselines(device).contenders(request.library, arguments.problem, arguments) as contenders:
            yield contenders[0].run
        return
    from sweeper.backend.cuda.kernel import load_kernel
    from sweeper.resources.geometry import launch_of

    if request.build is None:
        raise SetupError("the request names neither a build nor a library")
    limits = device.target()
    launch = launch_of(spec, point, arguments.problem.dims, limits)
    yield load_kernel(device, limits, request.build, launch).launcher(arguments)


def _prove(
    device: CudaDevice, spec: KernelSpec, shared: Arguments, arguments: Arguments, run: Launcher
) -> None:
    """One launch, right by the reference; one whose reference is a kernel of its own is launched alone.

    `shared` holds the problem's arrays, `arguments` those and what the configuration has for itself.

    Raises TrialFailed (wrong result).
    """
    from sweeper.backend.cuda.judge import judge_of
    from sweeper.backend.cuda.reference_cache import ReferenceCache
    from sweeper.backend.cuda.verification import Verification

    if spec.reference.kind == "kernel":
        arguments.clear_scratch()
        arguments.reset()
        run(arguments)
        return
    judge = judge_of(device, shared, shared.inputs, ReferenceCache(None))
    Verification(device, arguments, judge.comparison, judge.watch, run).before_timing(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Destructors of a lost context hang.
    os._exit(code)
