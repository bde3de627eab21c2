"""Modules for the emulator: what their key covers, how a build fails, and that nothing is left behind."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from specs import gemm_spec

from sweeper.build.cache import BuildCache
from sweeper.build.host import HostBuilder
from sweeper.build.pool import BuildPool
from sweeper.build.source import TranslationUnit, translation_unit
from sweeper.emulation import HostCompiler, static_shared_bytes
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Point, Stage, Status

SOURCE = """
#include "common.cuh"
template <typename T, int tile>
__global__ void matmul(const T* A, const T* B, T* C, int M, int N, int K) {
  __shared__ T a[tile][tile], b[tile][tile];
  static_assert(tile < 64, "tile is too large");
  C[0] = a[0][0] + b[0][0] + FACTOR;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "common.cuh").write_text("#define FACTOR 1\n")
    path = tmp_path / "matmul.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[HostBuilder]:
    builder = HostBuilder(BuildCache(tmp_path / "cache"))
    yield builder
    builder.close()


def unit(source: Path, tile: int = 16, **changes: object) -> TranslationUnit:
    made = translation_unit(gemm_spec(source=source), Point.of({"tile": tile}))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_build_says_what_it_is(builder: HostBuilder, source: Path) -> None:
    build = builder.build(unit(source), arch="sm_90a", deadline_s=60)
    assert (build.kind, build.entry, build.cached) == ("host", "matmul<float, 16>", False)
    assert build.artifact.is_file()
    assert build.static_shared_bytes == static_shared_bytes(build.artifact) == 2 * 16 * 16 * 4
    assert build.registers is None
    assert build.compiler == builder.identity()
    assert 0 < build.seconds < 60


def test_a_second_build_comes_from_the_cache(builder: HostBuilder, source: Path) -> None:
    first = builder.build(unit(source), arch="host", deadline_s=60)
    again = builder.build(unit(source), arch="host", deadline_s=60)
    assert again == dataclasses.replace(first, cached=True)


def with_options(source: Path, *options: str) -> TranslationUnit:
    return translation_unit(gemm_spec(source=source, options=options), Point.of({"tile": 16}))


def test_the_key_covers_everything_that_the_module_depends_on(
    builder: HostBuilder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patched(what: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(f"sweeper.build.host.{what}", lambda: "another")
            return builder.key(unit(source), "sm_90a")

    def with_header(text: str) -> str:
        (source.parent / "common.cuh").write_text(text)
        return builder.key(unit(source), "sm_90a")

    other = HostBuilder(builder.cache, compiler=HostCompiler(("g++",), "gcc", "99.1"))
    keys = {
        "as it is": builder.key(unit(source), "sm_90a"),
        "tile": builder.key(unit(source, 8), "sm_90a"),
        "architecture": builder.key(unit(source), "sm_80"),
        "macro": builder.key(with_options(source, "-DEXTRA=1"), "sm_90a"),
        "option": builder.key(with_options(source, "-use_fast_math"), "sm_90a"),
        "emulator's headers": patched("headers_digest"),
        "processor": patched("cpu_identity"),
        "compiler": other.key(unit(source), "sm_90a"),
        "portable": HostBuilder(builder.cache, portable=True).key(unit(source), "sm_90a"),
        "user's header": with_header("#define FACTOR 2\n"),
    }
    assert len(set(keys.values())) == len(keys), keys
    assert with_header("#define FACTOR 1\n") == keys["as it is"]


def test_a_changed_header_is_compiled_in(builder: HostBuilder, source: Path) -> None:
    one = builder.build(unit(source), arch="host", deadline_s=60)
    (source.parent / "common.cuh").write_text("#define FACTOR 2\n")
    two = builder.build(unit(source), arch="host", deadline_s=60)
    assert not two.cached
    assert one.artifact.read_bytes() != two.artifact.read_bytes()


def test_a_failed_build_names_the_line_and_keeps_the_whole_log(builder: HostBuilder, source: Path) -> None:
    with pytest.raises(TrialFailed) as caught:
        builder.build(unit(source, 64), arch="host", deadline_s=60)
    failed = caught.value
    assert (failed.status, failed.stage) == (Status.BUILD_ERROR, Stage.BUILD)
    assert failed.reason.startswith("matmul.cu:6: static assertion failed")
    assert failed.reason.endswith("tile is too large")
    log = Path(failed.details["log"])
    assert "matmul.cu:6" in log.read_text()
    assert failed.details["type"] == "CompileError"


def test_nothing_is_left_in_staging(builder: HostBuilder, source: Path) -> None:
    builder.build(unit(source), arch="host", deadline_s=60)
    with pytest.raises(TrialFailed):
        builder.build(unit(source, 64), arch="host", deadline_s=60)
    assert list((builder.cache.root / "staging").iterdir()) == []


def hanging(tmp_path: Path) -> HostCompiler:
    script = tmp_path / "hanging"
    script.write_text("#!/bin/sh\nsleep 600\n")
    script.chmod(0o755)
    return HostCompiler((str(script),), "gcc", "hanging 1.0")


def test_a_build_that_takes_too_long_is_a_time_out(
    builder: HostBuilder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.build.host.launcher_path", lambda _: None)
    slow = HostBuilder(builder.cache, compiler=hanging(tmp_path))
    with pytest.raises(TrialFailed) as caught:
        slow.build(unit(source), arch="host", deadline_s=0.2)
    assert caught.value.status is Status.BUILD_TIMEOUT
    assert caught.value.reason == "the compiler did not finish within 0.2 s"
    assert caught.value.details["deadline_s"] == 0.2
    assert list((builder.cache.root / "staging").iterdir()) == []


def test_closing_ends_builds_that_are_running(
    builder: HostBuilder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.build.host.launcher_path", lambda _: None)
    slow = HostBuilder(builder.cache, compiler=hanging(tmp_path))
    failures: list[TrialFailed] = []

    def build() -> None:
        try:
            slow.build(unit(source), arch="host", deadline_s=600)
        except TrialFailed as failed:
            failures.append(failed)

    thread = threading.Thread(target=build)
    thread.start()
    while not slow._running:
        pass
    slow.close()
    thread.join(20)
    assert [f.status for f in failures] == [Status.BUILD_ERROR]
    with pytest.raises(TrialFailed, match="the builder was closed"):
        slow.build(unit(source, 8), arch="host", deadline_s=600)


def test_a_pool_builds_many_at_once(builder: HostBuilder, source: Path) -> None:
    pool = BuildPool(builder, workers=2, arch="sm_80", deadline_s=60)
    futures = [pool.submit(unit(source, tile)) for tile in (4, 8, 16, 32, 64)]
    assert [f.result().entry for f in futures[:4]] == [f"matmul<float, {tile}>" for tile in (4, 8, 16, 32)]
    assert isinstance(futures[4].exception(), TrialFailed)
    pool.close()


def test_an_architecture_that_is_none_is_refused_before_any_build(builder: HostBuilder) -> None:
    for arch in ("host", "sm_75", "sm_90a", "sm_120", "compute_80"):
        builder.check(arch)
    with pytest.raises(SetupError, match="'gfx90a' is not an architecture"):
        builder.check("gfx90a")
