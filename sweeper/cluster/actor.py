"""What lives on a node with a GPU: the worker of one host, asked through Ray.

Requests and replies are plain JSON values; sources and builds come beside them as bytes. A request says all that it
needs: an actor that Ray has started again knows nothing of those before it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper import __version__
from sweeper.backend.base import Finalist, MeasureProtocol, Rounds
from sweeper.build.cache import BuildCache
from sweeper.cluster.sources import laid_out
from sweeper.device import DeviceIdentity, Target
from sweeper.device.clocks import ClockLock
from sweeper.emulation import cpu_identity
from sweeper.errors import SetupError, SweeperError, TrialFailed
from sweeper.kernel import description as kernel
from sweeper.model import Build, Point
from sweeper.wire import from_wire, to_wire
from sweeper.worker.base import Worker
from sweeper.worker.pool import DeviceWorker
from sweeper.worker.replies import error_message, failure_message

__all__ = ["DeviceActor", "Message"]

Message = dict[str, Any]

# The driver of a GPU takes its time with a process that has just been killed.
_REOPEN_S = 60.0


class DeviceActor:
    """One GPU of the cluster. `settings` say what its worker is: backend, target, lock_clocks, ordinal.

    The process sees its GPU alone, as device 0; replies carry whose they are, and a name of the process that is new
    whenever Ray has started another.
    """

    def __init__(self, settings: Message) -> None:
        self._settings = settings
        self._incarnation = uuid.uuid4().hex
        self._cache: BuildCache | None = None
        self._worker: Worker | None = None
        self._identity: DeviceIdentity | None = None
        self._target: Target | None = None
        self._prepared = ""
        self._clocks: ClockLock | None = None
        self._operations: dict[str, Callable[[Message, Mapping[str, bytes]], Message]] = {
            "identify": lambda *_: {},
            "prepare": lambda *_: {},
            "measure": self._measure,
            "baseline": self._baseline,
            "confirm": self._confirm,
        }

    def alive(self) -> bool:
        """Answers while a request is under way."""
        return True

    def handle(
        self, request: Message, problem: Message | None = None, artifacts: Mapping[str, bytes] = {}
    ) -> Message:
        """The reply to `request`, whose `problem` is prepared first where it is not; `artifacts` are builds by key."""
        try:
            worker = self._opened()
            if problem is not None:
                self._prepare(worker, problem)
            return {"ok": True, **self._operations[request["op"]](request, artifacts), **self._whose()}
        except TrialFailed as failure:
            return {"ok": False, "failed": failure_message(failure), **self._whose()}
        except SweeperError as error:
            told = error_message(type(error).__name__, f"{socket.gethostname()}: {error.message}", error.hint)
            return {"ok": False, "error": told, **self._whose()}

    def end(self) -> None:
        """End the worker, and let clocks go."""
        with contextlib.suppress(SweeperError):
            if self._worker is not None:
                self._worker.close()
        with contextlib.suppress(SweeperError):
            if self._clocks is not None:
                self._clocks.close()

    def _whose(self) -> Message:
        return {
            "incarnation": self._incarnation,
            "host": socket.gethostname(),
            "target": to_wire(self._target),
            "identity": to_wire(self._identity),
        }

    def _opened(self) -> Worker:
        if self._settings["version"] != __version__:
            wanted = self._settings["version"]
            raise SetupError(
                f"sweeper {__version__} is installed here, the command's is {wanted}",
                hint="install one version on every node",
            )
        if self._settings["backend"] == "emulator" and self._settings["cpu"] != cpu_identity():
            raise SetupError(
                "its processor is of another kind than the command's: what is built for one need not run on it",
                hint="emulate on nodes of one kind",
            )
        if self._worker is None:
            _own_threads()
            self._worker = self._made()
        if self._identity is None:
            self._identify(self._worker)
        return self._worker

    def _made(self) -> Worker:
        if "table" in self._settings:
            from sweeper.cluster.recorded import RecordedWorker

            return RecordedWorker(self._settings["table"])
        return DeviceWorker(self._settings["backend"], target=self._settings["target"])

    def _identify(self, worker: Worker) -> None:
        """Learn what the device is. One that a lost process leaves behind may need a while, and has to prove itself."""
        again = _was_lost()
        end = time.monotonic() + _REOPEN_S
        while True:
            try:
                target, identity = worker.identify()
                if again and isinstance(worker, DeviceWorker):
                    worker.open()
                    worker.canary()
                break
            except SetupError:
                if not again or time.monotonic() > end:
                    raise
                time.sleep(1.0)
        clock = self._settings["lock_clocks"]
        if clock is not None and self._settings["backend"] == "cuda":
            self._clocks = ClockLock(clock, [identity.pci_bus_id])
            self._clocks.start()
        # Each process sees one device alone: the number tells them apart.
        self._target, self._identity = target, replace(identity, index=self._settings["ordinal"])

    def _prepare(self, worker: Worker, problem: Message) -> None:
        if problem["key"] == self._prepared:
            return
        self._prepared = ""
        folder = laid_out(problem["files"], problem["digest"], self._kept())
        spec = kernel.load(problem["kernel"], folder / problem["path"])
        worker.prepare(spec, problem["dims"], problem["seed"])
        self._prepared = problem["key"]

    def _kept(self) -> BuildCache:
        self._cache = self._cache or BuildCache()
        return self._cache

    def _measure(self, request: Message, artifacts: Mapping[str, bytes]) -> Message:
        build = None if request["build"] is None else from_wire(Build, request["build"])
        if build is not None:
            build = self._here(build, artifacts)
        point = Point.of(request["params"])
        outcome = self._running().measure(point, build, from_wire(MeasureProtocol, request["protocol"]))
        return {"outcome": to_wire(outcome)}

    def _baseline(self, request: Message, artifacts: Mapping[str, bytes]) -> Message:
        del artifacts
        protocol = from_wire(MeasureProtocol, request["protocol"])
        return {"outcome": to_wire(self._running().baseline(request["library"], protocol))}

    def _confirm(self, request: Message, artifacts: Mapping[str, bytes]) -> Message:
        finalists = [from_wire(Finalist, finalist) for finalist in request["finalists"]]
        local = [
            f if f.build is None else replace(f, build=self._here(f.build, artifacts)) for f in finalists
        ]
        protocol = from_wire(MeasureProtocol, request["protocol"])
        turns = self._running().confirm(local, protocol, from_wire(Rounds, request["rounds"]))
        return {"turns": to_wire(turns)}

    def _here(self, build: Build, artifacts: Mapping[str, bytes]) -> Build:
        """`build` with its artifact on this node."""
        cache = self._kept()
        found = cache.get(build.key)
        if found is None:
            found = cache.publish(replace(build, artifact=Path(build.artifact.name)), artifacts[build.key])
        return replace(build, artifact=found.artifact)

    def _running(self) -> Worker:
        if self._worker is None:
            raise AssertionError("it was opened")
        return self._worker


def _was_lost() -> bool:
    """Whether Ray has started this actor again."""
    context = importlib.import_module("ray").get_runtime_context()
    return bool(context.was_current_actor_reconstructed)


def _own_threads() -> None:
    """Let NumPy have the threads that it has on one host: Ray gives a process one where nobody says otherwise."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        del os.environ["OMP_NUM_THREADS"]
