"""Which C++ compiler is taken, and the launcher that it builds once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Buffer, Fault, Scalar, cpu_identity, find_compiler, launcher_path, native
from sweeper.emulation.compiler import HostCompiler
from sweeper.errors import SetupError


def fake(folder: Path, name: str, version: str, code: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(f"#!/bin/sh\necho '{version}'\nexit {code}\n")
    script.chmod(0o755)
    return script


def test_g_plus_plus_comes_before_clang(tmp_path: Path) -> None:
    fake(tmp_path, "clang++", "Debian clang version 14.0.6")
    gcc = fake(tmp_path, "g++", "g++ (Test) 12.2.0")
    assert find_compiler({"PATH": str(tmp_path)}) == HostCompiler((str(gcc),), "gcc", "g++ (Test) 12.2.0")


def test_clang_is_taken_where_it_is_the_only_one(tmp_path: Path) -> None:
    fake(tmp_path, "clang++", "Debian clang version 14.0.6")
    fake(tmp_path, "g++", "broken", code=1)
    assert find_compiler({"PATH": str(tmp_path)}).kind == "clang"


def test_cxx_names_the_compiler_with_its_first_arguments(tmp_path: Path) -> None:
    script = fake(tmp_path, "my compiler", "clang version 19")
    fake(tmp_path, "g++", "g++ 12")
    found = find_compiler({"CXX": f"'{script}' c++ --flag", "PATH": str(tmp_path)})
    assert found.command == (str(script), "c++", "--flag")


@pytest.mark.parametrize("named", ["/nowhere/g++", "false", "sh -c 'exit 3'"])
def test_a_compiler_that_does_not_run_is_a_set_up_error(named: str) -> None:
    with pytest.raises(SetupError, match="does not run as a C\\+\\+ compiler") as caught:
        find_compiler({"CXX": named, "PATH": os.environ["PATH"]})
    assert "CXX" in str(caught.value.hint)


def test_without_any_compiler_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SetupError, match="there is no C\\+\\+ compiler") as caught:
        find_compiler({"PATH": str(tmp_path)})
    assert "pip install ziglang" in str(caught.value.hint)


def test_the_compiler_from_the_package_index_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("print('clang version 20.1 (zig)')")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.syspath_prepend(str(package.parent))
    found = find_compiler({"PATH": str(tmp_path / "empty")})
    assert found.command == (sys.executable, "-m", "ziglang", "c++")
    assert found.kind == "clang"


def test_the_identity_tells_compilers_and_processors_apart() -> None:
    one, other = HostCompiler(("g++",), "gcc", "12.2"), HostCompiler(("g++",), "gcc", "13.1")
    assert one.identity != other.identity
    assert len(cpu_identity()) == 12


def test_the_launcher_is_built_once_and_found_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path))
    launcher_path.cache_clear()
    try:
        path = launcher_path(rig.compiler)
        assert path.parent == tmp_path / "emulator"
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        launcher_path.cache_clear()
        before = path.stat().st_mtime_ns
        assert launcher_path(rig.compiler) == path
        assert path.stat().st_mtime_ns == before
    finally:
        launcher_path.cache_clear()


def test_without_a_folder_to_write_to_the_launcher_lives_in_a_temporary_one(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "file"))
    launcher_path.cache_clear()
    try:
        path = launcher_path(rig.compiler)
        assert os.access(path, os.X_OK)
        assert tmp_path not in path.parents
    finally:
        launcher_path.cache_clear()


def test_a_compiler_that_cannot_build_the_launcher_is_a_set_up_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path))
    script = fake(tmp_path, "g++", "main.cpp:1: error: C++98 only", code=1)
    with pytest.raises(SetupError, match=r"cannot compile the emulator: main\.cpp:1: error: C\+\+98 only"):
        launcher_path(HostCompiler((str(script),), "gcc", "ancient"))


def test_digests_cover_every_header_and_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(native.headers_digest()) == len(native.runtime_digest()) == 16
    (tmp_path / "a.h").write_text("1")
    first = native._digest(tmp_path / "a.h")
    (tmp_path / "a.h").write_text("2")
    assert native._digest(tmp_path / "a.h") != first


MIXED = """
#include <cuda_pipeline.h>
template <int N> __global__ void kernel(float* out, const float* in) {
  __shared__ float tile[N];
  extern __shared__ float more[];
  float v = in[blockIdx.x * N + threadIdx.x];
  for (int round = 0; round < 3; ++round) {
    tile[threadIdx.x] = v;
    more[N - 1 - threadIdx.x] = v;
    __syncthreads();
    v = tile[N - 1 - threadIdx.x] + more[threadIdx.x] + __shfl_xor_sync(0xffffffffu, v, 16);
    v += __syncthreads_count(threadIdx.x % 3 == 0);
    __nanosleep(1);
    v += __popc(__activemask());
    __syncthreads();
  }
  if (threadIdx.x % 5 == 4) return;
  out[blockIdx.x * N + threadIdx.x] = v;
}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_the_portable_way_between_threads_gives_the_same_results(rig: Rig, workers: int) -> None:
    portable = launcher_path(rig.compiler, portable_switch=True)
    assert portable != rig.launcher
    module = rig.module(MIXED, "kernel<96>")
    values = np.random.default_rng(0).standard_normal(960).astype(np.float32)
    results = [
        rig.out(
            module,
            960,
            inputs={"in": values},
            grid=10,
            block=96,
            shared_bytes=384,
            workers=workers,
            launcher=which,
        )
        for which in (rig.launcher, portable)
    ]
    assert np.array_equal(*results)
    assert np.count_nonzero(results[0]) == 10 * (96 - 19)


def test_the_portable_way_ends_local_memory_too(rig: Rig) -> None:
    text = """
        __device__ int deep(int n) {
          volatile int local[1024];
          local[n % 1024] = n;
          __syncthreads();
          return n ? deep(n - 1) + local[n % 1024] : 0;
        }
        __global__ void kernel(int* out, int depth) { out[threadIdx.x] = deep(depth); }"""
    module, out = rig.module(text), Buffer("out", (4,), np.int32, writable=True)
    for which in (rig.launcher, launcher_path(rig.compiler, portable_switch=True)):
        assert rig.run(module, out, Scalar("depth", np.int32(20)), block=4, launcher=which).ok
        assert out.array.tolist() == [210] * 4
        report = rig.run(module, out, Scalar("depth", np.int32(100)), block=4, launcher=which)
        assert report.kind is Fault.LOCAL_MEMORY
