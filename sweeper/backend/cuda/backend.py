"""The CUDA backend: load a cubin through PyCUDA, launch it, prove it right, time it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.backend.base import Entrant, Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.backend.cuda.arguments import Arguments, ArgumentSets, allocated_bytes
from sweeper.backend.cuda.confirm import Runner, in_turns
from sweeper.backend.cuda.cublas_baselines import Baselines, Contender
from sweeper.backend.cuda.cublas_gemm import neutral_environment
from sweeper.backend.cuda.cublas_race import Measured, race
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.driver_api import find_device, wake
from sweeper.backend.cuda.identity import claim, identified
from sweeper.backend.cuda.judge import Judge, judge_by, judge_of
from sweeper.backend.cuda.kernel import LoadedKernel, load_kernel, plain_kernel
from sweeper.backend.cuda.monitor import READINGS_EVERY_S
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.prover import Prepared, Prover
from sweeper.backend.cuda.reference_cache import ReferenceCache
from sweeper.backend.cuda.timing import Timer
from sweeper.backend.cuda.transfers import transfers
from sweeper.backend.cuda.trip import Trip, kernel_trip, library_trip
from sweeper.backend.cuda.trip_timing import trip_block
from sweeper.backend.cuda.verification import Launcher
from sweeper.device import DeviceIdentity, Target, from_query
from sweeper.device.nvml import Nvml
from sweeper.errors import KernelError, SetupError, TrialFailed
from sweeper.model import Build, KernelSpec, Launch, Point, Stage
from sweeper.problem import Problem, resolve
from sweeper.problem.slabs import trip_plan
from sweeper.resources.geometry import point_scope

__all__ = ["CudaBackend"]


class CudaBackend:
    """Runs kernels on one GPU, which this process owns until `close`.

    `scratch` is a folder in which references outlive the process; `allow_shared` lets it use a GPU that
    other processes are on; `nvml` takes the place of the real readings in tests, which are taken at most
    every `readings_every_s` seconds.
    """

    name = "cuda"

    def __init__(
        self,
        *,
        scratch: Path | None = None,
        allow_shared: bool = False,
        nvml: Nvml | None = None,
        readings_every_s: float = READINGS_EVERY_S,
    ) -> None:
        self._references = ReferenceCache(scratch)
        self._allow_shared = allow_shared
        self._nvml = nvml or Nvml()
        self._readings_every_s = readings_every_s
        self._claimed: tuple[int | None] | None = None
        self._opened: tuple[CudaDevice, Target] | None = None
        self._prepared: Prepared | None = None
        self._timer: Timer | None = None
        self._baselines: Baselines | None = None

    def identify(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Claim the GPU number `device` and say what it is; its context is made meanwhile.

        Takes a fraction of the time of `open`, which has to follow. Raises SetupError as `open` does.
        """
        del target
        neutral_environment()
        found = find_device(device)
        self._claimed = (None if self._allow_shared else claim(device, found.pci_bus_id, self._nvml),)
        wake(device)
        clock = self._nvml.readings(found.pci_bus_id).max_sm_clock_mhz
        limits = from_query(
            found.attributes,
            name=found.name,
            memory_bytes=found.memory_bytes,
            max_clock_mhz=int(clock) if clock else None,
        )
        identity = identified(
            self._nvml,
            index=device,
            name=found.name,
            pci_bus_id=found.pci_bus_id,
            memory_bytes=found.memory_bytes,
            cuda_version=found.cuda_version,
        )
        return limits, identity

    def open(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Take the GPU number `device`; its limits are its own, whatever `target` says."""
        del target
        neutral_environment()
        opened = CudaDevice(
            device,
            self._nvml,
            allow_shared=self._allow_shared,
            readings_every_s=self._readings_every_s,
            claimed=self._claimed,
        )
        self._claimed = None
        limits = opened.target()
        self._opened = opened, limits
        return limits, opened.identity()

    @property
    def _device(self) -> CudaDevice:
        if self._opened is None:
            raise SetupError("the CUDA device is not open")
        return self._opened[0]

    @property
    def _target(self) -> Target:
        if self._opened is None:
            raise SetupError("the CUDA device is not open")
        return self._opened[1]

    def canary(self) -> None:
        """Prove that the device still computes. Raises SetupError."""
        self._device.canary()

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Fill the device with the problem's arrays and what is right.

        What another kernel left of the same problem is used again. Raises TrialFailed (out of memory) before
        anything is computed where it cannot fit.
        """
        held, self._prepared = self._prepared, None
        if held is not None and held.serves(spec, problem):
            self._prepared = Prepared(spec, problem, held.sets, held.judge)
            return
        del held
        gc.collect()
        prepared = self._made(spec, problem)
        self._device.monitor.know_users()
        self._prepared = prepared

    def _made(self, spec: KernelSpec, problem: Problem) -> Prepared:
        """The problem's arrays and what is right, beside whatever is on the device already."""
        device = self._device
        with device.doing(Stage.LOAD):
            device.require_memory(allocated_bytes(problem))
            self._ready_timer()
            inputs = problem.inputs()
            arguments = Arguments(device, problem, inputs)
            arguments.restore()
            prepared = Prepared(spec, problem, ArgumentSets(device, arguments))
            if spec.reference.kind != "kernel":
                prepared.judge = judge_of(device, arguments, inputs, self._references)
            device.synchronize()
        return prepared

    def _ready_timer(self) -> Timer:
        if self._timer is None:
            self._timer = Timer(self._device, l2_bytes=self._target.l2_bytes)
        return self._timer

    @property
    def _prover(self) -> Prover:
        return Prover(self._device, self._ready_timer())

    def _ready(self) -> Prepared:
        if self._prepared is None:
            raise SetupError("no problem is prepared on the CUDA device")
        return self._prepared

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        """Load, launch, verify and time one configuration. Raises TrialFailed, SetupError."""
        prepared, phases = self._ready(), Phases()
        with _told(phases):
            with phases("load"):
                kernel = load_kernel(self._device, self._target, build, launch)
                with self._device.doing(Stage.LOAD):
                    whole = prepared.problem
                    here = prepared.at(resolve(prepared.spec, whole.dims, point, seed=whole.seed))
                if prepared.judge is None:
                    prepared.judge = self._judge_by_plain_kernel(prepared, here, kernel, point)
                way = self._way(here, kernel, point)
            beside = self._beside(prepared, protocol, phases)
            check, timing, note = self._prover.prove_and_time(here, prepared.judge, way, protocol, phases)
        return Outcome(check, kernel.build, kernel.launch, timing, note, phases.seconds, beside)

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """The library's answer to the prepared problem, the fastest of several where it has them.

        Raises TrialFailed where it has none, or is not here.
        """
        prepared, phases = self._ready(), Phases()
        self._baselines = self._baselines or Baselines(self._device)
        with _told(phases), contextlib.ExitStack() as held:
            with phases("load"):
                first = prepared.sets.first
                offered = self._baselines.contenders(library, prepared.problem, first)
                contenders = held.enter_context(offered)
            if prepared.judge is None:
                raise AssertionError("a matrix product is judged by its contraction")
            judge, beside = prepared.judge, self._beside(prepared, protocol, phases)

            def glance(contender: Contender) -> float:
                return self._prover.glance(prepared, judge, contender.run, protocol, phases)

            def measure(contender: Contender, full: MeasureProtocol) -> Measured:
                way = self._librarys_way(prepared, contender)
                return self._prover.prove_and_time(prepared, judge, way, full, phases)

            (check, timing, note), told, details = race(contenders, glance, measure, protocol)
        notes = "; ".join(filter(None, (told, note)))
        return Outcome(check, None, None, timing, notes, phases.seconds, {"library": details, **beside})

    def confirm(
        self, entrants: Sequence[Entrant], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        """Verify all `entrants` and time them in turns, each on the arrays of its own problem.

        One that fails, or whose arrays do not fit beside those of the others, says so in its turns. Raises
        TrialFailed for a failure that the process cannot go on from, and SetupError.
        """
        prepared = self._ready()
        homes = {prepared.problem.key: prepared}
        with contextlib.ExitStack() as held:

            def begin(entrant: Entrant) -> Runner:
                home = homes.get(entrant.problem.key) or self._made(prepared.spec, entrant.problem)
                homes[entrant.problem.key] = home
                return self._runner(entrant, home, held)

            makers = [partial(begin, entrant) for entrant in entrants]
            return in_turns(self._device, self._ready_timer(), makers, protocol, rounds)

    def _runner(self, entrant: Entrant, home: Prepared, held: contextlib.ExitStack) -> Runner:
        """The entrant, loaded and verified; what it needs is given back with `held`."""
        finalist, kernel, note = entrant.finalist, None, ""
        if finalist.library is not None:
            contender = self._way_of(finalist, home, held)
            way, note = self._librarys_way(home, contender), contender.note
        elif finalist.build is None or finalist.point is None or entrant.launch is None:
            raise AssertionError("an entrant has a point, its build and launch, or a library")
        else:
            kernel = load_kernel(self._device, self._target, finalist.build, entrant.launch)
            with self._device.doing(Stage.LOAD):
                whole, home = home, home.at(entrant.problem)
            if whole.judge is None:
                whole.judge = self._judge_by_plain_kernel(whole, home, kernel, finalist.point)
            home.judge = whole.judge
            way = self._way(home, kernel, finalist.point)
        if home.judge is None:
            raise AssertionError("a matrix product is judged by its contraction")
        judge, prover = home.judge, self._prover
        verification = prover.verification(home, judge, way)
        with prover.healing(judge):
            verification.before_timing(1)
        block = partial(trip_block, self._device, way) if isinstance(way, Trip) else None
        return Runner(
            run=way.prove if isinstance(way, Trip) else way,
            sets=home.sets,
            verification=verification,
            healing=partial(prover.healing, judge),
            kernel=kernel,
            note=note,
            block=block,
        )

    def _way(self, here: Prepared, kernel: LoadedKernel, point: Point) -> Launcher | Trip:
        """What is timed of the kernel: its launch, or the whole trip where the description has one."""
        spec, arguments = here.spec, here.sets.first
        if spec.trip is None:
            return kernel.launcher(arguments)
        scope = point_scope(spec, point, here.problem.dims, self._target)
        plan = trip_plan(spec, here.problem, point, scope)
        with self._device.doing(Stage.LOAD):
            host = here.host(self._device, pinned=plan.pinned)
            return kernel_trip(kernel, spec, point, self._target, arguments, host, plan)

    def _librarys_way(self, here: Prepared, contender: Contender) -> Launcher | Trip:
        if here.spec.trip is None:
            return contender.run
        with self._device.doing(Stage.LOAD):
            host = here.host(self._device, pinned=True)
            return library_trip(self._device, here.sets.first, host, contender.run)

    def _way_of(self, finalist: Finalist, home: Prepared, held: contextlib.ExitStack) -> Contender:
        """How the finalist's library computes the problem: as it did when it was chosen, else its own first way."""
        self._baselines = self._baselines or Baselines(self._device)
        offered = self._baselines.contenders(finalist.library or "", home.problem, home.sets.first)
        contenders = held.enter_context(offered)
        chosen = [c for c in contenders if {**finalist.chosen, **c.details} == dict(finalist.chosen)]
        return (chosen or contenders)[0]

    def close(self) -> None:
        """Give the device back; nothing to do where it was not open."""
        self._prepared = self._timer = None
        if self._baselines is not None:
            self._baselines.close()
            self._baselines = None
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        self._nvml.close()

    def _judge_by_plain_kernel(
        self, prepared: Prepared, here: Prepared, kernel: LoadedKernel, point: Point
    ) -> Judge:
        """By what the plain kernel of the same source computes, one thread a work item; `here` has its arguments."""
        spec, arguments = prepared.spec, prepared.sets.first
        with self._device.doing(Stage.VERIFY):
            run = plain_kernel(kernel, spec, point, self._target, here.sets.first)
            arguments.reset()
            run(here.sets.first)
            self._device.synchronize()
            results = arguments.outputs()
            if not all(np.isfinite(data.astype(np.float64)).all() for data in results.values()):
                name = spec.reference.text
                raise KernelError(
                    f"{spec.name}: the reference kernel {name!r} gave values that are not finite"
                )
            # What it may have damaged is its own affair, not that of the first configuration.
            arguments.restore()
            return judge_by(self._device, arguments, prepared.problem.reference_from(results))

    def _beside(self, prepared: Prepared, protocol: MeasureProtocol, phases: Phases) -> dict[str, Any]:
        """What is told of the problem beside each of its outcomes."""
        if not protocol.transfers:
            return {}
        if prepared.transfers is None:
            with phases("transfers"):
                prepared.transfers = transfers(self._device, prepared.sets.first)
        return {"transfers": prepared.transfers}


@contextlib.contextmanager
def _told(phases: Phases) -> Iterator[None]:
    """A failure tells where its time went, too."""
    try:
        yield
    except TrialFailed as failure:
        failure.details["phases_s"] = dict(phases.seconds)
        raise
