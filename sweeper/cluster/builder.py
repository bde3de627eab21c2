"""Builds as Ray tasks on any node that has processors and the compiler, kept in the driver's cache."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sweeper import __version__
from sweeper.build.cache import BuildCache
from sweeper.build.make import make_builder
from sweeper.build.manifest import Recipe
from sweeper.build.pool import CachedBuilder
from sweeper.build.source import TranslationUnit
from sweeper.cluster.builds import build_on_node, recipe_of_node
from sweeper.cluster.connection import Connection
from sweeper.cluster.library import short
from sweeper.cluster.sources import SourceFiles, files_of_unit
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, Stage, Status
from sweeper.wire import from_wire, to_wire
from sweeper.worker.replies import error_of, failure_of

__all__ = ["ClusterBuilder"]

Message = dict[str, Any]

_RETRIES = 4
_PAUSE_S = 1.0
_POLL_S = 0.2
_PROBE_S = 120.0


class ClusterBuilder:
    """Builds each unit that the driver's cache has not got on a node of the cluster. Safe to share between threads.

    All nodes have to build by one recipe, the driver's where it has the compiler; those that do not are passed over,
    and `say` hears of each once. Raises SetupError where none is left.
    """

    def __init__(
        self,
        connection: Connection,
        backend: str,
        compiler: str,
        *,
        cache: bool,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._ray = connection.ray
        self._kind = {
            "backend": backend, "compiler": compiler, "cache": cache, "version": __version__,
        }  # fmt: skip
        self._say = say
        self._here: CachedBuilder | None = None
        with contextlib.suppress(SetupError):
            # A host without a compiler may still drive a search.
            self._here = make_builder(backend, compiler, cache=cache)
        self.cache = self._here.cache if self._here else _cache(kept=cache)
        self._recipe: Recipe | None = None
        self._lock = threading.Lock()
        self._unfit: dict[str, str] = {}
        self._busy: Counter[str] = Counter()
        self._running: set[Any] = set()
        self._sources: dict[str, tuple[SourceFiles, Any]] = {}
        self._stopping = threading.Event()
        self._task = self._ray.remote(num_cpus=1, max_retries=1)(build_on_node)

    @property
    def kind(self) -> str:
        return self._known().kind

    def identity(self) -> str:
        """The compiler and its version; known once `check` was asked."""
        return self._known().identity

    def check(self, arch: str) -> None:
        """Learn how builds are made for `arch`. Raises SetupError where nobody can."""
        if self._here is not None:
            self._here.check(arch)
            self._recipe = self._here.recipe(arch)
        else:
            self._recipe = self._asked(arch)

    def warm(self, count: int) -> None:
        """Nothing is made ready: Ray has processes waiting, one a processor."""

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        """The build of `unit`, from this host's cache where it is there.

        Raises as every builder does, and SetupError where no node can build.
        """
        key = self._known().key(unit.digest)
        cached = self.cache.get(key)
        if cached is not None:
            return cached
        sources, sent = self._sent(unit)
        places = tuple(Path(sources.place(folder)) for folder in unit.include_dirs)
        placed = replace(unit, source=Path(sources.place(unit.source)), include_dirs=places)
        request = {
            "unit": to_wire(placed),
            "arch": arch,
            "deadline_s": deadline_s,
            "recipe": to_wire(self._known()),
            "kind": self._kind,
        }
        losses = 0
        while True:
            reply = self._run(request, sent, self._node())
            if "unfit" in reply:
                self._pass_over(reply["unfit"])
            elif "lost" in reply and losses < _RETRIES:
                # Of a dead node Ray knows only after a while, and until then tries in vain, quickly.
                self._stopping.wait(2.0**losses * _PAUSE_S)
                losses += 1
            else:
                return self._kept(key, reply)

    def close(self) -> None:
        """End builds that are running; they end as BUILD_ERROR."""
        with self._lock:
            self._stopping.set()
            running = list(self._running)
        for task in running:
            with contextlib.suppress(Exception):
                self._ray.cancel(task, force=True)
        if self._here is not None:
            self._here.close()

    def _known(self) -> Recipe:
        if self._recipe is None:
            raise AssertionError("check comes first")
        return self._recipe

    def _sent(self, unit: TranslationUnit) -> tuple[SourceFiles, Any]:
        """The unit's files, here and as the cluster has them."""
        name = f"{unit.source}:{unit.source_digest}"
        with self._lock:
            if name not in self._sources:
                files = files_of_unit(unit)
                put = self._ray.put({"files": files.files, "digest": files.digest})
                self._sources[name] = files, put
            return self._sources[name]

    def _node(self) -> str | None:
        """The node to build on: None leaves it to Ray, which is right where all nodes are alike."""
        with self._lock:
            if not self._unfit:
                return None
            fit = self._fit()
            if not fit:
                raise SetupError(
                    "no node of the cluster can build: " + "; ".join(self._unfit.values()),
                    hint="install the compiler on nodes with processors, the same version as on this host",
                )
            return min(fit, key=lambda node: (self._busy[node] + 1) / fit[node])

    def _fit(self) -> dict[str, float]:
        """Processors of the nodes that nothing is known against."""
        return {
            node["NodeID"]: node["Resources"]["CPU"]
            for node in self._connection.nodes()
            if node["Resources"].get("CPU", 0) >= 1 and node["NodeID"] not in self._unfit
        }

    def _pass_over(self, unfit: Message) -> None:
        with self._lock:
            is_news = unfit["node"] not in self._unfit
            self._unfit[unfit["node"]] = f"{unfit['host']}: {unfit['why']}"
        if is_news:
            self._say(f"nothing is built on {unfit['host']}: {unfit['why']}")

    def _asked(self, arch: str) -> Recipe:
        """How the first node that can builds for `arch`. Raises SetupError where none can."""
        probe = self._ray.remote(num_cpus=1, max_retries=1)(recipe_of_node)
        waiting = [
            probe.options(**self._on(node["NodeID"])).remote(self._kind, arch)
            for node in self._connection.nodes()
            if node["Resources"].get("CPU", 0) >= 1
        ]
        while waiting:
            ready, waiting = self._ray.wait(waiting, timeout=_PROBE_S)
            if not ready:
                break
            try:
                told = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                self._say(f"a node cannot build: {short(error)}")
                continue
            if "recipe" in told:
                for task in waiting:
                    self._ray.cancel(task)
                return from_wire(Recipe, told["recipe"])
            self._pass_over(told["unfit"])
        raise SetupError(
            "no node of the cluster can build: "
            + ("; ".join(self._unfit.values()) or "none has a processor"),
            hint="install the compiler on this host, or on nodes with processors",
        )

    def _on(self, node: str | None) -> Message:
        if node is None:
            return {"scheduling_strategy": "SPREAD"}
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        return {"scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(node, soft=False)}

    def _run(self, request: Message, sources: Any, node: str | None) -> Message:
        with self._lock:
            if self._stopping.is_set():
                raise _cancelled()
            task = self._task.options(**self._on(node)).remote(request, sources)
            self._running.add(task)
            self._busy[node or ""] += 1
        try:
            while not self._ray.wait([task], timeout=_POLL_S)[0]:
                if self._stopping.is_set():
                    raise _cancelled()
            reply: Message = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            if self._stopping.is_set():
                raise _cancelled() from None
            if node is not None and node not in {n["NodeID"] for n in self._connection.nodes()}:
                return {"unfit": {"node": node, "host": f"node {node[:8]}", "why": "it was lost"}}
            return {"lost": short(error), "type": type(error).__name__}
        finally:
            with self._lock:
                self._running.discard(task)
                self._busy[node or ""] -= 1
        return reply

    def _kept(self, key: str, reply: Message) -> Build:
        if "lost" in reply:
            reason = f"the process that built it was lost, {_RETRIES + 1} times in a row: {reply['lost']}"
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, reason, details={"type": reply["type"]})
        if "failed" in reply:
            failure = failure_of(reply["failed"])
            if reply["log"]:
                log = self.cache.log_path(key)
                with contextlib.suppress(OSError):
                    log.write_text(reply["log"], encoding="utf-8")
                    failure.details["log"] = str(log)
            raise failure
        if "error" in reply:
            raise error_of(reply["error"])
        build = from_wire(Build, reply["build"])
        kept = self.cache.publish(build, reply["artifact"])
        return replace(build, artifact=kept.artifact)


def _cache(*, kept: bool) -> BuildCache:
    return BuildCache() if kept else BuildCache(Path(mkdtemp(prefix="sweeper-builds-")))


def _cancelled() -> TrialFailed:
    return TrialFailed(
        Status.BUILD_ERROR, Stage.BUILD, "the builder was closed", details={"type": "Cancelled"}
    )
