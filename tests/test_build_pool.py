"""Builds ahead of the search: in parallel, each once, and none left behind."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest
from cubins import fake_nvcc

from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.pool import BuildPool
from sweeper.build.source import TranslationUnit
from sweeper.errors import TrialFailed
from sweeper.model import Build, Stage, Status


def unit(digest: str, text: str = "") -> TranslationUnit:
    return TranslationUnit(
        name="a.cu", text=text, source=Path("a.cu"), entry="matmul", template_args=(), signature="matmul",
        defines=(), include_dirs=(), options=(), source_digest=digest, digest=digest,
    )  # fmt: skip


class GatedBuilder:
    """Builds nothing, and ends a build only when told; a unit called `bad` fails."""

    kind = "fake"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.gate = threading.Event()
        self.closed = threading.Event()

    def identity(self) -> str:
        return "fake 1"

    def check(self, arch: str) -> None: ...

    def warm(self, count: int) -> None: ...

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        self.started.append(unit.digest)
        while not self.gate.wait(0.01):
            if self.closed.is_set():
                raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, "the builder was closed")
        if unit.digest == "bad":
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, "a.cu(1): error: bad")
        return Build(unit.digest, self.kind, Path("x"), unit.entry, f"{arch} {deadline_s:g}")

    def close(self) -> None:
        self.closed.set()


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def builder() -> GatedBuilder:
    return GatedBuilder()


def test_results_arrive_as_futures(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=2, arch="sm_90", deadline_s=5) as pool:
        builder.gate.set()
        assert pool.submit(unit("a")).result(20).compiler == "sm_90 5"


def test_a_failed_build_is_its_futures_exception(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=1, arch="sm_90", deadline_s=5) as pool:
        builder.gate.set()
        with pytest.raises(TrialFailed, match="error: bad"):
            pool.submit(unit("bad")).result(20)
        assert pool.submit(unit("good")).result(20).key == "good"


def test_workers_run_at_once_and_no_more_than_asked(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=2, arch="sm_90", deadline_s=5) as pool:
        futures = [pool.submit(unit(name)) for name in "abc"]
        wait_for(lambda: len(builder.started) == 2)
        assert not futures[2].running()
        builder.gate.set()
        assert [f.result(20).key for f in futures] == ["a", "b", "c"]


def test_a_unit_in_flight_is_built_once(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=2, arch="sm_90", deadline_s=5) as pool:
        first, second = pool.submit(unit("a")), pool.submit(replace(unit("a"), name="same"))
        builder.gate.set()
        assert first.result(20) == second.result(20)
        assert builder.started == ["a"]
        wait_for(lambda: not pool._in_flight)
        assert pool.submit(unit("a")).result(20).key == "a"
        assert builder.started == ["a", "a"], "what is done is the cache's business"


def test_idle_builders_build_beforehand_and_one_is_kept_for_what_is_asked(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=4, arch="sm_90", deadline_s=5) as pool:
        assert pool.spare == 3
        pool.submit(unit("asked"))
        assert pool.spare == 2
        pool.build_ahead(unit("likely"))
        pool.build_ahead(unit("likely"))
        pool.build_ahead(unit("asked"))
        assert pool.spare == 1
        wait_for(lambda: len(builder.started) == 2)
        builder.gate.set()
        wait_for(lambda: pool.spare == 3)
        assert builder.started == ["asked", "likely"]


def test_what_was_built_beforehand_is_not_built_again_and_counts_as_this_runs(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=4, arch="sm_90", deadline_s=5) as pool:
        builder.gate.set()
        pool.build_ahead(unit("a"))
        pool.build_ahead(unit("bad"))
        wait_for(lambda: not pool._in_flight)
        assert not pool.submit(unit("a")).result(0).cached
        with pytest.raises(TrialFailed, match="error: bad"):
            pool.submit(unit("bad")).result(0)
        assert sorted(builder.started) == ["a", "bad"]


def test_a_single_builder_builds_nothing_beforehand(builder: GatedBuilder) -> None:
    with BuildPool(builder, workers=1, arch="sm_90", deadline_s=5) as pool:
        assert pool.spare == 0


def test_closing_cancels_what_waits_and_ends_what_runs(builder: GatedBuilder) -> None:
    pool = BuildPool(builder, workers=1, arch="sm_90", deadline_s=5)
    running, waiting = pool.submit(unit("a")), pool.submit(unit("b"))
    wait_for(lambda: builder.started == ["a"])
    pool.close()
    with pytest.raises(TrialFailed):
        running.result(0)
    with pytest.raises(CancelledError):
        waiting.result(0)
    assert builder.started == ["a"]


def test_many_units_compile_in_parallel_children(tmp_path: Path) -> None:
    nvcc = NvccBuilder(BuildCache(tmp_path / "cache"), nvcc=fake_nvcc(tmp_path / "bin"))
    with BuildPool(nvcc, workers=2, arch="sm_90", deadline_s=60) as pool:
        texts = [f"// {i}\n// fake: {'error' if i % 4 == 3 else 'kernels matmul'}" for i in range(8)]
        futures = [pool.submit(unit(f"{i}", text)) for i, text in enumerate(texts)]
        outcomes = [f.exception(60) for f in futures]
    assert [isinstance(o, TrialFailed) for o in outcomes] == [i % 4 == 3 for i in range(8)]
    assert list((tmp_path / "cache" / "staging").iterdir()) == []
    assert len(list((tmp_path / "cache" / "builds").glob("*/*/kernel.cubin"))) == 6
