"""The parent's side of the one process that owns a device: deadlines, kill, respawn."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, Self

from sweeper.backend.base import Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError, SweeperError, TrialFailed, WorkerError
from sweeper.model import Build, KernelSpec, Point, Stage, Status
from sweeper.problem import Problem, resolve
from sweeper.process import ChildDied, ChildError, ChildTimeout, ChildUnkillable
from sweeper.wire import from_wire, to_wire
from sweeper.worker.deadlines import Deadlines
from sweeper.worker.replies import error_of, failure_of
from sweeper.worker.spare import WORKER_MODULE, take_spare, worker_child

__all__ = ["Deadlines", "DeviceWorker"]

Message = dict[str, Any]

_MOST_STARTS = 5
_MOST_START_TIMEOUTS = 2
_SHOWN_OUTPUT = 4000


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What a successor must be asked to prepare."""

    message: Message
    spec: KernelSpec
    problem: Problem

    def problem_at(self, point: Point) -> Problem:
        return resolve(self.spec, self.problem.dims, point, seed=self.problem.seed)


class DeviceWorker:
    """One worker process and, whenever it has died, its successor.

    `backend` is `cuda` or `emulator`; `device` counts in PCI order; `target` names limits to assume
    where there is no device to ask; `scratch` is a folder for what successors need not compute again
    (None: a temporary one); `allow_shared` lets it use a GPU that others are using. `restarts` counts
    successors. Not safe for threads. `module` and `env` are for tests.
    """

    def __init__(
        self,
        backend: str,
        *,
        device: int = 0,
        target: str | None = None,
        scratch: Path | None = None,
        allow_shared: bool = False,
        deadlines: Deadlines | None = None,
        module: str = WORKER_MODULE,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.device = device
        self.restarts = -1
        self._target_name = target
        self._own_scratch: tempfile.TemporaryDirectory[str] | None = None
        usual = scratch is None and not allow_shared and module == WORKER_MODULE and not env
        spare = take_spare(backend) if usual else None
        if spare is not None:
            self._own_scratch, self._child, self.restarts = spare.scratch, spare.child, 0
        else:
            if scratch is None:
                self._own_scratch = tempfile.TemporaryDirectory(prefix="sweeper-")
            folder = scratch or Path(self._own_scratch.name if self._own_scratch else "")
            self._child = worker_child(
                backend, str(folder), shared=allow_shared, module=module, env=env or {}
            )
        self._deadlines = deadlines or Deadlines()
        self._opened: tuple[Target, DeviceIdentity] | None = None
        self._identified: tuple[Target, DeviceIdentity] | None = None
        self._is_open = False
        self._coming: Message | None = None
        self._preparation: _Preparation | None = None
        self._closed = False

    def identify(self) -> tuple[Target, DeviceIdentity]:
        """Start the worker and learn what its device is; raises as `open`, which has to follow."""
        self._ensure_running(whole=False)
        known = self._opened or self._identified
        if known is None:
            raise AssertionError("a running worker has been identified")
        return known

    def open(self) -> tuple[Target, DeviceIdentity]:
        """Start the worker on its device. Raises SetupError, and WorkerError if it keeps dying."""
        self._ensure_running()
        if self._opened is None:
            raise AssertionError("a running worker is open")
        return self._opened

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        """Let the worker allocate and fill the problem's arrays and compute its reference.

        Raises TrialFailed (out of memory; a crash or time-out meanwhile), ConfigError, SetupError.
        """
        problem = resolve(spec, dims, spec.default_point, seed=seed)
        message = {
            "op": "prepare",
            "kernel": json.loads(spec.node_json),
            "path": str(spec.path),
            "dims": dict(dims),
            "seed": seed,
        }
        self._preparation, self._coming = None, message
        self._call(message, self._deadlines.prepare(problem), Stage.LOAD)
        self._preparation = _Preparation(message, spec, problem)

    def canary(self) -> None:
        """Prove the device on a small kernel, where its backend has one. Raises as `prepare` does."""
        self._call({"op": "canary"}, self._deadlines.open_s, Stage.LOAD)

    def measure(self, point: Point, build: Build | None, protocol: MeasureProtocol) -> Outcome:
        """Verify and time one configuration, which takes a build.

        Raises TrialFailed with what went wrong, a time-out and a crash of the worker included; the next
        call finds a new worker in the same state. Raises SetupError where the device is unusable.
        """
        message = {"op": "measure", "params": to_wire(point.params), "build": to_wire(build)}
        return self._run(message, protocol, self._extra_s(point))

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """The library's answer to the prepared problem; fails as `measure` does."""
        return self._run({"op": "baseline", "library": library}, protocol)

    def confirm(
        self, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        """Verify all finalists and time them in turns; those that fail say so in their turns.

        Fails as `measure` does where the process was lost: `details["entrant"]` is the place of the one that
        did it, if it is known.
        """
        problem = self._preparation.problem if self._preparation else None
        deadline_s = rounds.seconds
        for finalist in finalists:
            deadline_s += self._deadlines.measure(problem, protocol) + self._extra_s(finalist.point)
        message = {"op": "confirm", "finalists": to_wire(finalists), "rounds": to_wire(rounds)}
        reply = self._call({**message, "protocol": _plain(protocol)}, deadline_s, Stage.MEASURE)
        return from_wire(tuple[Turns, ...], reply["turns"])

    def close(self) -> None:
        """End the worker; nothing can be asked of it any more."""
        self._closed = True
        try:
            self._child.close()
        except ChildUnkillable as error:
            raise self._sick(error) from None
        finally:
            if self._own_scratch is not None:
                self._own_scratch.cleanup()

    def kill(self) -> None:
        """End the worker's whole group at once, whatever it is doing; another thread may ask for it.

        A call that waits meanwhile fails as after a crash, and the next one finds a successor.
        """
        self._child.end_group()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, message: Message, protocol: MeasureProtocol, extra_s: float = 0.0) -> Outcome:
        problem = self._preparation.problem if self._preparation else None
        deadline_s = self._deadlines.measure(problem, protocol) + extra_s
        reply = self._call({**message, "protocol": _plain(protocol)}, deadline_s, Stage.MEASURE)
        return from_wire(Outcome, reply["outcome"])

    def _extra_s(self, point: Point | None) -> float:
        """Seconds that preparing the problem at `point` takes: 0 where it is the one that is prepared."""
        if self._preparation is None or point is None:
            return 0.0
        problem = self._preparation.problem_at(point)
        # A kernel whose arrays depend on its parameters is prepared anew on the way.
        prepared = problem.key == self._preparation.problem.key
        return 0.0 if prepared else self._deadlines.prepare(problem)

    def _call(self, message: Message, deadline_s: float, stage: Stage) -> Message:
        self._ensure_running()
        try:
            reply = self._child.request(message, deadline_s=deadline_s)
        except ChildTimeout as error:
            details = {"deadline_s": deadline_s, **self._what_happened(error)}
            reason = f"no result within {deadline_s:.3g} s; the process was killed"
            raise TrialFailed(Status.TIMEOUT, stage, reason, details=details) from None
        except ChildDied as error:
            raise self._crash(error, stage) from None
        except ChildUnkillable as error:
            raise self._sick(error) from None
        if not reply["ok"]:
            self._raise(reply)
        return reply

    def _ensure_running(self, *, whole: bool = True) -> None:
        """See that a process runs which has its device open; not `whole`, that it says what device it is."""
        if self._closed:
            raise WorkerError(f"{self._child.name} was closed")
        if self._child.alive and (self._is_open or not (whole or self._identified is None)):
            return None
        failures: list[SweeperError] = []
        timeouts = 0
        while len(failures) < _MOST_STARTS and timeouts < _MOST_START_TIMEOUTS:
            if failures:
                time.sleep(self._deadlines.backoff_s * 2 ** (len(failures) - 1))
            try:
                return self._start(whole=whole)
            except ChildUnkillable as error:
                raise self._sick(error) from None
            except (ChildError, SetupError, TrialFailed) as error:
                # At the very first start a refusal is the user's to hear, not to be tried again.
                if self._opened is None and not isinstance(error, ChildError):
                    self._child.kill()
                    raise
                timeouts += isinstance(error, ChildTimeout)
                failures.append(error)
                self._child.kill()
        first = failures[0]
        raise WorkerError(
            f"{self._child.name} could not be started, {len(failures)} times in a row; first: {_shown(first)}",
            hint="see what it printed above; the rest of the sweep can go on later from the store",
        )

    def _start(self, *, whole: bool) -> None:
        """Start a process, unless one runs already, and bring it to where the last one stood."""
        if not self._child.alive:
            self._is_open = False
            self._child.start()
            self.restarts += 1
        request: Message = {"device": self.device, "target": self._target_name}
        if not whole:
            reply = self._ask({"op": "identify", **request}, self._deadlines.open_s)
            self._identified = self._same_device(reply)
            if not reply["opened"]:
                return
        else:
            reply = self._ask({"op": "open", **request, "coming": self._coming}, self._deadlines.open_s)
        opened = self._same_device(reply)
        if self._opened is not None:
            self._ask({"op": "canary"}, self._deadlines.open_s)
            if self._preparation is not None:
                self._ask(self._preparation.message, self._deadlines.prepare(self._preparation.problem))
        self._opened, self._is_open = opened, True

    def _same_device(self, reply: Message) -> tuple[Target, DeviceIdentity]:
        """What `reply` says of the device. Raises SetupError where that is not the one of before."""
        told = from_wire(Target, reply["target"]), from_wire(DeviceIdentity, reply["identity"])
        known = self._opened or self._identified
        if known is not None and told[1].uuid != known[1].uuid:
            raise SetupError(
                f"device {self.device} is another one now: {told[1].uuid}, before {known[1].uuid}"
            )
        return told

    def _ask(self, message: Message, deadline_s: float) -> Message:
        reply = self._child.request(message, deadline_s=deadline_s)
        if not reply["ok"]:
            self._raise(reply)
        return reply

    def _raise(self, reply: Message) -> NoReturn:
        """Raise what the reply says went wrong."""
        if "failed" in reply:
            failure = failure_of(reply["failed"])
            if failure.details.get("sticky"):
                self._child.kill()
                output = _shown_output(self._child.output)
                failure.details |= {"output": output, "restarts": self.restarts}
            raise failure
        raise error_of(reply["error"])

    def _crash(self, error: ChildDied, stage: Stage) -> TrialFailed:
        details = {
            "signal": error.signal_name,
            "exit_status": error.exit_status,
            **self._what_happened(error),
        }
        last = _last_words(error.output)
        reason = f"{error.message}: {last}" if last else error.message
        return TrialFailed(Status.CRASH, stage, reason, details=details)

    def _what_happened(self, error: ChildError) -> Message:
        return {"output": _shown_output(error.output), "restarts": self.restarts}

    def _sick(self, error: ChildUnkillable) -> SetupError:
        return SetupError(f"device {self.device} is sick: {error.message}", hint=error.hint)


def _plain(protocol: MeasureProtocol) -> Message:
    """Only the protocol's own fields: a configuration may carry more."""
    return {f.name: getattr(protocol, f.name) for f in fields(MeasureProtocol)}


def _last_words(output: str) -> str:
    """The last line that the process itself printed for somebody to read, before any dump of its stacks."""
    before, _, _ = output.partition("Fatal Python error:")
    told = [line.strip() for line in before.splitlines() if not line.startswith("current:")]
    return next((line[:300] for line in reversed(told) if line), "")


def _shown(error: SweeperError) -> str:
    output = error.output if isinstance(error, ChildError) else ""
    return f"{error.message}\n{_shown_output(output)}".strip()


def _shown_output(output: str) -> str:
    """The end of what was printed, without the list of libraries that a dump of Python's stacks ends with."""
    lines = [line for line in output.splitlines() if not line.startswith("Extension modules:")]
    return "\n".join(lines)[-_SHOWN_OUTPUT:]
