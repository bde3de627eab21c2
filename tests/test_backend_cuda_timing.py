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


BATCHED = replace(QUICK, graph_below_ms=0.0)


@pytest.mark.parametrize("time_ms", [0.012, 0.03, 0.5])
def test_a_kernel_of_10_us_and_more_is_timed_by_itself(rig, time_ms):
    timing = rig.prepared().measure(Behaviour(product, time_ms=time_ms)).timing
    assert timing.method == "events"
    assert timing.samples_ms == pytest.approx([time_ms] * len(timing.samples_ms), rel=1e-6)


def test_a_short_kernel_is_timed_in_batches_where_there_is_no_graph(rig):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.005), BATCHED).timing
    assert timing.method == "events×20"
    assert timing.samples_ms == pytest.approx([0.005] * len(timing.samples_ms), rel=1e-6)


def test_a_cold_batch_gives_each_launch_its_own_arrays(rig):
    behaviour = Behaviour(product, time_ms=0.005)
    rig.prepared().measure(behaviour, BATCHED)
    assert len({launched["numbers"][:3] for launched in behaviour.launches}) == 20


def test_a_warm_batch_uses_the_same_arrays(rig):
    behaviour = Behaviour(product, time_ms=0.005)
    timing = rig.prepared().measure(behaviour, replace(BATCHED, cache="warm")).timing
    assert (timing.method, timing.cache) == ("events×20", "warm")
    assert len({launched["numbers"][:3] for launched in behaviour.launches}) == 1


def test_a_cold_batch_is_no_larger_than_the_memory_allows(rig):
    rig.install(FakeDriver(total_bytes=(1 << 24) + 200_000))
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.005), BATCHED).timing
    assert timing.method == "events×2"


def test_copies_for_which_there_is_no_memory_after_all_are_done_without(rig):
    rig.prepared()
    allocate, granted = rig.driver.mem_alloc, iter(range(4))

    def scarce(nbytes):
        if next(granted, None) is None:
            raise rig.driver.MemoryError("cuMemAlloc failed: out of memory")
        return allocate(nbytes)

    rig.driver.mem_alloc = scarce
    assert rig.measure(Behaviour(product, time_ms=0.005), BATCHED).timing.method == "events×2"


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
    for seed in (4, 5, 6):
        rig.cuda.prepare(rig.spec, replace(rig.problem, seed=seed))
    assert rig.driver.memory.used == used


def test_a_launch_for_which_the_host_was_late_is_no_estimate(rig):
    """The driver loads a kernel at its first launch: a short one must not pass for a long one."""
    rig.prepared()
    rig.driver.stall_ms = [3.0]
    timing = rig.measure(Behaviour(product, time_ms=0.005), replace(BATCHED, verify_launches=1)).timing
    assert timing.method.startswith("events×2")


# --- Kernels of a few microseconds ----------------------------------------------------------------------


def test_a_kernel_below_10_us_is_replayed_by_a_graph(rig):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.005)).timing
    assert timing.method == "graph×20 over 20 copies"
    assert timing.samples_ms == pytest.approx([0.005] * len(timing.samples_ms), rel=1e-6)
    assert rig.graphs.launched >= len(timing.samples_ms)
    assert "graph" not in timing.note


@pytest.mark.parametrize(
    ("cache", "method", "arrays"), [("cold", "graph×20 over 20 copies", 20), ("warm", "graph×20", 1)]
)
def test_cold_launches_of_a_graph_have_copies_of_the_arrays_and_warm_ones_the_same(
    rig, cache, method, arrays
):
    behaviour = Behaviour(product, time_ms=0.005)
    timing = rig.prepared().measure(behaviour, replace(QUICK, cache=cache)).timing
    assert (timing.method, timing.cache) == (method, cache)
    assert len({launched["numbers"][:3] for launched in behaviour.launches}) == arrays


def test_a_graph_is_given_back_after_each_configuration(rig):
    rig.prepared()
    for _ in range(3):
        rig.measure(Behaviour(product, time_ms=0.005))
    assert rig.graphs.recorded >= 3
    assert not rig.graphs.live


def test_a_cold_graph_goes_round_over_fewer_copies_only_where_they_outgrow_the_cache(rig):
    methods = []
    for l2_bytes in (1 << 10, 1 << 20):
        attributes = {"L2_CACHE_SIZE": l2_bytes}
        rig.install(FakeDriver(total_bytes=(1 << 24) + 400_000, attributes=attributes))
        methods.append(rig.prepared().measure(Behaviour(product, time_ms=0.005)).timing.method)
        rig.cuda.close()
    copies = int(methods[0].removeprefix("graph×20 over ").removesuffix(" copies"))
    assert 1 < copies < 20
    assert methods[1] == f"graph×{copies} over {copies} copies"


@pytest.mark.parametrize("call", ["begin", "end", "instantiate", "upload", "launch"])
def test_where_no_graph_can_be_had_a_batch_is_timed_and_the_row_says_so(rig, call):
    rig.prepared()
    rig.graphs.refuse = call
    timing = rig.measure(Behaviour(product, time_ms=0.005)).timing
    assert timing.method == "events×20"
    assert timing.samples_ms == pytest.approx([0.005] * len(timing.samples_ms), rel=1e-6)
    assert "no graph" in timing.note
    assert call in timing.note
    assert rig.driver.recording is None
    assert not rig.graphs.live


def test_graphs_can_be_done_without(rig):
    protocol = replace(QUICK, graph_below_ms=0.0)
    assert rig.prepared().measure(Behaviour(product, time_ms=0.005), protocol).timing.method == "events×20"
    assert rig.graphs.recorded == 0


# --- Cold and warm --------------------------------------------------------------------------------------


def test_both_states_of_the_cache_are_sampled_apart_and_the_cold_one_ranks(rig):
    behaviour = Behaviour(time_ms=0.5)
    flushed = []

    def run(memory, *numbers):
        product(memory, *numbers)
        # Warm launches are faster, as they are where the data fit into L2.
        behaviour.time_ms = 0.4

    flush = rig.driver.memset_d8_async

    def memset(address, value, nbytes, stream):
        flush(address, value, nbytes, stream)
        if nbytes >= 1 << 24:
            flushed.append(nbytes)
            behaviour.time_ms = 0.5

    behaviour.run, rig.driver.memset_d8_async = run, memset
    timing = rig.prepared().measure(behaviour, replace(QUICK, cache="both")).timing
    assert timing.cache == "cold"
    assert timing.beside.cache == "warm"
    assert timing.samples_ms == pytest.approx([0.5] * len(timing.samples_ms), rel=1e-6)
    assert timing.beside.samples_ms == pytest.approx([0.4] * len(timing.beside.samples_ms), rel=1e-6)
    assert timing.of_cache("warm") is timing.beside
    assert timing.beside.beside is None
    assert len(flushed) >= len(timing.samples_ms)


def test_a_candidate_that_is_stopped_early_is_not_sampled_warm(rig):
    protocol = replace(QUICK, cache="both", stop_above_ms=0.3)
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5), protocol).timing
    assert timing.stopped_by == "early"
    assert timing.beside is None


# --- The launch path ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_ms", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("time_ms", [0.005, 0.02, 0.5])
def test_no_call_of_the_host_is_inside_an_interval_however_slow_the_host_is(rig, call_ms, time_ms):
    """The launch path of Python costs as much as a short kernel: all of it must be hidden behind the spin."""
    rig.prepared()
    rig.driver.call_ms = call_ms
    protocol = replace(QUICK, max_seconds=60.0)
    timing = rig.measure(Behaviour(product, time_ms=time_ms), protocol).timing
    assert timing.samples_ms == pytest.approx([time_ms] * len(timing.samples_ms), rel=1e-6)


@pytest.mark.parametrize("time_ms", [0.005, 0.02, 0.5])
def test_what_two_events_take_by_themselves_is_taken_off(rig, time_ms):
    rig.driver.event_ms = 0.0013
    timing = rig.prepared().measure(Behaviour(product, time_ms=time_ms)).timing
    assert timing.samples_ms == pytest.approx([time_ms] * len(timing.samples_ms), rel=1e-6)
    assert timing.sm_clock_mhz == pytest.approx(1980, rel=1e-6)


def test_a_block_is_the_median_of_samples_taken_in_the_same_way(rig):
    rig.prepared()
    for time_ms in (0.005, 0.02, 0.5):
        behaviour = Behaviour(product, time_ms=time_ms)
        rig.measure(behaviour)
        launch = block_launcher(rig, behaviour)
        timer, sets = rig.cuda._ready_timer(), rig.cuda._ready().sets
        assert timer.block(launch, sets, QUICK, None) == pytest.approx(time_ms, rel=1e-6)
    assert not rig.graphs.live


def block_launcher(rig, behaviour):
    """Launches `behaviour` past the backend."""
    rig.driver.behaviours["matmul"] = behaviour
    module = rig.driver.module_from_buffer(rig.build("matmul").artifact.read_bytes())
    function = module.get_function("matmul")

    def launch(arguments):
        function.prepare(arguments.letters).prepared_async_call((1, 1), (8, 8, 1), None, *arguments.numbers)

    return launch


# --- What ended the sampling ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "stopped", "samples", "note"),
    [
        ({"max_samples": 20}, "precise", 6, ""),
        ({}, "max_samples", 5, "stopped at max_samples: no interval, wanted 0.01"),
        ({"max_samples": 90, "max_seconds": 0.0}, "max_seconds", 3, "stopped at max_seconds: no interval"),
        ({"max_samples": 90, "stopping": "entropy"}, "entropy", 32, ""),
        ({"max_samples": 90, "stopping": "either"}, "precise", 6, ""),
        ({"max_samples": 90, "stopping": "both"}, "both", 32, ""),
        ({"max_samples": 20, "stopping": "both"}, "max_samples", 20, "no trend of entropy, wanted 0.05"),
    ],
)
def test_the_row_says_what_ended_its_sampling_and_what_was_not_met(rig, changes, stopped, samples, note):
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5), replace(QUICK, **changes)).timing
    assert (timing.stopped_by, len(timing.samples_ms)) == (stopped, samples)
    assert note in timing.note
    assert bool(note) == ("stopped at" in timing.note)


# --- Samples at a lower clock ---------------------------------------------------------------------------


def slowing(behaviour, share):
    """The clock's share while `share()` says so; the kernel takes longer by as much."""
    full_ms = behaviour.time_ms

    def now():
        value = share()
        behaviour.time_ms = full_ms / value
        return value

    return now


def test_samples_at_a_lower_clock_are_taken_again_and_counted(rig, monkeypatch):
    rests = []
    monkeypatch.setattr("sweeper.backend.cuda.steady.time.sleep", rests.append)
    behaviour = Behaviour(product, time_ms=0.5)
    rig.prepared().measure(Behaviour(product, time_ms=0.5))
    protocol = replace(QUICK, min_samples=8, max_samples=8)
    # The clock is down until the device has rested twice.
    rig.driver.clock_share = slowing(behaviour, lambda: 1.0 if len(rests) >= 2 else 0.8)
    timing = rig.measure(behaviour, protocol).timing
    assert timing.discarded == 2
    assert timing.samples_ms == pytest.approx([0.5] * 8, rel=1e-6)
    assert timing.sm_clock_mhz == pytest.approx(1980, rel=1e-6)
    assert "clock" not in timing.note


def test_a_clock_that_never_comes_back_leaves_the_row_standing_with_a_note(rig, monkeypatch):
    rests = []
    monkeypatch.setattr("sweeper.backend.cuda.steady.time.sleep", rests.append)
    rig.prepared().measure(Behaviour(product, time_ms=0.5))
    behaviour = Behaviour(product, time_ms=0.5)
    rig.driver.clock_share = slowing(behaviour, lambda: 0.8)
    timing = rig.measure(behaviour, replace(QUICK, min_samples=8, max_samples=8)).timing
    assert timing.samples_ms == pytest.approx([0.625] * len(timing.samples_ms), rel=1e-6)
    assert (timing.discarded, len(timing.samples_ms) >= 8) == (0, True)
    assert "the clock did not come back in 0.5 s: 1584 of 1980 MHz" in timing.note
    assert sum(rests) == pytest.approx(0.5)
    # The next one of the same kind need not wait as long for what does not come.
    rests.clear()
    rig.measure(behaviour, replace(QUICK, min_samples=8, max_samples=8))
    assert sum(rests) == pytest.approx(0.25)


def test_heat_reported_by_nvml_discards_samples_whatever_the_clock(rig, monkeypatch):
    rests = []
    monkeypatch.setattr("sweeper.backend.cuda.steady.time.sleep", rests.append)
    hot, cool = (NvmlReadings(sm_clock_mhz=1980.0, throttle_reasons=why) for why in (("hw_slowdown",), ()))
    rig.nvml = FakeNvml(cool)
    rig.prepared()
    rig.nvml.glances = [hot] * 4
    timing = rig.measure(Behaviour(product, time_ms=0.5), replace(QUICK, max_samples=6)).timing
    assert timing.discarded == len(rests) == 4
    assert len(timing.samples_ms) == 6


def test_a_power_cap_that_leaves_the_clock_alone_discards_nothing(rig):
    rig.nvml = FakeNvml(NvmlReadings(sm_clock_mhz=1980.0, throttle_reasons=("sw_power_cap",)))
    timing = rig.prepared().measure(Behaviour(product, time_ms=0.5)).timing
    assert timing.discarded == 0
    assert "clock held down: sw_power_cap" in timing.note


def test_any_clock_counts_where_that_is_asked_for(rig):
    rig.prepared().measure(Behaviour(product, time_ms=0.5))
    rig.driver.clock_share = lambda: 0.5
    protocol = replace(QUICK, clock_tolerance=None)
    timing = rig.measure(Behaviour(product, time_ms=0.5), protocol).timing
    assert (timing.discarded, len(timing.samples_ms)) == (0, 5)


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
    assert timing.samples_ms == pytest.approx([0.002] * len(timing.samples_ms), rel=1e-6)


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
    assert timing.sm_clock_mhz == pytest.approx(1980, rel=1e-6)
    assert timing.memory_clock_mhz == 3200.0
    assert (timing.power_w, timing.temperature_c) == (500.0, 60.0)
    assert "clock held down: hw_thermal_slowdown" in timing.note


def test_a_long_kernel_is_not_launched_once_more_for_the_readings(rig):
    rig.nvml = FakeNvml(NvmlReadings(power_w=432.0))
    behaviour = Behaviour(product, time_ms=50.0)
    protocol = replace(QUICK, warmup_ms=0.0, min_samples=1, max_samples=1, verify_launches=1)
    rig.prepared()
    asked = rig.nvml.asked
    assert rig.measure(behaviour, protocol).timing.power_w == 432
    assert len(behaviour.launches) == 3
    assert rig.nvml.asked > asked


def test_missing_readings_are_noted_and_nothing_is_claimed(rig):
    timing = rig.prepared().measure(protocol=replace(QUICK, max_samples=6)).timing
    assert timing.power_w is timing.temperature_c is timing.memory_clock_mhz is None
    assert timing.note == "no NVML here"


def test_the_clock_is_known_without_nvml_from_the_spin_before_each_sample(rig):
    rig.prepared()
    rig.driver.clock_share = lambda: 0.75
    assert rig.measure().timing.sm_clock_mhz == pytest.approx(0.75 * 1980, rel=1e-6)


def test_a_drift_is_noted(rig):
    behaviour = Behaviour(time_ms=0.5)

    def slower(memory, *numbers):
        product(memory, *numbers)
        behaviour.time_ms *= 1.02

    behaviour.run = slower
    protocol = replace(QUICK, min_samples=12, max_samples=12)
    assert "times drift by +" in rig.prepared().measure(behaviour, protocol).timing.note
