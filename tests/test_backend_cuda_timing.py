"""What lies between two events: the kernel, and nothing of the host."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest
from cuda_rig import QUICK, FakeNvml, make_rig, product
from fake_pycuda import Behaviour, FakeDriver

from sweeper.backend.cuda import heat
from sweeper.backend.cuda.heat import Heat
from sweeper.device.nvml import NvmlReadings
from sweeper.model import Stage, Status


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


def test_a_long_kernel_is_timed_launch_by_launch_without_the_launch_path(rig):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5)).timing
    assert (timing.method, timing.cache) == ("events", "cold")
    assert timing.samples_ms == pytest.approx([0.5] * len(timing.samples_ms), rel=1e-6)


def test_a_short_kernel_is_timed_in_batches(rig):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.01)).timing
    assert timing.method == "events×10"
    assert timing.samples_ms == pytest.approx([0.01] * len(timing.samples_ms), rel=1e-6)


def test_a_cold_batch_gives_each_launch_its_own_arrays(rig):
    behaviour = Behaviour(product, time_ms=0.01)
    rig.prepared().measure(behaviour)
    assert len({launched["numbers"][:3] for launched in behaviour.launches}) == 10


def test_a_warm_batch_uses_the_same_arrays(rig):
    behaviour = Behaviour(product, time_ms=0.01)
    timing = rig.prepared().measure(behaviour, replace(QUICK, cache="warm")).timing
    assert (timing.method, timing.cache) == ("events×10", "warm")
    assert len({launched["numbers"][:3] for launched in behaviour.launches}) == 1


def test_a_cold_batch_is_no_larger_than_the_memory_allows(rig):
    rig.install(FakeDriver(total_bytes=(1 << 24) + 200_000))
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.01)).timing
    assert timing.method == "events×2"


def test_copies_for_which_there_is_no_memory_after_all_are_done_without(rig):
    rig.prepared()
    allocate, granted = rig.driver.mem_alloc, iter(range(4))

    def scarce(nbytes):
        if next(granted, None) is None:
            raise rig.driver.MemoryError("cuMemAlloc failed: out of memory")
        return allocate(nbytes)

    rig.driver.mem_alloc = scarce
    assert rig.measure(Behaviour(product, time_ms=0.01)).timing.method == "events×2"


def test_no_warm_up_still_means_one_launch_before_the_first_sample(rig):
    behaviour = Behaviour(product, time_ms=0.5)
    protocol = replace(QUICK, warmup_ms=0.0, min_samples=1, max_samples=1, verify_launches=1)
    timing = rig.prepared(readings_every_s=1e9).measure(behaviour, protocol).timing
    assert len(timing.samples_ms) == 1
    # Verified, sampled, verified again.
    assert len(behaviour.launches) == 3


def test_the_warm_up_lasts_as_long_as_asked(rig):
    behaviour = Behaviour(product, time_ms=0.5)
    rig.prepared().measure(behaviour, replace(QUICK, warmup_ms=50.0))
    assert len(behaviour.launches) >= 100


def test_a_device_that_is_warm_is_not_warmed_again(rig, monkeypatch):
    monkeypatch.setattr(heat, "time", types.SimpleNamespace(monotonic=lambda: rig.driver.host_ms / 1e3))
    behaviour = Behaviour(product, time_ms=0.5)
    protocol = replace(QUICK, warmup_ms=50.0)
    rig.prepared(readings_every_s=1e9).measure(behaviour, protocol)
    assert len(behaviour.launches) >= 100
    again = Behaviour(product, time_ms=0.5)
    rig.measure(again, protocol)
    assert len(again.launches) < 10
    rig.driver.host_ms += 200.0
    rested = Behaviour(product, time_ms=0.5)
    rig.measure(rested, protocol)
    assert len(rested.launches) >= 100


def test_a_rest_undoes_the_warmth_and_work_makes_it(monkeypatch):
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(heat, "time", clock)
    warmth = Heat()
    assert warmth.lacking_ms(20) == 20
    clock.now = 0.005
    warmth.add(5)
    clock.now = 0.06
    warmth.add(10)
    assert warmth.lacking_ms(20) == 5
    assert warmth.lacking_ms(10) == 0
    clock.now = 0.17
    assert warmth.lacking_ms(20) == 20
    clock.now = 0.4
    warmth.add(3)
    assert warmth.lacking_ms(20) == 17


def test_nvml_is_not_asked_again_while_its_readings_are_fresh(rig):
    rig.nvml = FakeNvml()
    rig.prepared(readings_every_s=1e9)
    asked = rig.nvml.asked
    for _ in range(3):
        rig.measure()
    assert rig.nvml.asked == asked


def test_the_flush_buffer_is_there_once_for_all_problems(rig):
    rig.prepared()
    used = rig.driver.memory.used
    for _ in range(3):
        rig.cuda.prepare(rig.spec, rig.problem)
    assert rig.driver.memory.used == used


def test_a_launch_for_which_the_host_was_late_is_no_estimate(rig):
    """The driver loads a kernel at its first launch: a short one must not pass for a long one."""
    rig.prepared()
    rig.driver.stall_ms = [3.0]
    timing = rig.measure(Behaviour(product, time_ms=0.01), replace(QUICK, verify_launches=1)).timing
    assert timing.method.startswith("events×1")


# --- Candidates that are too slow -----------------------------------------------------------------------


def test_a_candidate_far_above_the_limit_is_sampled_twice_and_verified_all_the_same(rig):
    behaviour = Behaviour(product, time_ms=0.5)
    protocol = replace(QUICK, min_samples=10, max_samples=50, stop_above_ms=0.3)
    outcome = rig.prepared().measure(behaviour, protocol)
    assert outcome.check.passed
    assert len(outcome.timing.samples_ms) == 2
    assert outcome.timing.note.startswith("stopped early: at least 0.45")
    wrong = rig.failure(Behaviour(lambda *_: None, time_ms=0.5), protocol)
    assert wrong.status is Status.WRONG_RESULT


def test_a_candidate_near_the_limit_is_sampled_like_any_other(rig):
    protocol = replace(QUICK, min_samples=6, max_samples=50, stop_above_ms=0.4999)
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5), protocol).timing
    assert len(timing.samples_ms) == 6
    assert "stopped" not in timing.note


def test_samples_stop_once_they_agree(rig):
    protocol = replace(QUICK, min_samples=6, max_samples=100)
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5), protocol).timing
    assert len(timing.samples_ms) == 6


def test_a_sample_for_which_the_host_was_late_is_taken_again(rig):
    behaviour = Behaviour(product, time_ms=0.5)
    rig.prepared()
    rig.driver.stall_ms = [0.0] * 12 + [3.0, 3.0]
    timing = rig.measure(behaviour, replace(QUICK, min_samples=20, max_samples=20, max_seconds=60)).timing
    assert max(timing.samples_ms) == pytest.approx(0.5, rel=1e-6)
    assert max(rig.driver.spins_ms) > 0.05
    assert rig.driver.spins_ms[-1] < max(rig.driver.spins_ms)


def test_a_host_that_is_always_late_still_gives_samples(rig):
    rig.prepared()
    rig.driver.call_ms = 50.0
    timing = rig.measure(Behaviour(product, time_ms=0.5)).timing
    assert len(timing.samples_ms) >= 3


def test_a_kernel_too_slow_for_its_least_samples_gives_what_it_can(rig, monkeypatch):
    ticks = iter(range(0, 100_000, 20))
    monkeypatch.setattr("sweeper.backend.cuda.timing.time.monotonic", lambda: next(ticks))
    timing = (
        rig.prepared().measure(Behaviour(product, time_ms=9000.0), replace(QUICK, deadline_s=100.0)).timing
    )
    assert len(timing.samples_ms) < QUICK.min_samples


def test_a_kernel_no_slower_than_an_empty_one_is_unstable(rig):
    failure = rig.prepared().failure(Behaviour(product, time_ms=0.001))
    assert (failure.status, failure.stage) == (Status.UNSTABLE, Stage.MEASURE)
    assert "empty kernel" in failure.reason


def test_a_short_kernel_above_the_floor_is_timed(rig):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.002)).timing
    assert timing.method == "events×32"


def test_readings_are_taken_while_the_kernel_runs(rig):
    rig.nvml = FakeNvml(
        NvmlReadings(
            sm_clock_mhz=1900.0,
            memory_clock_mhz=3200.0,
            power_w=500.0,
            temperature_c=60.0,
            throttle_reasons=("hw_thermal_slowdown",),
        )
    )
    timing = rig.prepared().measure().timing
    assert (timing.sm_clock_mhz, timing.memory_clock_mhz) == (1900.0, 3200.0)
    assert (timing.power_w, timing.temperature_c) == (500.0, 60.0)
    assert timing.note == "clock held down: hw_thermal_slowdown"


def test_a_long_kernel_is_not_launched_once_more_for_the_readings(rig):
    rig.nvml = FakeNvml(NvmlReadings(sm_clock_mhz=1900.0))
    behaviour = Behaviour(product, time_ms=50.0)
    protocol = replace(QUICK, warmup_ms=0.0, min_samples=1, max_samples=1, verify_launches=1)
    rig.prepared()
    asked = rig.nvml.asked
    assert rig.measure(behaviour, protocol).timing.sm_clock_mhz == 1900
    assert len(behaviour.launches) == 3
    assert rig.nvml.asked > asked


def test_missing_readings_are_noted_and_nothing_is_claimed(rig):
    timing = rig.prepared().measure().timing
    assert timing.sm_clock_mhz is None
    assert timing.note == "no NVML here"


def test_a_drift_is_noted(rig):
    behaviour = Behaviour(time_ms=0.5)

    def slower(memory, *numbers):
        product(memory, *numbers)
        behaviour.time_ms *= 1.02

    behaviour.run = slower
    protocol = replace(QUICK, min_samples=12, max_samples=12)
    assert "times drift by +" in rig.prepared().measure(behaviour, protocol).timing.note
