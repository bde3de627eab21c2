"""Several devices at work for one search: a thread for each, and what is built is measured in asked order.

Storing, telling and asking go on meanwhile; whoever wants a result waits for its ticket.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, KernelSpec, Stage, Status
from sweeper.worker.base import Roaming, Worker
from sweeper.worker.finals import FinalsTicket, turns_of
from sweeper.worker.lane import Lane, Problem, opened
from sweeper.worker.ticket import Ticket

__all__ = ["DeviceGroup"]


class DeviceGroup:
    """The devices of `workers`, known at once and opened by the first `prepare`.

    Each takes the first ticket in asked order that is built. With `stop_factor`, a configuration need not
    be sampled in full once it is known to be that many times slower than the best so far. A device that
    becomes unusable is dropped and its ticket tried once on another; when the last one is lost, every
    ticket fails with its SetupError. `say` hears of it. Raises SetupError where a device cannot be had;
    none is left open then.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        protocol: MeasureProtocol,
        *,
        stop_factor: float | None = None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._protocol = protocol
        self._stop_factor = stop_factor
        self._say = say
        self._changed = threading.Condition()
        self._queue: list[Ticket] = []
        self._finals: list[FinalsTicket] = []
        self._best_ms: float | None = None
        self._error: BaseException | None = None
        self._closed = False
        self.phases_s: Counter[str] = Counter()
        self._lanes = opened(workers)

    @property
    def targets(self) -> list[Target]:
        return [lane.target for lane in self._lanes]

    @property
    def identities(self) -> list[DeviceIdentity]:
        """The devices, lost ones included, in the order they were given."""
        return [lane.identity for lane in self._lanes]

    def busy_s(self) -> list[float]:
        """Seconds that each device was at work on tickets, in the order of `identities`."""
        return [lane.busy_s for lane in self._lanes]

    def starved_s(self) -> float:
        """Seconds that devices had nothing to do while something was still being built, summed."""
        return sum(lane.starved_s for lane in self._lanes)

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        """Let every device begin to prepare the problem; `ready` waits for it.

        The best time of an earlier problem is forgotten.
        """
        with self._changed:
            self._best_ms = None
            for lane in self._lanes:
                lane.problem, lane.prepared = (spec, dims, seed), Future()
                if lane.thread is None:
                    name = f"device {lane.identity.index}"
                    lane.thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
                    lane.thread.start()
            self._changed.notify_all()

    def ready(self) -> None:
        """Wait until every device has prepared the problem. Raises as `DeviceWorker.prepare` does."""
        for lane in [lane for lane in self._lanes if not lane.lost]:
            try:
                lane.prepared.result()
            except SetupError as error:
                self._lose(lane, None, error)
                if self._error is not None:
                    raise

    def submit(self, ticket: Ticket, check: Callable[[Build], None] = lambda _: None) -> None:
        """Queue `ticket`. A build that fails, or that `check` raises TrialFailed for, never reaches a device."""
        with self._changed:
            ticket.ready = ticket.build is None
            self._queue.append(ticket)
            self._wake()
        if ticket.build is not None:
            ticket.build.add_done_callback(lambda build: self._built(ticket, build, check))

    def confirm(self, ticket: FinalsTicket) -> None:
        """Let one device time the finalists of `ticket` in turns, once every other ticket is done."""
        with self._changed:
            self._finals.append(ticket)
            self._wake()

    def seen(self, time_ms: float) -> None:
        """Count a time that is known without a measurement among those that the best is chosen from."""
        with self._changed:
            if self._best_ms is None or time_ms < self._best_ms:
                self._best_ms = time_ms

    def close(self) -> None:
        """End every worker, whatever it is doing; tickets that wait fail."""
        with self._changed:
            self._closed = True
            self._error = self._error or SetupError("the devices were closed")
            self._wake()
        for lane in self._lanes:
            while lane.thread is not None and lane.thread.is_alive():
                lane.worker.kill()
                lane.thread.join(0.2)
        errors = []
        for lane in self._lanes:
            try:
                lane.worker.close()
            except SetupError as error:
                errors += [] if lane.lost else [error]
        if errors:
            raise errors[0]

    def _built(self, ticket: Ticket, build: Future[Build], check: Callable[[Build], None]) -> None:
        error: BaseException | None = None
        try:
            check(build.result())
        except BaseException as failed:
            error = failed
        with self._changed:
            ticket.ready = True
            if error is not None and ticket in self._queue:
                self._queue.remove(ticket)
                ticket.outcome.set_exception(error)
            self._wake()

    def _wake(self) -> None:
        """Let the devices look at the queue, or where none is left, fail all that is in it."""
        while self._error is not None and self._queue:
            self._queue.pop(0).outcome.set_exception(self._error)
        while self._error is not None and self._finals:
            self._finals.pop(0).turns.set_exception(self._error)
        self._changed.notify_all()

    def _work(self, lane: Lane) -> None:
        while (todo := self._next(lane)) is not None:
            if isinstance(todo, Ticket):
                self._measure(lane, todo)
                continue
            if isinstance(todo, FinalsTicket):
                self._confirm(lane, todo)
                continue
            problem, prepared = todo
            try:
                lane.worker.prepare(*problem)
            except BaseException as error:
                prepared.set_exception(error)
            else:
                prepared.set_result(None)

    def _next(self, lane: Lane) -> Ticket | FinalsTicket | tuple[Problem, Future[None]] | None:
        """The problem to prepare and who waits for it, else the first ticket in asked order that is built.

        Finals wait until nothing is queued, and go to the first device that is usable. None at the end.
        """
        with self._changed:
            while True:
                if self._closed or lane.lost:
                    return None
                if lane.problem is not None:
                    # Meanwhile another problem may be asked for, which somebody else waits for.
                    problem, lane.problem = lane.problem, None
                    return problem, lane.prepared
                for ticket in self._queue if lane.usable else ():
                    if ticket.ready:
                        self._queue.remove(ticket)
                        return ticket
                first = next((other for other in self._lanes if other.usable), None)
                if self._finals and not self._queue and lane is first:
                    return self._finals.pop(0)
                began, starved = time.monotonic(), bool(self._queue)
                self._changed.wait()
                lane.starved_s += (time.monotonic() - began) * starved

    def _measure(self, lane: Lane, ticket: Ticket) -> None:
        ticket.device = lane.identity
        began = time.monotonic()
        try:
            outcome = self._run(lane.worker, ticket)
        except SetupError as error:
            self._spent(lane, ticket, began)
            if ticket.library is None:
                self._lose(lane, ticket, error)
            else:
                # A library that is not installed says nothing of the device.
                ticket.outcome.set_exception(error)
        except BaseException as error:
            self._spent(lane, ticket, began)
            if isinstance(error, TrialFailed):
                self.phases_s.update(error.details.pop("phases_s", {}))
            ticket.outcome.set_exception(error)
        else:
            self._spent(lane, ticket, began)
            self._learn(ticket, outcome)
            ticket.outcome.set_result(outcome)

    def _confirm(self, lane: Lane, ticket: FinalsTicket) -> None:
        ticket.device = lane.identity
        began = time.monotonic()
        cache = ticket.rounds.cache or self._protocol.cache
        protocol = replace(self._protocol, stop_above_ms=None, cache=cache)
        try:
            turns = turns_of(lane.worker, ticket.finalists, protocol, ticket.rounds)
        except BaseException as error:
            ticket.turns.set_exception(error)
        else:
            ticket.device = _where(lane)
            ticket.turns.set_result(turns)
        finally:
            lane.busy_s += time.monotonic() - began

    def _spent(self, lane: Lane, ticket: Ticket, began: float) -> None:
        ticket.device = _where(lane)
        ticket.measure_s = time.monotonic() - began
        lane.busy_s += ticket.measure_s

    def _run(self, worker: Worker, ticket: Ticket) -> Outcome:
        if ticket.library is not None:
            return worker.baseline(ticket.library, self._protocol)
        if ticket.point is None:
            raise AssertionError("a ticket has a point, or a library")
        limit = (
            None if self._stop_factor is None or self._best_ms is None else self._stop_factor * self._best_ms
        )
        known = self._protocol.stop_above_ms
        ticket.stop_above_ms = min((ms for ms in (limit, known) if ms is not None), default=None)
        protocol = replace(self._protocol, stop_above_ms=ticket.stop_above_ms)
        build = None if ticket.build is None else ticket.build.result()
        return worker.measure(ticket.point, build, protocol)

    def _learn(self, ticket: Ticket, outcome: Outcome) -> None:
        self.phases_s.update(outcome.phases_s or {})
        if ticket.library is None and outcome.timing is not None and outcome.timing.samples_ms:
            self.seen(statistics.median(outcome.timing.samples_ms))

    def _lose(self, lane: Lane, ticket: Ticket | None, error: SetupError) -> None:
        """Go on without the device of `lane`, which cannot be used any more; `ticket` is what it had."""
        with self._changed:
            lane.lost = True
            left = sum(not other.lost for other in self._lanes)
        if left:
            which = f"device {lane.identity.index} ({lane.identity.uuid or lane.identity.name})"
            self._say(f"{which} is no longer used, {left} left: {error.message}")
        with self._changed:
            if not left:
                self._error = self._error or error
            if ticket is not None:
                self._return(ticket, error)
            self._wake()

    def _return(self, ticket: Ticket, error: SetupError) -> None:
        """Give a ticket whose device was lost to another one, but not to a third."""
        ticket.lost_devices += 1
        if ticket.lost_devices > 1 and self._error is None:
            reason = f"{ticket.lost_devices} devices became unusable on it; the last: {error.message}"
            ticket.outcome.set_exception(TrialFailed(Status.CRASH, Stage.MEASURE, reason))
        else:
            self._queue.insert(0, ticket)


def _where(lane: Lane) -> DeviceIdentity:
    """The device that the lane's worker was on just now."""
    if isinstance(lane.worker, Roaming):
        lane.identity = lane.worker.identity
    return lane.identity
