"""Kernels, registers and memory read from cubins; ptxas's own figures where nvcc is here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cubins import Figures, cubin

from sweeper.build.elf import CubinError, KernelImage, choose_kernel, read_kernels

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")


def images(*symbols: str) -> list[KernelImage]:
    return [KernelImage(symbol, 32, 0, 0) for symbol in symbols]


def test_kernels_are_read_with_their_figures() -> None:
    content = cubin({"a": Figures(40, 2048, 8), "b": Figures(168)}, functions=("helper",))
    assert read_kernels(content) == (KernelImage("a", 40, 2048, 8), KernelImage("b", 168, 0, 0))


def test_shared_memory_that_the_system_reserves_is_not_the_kernels() -> None:
    content = cubin({"a": Figures(shared_bytes=4096), "b": Figures()}, reserved=True)
    assert [k.static_shared_bytes for k in read_kernels(content)] == [4096, 0]


def test_a_file_that_is_no_cubin_is_an_error() -> None:
    content = cubin({"a": Figures()})
    for damaged in (b"", b"text", content[:70], content[:-40], content.replace(b".symtab", b".symtax")):
        with pytest.raises(CubinError):
            read_kernels(damaged)


@pytest.mark.parametrize(
    ("symbols", "entry", "arguments", "expected"),
    [
        (["matmul"], "matmul", (), "matmul"),
        (["_Z6matmulPKfPfi"], "matmul", (), "_Z6matmulPKfPfi"),
        (["_Z6matmulPf", "_Z7matmul2Pf", "_Z5otherv"], "matmul", (), "_Z6matmulPf"),
        (["_Z6matmul14CUtensorMap_stPf"], "matmul", (), "_Z6matmul14CUtensorMap_stPf"),
        (["_ZN2ns6matmulEPf"], "ns::matmul", (), "_ZN2ns6matmulEPf"),
        (["_ZN2ns6matmulEPf"], "matmul", (), "_ZN2ns6matmulEPf"),
        (["_ZN12_GLOBAL__N_16matmulEPf"], "matmul", (), "_ZN12_GLOBAL__N_16matmulEPf"),
        (["_Z2mmIfLi16EEvPKT_"], "mm", ("float", "16"), "_Z2mmIfLi16EEvPKT_"),
        (["_Z2mmIfLi16EEvPT_", "_Z2mmIfLi32EEvPT_"], "mm", ("float", "32"), "_Z2mmIfLi32EEvPT_"),
        (["_Z2mmIfLi16EEvPT_", "_Z2mmIdLi16EEvPT_"], "mm", ("double", "16"), "_Z2mmIdLi16EEvPT_"),
        (["_Z2mmILb1EEvPf", "_Z2mmILb0EEvPf"], "mm", ("false",), "_Z2mmILb0EEvPf"),
        (["_Z2mmILin3EEvPf", "_Z2mmILi3EEvPf"], "mm", ("-3",), "_Z2mmILin3EEvPf"),
        (["_Z2mmILj16EEvPf", "_Z2mmILj32EEvPf"], "mm", ("16",), "_Z2mmILj16EEvPf"),
        (["_Z2mmI6__halfS0_EvPT_", "_Z2mmI6__halffEvPT_"], "mm", ("__half", "__half"), "_Z2mmI6__halfS0_EvPT_"),
        (["_Z2mmIfLi16ELb0EEvPT_", "_Z2mmIfLi32ELb0EEvPT_"], "mm", ("float", "16"), "_Z2mmIfLi16ELb0EEvPT_"),
        (["_Z2mmIfLi16EEvPT_", "_Z2mmIfLi16ELi2EEvPT_"], "mm", ("float", "16"), "_Z2mmIfLi16EEvPT_"),
        (["_ZN2ns2mmIfLi8EEEvPT_", "_ZN2ns2mmIfLi16EEEvPT_"], "ns::mm", ("float", "8"), "_ZN2ns2mmIfLi8EEEvPT_"),
        (["_Z2mmI6LayoutLi8EEvPf", "_Z2mmI5OtherLi8EEvPf"], "mm", ("Layout", "8"), "_Z2mmI6LayoutLi8EEvPf"),
        (["_Z2mmIL6Layout1EEvPf"], "mm", ("COL_MAJOR",), "_Z2mmIL6Layout1EEvPf"),
    ],
)  # fmt: skip
def test_the_entry_is_found_among_the_symbols(
    symbols: list[str], entry: str, arguments: tuple[str, ...], expected: str
) -> None:
    assert choose_kernel(images(*symbols), entry, arguments).symbol == expected


def test_a_wrong_entry_is_answered_with_the_kernels_that_are_there() -> None:
    with pytest.raises(CubinError) as caught:
        choose_kernel(images("_ZN2ns2mmIfEvPT_", "plain"), "matmul", ())
    assert "no kernel matmul" in str(caught.value)
    assert "ns::mm<…> (_ZN2ns2mmIfEvPT_), plain" in str(caught.value)
    assert caught.value.hint == "correct `entry`"


def test_a_template_without_arguments_is_told_what_it_needs() -> None:
    for present in (images(), images("_Z2mmIfEvPT_")):
        with pytest.raises(CubinError) as caught:
            choose_kernel(present, "mm", ())
        assert "add `template`" in caught.value.hint


def test_arguments_for_a_plain_kernel_are_too_many() -> None:
    with pytest.raises(CubinError) as caught:
        choose_kernel(images("_Z2mmPf"), "mm", ("float",))
    assert "remove `template`" in caught.value.hint


def test_what_cannot_be_told_apart_is_not_guessed() -> None:
    with pytest.raises(CubinError, match="several kernels may be mm") as caught:
        choose_kernel(images("_Z2mmPf", "_Z2mmPd"), "mm", ())
    assert "extern" in caught.value.hint
    with pytest.raises(CubinError, match="several kernels may be mm<float>") as caught:
        choose_kernel(images("_Z2mmIfLi1EEvPf", "_Z2mmIfLi2EEvPf"), "mm", ("float",))
    assert "every template argument" in caught.value.hint


def test_a_long_list_of_kernels_is_cut() -> None:
    with pytest.raises(CubinError, match=r"k7 and 12 more"):
        choose_kernel(images(*(f"k{i}" for i in range(20))), "mm", ())


CU = """
#include <cuda_fp16.h>
enum class Layout { ROW, COL };
namespace ns {
template <typename T, int TILE> __global__ void tiled(const T* A, T* C, int n) {
  __shared__ T tile[TILE][TILE];
  tile[threadIdx.y][threadIdx.x] = A[n * threadIdx.y + threadIdx.x];
  __syncthreads();
  C[threadIdx.x * n + threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}
}
template <Layout L> __global__ void local(float* C) {
  float mine[64];
  for (int i = 0; i < 64; i++) mine[i] = 0;
  for (int i = 0; i < 64; i++) mine[(i * 7 + int(C[1])) & 63] += C[L == Layout::ROW ? i : 2 * i];
  C[threadIdx.x] = mine[(threadIdx.x * int(C[0])) & 63];
}
__device__ __noinline__ float twice(float x) { return 2 * x; }
extern "C" __global__ void plain(float* p) { p[threadIdx.x] = twice(p[threadIdx.x]); }
__global__ void __launch_bounds__(1024) crowded(float* p) {
  float a[72];
#pragma unroll
  for (int i = 0; i < 72; i++) a[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 72; i++) p[i * 1024 + threadIdx.x] = a[i] * a[71 - i];
}
void host(float* p) { ns::tiled<float, 8><<<1, 64>>>(p, p, 1); local<Layout::COL><<<1, 64>>>(p); }
const void* instance() { return reinterpret_cast<const void*>(&ns::tiled<__half, 16>); }
"""

_USED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers([^\n]*)", re.DOTALL
)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_figures_are_those_of_ptxas(tmp_path: Path, arch: str) -> None:
    (tmp_path / "a.cu").write_text(CU)
    command = ["nvcc", "--cubin", "-arch", arch, "-Xptxas=-v", "-o", "a.cubin", "a.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "Unsupported gpu architecture" in done.stderr:
        pytest.skip(f"this nvcc has no {arch}")
    assert done.returncode == 0, done.stderr
    said = {}
    for symbol, frame, registers, rest in _USED.findall(done.stderr):
        shared = re.search(r"(\d+) bytes smem", rest)
        said[symbol] = (int(registers), int(shared[1]) if shared else 0, int(frame))
    found = {
        k.symbol: (k.registers, k.static_shared_bytes, k.local_bytes)
        for k in read_kernels((tmp_path / "a.cubin").read_bytes())
    }
    assert found == said
    assert len(found) == 5

    kernels = read_kernels((tmp_path / "a.cubin").read_bytes())
    assert choose_kernel(kernels, "ns::tiled", ("float", "8")).static_shared_bytes == 8 * 8 * 4
    assert choose_kernel(kernels, "ns::tiled", ("__half", "16")).static_shared_bytes == 16 * 16 * 2
    assert (choose_kernel(kernels, "local", ("COL",)).local_bytes or 0) >= 256
    assert choose_kernel(kernels, "plain", ()).symbol == "plain"
