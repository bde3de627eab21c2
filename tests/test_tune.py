"""The loop: every asked configuration becomes one durable trial, in an order that the seed alone fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from specs import gemm_spec

from sweeper.backend.base import Outcome
from sweeper.device import DeviceIdentity, target
from sweeper.errors import TrialFailed
from sweeper.evaluate import Ticket
from sweeper.model import Build, Check, Point, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.resources.geometry import implicit_constraints, launch_derived, scope_constants
from sweeper.search import make
from sweeper.space import Space, build_space
from sweeper.table import frame
from sweeper.table.row import time_ms
from sweeper.tune import STOPPED, Study, Tally, tune
from sweeper.tune import study as study_module

DIMS = {"M": 512, "N": 512, "K": 512}
SPEC = gemm_spec(params={"tile": (2, 4, 8, 16, 32)})
RIGHT = Check(passed=True, checked=4, wrong=0, max_error=0.0, error_ratio=0.0, error_index=None)


class FakeWorld:
    """Answers at once: `answer` gives a time in ms, or a failure, for each point."""

    backend = "fake"
    compiler = "fake 1"
    target = target("h200")
    identity = DeviceIdentity(name="fake", uuid="GPU-1")
    capacity = 1
    spare_builders = 0

    def __init__(
        self, answer: Callable[[Point], float | TrialFailed | None], *, measured: bool = True
    ) -> None:
        self.answer = answer
        self.time_source = TimeSource.MEASURED if measured else TimeSource.PREDICTED
        self.devices = [self.identity]
        self.submitted: list[Point] = []
        self.built_ahead: list[Point] = []
        self.finished: list[Point] = []
        self.best_seen: list[float] = []
        self.stop_above_ms: float | None = None
        self.unprepared: TrialFailed | None = None

    def prepare(self, spec: Any, dims: Any, seed: int) -> None: ...

    def ready(self) -> None:
        if self.unprepared is not None:
            raise self.unprepared

    def seen(self, time_ms: float) -> None:
        self.best_seen.append(time_ms)

    def seconds(self) -> dict[str, Any]:
        return {"device_busy": [0.5], "waiting_for_builds": 0.25, "phases": {}}

    def submit(self, point: Point) -> Ticket:
        self.submitted.append(point)
        build: Future[Build] = Future()
        build.set_result(
            Build("key", "fake", Path("kernel.cubin"), "matmul", "fake 1", registers=40, seconds=0.5)
        )
        device = self.devices[len(self.submitted) % len(self.devices)]
        return Ticket(point, build, device=device, measure_s=0.125, stop_above_ms=self.stop_above_ms)

    def finish(self, ticket: Ticket) -> Outcome:
        if ticket.point is None:
            timing = Timing((0.5,), "events", "cold")
            return Outcome(check=RIGHT, build=None, launch=None, timing=timing, note=ticket.library or "")
        self.finished.append(ticket.point)
        answer = self.answer(ticket.point)
        if isinstance(answer, TrialFailed):
            raise answer
        timing = None if answer is None else Timing((answer, answer, answer), "events", "cold")
        return Outcome(
            check=RIGHT, build=ticket.build.result() if ticket.build else None, launch=None, timing=timing
        )

    def build_ahead(self, points: Any) -> None:
        self.built_ahead += points

    def baseline(self, library: str) -> Ticket:
        return Ticket(None, library=library, device=self.identity)

    def close(self) -> None: ...


class Memory:
    """A recorder that remembers, and answers from what it was given before."""

    def __init__(self, earlier: list[Trial] | None = None) -> None:
        self.earlier = {(t.role, t.point.key): t for t in earlier or []}
        self.trials: list[Trial] = []

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        return self.earlier.get((role, Point.of(params).key))

    def add(self, trial: Trial) -> Trial:
        self.trials.append(replace(trial, number=len(self.trials) + 1))
        return self.trials[-1]


class Ears:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.heard: list[Trial] = []

    def finished(self, trial: Trial, *, reused: bool) -> None:
        assert trial in self.memory.trials, "a trial is durable before anybody hears of it"
        self.heard.append(trial)


def study_of(world: FakeWorld) -> Study:
    return Study(SPEC, DIMS, "small", 42, 2 * 512**3, 3 * 4 * 512**2, world, {"cache": "cold"})


def space() -> Space:
    limits = target("h200")
    constants = scope_constants(SPEC, DIMS, limits)
    return build_space(SPEC.params, implicit_constraints(limits), constants, launch_derived(SPEC))


def by_tile(point: Point) -> float:
    return 1.0 / int(point.params["tile"])


def run(world: FakeWorld, memory: Memory | None = None, **options: Any) -> tuple[Tally, Memory]:
    memory = memory or Memory()
    chosen = {"budget": None, "lookahead": 2, **options}
    strategy = make(chosen.pop("search", "grid"), space(), 0, chosen.pop("search_options", None))
    return tune(study_of(world), space(), lambda: strategy, memory, Ears(memory), **chosen), memory


def test_every_configuration_is_measured_once_and_the_exhausted_space_ends_the_loop() -> None:
    world = FakeWorld(by_tile)
    tally, memory = run(world, budget=100)
    assert [t.params["tile"] for t in memory.trials] == [2, 4, 8, 16, 32]
    assert tally.asked == 5
    assert tally.valid == 5
    assert [time_ms(t) for t in memory.trials] == [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_the_budget_counts_distinct_configurations() -> None:
    tally, memory = run(FakeWorld(by_tile), budget=3)
    assert tally.asked == len(memory.trials) == 3


def test_builds_run_ahead_by_no_more_than_told() -> None:
    ahead: list[int] = []
    world = FakeWorld(by_tile)
    world.answer = lambda point: ahead.append(len(world.submitted) - len(world.finished)) or by_tile(point)
    run(world, lookahead=3)
    assert max(ahead) == 2, "two more are building while the first is measured"


def test_a_failed_configuration_is_a_row_with_its_reason_and_the_loop_goes_on() -> None:
    failure = TrialFailed(
        Status.WRONG_RESULT, Stage.VERIFY, "3 of 4 elements are wrong", details={"check": RIGHT}
    )
    tally, memory = run(FakeWorld(lambda p: failure if p.params["tile"] == 8 else by_tile(p)))
    failed = next(t for t in memory.trials if t.status is not Status.OK)
    assert (failed.status, failed.stage, failed.reason) == (Status.WRONG_RESULT, Stage.VERIFY, failure.reason)
    assert failed.params == {"tile": 8}
    assert failed.check == RIGHT
    assert failed.build is not None
    assert time_ms(failed) is None
    assert tally.valid == 4


class Machine:
    """Knows of one configuration that the machine did not survive."""

    def __init__(self, tile: int, times: int) -> None:
        self.tile, self.times = tile, times
        self.begun: list[int] = []

    def begin(self, params: Mapping[str, Any]) -> int:
        self.begun.append(params["tile"])
        return self.times if params["tile"] == self.tile else 0


def test_what_the_machine_went_down_with_twice_is_a_crash_and_not_run_again() -> None:
    world = FakeWorld(by_tile)
    tally, memory = run(world, attempts=Machine(8, 2))
    failed = [t for t in memory.trials if t.status is Status.CRASH]
    assert [t.params["tile"] for t in failed] == [8]
    assert "begun 2 times, and each time the machine went down" in failed[0].reason
    assert tally.valid == len(memory.trials) - 1
    again, _ = run(FakeWorld(by_tile), Memory(memory.trials), attempts=Machine(8, 0))
    assert again.reused == len(memory.trials)


def test_what_the_machine_went_down_with_once_is_tried_again() -> None:
    machine = Machine(8, 1)
    tally, memory = run(FakeWorld(by_tile), attempts=machine)
    assert tally.valid == len(memory.trials)
    assert sorted(machine.begun) == sorted(t.params["tile"] for t in memory.trials)


def test_fail_fast_stops_after_the_failure_was_recorded() -> None:
    failure = TrialFailed(Status.CRASH, Stage.LAUNCH, "SIGSEGV")
    _, memory = run(FakeWorld(lambda p: failure if p.params["tile"] == 4 else by_tile(p)), fail_fast=True)
    assert [t.status for t in memory.trials] == [Status.OK, Status.CRASH]


def test_what_was_measured_under_the_same_conditions_is_not_measured_again() -> None:
    _, before = run(FakeWorld(by_tile), budget=2)
    world = FakeWorld(by_tile)
    tally, memory = run(world, Memory(before.trials))
    assert tally.reused == 2
    assert [p.params["tile"] for p in world.finished] == [8, 16, 32]
    assert len(memory.trials) == 5


@pytest.mark.parametrize("status", [Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.UNSTABLE])
def test_a_failure_that_may_have_been_the_machines_is_tried_again(status: Status) -> None:
    _, before = run(FakeWorld(lambda p: TrialFailed(status, Stage.LAUNCH, "once")), budget=1)
    world = FakeWorld(by_tile)
    tally, _ = run(world, Memory(before.trials), budget=1)
    assert tally.reused == 0
    assert len(world.finished) == 1


def test_the_library_is_a_row_beside_the_candidates() -> None:
    tally, _ = run(FakeWorld(by_tile), baselines=("cublas",))
    library = tally.trials[0]
    assert library.role is Role.BASELINE
    assert library.kernel == "cublas"
    assert time_ms(library) == 0.5
    assert tally.asked == 5, "a library does not use the budget"


def test_a_library_is_held_against_the_roofline_too() -> None:
    tally, _ = run(FakeWorld(by_tile), baselines=("cublas",))
    library, candidate = tally.trials[0], tally.trials[1]
    assert library.details["roofline_ms"] == candidate.details["roofline_ms"]
    (row, *_) = frame(tally.trials).to_dict("records")
    assert row["percent_of_roofline"] == pytest.approx(100 * library.details["roofline_ms"] / 0.5)


def test_what_a_backend_tells_of_a_row_is_among_its_details() -> None:
    world = FakeWorld(by_tile)
    told = {"library": {"heuristic": 3}}
    world.finish = lambda ticket: replace(FakeWorld.finish(world, ticket), details=told)  # type: ignore[method-assign]
    _, memory = run(world, baselines=("cublaslt",))
    assert all(trial.details["library"] == {"heuristic": 3} for trial in memory.trials)


def test_a_library_that_fails_is_a_row_with_its_reason_and_is_asked_again() -> None:
    missing = TrialFailed(Status.INFEASIBLE, Stage.SPACE, "cuBLASLt was not found")

    def finish(ticket: Ticket) -> Outcome:
        if ticket.library == "cublaslt":
            raise missing
        return FakeWorld.finish(world, ticket)

    world = FakeWorld(by_tile)
    world.finish = finish  # type: ignore[method-assign]
    tally, memory = run(world, baselines=("cublas", "cublaslt"))
    assert tally.valid == 5
    row = next(t for t in memory.trials if t.kernel == "cublaslt")
    assert (row.role, row.status, row.reason) == (Role.BASELINE, Status.INFEASIBLE, "cuBLASLt was not found")
    again, _ = run(FakeWorld(by_tile), Memory(memory.trials), baselines=("cublas", "cublaslt"))
    assert next(t for t in again.trials if t.kernel == "cublaslt").status is Status.OK


def test_predicted_rows_hold_nothing_that_a_clock_wrote() -> None:
    _, memory = run(FakeWorld(lambda _: None, measured=False))
    for trial in memory.trials:
        assert trial.time_source is TimeSource.PREDICTED
        assert trial.timing is None
        assert trial.build_s is None
        assert trial.measure_s is None
        assert time_ms(trial) == trial.predicted_ms
    _, measured = run(FakeWorld(by_tile))
    assert all(t.build_s == 0.5 and t.measure_s is not None for t in measured.trials)


def test_the_order_of_a_model_guided_search_depends_on_the_seed_alone() -> None:
    orders = []
    for _ in range(2):
        _, memory = run(FakeWorld(by_tile), search="tpe", budget=4)
        orders.append([t.params["tile"] for t in memory.trials])
    assert orders[0] == orders[1]


def test_the_context_follows_all_that_a_result_depends_on() -> None:
    study = study_of(FakeWorld(by_tile))
    assert study.context == study_of(FakeWorld(by_tile)).context
    other = FakeWorld(by_tile)
    other.compiler = "fake 2"
    changed = [
        replace(study, evaluator=other),
        replace(study, dims={**DIMS, "K": 511}),
        replace(study, seed=43),
        replace(study, protocol={"cache": "warm"}),
        replace(study, spec=replace(SPEC, digest="another source")),
    ]
    assert len({study.context, *(c.context for c in changed)}) == 6


def test_asking_for_the_context_costs_nothing_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(FakeWorld(by_tile))
    monkeypatch.setattr(study_module, "digest", lambda _: pytest.fail("computed once, when it is made"))
    assert study.context == study.context


class TestSeveralDevices:
    def twins(self) -> FakeWorld:
        world = FakeWorld(by_tile)
        world.devices = [DeviceIdentity("fake", uuid=f"GPU-{n}") for n in (1, 2)]
        world.identity = DeviceIdentity("fake")
        return world

    def test_every_row_names_the_device_it_ran_on(self) -> None:
        _, memory = run(self.twins())
        assert {t.device_uuid for t in memory.trials} == {"GPU-1", "GPU-2"}

    def test_the_context_is_that_of_the_kind(self) -> None:
        assert study_of(self.twins()).context == study_of(FakeWorld(by_tile)).context

    def test_rows_of_a_device_that_serves_again_are_reused(self) -> None:
        _, before = run(FakeWorld(by_tile))
        tally, _ = run(self.twins(), Memory(before.trials))
        assert tally.reused == 5

    def test_rows_of_another_device_are_measured_again(self) -> None:
        _, before = run(self.twins())
        world = FakeWorld(by_tile)
        tally, _ = run(world, Memory(before.trials))
        other = [t.params["tile"] for t in before.trials if t.device_uuid == "GPU-2"]
        assert [p.params["tile"] for p in world.finished] == other
        assert tally.reused == 5 - len(other)

    def test_a_configuration_that_no_device_ran_names_none(self) -> None:
        world = self.twins()
        failure = TrialFailed(Status.BUILD_ERROR, Stage.BUILD, "a.cu(1): error")
        world.submit = lambda point: (_ for _ in ()).throw(failure)  # type: ignore[method-assign]
        _, memory = run(world, budget=1)
        assert (memory.trials[0].device, memory.trials[0].device_uuid) == ("fake", "")


class TestAskingAhead:
    def far(self, capacity: int, **options: Any) -> tuple[int, list[Any]]:
        """How many were asked and not finished when one was measured, at most, and the order they came in."""
        world = FakeWorld(by_tile)
        world.capacity = capacity
        ahead: list[int] = []

        def answer(point: Point) -> float:
            ahead.append(len(world.submitted) - len(world.finished))
            return by_tile(point)

        world.answer = answer
        _, memory = run(world, **options)
        return max(ahead), [t.params["tile"] for t in memory.trials]

    def test_an_order_that_no_result_changes_is_asked_as_far_ahead_as_is_of_use(self) -> None:
        one, four = (self.far(capacity, lookahead=1, search="random") for capacity in (1, 4))
        assert (one[0], four[0]) == (0, 3)
        assert one[1] == four[1]

    def test_a_search_that_learns_is_asked_no_further_than_told(self) -> None:
        assert self.far(100, lookahead=2, search="tpe")[0] == 1


class TestBuildingWhatMayBeAsked:
    def searched(self, spare: int, **options: Any) -> tuple[FakeWorld, list[Any]]:
        world = FakeWorld(by_tile)
        world.spare_builders = spare
        _, memory = run(
            world, **{"search": "guided", "search_options": {"startup": 2}, "lookahead": 1, **options}
        )
        return world, [t.params["tile"] for t in memory.trials]

    def test_idle_builders_change_nothing_of_what_is_asked(self) -> None:
        idle, busy = self.searched(3), self.searched(0)
        assert idle[1] == busy[1]
        assert idle[0].built_ahead
        assert not busy[0].built_ahead

    def test_each_configuration_is_named_once_however_often_it_is_likely(self) -> None:
        world, _ = self.searched(3)
        keys = [point.key for point in world.built_ahead]
        assert len(keys) == len(set(keys))

    def test_what_is_built_beforehand_is_within_the_budget(self) -> None:
        world, _ = self.searched(3, budget=3)
        assert len(world.built_ahead) <= 2

    def test_what_an_earlier_run_measured_is_not_built(self) -> None:
        _, memory = run(FakeWorld(by_tile))
        world = FakeWorld(by_tile)
        world.spare_builders = 3
        run(world, Memory(memory.trials), search="guided", search_options={"startup": 2}, lookahead=1)
        assert not world.built_ahead

    def test_an_order_that_is_known_is_asked_for_instead(self) -> None:
        assert not self.searched(3, search="random", search_options=None)[0].built_ahead


class TestStoppingEarly:
    def stopped(self) -> Memory:
        """Trials of a search in which the larger tiles were known to be beaten, and not sampled in full."""
        world = FakeWorld(lambda p: float(int(p.params["tile"])))
        world.stop_above_ms = 3.0
        return run(world)[1]

    def test_a_row_says_beyond_which_time_it_was_not_sampled(self) -> None:
        found = {t.params["tile"]: t.details.get(STOPPED) for t in self.stopped().trials}
        assert found == {2: None, 4: 3.0, 8: 3.0, 16: 3.0, 32: 3.0}

    def test_a_slower_row_is_reused_as_it_is(self) -> None:
        world = FakeWorld(lambda p: pytest.fail("nothing is measured"))
        tally, _ = run(world, Memory(self.stopped().trials))
        assert tally.reused == 5
        assert world.best_seen == [2.0, 4.0, 8.0, 16.0, 32.0]

    def test_one_that_turns_out_the_best_is_sampled_in_full(self) -> None:
        """A search without the level that had beaten it must not name it on three samples."""
        slower = [t for t in self.stopped().trials if t.params["tile"] > 2]
        world = FakeWorld(lambda p: 4.5 if p.params["tile"] == 4 else pytest.fail("only the best"))
        memory = Memory(slower)
        strategy = make("grid", space(), 0)
        strategy.tell(0, None)
        tally = tune(study_of(world), space(), lambda: strategy, memory, Ears(memory), budget=4, lookahead=1)
        best = min(tally.trials, key=lambda t: time_ms(t) or 99.0)
        assert (time_ms(best), best.details.get(STOPPED)) == (4.5, None)
        assert len(tally.trials) == 4

    def test_what_an_evaluator_knows_from_elsewhere_does_not_keep_a_search_from_its_end(self) -> None:
        """Stopped beside a better one that this search never saw, the best is measured once more, not for ever."""
        world = FakeWorld(by_tile)
        world.stop_above_ms = 1e-9
        tally, _ = run(world)
        assert len(tally.trials) == 5
        assert len(world.finished) == 6


def test_where_the_time_went_is_told() -> None:
    tally, _ = run(FakeWorld(by_tile))
    assert set(tally.seconds) == {
        "total", "search", "store", "waiting", "device_busy", "waiting_for_builds", "phases"
    }  # fmt: skip
    parts = sum(tally.seconds[part] for part in ("search", "store", "waiting"))
    assert 0 < parts <= tally.seconds["total"]


def test_a_problem_that_cannot_be_prepared_is_no_configurations_fault() -> None:
    world = FakeWorld(by_tile)
    world.unprepared = TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, "wanted more")
    memory = Memory()
    with pytest.raises(TrialFailed, match="wanted more"):
        run(world, memory)
    assert memory.trials == []


def test_what_is_all_stored_needs_no_device() -> None:
    _, before = run(FakeWorld(by_tile))
    world = FakeWorld(by_tile)
    world.unprepared = TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, "wanted more")
    tally, _ = run(world, Memory(before.trials))
    assert tally.reused == 5


class Clocked(FakeWorld):
    """A world whose every answer is one timing."""

    def __init__(self, timing: Timing) -> None:
        super().__init__(by_tile)
        self.timing = timing

    def finish(self, ticket: Ticket) -> Outcome:
        return replace(super().finish(ticket), timing=self.timing)


def notes_at(timing: Timing) -> set[str]:
    """The notes of a study whose FLOPs nobody knows, three matrices of 1 MB."""
    world, memory = Clocked(timing), Memory()
    study = replace(study_of(world), flops=None)
    tune(study, space(), lambda: make("grid", space(), 0), memory, Ears(memory), budget=1, lookahead=1)
    return {str(trial.details.get("note", "")) for trial in memory.trials}


# At 4.8 TB/s an H200 reads the two operands, 2 MB, in 0.44 µs; its L2 cache holds them easily.
TOO_FAST_MS, FAST_MS = 3e-4, 6e-4


def test_a_cold_launch_cannot_have_read_its_inputs_faster_than_the_memory_gives_them() -> None:
    (note,) = notes_at(Timing((TOO_FAST_MS,) * 6, "events", "cold"))
    assert note.startswith("suspect: ")
    assert "GB/s" in note
    assert notes_at(Timing((FAST_MS,) * 6, "events", "cold")) == {""}


def test_a_warm_launch_may_find_its_inputs_in_the_cache() -> None:
    assert notes_at(Timing((TOO_FAST_MS,) * 6, "events", "warm")) == {""}


def test_of_two_states_of_the_cache_the_implausible_one_is_named() -> None:
    warm = Timing((TOO_FAST_MS,) * 6, "events", "warm")
    assert notes_at(Timing((FAST_MS,) * 6, "events", "cold", beside=warm)) == {""}
    (note,) = notes_at(Timing((TOO_FAST_MS,) * 6, "events", "cold", beside=warm))
    assert note.startswith("suspect (cold): ")
    assert "warm" not in note
