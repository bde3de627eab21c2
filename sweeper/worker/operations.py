"""What a worker does for each request: the backend's methods, in terms of plain JSON.

| request | reply beside `ok` |
|---|---|
| `identify` device, target | target, identity, opened (whether that took opening it) |
| `open` device, target, coming (what `prepare` will be asked, or nothing) | target, identity |
| `canary` | |
| `prepare` kernel (the description's node), path, dims, seed | |
| `measure` params, build, protocol | outcome |
| `baseline` library, protocol | outcome |
| `confirm` finalists, protocol, rounds | turns |

A failed configuration is `{"ok": false, "failed": {status, stage, reason, details}}`, any other error
`{"ok": false, "error": {type, message, hint}}`. After a `sticky` failure the worker answers no more.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.backend.base import Backend, Entrant, Finalist, MeasureProtocol, Rounds
from sweeper.device import Target
from sweeper.errors import SetupError, SweeperError, TrialFailed
from sweeper.kernel import description as kernel
from sweeper.model import Build, KernelSpec, Point, Stage, Status, canonical_json
from sweeper.problem import InputsAhead, Problem, resolve
from sweeper.process import StopServing
from sweeper.resources.geometry import launch_of
from sweeper.wire import from_wire, to_wire
from sweeper.worker.replies import error_message, failure_message

__all__ = ["Operations"]

Message = dict[str, Any]


class Operations:
    """Answers one worker's requests, one at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._target: Target | None = None
        self._spec: KernelSpec | None = None
        self._dims: Mapping[str, int] = {}
        self._seed = 0
        self._prepared = ""
        self._ahead: InputsAhead | None = None
        self._operations: dict[str, Callable[[Message], Message]] = {
            "identify": self._identify,
            "open": self._open,
            "canary": self._canary,
            "prepare": self._prepare,
            "measure": self._measure,
            "baseline": self._baseline,
            "confirm": self._confirm,
        }

    def __call__(self, message: Message) -> Message:
        """Raises StopServing, with the reply, after a failure that the process cannot go on from."""
        _log(message)
        reply = self._reply(message)
        if not reply["ok"]:
            # What failed may still hold device memory through its traceback.
            gc.collect()
        if reply.get("failed", {}).get("details", {}).get("sticky"):
            raise StopServing(reply)
        return reply

    def _reply(self, message: Message) -> Message:
        try:
            return {"ok": True, **self._operations[message["op"]](message)}
        except TrialFailed as failure:
            return _failed(failure)
        except MemoryError as error:
            reason = f"out of host memory: {error}" if str(error) else "out of host memory"
            return _failed(TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, reason))
        except SweeperError as error:
            return _error(type(error).__name__, error.message, error.hint)
        except Exception as error:
            traceback.print_exc()
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.name} ({Path(place.filename).name}:{place.lineno})"
            hint = "this is a fault in sweeper, or in a reference function of the kernel"
            return _error("WorkerError", f"{type(error).__name__} in {where}: {error}", hint)

    def _identify(self, message: Message) -> Message:
        identify = getattr(self._backend, "identify", None)
        if identify is None:
            return {**self._open(message), "opened": True}
        limits, identity = identify(message["device"], message["target"])
        return {"target": to_wire(limits), "identity": to_wire(identity), "opened": False}

    def _open(self, message: Message) -> Message:
        coming = message.get("coming")
        if coming is not None:
            self._ahead = InputsAhead(lambda: self._problem_of(coming))
        self._target, identity = self._backend.open(message["device"], message["target"])
        return {"target": to_wire(self._target), "identity": to_wire(identity)}

    def _canary(self, message: Message) -> Message:
        del message
        canary = getattr(self._backend, "canary", None)
        if canary is not None:
            canary()
        return {}

    def _prepare(self, message: Message) -> Message:
        self._spec = None
        spec = kernel.load(message["kernel"], Path(message["path"]))
        self._dims, self._seed, self._prepared = message["dims"], message["seed"], ""
        self._spec = spec
        self._ready(spec, spec.default_point)
        return {}

    @staticmethod
    def _problem_of(message: Message) -> Problem:
        spec = kernel.load(message["kernel"], Path(message["path"]))
        return resolve(spec, message["dims"], spec.default_point, seed=message["seed"])

    def _ready(self, spec: KernelSpec, point: Point) -> None:
        """Prepare the problem at `point`; most kernels have the same one at every point."""
        problem = resolve(spec, self._dims, point, seed=self._seed)
        if problem.key != self._prepared:
            self._prepared = ""
            if self._ahead is not None:
                problem, self._ahead = replace(problem, ahead=self._ahead), None
            self._backend.prepare(spec, problem)
            self._prepared = problem.key

    def _measure(self, message: Message) -> Message:
        spec, target = self._loaded()
        point = Point.of(message["params"])
        build = from_wire(Build, message["build"])
        protocol = from_wire(MeasureProtocol, message["protocol"])
        launch = launch_of(spec, point, self._dims, target)
        self._ready(spec, point)
        return {"outcome": to_wire(self._backend.measure(point, launch, build, protocol))}

    def _baseline(self, message: Message) -> Message:
        spec, _ = self._loaded()
        protocol = from_wire(MeasureProtocol, message["protocol"])
        self._ready(spec, spec.default_point)
        return {"outcome": to_wire(self._backend.baseline(message["library"], protocol))}

    def _confirm(self, message: Message) -> Message:
        spec, _ = self._loaded()
        confirm = getattr(self._backend, "confirm", None)
        if confirm is None:
            raise SetupError(f"the {self._backend.name} backend has no clock to confirm times by")
        protocol = from_wire(MeasureProtocol, message["protocol"])
        self._ready(spec, spec.default_point)
        entrants = [self._entrant(from_wire(Finalist, finalist)) for finalist in message["finalists"]]
        return {"turns": to_wire(confirm(entrants, protocol, from_wire(Rounds, message["rounds"])))}

    def _entrant(self, finalist: Finalist) -> Entrant:
        spec, target = self._loaded()
        point = spec.default_point if finalist.point is None else finalist.point
        problem = resolve(spec, self._dims, point, seed=self._seed)
        launch = None if finalist.point is None else launch_of(spec, point, self._dims, target)
        return Entrant(finalist, problem, launch)

    def _loaded(self) -> tuple[KernelSpec, Target]:
        if self._spec is None or self._target is None:
            raise SetupError("the worker was asked to run before it was opened and prepared")
        return self._spec, self._target


def _log(message: Message) -> None:
    """Say what comes next, so that the last words of a crash name the culprit."""
    what = message.get("params") or message.get("library") or message.get("dims") or {}
    sys.stderr.write(f"current: {message.get('op')} {canonical_json(what)}\n")
    sys.stderr.flush()


def _failed(failure: TrialFailed) -> Message:
    return {"ok": False, "failed": failure_message(failure)}


def _error(kind: str, message: str, hint: str | None) -> Message:
    return {"ok": False, "error": error_message(kind, message, hint)}
