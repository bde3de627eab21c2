"""On a GPU: a fault costs its own configuration and nobody else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_rig import no_gpu

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from fault_runs import FAULTS, Machine, stranger

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# A few per cent of noise at the most; a device that is not itself again is off by far more.
ALIKE = 1.1


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("faulty"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def clean(machine: Machine) -> dict[int, float]:
    machine.ten()
    return machine.ten()


@pytest.mark.parametrize("fault", [*FAULTS, "out of memory"])
def test_after_a_fault_the_next_ten_configurations_are_right_and_take_as_long_as_ever(
    machine: Machine, clean: dict[int, float], fault: str
) -> None:
    run = machine.after(fault, clean)
    wanted = {"out of memory": "out_of_memory"} | dict.fromkeys(
        ("never ends", "prints without end"), "timeout"
    )
    assert run.status == wanted.get(fault, "crash"), run.reason
    assert len(run.rows) == 10
    assert 1 / ALIKE < run.ratio < ALIKE


def test_a_process_that_comes_to_the_device_is_seen(machine: Machine) -> None:
    assert not machine.measure("right").note
    with stranger():
        note = machine.measure("right").note
    assert "process" in note
    assert not machine.measure("right").note
