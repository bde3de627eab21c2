"""The driver's side of a GPU of the cluster: the interface of `DeviceWorker`, forwarded to an actor.

A call that Ray loses with its process or node is made again by Ray, on an actor that is started again: on the same
GPU, or on another one that is free. Until then nobody answers; who does not for too long is given up.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sweeper import __version__
from sweeper.backend.base import Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.cluster.actor import DeviceActor, Message
from sweeper.cluster.library import short
from sweeper.cluster.sources import files_of_kernel
from sweeper.device import DeviceIdentity, Target
from sweeper.emulation import cpu_identity
from sweeper.errors import SetupError, TrialFailed, WorkerError
from sweeper.model import Build, KernelSpec, Point, Stage, Status, digest
from sweeper.wire import from_wire, to_wire
from sweeper.worker.replies import error_of, failure_of

__all__ = ["ActorSettings", "ClusterWorker"]

# Ray starts a lost process again as often as it takes, and makes one call this many times more; so do we.
_RESTARTS = -1
_RETRIES = 4
# Ray notices a dead node after some 30 s; then its actor needs a GPU and a process, and that has to open it.
_LOST_S = 90.0
# Nodes may have to load Python from a slow disk, all at once.
_START_S = 300.0
_ASK_EVERY_S = 2.0
_POLL_S = 0.2
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class ActorSettings:
    """What every actor of a search is told. `table` is that of a recorded worker, in place of a device."""

    backend: str
    target: str | None = None
    lock_clocks: str | int | None = None
    table: Mapping[str, Any] | None = None
    mixed: bool = False


class ClusterWorker:
    """GPU number `ordinal` of those that serve, whichever Ray gives. Raises SetupError, from the first call on.

    `options` are those of the actor beside what makes it last. `say` hears that a process was lost. `identity` is the
    device that answered last. Not safe for threads, but for `kill`.
    """

    def __init__(
        self,
        ray: Any,
        settings: ActorSettings,
        ordinal: int,
        *,
        options: Mapping[str, Any] = {},
        say: Callable[[str], object] = lambda _: None,
        lost_s: float = _LOST_S,
    ) -> None:
        self._ray = ray
        self._mixed = settings.mixed
        self._ordinal = ordinal
        self._say = say
        self._lost_s = self._patience_s = lost_s
        self._ended = threading.Event()
        self._incarnation = ""
        self._known: tuple[Target, DeviceIdentity] | None = None
        self._problem: Any = None
        told: Message = {
            "backend": settings.backend,
            "target": settings.target,
            "lock_clocks": settings.lock_clocks,
            "cpu": cpu_identity(),
            **({} if settings.table is None else {"table": settings.table}),
        }
        actor = ray.remote(
            num_gpus=1,
            num_cpus=0,
            max_restarts=_RESTARTS,
            max_task_retries=_RETRIES,
            concurrency_groups={"asking": 1},
            **options,
        )(DeviceActor)
        self._actor = actor.remote({**told, "ordinal": ordinal, "version": __version__})

    @property
    def identity(self) -> DeviceIdentity:
        """The device that answered last. Raises WorkerError before the first answer."""
        if self._known is None:
            raise WorkerError(f"GPU {self._ordinal} of the cluster has not answered yet")
        return self._known[1]

    def identify(self) -> tuple[Target, DeviceIdentity]:
        """Wait for the actor to have a GPU, and learn which."""
        if self._known is None:
            self._call({"op": "identify"}, lost_s=max(_START_S, self._lost_s))
        if self._known is None:
            raise AssertionError("an answer says whose it is")
        return self._known

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        """Let the worker prepare the problem, and whoever takes its place later. Raises as `DeviceWorker` does."""
        sources = files_of_kernel(spec)
        node = json.loads(spec.node_json)
        # Every file has its place beside the others; only the two that the description names by itself move.
        node["source"] = spec.source.name
        folder = Path(sources.place(spec.source)).parent
        if spec.reference.path is not None:
            up = "../" * len(folder.parts)
            node["reference"] = {**node["reference"], "python": up + sources.place(spec.reference.path)}
        problem = {
            "kernel": node,
            "path": str(folder / spec.path.name),
            "dims": dict(dims),
            "seed": seed,
            "files": sources.files,
            "digest": sources.digest,
        }
        problem["key"] = digest([node, problem["path"], dict(dims), seed, sources.digest])
        self._problem = self._ray.put(problem)
        self._call({"op": "prepare"})

    def measure(self, point: Point, build: Build | None, protocol: MeasureProtocol) -> Outcome:
        """Verify and time one configuration. Raises as `DeviceWorker` does."""
        request = {"op": "measure", "params": to_wire(point.params), "build": _plain_build(build)}
        reply = self._call({**request, "protocol": _plain(protocol)}, _artifacts([build]))
        outcome = from_wire(Outcome, reply["outcome"])
        return replace(outcome, build=_whole(outcome.build, [build]))

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """The library's answer to the prepared problem. Raises as `DeviceWorker` does."""
        reply = self._call({"op": "baseline", "library": library, "protocol": _plain(protocol)})
        return from_wire(Outcome, reply["outcome"])

    def confirm(
        self, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        """Time all finalists in turns. Raises as `DeviceWorker` does."""
        builds = [finalist.build for finalist in finalists]
        sent = [replace(f, build=_named(f.build)) for f in finalists]
        request = {"op": "confirm", "finalists": to_wire(sent), "rounds": to_wire(rounds)}
        reply = self._call({**request, "protocol": _plain(protocol)}, _artifacts(builds))
        turns = from_wire(tuple[Turns, ...], reply["turns"])
        return tuple(replace(turn, build=_whole(turn.build, builds)) for turn in turns)

    def kill(self) -> None:
        """End the actor at once, whatever it is doing; another thread may ask for it. A call that waits fails."""
        if not self._ended.is_set():
            self._ended.set()
            with contextlib.suppress(Exception):
                self._ray.kill(self._actor, no_restart=True)

    def close(self) -> None:
        """End the actor, and what it holds before it."""
        # Who has not answered yet holds nothing, and may be waiting for a GPU.
        if not self._ended.is_set() and self._known is not None:
            with contextlib.suppress(Exception):
                self._ray.wait([self._actor.end.remote()], timeout=_GRACE_S)
        self.kill()

    def _call(
        self, request: Message, artifacts: Mapping[str, bytes] | None = None, *, lost_s: float | None = None
    ) -> Message:
        if self._ended.is_set():
            raise WorkerError(f"GPU {self._ordinal} of the cluster was given back")
        self._patience_s = lost_s = self._lost_s if lost_s is None else lost_s
        reply: Message | None = None
        losses = 0
        while reply is None:
            try:
                answer = self._actor.handle.remote(request, self._problem, artifacts or {})
                self._wait(answer, lost_s)
                reply = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                losses += 1
                if losses > _RETRIES or self._ended.is_set() or not self._may_come_back(error):
                    raise self._failed(error) from None
                # Of a dead node Ray knows only after a while, and until then tries in vain, quickly.
                self._wait_for_life(lost_s)
        self._take(reply)
        if "failed" in reply:
            raise failure_of(reply["failed"])
        if "error" in reply:
            raise error_of(reply["error"])
        return reply

    def _wait(self, answer: Any, lost_s: float, *, asks: bool = True) -> None:
        """Wait for `answer` for `lost_s`; if it `asks`, for as long as somebody says now and then that it is coming.

        Raises WorkerError then, having given the actor up, and TrialFailed where it is killed meanwhile.
        """
        asked, said = None, time.monotonic()
        next_ask = said + _ASK_EVERY_S
        while not self._ray.wait([answer], timeout=_POLL_S)[0]:
            if self._ended.is_set():
                raise self._cut_off()
            now = time.monotonic()
            if asked is not None and self._ray.wait([asked], timeout=0)[0]:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.get(asked)
                    said = now
                asked, next_ask = None, now + _ASK_EVERY_S
            if asks and asked is None and now >= next_ask:
                asked = self._ask()
            if now - said > lost_s:
                raise self._given_up()

    def _given_up(self) -> WorkerError:
        self.kill()
        return WorkerError(
            f"{self._named()} has not answered for {self._patience_s:.3g} s and is given up",
            hint="`ray status` shows which nodes and GPUs the cluster has",
        )

    def _may_come_back(self, error: Exception) -> bool:
        exceptions = self._ray.exceptions
        return isinstance(error, exceptions.RayActorError) and not isinstance(
            error, exceptions.ActorDiedError
        )

    def _wait_for_life(self, lost_s: float) -> None:
        """Wait until the actor answers again. Raises as `_wait`."""
        began = time.monotonic()
        while True:
            left = lost_s - (time.monotonic() - began)
            if left <= 0:
                raise self._given_up()
            asked = self._ask()
            self._wait(asked, left, asks=False)
            try:
                self._ray.get(asked)
                return
            except self._ray.exceptions.RayError as error:
                if self._ended.is_set() or not self._may_come_back(error):
                    raise self._failed(error) from None
                self._ended.wait(_POLL_S)

    def _ask(self) -> Any:
        """Whether anybody is there, to be answered beside a call that is under way."""
        return self._actor.alive.options(concurrency_group="asking").remote()

    def _failed(self, error: Exception) -> TrialFailed | SetupError:
        """What it means that Ray could not make a call, although it tried again."""
        if self._ended.is_set():
            return self._cut_off()
        if self._may_come_back(error):
            reason = f"the process on the node was lost {_RETRIES + 1} times meanwhile: {short(error)}"
            return TrialFailed(Status.CRASH, Stage.MEASURE, reason, details={"type": type(error).__name__})
        return WorkerError(f"{self._named()}: {short(error)}")

    def _cut_off(self) -> TrialFailed:
        return TrialFailed(Status.CRASH, Stage.MEASURE, f"GPU {self._ordinal} of the cluster was given back")

    def _named(self) -> str:
        which = f" ({self._known[1].uuid or self._known[1].name})" if self._known else ""
        return f"GPU {self._ordinal} of the cluster{which}"

    def _take(self, reply: Message) -> None:
        """Learn whose answer it is. Raises SetupError where it is another kind of device than before."""
        if reply["identity"] is None:
            return
        told = from_wire(Target, reply["target"]), from_wire(DeviceIdentity, reply["identity"])
        if self._incarnation not in ("", reply["incarnation"]):
            self._say(f"{self._named()}: its process was lost, another goes on, on {reply['host']}")
        self._incarnation = reply["incarnation"]
        if self._known is not None and _kind(*told) != _kind(*self._known) and not self._mixed:
            self.kill()
            raise SetupError(
                f"{self._named()} is {told[1].name} (driver {told[1].driver}) now: its times do not compare",
                hint="engine.accelerator=NAME keeps to one kind",
            )
        self._known = told


def _kind(target: Target, identity: DeviceIdentity) -> tuple[Any, ...]:
    return target.cc, identity.name, identity.memory_bytes, identity.driver


def _plain(protocol: MeasureProtocol) -> Message:
    """Only the protocol's own fields: a configuration may carry more."""
    plain: Message = to_wire({f.name: getattr(protocol, f.name) for f in fields(MeasureProtocol)})
    return plain


def _named(build: Build | None) -> Build | None:
    """`build` without the place that it has on this host."""
    return None if build is None else replace(build, artifact=Path(build.artifact.name))


def _plain_build(build: Build | None) -> Message | None:
    plain: Message | None = to_wire(_named(build))
    return plain


def _artifacts(builds: Sequence[Build | None]) -> dict[str, bytes]:
    """What `builds` are, by key. Raises TrialFailed where one is gone."""
    found = {}
    for build in builds:
        if build is None:
            continue
        try:
            found[build.key] = build.artifact.read_bytes()
        except OSError as error:
            reason = f"the build {build.key} cannot be read: {error.strerror or error}"
            raise TrialFailed(Status.BUILD_ERROR, Stage.LOAD, reason) from None
    return found


def _whole(build: Build | None, given: Sequence[Build | None]) -> Build | None:
    """`build`, as it came back with figures of its loading, at its place on this host."""
    if build is None:
        return None
    place = next((g.artifact for g in given if g is not None and g.key == build.key), build.artifact)
    return replace(build, artifact=place)
