"""Energy on a pretended GPU: joules of a known power, a device that is kept at work, and a missing meter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cuda_rig import QUICK, FakeNvml, Rig, make_rig, product
from fake_pycuda import Behaviour, FakeDriver, Lost

from sweeper.backend.cuda import energy
from sweeper.device.nvml import NvmlReadings
from sweeper.errors import SetupError
from sweeper.model import Energy
from sweeper.wire import from_wire, to_wire
from sweeper.worker.deadlines import Deadlines

ENERGY = replace(QUICK, objective="energy")


class MeteredNvml(FakeNvml):
    """A counter renewed every 20 ms of a device that draws 400 W; a reading takes `read_ms`."""

    def __init__(self, driver: FakeDriver, *readings: NvmlReadings, read_ms: float = 3.0) -> None:
        super().__init__(*readings)
        self.driver = driver
        self.read_ms = read_ms
        self.has_counter = True
        self.asked_energy = 0
        self.behind_ms: list[float] = []

    def energy_mj(self, pci_bus_id: str) -> float | None:
        if not self.has_counter:
            return None
        self.asked_energy += 1
        seen_ms = self.driver.host_ms
        self.driver.host_ms += self.read_ms
        self.behind_ms.append(self.driver.device_ms - self.driver.host_ms)
        return 400 * (seen_ms // 20) * 20


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    made = make_rig(tmp_path, monkeypatch)
    made.nvml = MeteredNvml(made.driver)
    monkeypatch.setattr(energy, "clock_s", lambda: made.driver.host_ms / 1e3)

    def nap(seconds: float) -> None:
        made.driver.host_ms += 1e3 * seconds

    monkeypatch.setattr(energy, "nap_s", nap)
    return made.prepared()


def measured(rig: Rig, time_ms: float, **changes: object) -> Energy:
    timing = rig.measure(Behaviour(product, time_ms=time_ms), replace(ENERGY, **changes)).timing
    assert timing is not None
    assert timing.energy is not None
    return timing.energy


@pytest.mark.parametrize("time_ms", [0.02, 0.3, 2.0, 30.0])
def test_a_launch_takes_its_time_at_the_devices_power(rig: Rig, time_ms: float) -> None:
    found = measured(rig, time_ms)
    assert found.source == "counter"
    assert found.resolution is not None
    assert found.watts == pytest.approx(400, rel=found.resolution)
    assert found.joules == pytest.approx(0.4 * time_ms, rel=found.resolution)
    assert found.joules / found.watts == pytest.approx(time_ms / 1e3, rel=1e-3), (
        "nothing but launches is timed"
    )
    assert found.low <= found.joules <= found.high
    assert found.low <= 0.4 * time_ms <= found.high
    assert len(found.windows_w) >= 3


@pytest.mark.parametrize("time_ms", [0.02, 0.3, 2.0, 30.0])
def test_the_device_is_at_work_whenever_the_meter_has_been_read(rig: Rig, time_ms: float) -> None:
    rig.nvml.read_ms = 15.0
    found = measured(rig, time_ms)
    assert found.note == ""
    # The first reading tells what the counter stands at before there is any work.
    assert min(rig.nvml.behind_ms[1:]) > 0


def test_a_device_that_had_to_wait_is_told(rig: Rig) -> None:
    rig.nvml.read_ms = 90.0
    assert "waited for the host" in measured(rig, 1.0).note


def test_more_seconds_are_a_finer_resolution(rig: Rig) -> None:
    short, long = measured(rig, 1.0), measured(rig, 1.0, energy_seconds=2.0)
    assert long.launches > 2 * short.launches
    assert (long.resolution or 1) < (short.resolution or 0) / 2


def test_a_kernel_that_cannot_be_recorded_is_launched_one_by_one(rig: Rig) -> None:
    rig.graphs.refuse = "instantiate"
    found = measured(rig, 0.2)
    assert found.joules == pytest.approx(0.08, rel=0.1)
    assert not rig.graphs.live


def test_graphs_are_given_back(rig: Rig) -> None:
    measured(rig, 0.02)
    assert not rig.graphs.live


def test_without_a_counter_readings_of_the_power_are_summed_up(rig: Rig) -> None:
    rig.nvml.has_counter = False
    rig.nvml.queue = [NvmlReadings(power_w=250.0)]
    found = measured(rig, 2.0)
    assert found.source == "power"
    assert found.joules == pytest.approx(0.5, rel=0.01)


def test_with_neither_the_objective_cannot_be_served(rig: Rig) -> None:
    rig.nvml.has_counter = False
    with pytest.raises(SetupError, match="neither its energy nor its power") as caught:
        rig.measure(Behaviour(product, time_ms=1.0), ENERGY)
    assert "measure.objective=time" in (caught.value.hint or "")


def test_a_kernel_that_dies_of_so_many_launches_is_a_failed_configuration(rig: Rig) -> None:
    launches = [0]

    def run(memory: object, *numbers: int) -> None:
        product(memory, *numbers)
        launches[0] += 1
        if launches[0] > 40:
            raise Lost("an illegal memory access was encountered")

    failure = rig.failure(Behaviour(run, time_ms=5.0), ENERGY)
    assert failure.details["sticky"]


def test_time_alone_asks_no_meter_and_launches_no_more(rig: Rig) -> None:
    outcome = rig.measure(Behaviour(product, time_ms=1.0), QUICK)
    assert outcome.timing is not None
    assert outcome.timing.energy is None
    assert rig.nvml.asked_energy == 0


def test_a_worker_has_as_much_longer_as_the_energy_takes() -> None:
    longer = replace(ENERGY, energy_seconds=30.0)
    assert Deadlines().measure(None, longer) - Deadlines().measure(None, QUICK) >= 30
    assert Deadlines().measure(None, QUICK) == Deadlines().measure(None, replace(QUICK, energy_seconds=30.0))


def test_the_energy_takes_the_way_of_its_timing() -> None:
    found = Energy(0.5, 0.4, 0.6, 400.0, "counter", (399.0, 401.0), 1000, 20.0, 0.02)
    assert from_wire(Energy, to_wire(found)) == found
