"""Builds ahead of the search: a few threads, each feeding one build at a time to a builder."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self

from sweeper.build.cache import BuildCache
from sweeper.build.manifest import Recipe
from sweeper.build.source import TranslationUnit
from sweeper.model import Build

__all__ = ["BuildPool", "Builder", "CachedBuilder"]


class Builder(Protocol):
    """What makes a `Build` of a `TranslationUnit`; called from several threads at once."""

    @property
    def kind(self) -> str: ...

    def identity(self) -> str:
        """The compiler and its version, as part of a build's key."""
        ...

    def check(self, arch: str) -> None:
        """Raises SetupError, before any build, where `arch` cannot be built for."""
        ...

    def warm(self, count: int) -> None:
        """Begin to make ready for `count` builds at once; returns at once."""
        ...

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        """Raises TrialFailed (BUILD_ERROR, BUILD_TIMEOUT)."""
        ...

    def close(self) -> None:
        """End builds that are running."""
        ...


class CachedBuilder(Builder, Protocol):
    """A builder that answers from a cache, under names that its recipe and the unit make up."""

    @property
    def cache(self) -> BuildCache: ...

    def recipe(self, arch: str) -> Recipe:
        """What the builds' names depend on beside the unit."""
        ...


# Of the builders, so that what is asked for seldom waits for what may never be.
_KEPT_FREE = 8
# Older ones are found in the cache, where there is one.
_MOST_AHEAD = 256


class BuildPool:
    """Up to `workers` builds at a time. A unit that is asked for again while it is built is built once.

    What nobody has asked for yet may be built beforehand, by builders that have nothing else to do.
    """

    def __init__(self, builder: Builder, *, workers: int, arch: str, deadline_s: float) -> None:
        self.builder = builder
        self.arch = arch
        self.deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="build")
        self._workers = workers
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[Build]] = {}
        self._ahead: dict[str, Future[Build]] = {}

    def submit(self, unit: TranslationUnit) -> Future[Build]:
        """The build of `unit`, to come: a Build, or TrialFailed as the future's exception.

        Callers that ask for one unit at once share one future, so none of them should cancel it.
        """
        with self._lock:
            ahead = self._ahead.pop(unit.digest, None)
            if ahead is not None and not ahead.cancelled():
                return ahead
        return self._begin(unit)

    @property
    def spare(self) -> int:
        """How many more builds can begin beforehand."""
        with self._lock:
            free = self._workers - len(self._in_flight)
        return max(0, free - math.ceil(self._workers / _KEPT_FREE))

    def build_ahead(self, unit: TranslationUnit) -> None:
        """Begin to build `unit`, which may never be asked for; the first who does gets what became of it."""
        with self._lock:
            known = unit.digest in self._ahead or unit.digest in self._in_flight
        if not known:
            future = self._begin(unit)
            with self._lock:
                self._ahead[unit.digest] = future
                if len(self._ahead) > _MOST_AHEAD:
                    del self._ahead[next(iter(self._ahead))]

    def _begin(self, unit: TranslationUnit) -> Future[Build]:
        with self._lock:
            running = self._in_flight.get(unit.digest)
            if running is not None and not running.cancelled():
                return running
            future = self._threads.submit(self._build, unit)
            self._in_flight[unit.digest] = future
        future.add_done_callback(lambda done: self._forget(unit.digest, done))
        return future

    def _build(self, unit: TranslationUnit) -> Build:
        return self.builder.build(unit, arch=self.arch, deadline_s=self.deadline_s)

    def _forget(self, digest: str, future: Future[Build]) -> None:
        with self._lock:
            if self._in_flight.get(digest) is future:
                del self._in_flight[digest]

    def close(self) -> None:
        """Cancel what waits, kill what runs, and wait until nothing of it is left."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.builder.close()
        self._threads.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
