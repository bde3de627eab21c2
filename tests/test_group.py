"""Several devices on one queue: in asked order, each result to its ticket, and nobody waits for the sick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from specs import gemm_spec

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, Check, Point, Stage, Status, Timing
from sweeper.worker.group import DeviceGroup
from sweeper.worker.ticket import Ticket

SPEC = gemm_spec()
DIMS = {"M": 64, "N": 64, "K": 64}
RIGHT = Check(passed=True, checked=4, wrong=0, max_error=0.0, error_ratio=0.0, error_index=None)
BUILD = Build("key", "fake", Path("kernel.cubin"), "matmul", "fake 1")


class StubWorker:
    """A device without a process: `act` gives a time in ms for a configuration's number, or raises."""

    def __init__(self, index: int = 0, act: Callable[[int], float] = lambda number: 1.0) -> None:
        self.index = index
        self.act = act
        self.measured: list[int] = []
        self.limits: list[float | None] = []
        self.prepared = 0
        self.closed = False
        self.killed = threading.Event()

    def identify(self) -> tuple[Target, DeviceIdentity]:
        return target("h200"), DeviceIdentity("Fake", uuid=f"GPU-{self.index}", index=self.index)

    def prepare(self, spec: Any, dims: Any, seed: int) -> None:
        self.prepared += 1

    def measure(self, point: Point, build: Build, protocol: MeasureProtocol) -> Outcome:
        number = int(point.params["number"])
        self.limits.append(protocol.stop_above_ms)
        value = self.act(number)
        self.measured.append(number)
        return Outcome(RIGHT, build, None, Timing((value,), "events", "cold"), phases_s={"verify": 0.25})

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        return Outcome(RIGHT, None, None, Timing((0.01,), "events", "cold"), note=library)

    def kill(self) -> None:
        self.killed.set()

    def close(self) -> None:
        self.closed = True


Group = Callable[..., DeviceGroup]


@pytest.fixture
def group() -> Iterator[Group]:
    """Makes a group of stub workers, prepared; closed at the end."""
    made: list[DeviceGroup] = []

    def make(*workers: StubWorker, **options: Any) -> DeviceGroup:
        made.append(DeviceGroup(workers, MeasureProtocol(), **options))  # type: ignore[arg-type]
        made[-1].prepare(SPEC, DIMS, 1)
        made[-1].ready()
        return made[-1]

    yield make
    for each in made:
        each.close()


def ticket(number: int, build: Future[Build] | None = None) -> Ticket:
    return Ticket(Point.of({"number": number}), build or built())


def built() -> Future[Build]:
    future: Future[Build] = Future()
    future.set_result(BUILD)
    return future


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_results_come_to_their_tickets_with_the_device_that_ran_them(group: Group) -> None:
    devices = group(StubWorker(act=float))
    tickets = [ticket(n) for n in (3, 1, 2)]
    for each in tickets:
        devices.submit(each)
    assert [t.outcome.result(20).timing.samples_ms for t in tickets] == [(3.0,), (1.0,), (2.0,)]
    assert {t.device.uuid for t in tickets if t.device} == {"GPU-0"}
    assert devices.phases_s == {"verify": 0.75}


def test_what_is_built_is_measured_in_asked_order_and_nothing_waits_for_a_slow_build(group: Group) -> None:
    worker = StubWorker()
    devices = group(worker)
    slow: Future[Build] = Future()
    first, second, third = ticket(1, slow), ticket(2), ticket(3)
    for each in (first, second, third):
        devices.submit(each)
    third.outcome.result(20)
    assert worker.measured == [2, 3]
    slow.set_result(BUILD)
    first.outcome.result(20)
    assert worker.measured == [2, 3, 1]
    assert devices.starved_s() > 0


def test_measuring_goes_on_while_nobody_waits(group: Group) -> None:
    worker = StubWorker()
    devices = group(worker)
    for number in range(5):
        devices.submit(ticket(number))
    wait_for(lambda: worker.measured == [0, 1, 2, 3, 4])


def test_a_failed_build_never_reaches_a_device(group: Group) -> None:
    worker = StubWorker()
    devices = group(worker)
    failed: Future[Build] = Future()
    failed.set_exception(TrialFailed(Status.BUILD_ERROR, Stage.BUILD, "a.cu(1): error"))
    bad, good = ticket(1, failed), ticket(2)
    devices.submit(bad)
    devices.submit(good)
    with pytest.raises(TrialFailed, match="error"):
        bad.outcome.result(20)
    good.outcome.result(20)
    assert worker.measured == [2]
    assert bad.device is None


def test_a_build_that_cannot_run_never_reaches_a_device(group: Group) -> None:
    worker = StubWorker()
    devices = group(worker)

    def refuse(build: Build) -> None:
        raise TrialFailed(Status.INFEASIBLE, Stage.BUILD, f"{build.entry}: registers 255 > 128")

    pruned = ticket(1)
    devices.submit(pruned, refuse)
    with pytest.raises(TrialFailed, match="255 > 128"):
        pruned.outcome.result(20)
    assert worker.measured == []


def test_a_failed_configuration_is_its_tickets_alone(group: Group) -> None:
    def act(number: int) -> float:
        if number == 1:
            raise TrialFailed(Status.CRASH, Stage.LAUNCH, "SIGSEGV", details={"phases_s": {"load": 0.5}})
        return 1.0

    devices = group(StubWorker(act=act))
    bad, good = ticket(1), ticket(2)
    devices.submit(bad)
    devices.submit(good)
    with pytest.raises(TrialFailed, match="SIGSEGV") as caught:
        bad.outcome.result(20)
    assert good.outcome.result(20).check.passed
    assert "phases_s" not in caught.value.details
    assert devices.phases_s == {"load": 0.5, "verify": 0.25}


def test_devices_share_the_work(group: Group) -> None:
    together = threading.Barrier(2, timeout=20)

    def act(number: int) -> float:
        together.wait()
        return 1.0

    workers = [StubWorker(0, act), StubWorker(1, act)]
    devices = group(*workers)
    tickets = [ticket(n) for n in range(6)]
    for each in tickets:
        devices.submit(each)
    assert all(t.outcome.result(20).check.passed for t in tickets)
    assert [len(w.measured) for w in workers] == [3, 3]
    assert {t.device.uuid for t in tickets if t.device} == {"GPU-0", "GPU-1"}
    assert len(devices.busy_s()) == 2


class TestASickDevice:
    def test_is_dropped_and_its_configuration_tried_on_another(self, group: Group) -> None:
        heard: list[str] = []
        both = threading.Barrier(2, timeout=20)

        def sick(number: int) -> float:
            both.wait()
            raise SetupError("fallen off the bus")

        def sound(number: int) -> float:
            if not good.measured:
                both.wait()
            return 1.0

        good = StubWorker(1, sound)
        devices = group(StubWorker(0, sick), good, say=heard.append)
        tickets = [ticket(n) for n in range(4)]
        for each in tickets:
            devices.submit(each)
        assert all(t.outcome.result(20).check.passed for t in tickets)
        assert sorted(good.measured) == [0, 1, 2, 3]
        assert heard == ["device 0 (GPU-0) is no longer used, 1 left: fallen off the bus"]

    def test_the_last_one_ends_all(self, group: Group) -> None:
        def sick(number: int) -> float:
            raise SetupError("fallen off the bus")

        devices = group(StubWorker(act=sick))
        tickets = [ticket(n) for n in range(3)]
        for each in tickets:
            devices.submit(each)
        for each in tickets:
            with pytest.raises(SetupError, match="off the bus"):
                each.outcome.result(20)
        late = ticket(9)
        devices.submit(late)
        with pytest.raises(SetupError, match="off the bus"):
            late.outcome.result(20)

    def test_a_configuration_that_costs_two_devices_is_not_given_a_third(self, group: Group) -> None:
        def act(number: int) -> float:
            if number == 7:
                raise SetupError("hangs in the system")
            return 1.0

        devices = group(*(StubWorker(i, act) for i in range(3)))
        deadly = ticket(7)
        devices.submit(deadly)
        with pytest.raises(TrialFailed, match="2 devices became unusable on it") as caught:
            deadly.outcome.result(20)
        assert caught.value.status is Status.CRASH
        after = ticket(1)
        devices.submit(after)
        assert after.outcome.result(20).check.passed

    def test_at_preparation_is_dropped_too(self) -> None:
        class Unprepared(StubWorker):
            def prepare(self, spec: Any, dims: Any, seed: int) -> None:
                raise SetupError("no memory left by others")

        heard: list[str] = []
        workers = [Unprepared(0), StubWorker(1)]
        devices = DeviceGroup(workers, MeasureProtocol(), say=heard.append)  # type: ignore[arg-type]
        devices.prepare(SPEC, DIMS, 1)
        devices.ready()
        one = ticket(1)
        devices.submit(one)
        assert one.outcome.result(20).check.passed
        assert len(heard) == 1
        devices.close()


def test_a_library_that_is_not_there_is_no_devices_fault(group: Group) -> None:
    class Bare(StubWorker):
        def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
            raise SetupError(f"{library} is not installed")

    devices = group(Bare())
    library, one = Ticket(None, library="cublas"), ticket(1)
    devices.submit(library)
    devices.submit(one)
    with pytest.raises(SetupError, match="cublas is not installed"):
        library.outcome.result(20)
    assert one.outcome.result(20).check.passed


class TestStoppingEarly:
    def test_a_configuration_is_told_the_time_past_which_it_cannot_win(self, group: Group) -> None:
        worker = StubWorker(act=float)
        devices = group(worker, stop_factor=1.5)
        tickets = [ticket(n) for n in (8, 4, 6)]
        for each in tickets:
            devices.submit(each)
            each.outcome.result(20)
        assert worker.limits == [None, 12.0, 6.0]
        assert [t.stop_above_ms for t in tickets] == worker.limits

    def test_what_is_known_from_before_counts(self, group: Group) -> None:
        worker = StubWorker(act=float)
        devices = group(worker, stop_factor=2.0)
        devices.seen(3.0)
        devices.seen(5.0)
        one = ticket(8)
        devices.submit(one)
        one.outcome.result(20)
        assert worker.limits == [6.0]

    def test_another_problem_has_no_best_yet(self, group: Group) -> None:
        worker = StubWorker(act=float)
        devices = group(worker, stop_factor=1.5)
        devices.seen(3.0)
        devices.prepare(SPEC, {"M": 32, "N": 32, "K": 32}, 1)
        devices.ready()
        one = ticket(8)
        devices.submit(one)
        one.outcome.result(20)
        assert worker.limits == [None]

    def test_a_library_is_no_rival(self, group: Group) -> None:
        worker = StubWorker(act=float)
        devices = group(worker, stop_factor=1.5)
        library, one = Ticket(None, library="cublas"), ticket(8)
        for each in (library, one):
            devices.submit(each)
        assert library.outcome.result(20).note == "cublas"
        one.outcome.result(20)
        assert worker.limits == [None]

    def test_without_a_factor_all_are_sampled_alike(self, group: Group) -> None:
        worker = StubWorker(act=float)
        devices = group(worker)
        for number in (1, 100):
            one = ticket(number)
            devices.submit(one)
            one.outcome.result(20)
        assert worker.limits == [None, None]


class TestOpeningPreparingAndClosing:
    def test_points_may_be_submitted_while_the_problem_is_prepared(self) -> None:
        gate = threading.Event()

        class Slow(StubWorker):
            def prepare(self, spec: Any, dims: Any, seed: int) -> None:
                gate.wait(20)
                super().prepare(spec, dims, seed)

        worker = Slow()
        devices = DeviceGroup([worker], MeasureProtocol())  # type: ignore[list-item]
        devices.prepare(SPEC, DIMS, 1)
        early = ticket(1)
        devices.submit(early)
        assert not early.outcome.done()
        gate.set()
        devices.ready()
        assert early.outcome.result(20).check.passed
        assert worker.prepared == 1
        devices.close()
        assert worker.closed

    def test_a_problem_that_does_not_fit_is_told_by_ready_and_nothing_is_run(self) -> None:
        class Small(StubWorker):
            def prepare(self, spec: Any, dims: Any, seed: int) -> None:
                raise TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, "wanted more")

        worker = Small()
        devices = DeviceGroup([worker], MeasureProtocol())  # type: ignore[list-item]
        devices.prepare(SPEC, DIMS, 1)
        early = ticket(1)
        devices.submit(early)
        with pytest.raises(TrialFailed, match="wanted more"):
            devices.ready()
        devices.close()
        assert worker.measured == []
        with pytest.raises(SetupError, match="were closed"):
            early.outcome.result(20)

    def test_another_problem_can_be_prepared_after_one(self, group: Group) -> None:
        worker = StubWorker()
        devices = group(worker)
        devices.prepare(SPEC, {"M": 32, "N": 32, "K": 32}, 1)
        devices.ready()
        one = ticket(1)
        devices.submit(one)
        assert one.outcome.result(20).check.passed
        assert worker.prepared == 2

    def test_another_problem_can_be_asked_for_while_one_is_prepared(self) -> None:
        """Ready is only who has prepared the last; what becomes of the one before is nobody's any more."""
        begun, gate = threading.Event(), threading.Event()

        class Slow(StubWorker):
            def prepare(self, spec: Any, dims: Any, seed: int) -> None:
                if not self.prepared:
                    begun.set()
                    gate.wait(20)
                super().prepare(spec, dims, seed)
                if self.prepared == 2:
                    raise TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, "the second does not fit")

        worker = Slow()
        devices = DeviceGroup([worker], MeasureProtocol())  # type: ignore[list-item]
        devices.prepare(SPEC, DIMS, 1)
        assert begun.wait(20)
        devices.prepare(SPEC, {"M": 32, "N": 32, "K": 32}, 1)
        gate.set()
        with pytest.raises(TrialFailed, match="the second does not fit"):
            devices.ready()
        devices.prepare(SPEC, DIMS, 2)
        devices.ready()
        one = ticket(1)
        devices.submit(one)
        assert one.outcome.result(20).check.passed
        assert worker.prepared == 3
        devices.close()

    def test_where_one_device_cannot_be_opened_none_stays_open(self) -> None:
        class Missing(StubWorker):
            def identify(self) -> tuple[Target, DeviceIdentity]:
                raise SetupError("there is no CUDA device 1")

        workers = [StubWorker(0), Missing(1)]
        with pytest.raises(SetupError, match="no CUDA device 1"):
            DeviceGroup(workers, MeasureProtocol())  # type: ignore[arg-type]
        assert all(worker.closed for worker in workers)

    def test_closing_ends_what_is_being_measured(self) -> None:
        begun = threading.Event()
        worker = StubWorker()

        def hang(number: int) -> float:
            begun.set()
            assert worker.killed.wait(20)
            raise TrialFailed(Status.CRASH, Stage.MEASURE, "killed")

        worker.act = hang
        devices = DeviceGroup([worker], MeasureProtocol())  # type: ignore[list-item]
        devices.prepare(SPEC, DIMS, 1)
        running, waiting = ticket(1), ticket(2)
        devices.submit(running)
        devices.submit(waiting)
        assert begun.wait(20)
        devices.close()
        with pytest.raises(TrialFailed, match="killed"):
            running.outcome.result(20)
        with pytest.raises(SetupError, match="were closed"):
            waiting.outcome.result(20)
        assert worker.closed
