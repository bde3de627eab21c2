"""Joules a launch: one kernel's launches back to back, long enough for the device's meter.

Launches are queued so far ahead that the device never waits for the host, not even while the meter is read.
The L2 cache is as the launches themselves leave it, so warm, and what the device draws when it is idle is part
of the figure: it is what the power supply gives for a launch, not what the launch adds.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.energy_meter import Drawn, by_counter, by_power
from sweeper.backend.cuda.graph import Graph, GraphError, Graphs
from sweeper.backend.cuda.verification import Launcher
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Energy, Stage

__all__ = ["measure_energy"]

# A reading of the counter takes up to 15 ms on an H200 with driver 580; the work ahead has to outlast it.
_AHEAD_MS = 60.0
_BATCH_MS = 5.0
# Shorter launches are queued as a graph: the driver takes about a thousand entries before it lets the host wait.
_UNIT_MS = 0.5
_MOST_IN_A_GRAPH = 256
_NAP_S = 0.0005

clock_s: Callable[[], float] = time.monotonic
nap_s: Callable[[float], None] = time.sleep


def measure_energy(
    device: CudaDevice, launch: Launcher, arguments: Arguments, launch_ms: float, seconds: float
) -> Energy:
    """What a launch of about `launch_ms` milliseconds takes, from at least `seconds` of work.

    Raises TrialFailed where the kernel fails, SetupError where the device tells neither its energy nor its power.
    """
    with _failures(device), _Load(device, launch, arguments, launch_ms) as load:
        drawn = _drawn(device, load.keep_on, seconds)
        each_ms, launches = load.end()
    if drawn is None:
        raise SetupError(
            f"device {device.pci_bus_id} tells neither its energy nor its power",
            hint="measure.objective=time needs neither; NVML comes with the package nvidia-ml-py",
        )
    joules = drawn.watts * each_ms / 1e3
    half = drawn.half_width
    return Energy(
        joules=joules,
        low=joules * max(0.0, 1 - half),
        high=joules * (1 + half),
        watts=drawn.watts,
        source=drawn.source,
        windows_w=tuple(window.watts for window in drawn.windows),
        launches=launches,
        step_ms=drawn.step_ms,
        resolution=drawn.resolution,
        note="the device waited for the host while its energy was measured" if load.waited else "",
    )


def _drawn(device: CudaDevice, keep_on: Callable[[], None], seconds: float) -> Drawn | None:
    monitor = device.monitor
    counted = by_counter(monitor.energy_mj, keep_on, seconds, clock_s)
    return counted or by_power(lambda: monitor.glance().power_w, keep_on, seconds, clock_s)


@contextlib.contextmanager
def _failures(device: CudaDevice) -> Iterator[None]:
    """Translate the driver's errors into the failure of one configuration."""
    try:
        with device.doing(Stage.MEASURE):
            yield
    except GraphError as error:
        raise device.failure(error, Stage.MEASURE) from None


class _Load:
    """Launches on the device's stream without a gap, from the beginning of the context until `end`."""

    def __init__(self, device: CudaDevice, launch: Launcher, arguments: Arguments, launch_ms: float) -> None:
        self._device = device
        self._queue: Callable[[], object] = lambda: launch(arguments)
        self._graph: Graph | None = None
        self._launches_a_unit = 1
        self._launch_ms = max(launch_ms, 1e-4)
        self._flying: deque[Any] = deque()
        self._spare: list[Any] = []
        self._batches = 0
        self.waited = False

    def __enter__(self) -> Self:
        if self._launch_ms < _UNIT_MS:
            self._record()
        unit_ms = self._launches_a_unit * self._launch_ms
        self._units = max(1, math.ceil(_BATCH_MS / unit_ms))
        self._ahead = max(2, math.ceil(_AHEAD_MS / (self._units * unit_ms)))
        return self

    def _record(self) -> None:
        """Let a unit be a graph of many launches; of one each where the driver does not record the kernel."""
        count = min(_MOST_IN_A_GRAPH, math.ceil(2 * _UNIT_MS / self._launch_ms))
        single = self._queue

        def many() -> None:
            for _ in range(count):
                single()

        try:
            self._graph = Graphs(int(self._device.stream.handle)).record(many)
        except (GraphError, TrialFailed, self._device.drv.Error):
            # A kernel that cannot be recorded can still be queued; one that has failed says so again.
            return
        self._queue, self._launches_a_unit = self._graph.launch, count

    def keep_on(self) -> None:
        """Queue what is missing of the work ahead, then rest a little."""
        while self._flying and self._flying[0].query():
            self._spare.append(self._flying.popleft())
        self.waited = self.waited or (self._batches > 0 and not self._flying)
        if self._batches == 0:
            self._device.stopwatch.start()
        while len(self._flying) < self._ahead:
            for _ in range(self._units):
                self._queue()
            event = self._spare.pop() if self._spare else self._device.drv.Event()
            event.record(self._device.stream)
            self._flying.append(event)
            self._batches += 1
        nap_s(_NAP_S)

    def end(self) -> tuple[float, int]:
        """Wait for the device; milliseconds from launch to launch, and how many launches there were."""
        if self._batches == 0:
            return math.nan, 0
        watch = self._device.stopwatch
        watch.stop()
        elapsed_ms = watch.wait_ms()
        self._device.heat.add(elapsed_ms)
        launches = self._batches * self._units * self._launches_a_unit
        return elapsed_ms / launches, launches

    def __exit__(self, *_: object) -> None:
        if self._graph is not None:
            with contextlib.suppress(self._device.drv.Error):
                self._device.synchronize()
            self._graph.close()
