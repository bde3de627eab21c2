"""Finalists timed in turns on a pretended GPU: who is in it, in what order, and what disturbs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_rig import POINT, QUICK, FakeNvml, Rig, make_rig, product
from fake_pycuda import Behaviour, Lost, Memory
from specs import array, saxpy_spec, scalar

from sweeper.backend.base import Entrant, Finalist, Rounds, Turns
from sweeper.device.nvml import NvmlReadings
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Point
from sweeper.problem import resolve
from sweeper.resources.geometry import launch_of
from sweeper.statistics import Verdict, paired_log_ratio, verdict

ROUNDS = Rounds(8, seed=7)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


def entrant(rig: Rig, name: str, behaviour: Behaviour | Callable[..., Any], point: Point = POINT) -> Entrant:
    """A kernel `name` that does what `behaviour` says."""
    made = behaviour if isinstance(behaviour, Behaviour) else Behaviour(behaviour)
    rig.driver.behaviours[name] = made
    launch = launch_of(rig.spec, point, rig.problem.dims, rig.target)
    problem = resolve(rig.spec, rig.problem.dims, point, seed=rig.problem.seed)
    return Entrant(Finalist(point, rig.build(name)), problem, launch)


def turns(rig: Rig, *entrants: Entrant, rounds: Rounds = ROUNDS) -> tuple[Turns, ...]:
    return rig.cuda.confirm(entrants, QUICK, rounds)


def timed(run: Callable[..., Any], times_ms: Callable[[], float]) -> Behaviour:
    """A kernel whose every launch takes what `times_ms` says then."""
    behaviour = Behaviour(time_ms=times_ms())

    def acts(memory: Memory, *numbers: int) -> None:
        behaviour.time_ms = times_ms()
        run(memory, *numbers)

    behaviour.run = acts
    return behaviour


def judged(one: Turns, other: Turns) -> Verdict:
    return verdict(paired_log_ratio(one.times_ms, other.times_ms))


def test_everyone_has_a_time_for_every_block(rig):
    rig.prepared()
    first, second = turns(
        rig,
        entrant(rig, "a", Behaviour(product, time_ms=0.5)),
        entrant(rig, "b", Behaviour(product, time_ms=0.25)),
    )
    assert first.times_ms == pytest.approx([0.5] * 8, rel=1e-6)
    assert second.times_ms == pytest.approx([0.25] * 8, rel=1e-6)
    assert first.reason == second.reason == ""
    assert first.build is not None
    assert first.build.registers == 32
    assert first.launch is not None


def test_the_order_is_random_and_the_seed_fixes_it(rig):
    rig.prepared()

    def order(rounds: Rounds) -> str:
        seen: list[str] = []

        def noted(name: str) -> Behaviour:
            return Behaviour(lambda *numbers: seen.append(name) or product(*numbers), time_ms=0.5)

        turns(rig, *(entrant(rig, name, noted(name)) for name in "abc"), rounds=rounds)
        return "".join(name for name, before in zip(seen, ["", *seen], strict=False) if name != before)

    assert order(ROUNDS) == order(ROUNDS)
    assert len({order(replace(ROUNDS, seed=seed)) for seed in range(4)}) == 4
    assert order(ROUNDS) != order(replace(ROUNDS, first=8)), "later blocks have orders of their own"


def test_one_configuration_is_never_told_from_itself(rig):
    rng = np.random.default_rng(1)
    rig.prepared()
    alike = [timed(product, lambda: 0.5 * float(np.exp(rng.normal(0, 0.003)))) for _ in range(2)]
    one, other = turns(rig, entrant(rig, "a", alike[0]), entrant(rig, "b", alike[1]))
    assert judged(one, other) in (Verdict.SAME, Verdict.UNSURE)


def test_five_per_cent_are_told(rig):
    rng = np.random.default_rng(2)
    rig.prepared()

    def about(middle: float) -> Behaviour:
        return timed(product, lambda: middle * float(np.exp(rng.normal(0, 0.005))))

    slow, fast = turns(rig, entrant(rig, "a", about(0.525)), entrant(rig, "b", about(0.5)))
    assert judged(slow, fast) is Verdict.SLOWER
    assert judged(fast, slow) is Verdict.FASTER


def test_a_drift_that_all_share_cancels(rig):
    """The clock falls so far that the last block takes half as long again as the first."""
    rig.prepared()
    started = rig.driver.host_ms

    def about(middle: float) -> Behaviour:
        return timed(product, lambda: middle * (1 + (rig.driver.host_ms - started) / 400))

    first, second = turns(rig, entrant(rig, "a", about(0.5)), entrant(rig, "b", about(0.525)))
    assert max(first.times_ms) > 1.1 * min(first.times_ms)
    assert judged(second, first) is Verdict.SLOWER
    assert paired_log_ratio(second.times_ms, first.times_ms).ratio == pytest.approx(1.05, rel=0.02)


class TestWhoFails:
    def test_is_reported_with_its_reason_and_the_others_go_on(self, rig):
        rig.prepared()
        right, wrong, gone = (
            entrant(rig, "a", Behaviour(product, time_ms=0.5)),
            entrant(rig, "b", lambda *_: None),
            entrant(rig, "c", Behaviour(product, time_ms=0.25)),
        )
        build = gone.finalist.build
        assert build is not None
        build.artifact.unlink()
        first, second, third = turns(rig, right, wrong, gone)
        assert len(first.times_ms) == 8
        assert "wrong" in second.reason
        assert second.times_ms == ()
        assert "gone" in third.reason

    def test_only_later_is_out_from_then_on(self, rig):
        rig.prepared()
        count = iter(range(10_000))

        def tires(memory: Memory, *numbers: int) -> None:
            if next(count) > 30:
                raise rig.driver.LogicError("cuLaunchKernel failed: invalid argument")
            product(memory, *numbers)

        tired, steady = turns(
            rig, entrant(rig, "a", Behaviour(tires, time_ms=0.5)), entrant(rig, "b", product)
        )
        assert "invalid argument" in tired.reason
        assert 0 < len(tired.times_ms) < 8
        assert len(steady.times_ms) == 8

    def test_after_the_last_block_is_out_too(self, rig):
        """A kernel that gives its first answer again is found out by other inputs."""
        rig.prepared()
        kept: list[np.ndarray] = []

        def remembers(memory: Memory, a: int, b: int, c: int, *sizes: int) -> None:
            out = product(memory, a, b, c, *sizes)
            kept.append(out.copy())
            out[:] = kept[0]

        cheat, honest = turns(
            rig, entrant(rig, "a", Behaviour(remembers, time_ms=0.5)), entrant(rig, "b", product)
        )
        assert "negated" in cheat.reason
        assert honest.reason == ""

    def test_is_not_one_whose_input_another_has_written(self, rig):
        rig.prepared()
        count = iter(range(10_000))

        def spoils(memory: Memory, a: int, b: int, c: int, *sizes: int) -> None:
            product(memory, a, b, c, *sizes)
            if next(count) > 30:
                memory.array(a, (1,), np.float32)[0] = 77.0

        honest, spoiler = turns(
            rig, entrant(rig, "a", product), entrant(rig, "b", Behaviour(spoils, time_ms=0.5))
        )
        assert honest.reason == ""
        assert "input A" in spoiler.reason

    def test_and_takes_the_context_with_it_is_named(self, rig):
        rig.prepared()

        def deadly(memory: Memory, *numbers: int) -> None:
            raise Lost("an illegal memory access was encountered")

        with pytest.raises(TrialFailed) as caught:
            turns(rig, entrant(rig, "a", product), entrant(rig, "b", deadly))
        assert caught.value.details["sticky"]
        assert caught.value.details["entrant"] == 1


class TestADisturbedBlock:
    HELD = NvmlReadings(throttle_reasons=("sw_thermal_slowdown",))
    QUIET = NvmlReadings(throttle_reasons=())

    def run(self, rig: Rig, *readings: NvmlReadings) -> Turns:
        rig.prepared()
        rig.nvml.queue = list(readings)
        one, _ = turns(rig, entrant(rig, "a", product), entrant(rig, "b", product))
        return one

    def test_is_taken_again_and_kept_apart(self, rig):
        one = self.run(rig, self.QUIET, *[self.HELD] * 4, self.QUIET)
        assert len(one.times_ms) == 8
        assert one.held_ms
        assert "sw_thermal_slowdown" in one.note

    def test_is_taken_again_no_more_than_half_as_often_as_there_are_blocks(self, rig):
        one = self.run(rig, self.HELD)
        assert (len(one.times_ms), len(one.held_ms)) == (8, 4)

    def test_by_others_on_the_device_is_taken_again(self, rig):
        rig.nvml = FakeNvml(NvmlReadings(processes=(10,)))
        rig.prepared(allow_shared=True)
        rig.nvml.queue = [NvmlReadings(processes=(10, 4711))]
        one, _ = turns(rig, entrant(rig, "a", product), entrant(rig, "b", product))
        assert len(one.held_ms) == 4
        assert "4711" in one.note

    def test_by_a_fault_of_the_device_ends_all(self, rig):
        rig.prepared()
        rig.nvml.queue = [*[NvmlReadings(ecc_errors=0)] * 20, NvmlReadings(ecc_errors=1)]
        with pytest.raises(SetupError, match="not sound"):
            turns(rig, entrant(rig, "a", product), entrant(rig, "b", product))


def test_no_block_is_begun_that_would_end_too_late(rig, monkeypatch):
    rig.prepared()
    clock = iter(np.arange(0, 1e6, 1.0))
    monkeypatch.setattr("sweeper.backend.cuda.confirm.time.monotonic", lambda: float(next(clock)))
    first, second = turns(
        rig, entrant(rig, "a", product), entrant(rig, "b", product), rounds=replace(ROUNDS, seconds=6.0)
    )
    assert 1 <= len(first.times_ms) < 8
    assert len(first.times_ms) == len(second.times_ms)


class TestProblemsThatDependOnTheParameters:
    """y = a·x + y with a the block's size: what is right for one configuration is wrong for another."""

    SPEC = saxpy_spec(
        args=(scalar("n", "N"), scalar("a", "block", None), array("x", ["N"]), array("y", ["N"], "inout"))
    )

    @staticmethod
    def saxpy(memory: Memory, n: int, a: float, x: int, y: int) -> None:
        out = memory.array(y, (n,), np.float32)
        out += np.float32(a) * memory.array(x, (n,), np.float32)

    def entrants(self, rig: Rig) -> list[Entrant]:
        rig.prepared(self.SPEC, {"N": 1024})
        behaviour = Behaviour(self.saxpy, time_ms=0.5)
        points = [Point.of({"block": block}) for block in (64, 128)]
        return [entrant(rig, f"k{p.params['block']}", behaviour, p) for p in points]

    def test_lie_on_the_device_side_by_side(self, rig):
        first, second = self.entrants(rig)
        assert first.problem.key != second.problem.key
        assert [len(one.times_ms) for one in turns(rig, first, second)] == [8, 8]

    def test_are_reported_where_they_do_not_fit_beside_each_other(self, rig):
        both = self.entrants(rig)
        turns(rig, *both)
        rig.driver.memory.total = rig.driver.memory.used + 4096
        first, second = turns(rig, *both)
        assert len(first.times_ms) == 8
        assert "device memory wanted" in second.reason
