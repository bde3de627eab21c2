"""The wrappers of PTX instructions in kernels/common/ptx.cuh, held against NumPy and the PTX ISA document."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from check_rig import FILE, Kernels, with_every_compiler

from sweeper.emulation import Buffer, FindingKind, HostCompiler, Scalar
from sweeper.paths import kernels_dir

GEMM = kernels_dir() / "gemm"

TEXT = """#include "../common/ptx.cuh"

template <class T> __device__ void stage(T* to, const T* from, int count) {
  for (int i = threadIdx.x; i < count; i += 32) to[i] = from[i];
  __syncwarp();
}

template <int Kind> __device__ void product(float* D, const unsigned* A, const unsigned* B, const float* C) {
  const int lane = threadIdx.x;
  unsigned a[4], b[2];
  float c[4], d[4];
  for (int i = 0; i < 4; ++i) a[i] = A[4 * lane + i];
  for (int i = 0; i < 2; ++i) b[i] = B[2 * lane + i];
  for (int i = 0; i < 4; ++i) c[i] = C[4 * lane + i];
  if (Kind == 0) ptx::mma_m16n8k16_f16(d, a, b, c);
  if (Kind == 1) ptx::mma_m16n8k16_bf16(d, a, b, c);
  if (Kind == 2) ptx::mma_m16n8k8_tf32(d, a, b, c);
  for (int i = 0; i < 4; ++i) D[4 * lane + i] = d[i];
}

__global__ void f16(float* D, const unsigned* A, const unsigned* B, const float* C) { product<0>(D, A, B, C); }
__global__ void bf16(float* D, const unsigned* A, const unsigned* B, const float* C) { product<1>(D, A, B, C); }
__global__ void tf32(float* D, const unsigned* A, const unsigned* B, const float* C) { product<2>(D, A, B, C); }

__global__ void load(unsigned* out, const unsigned short* A) {
  __shared__ __align__(16) unsigned short rows[32][8];
  stage(&rows[0][0], A, 256);
  const int lane = threadIdx.x;
  unsigned one[1], two[2], four[4], one_t[1], two_t[2], four_t[4];
  ptx::ldmatrix_x1(one, rows[lane % 8]);
  ptx::ldmatrix_x2(two, rows[lane % 16]);
  ptx::ldmatrix_x4(four, rows[lane]);
  ptx::ldmatrix_x1_trans(one_t, rows[lane % 8]);
  ptx::ldmatrix_x2_trans(two_t, rows[lane % 16]);
  ptx::ldmatrix_x4_trans(four_t, rows[lane]);
  unsigned* mine = out + 14 * lane;
  mine[0] = one[0];
  for (int i = 0; i < 2; ++i) mine[1 + i] = two[i];
  for (int i = 0; i < 4; ++i) mine[3 + i] = four[i];
  mine[7] = one_t[0];
  for (int i = 0; i < 2; ++i) mine[8 + i] = two_t[i];
  for (int i = 0; i < 4; ++i) mine[10 + i] = four_t[i];
}

__global__ void load_unaligned(unsigned* out, const unsigned short* A, int shift) {
  __shared__ __align__(16) unsigned short rows[300];
  stage(rows, A, 256);
  unsigned one[1];
  ptx::ldmatrix_x1(one, rows + 8 * (threadIdx.x % 8) + shift);  //unaligned
  out[threadIdx.x] = one[0];
}

__global__ void load_too_early(unsigned* out, const unsigned short* A) {
  __shared__ __align__(16) unsigned short rows[8][8];
  for (int i = threadIdx.x; i < 64; i += 32) rows[i / 8][i % 8] = A[i];  //stores
  unsigned one[1];
  ptx::ldmatrix_x1(one, rows[threadIdx.x % 8]);  //loads
  out[threadIdx.x] = one[0];
}

__global__ void copy(unsigned char* out, const unsigned char* A, int valid) {
  __shared__ __align__(16) unsigned char bytes[32];
  ptx::cp_async<16>(bytes, A, valid);
  ptx::cp_async<8>(bytes + 16, A + 16);
  ptx::cp_async_commit();
  ptx::cp_async<4>(bytes + 24, A + 24);
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  for (int i = 0; i < 24; ++i) out[i] = bytes[i];
  ptx::cp_async<4>(bytes + 28, A + 28, 0);
  ptx::cp_async_wait_all();
  for (int i = 24; i < 32; ++i) out[i] = bytes[i];
}

__global__ void copy_unwaited(unsigned char* out, const unsigned char* A) {
  __shared__ __align__(16) unsigned char bytes[16];
  ptx::cp_async<16>(bytes, A);  //asynchronous
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  out[0] = bytes[3];  //one group too early
}

__global__ void round_tf32(unsigned* out, const float* x) { out[threadIdx.x] = ptx::to_tf32(x[threadIdx.x]); }
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("ptx"), TEXT, include_dirs=(GEMM,))


def result(
    kernels: Kernels, name: str, shape: tuple[int, ...], dtype: type, *inputs: npt.NDArray
) -> npt.NDArray:
    """What a warp of kernel `name`, which must be clean, wrote."""
    out = Buffer("out", shape, dtype, writable=True)
    arrays = [Buffer.of(f"in{i}", array) for i, array in enumerate(inputs)]
    report = kernels.run(name, out, *arrays, block=32)
    assert (report.ok, report.findings) == (True, ())
    return out.array.copy()


def pack(values: npt.NDArray, dtype: npt.DTypeLike) -> npt.NDArray[np.uint32]:
    """Registers: pairs of 16-bit values, the first in the lower half; or one 32-bit value each."""
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint32)


def fragments(a: npt.NDArray, b: npt.NDArray, c: npt.NDArray, run: int) -> tuple[npt.NDArray, ...]:
    """Every lane's elements, by the tables of "Matrix Fragments for mma.m16n8k16 with floating point type"
    (`run` 2) and "… for mma.m16n8k8" of tf32 (`run` 1)."""
    lane = np.arange(32)[:, None]
    g, t = lane // 4, lane % 4
    half = a.shape[1] // 2
    i = np.arange(4 * run)[None, :]
    upper = (i // run) % 2 == 0
    of_a = a[np.where(upper, g, g + 8), run * t + i % run + half * (i // run >= 2)]
    i = np.arange(2 * run)[None, :]
    of_b = b[run * t + i % run + half * (i // run), np.broadcast_to(g, (32, 2 * run))]
    i = np.arange(4)[None, :]
    of_c = c[g + 8 * (i >= 2), 2 * t + i % 2]
    return of_a, of_b, of_c


def matrix_of(d: npt.NDArray) -> npt.NDArray:
    lane, i = np.arange(32)[:, None], np.arange(4)[None, :]
    matrix = np.full((16, 8), np.nan)
    matrix[lane // 4 + 8 * (i >= 2), 2 * (lane % 4) + i % 2] = d.reshape(32, 4)
    return matrix


@pytest.mark.parametrize(
    ("name", "dtype", "depth", "run"),
    [("f16", np.float16, 16, 2), ("bf16", ml_dtypes.bfloat16, 16, 2), ("tf32", np.float32, 8, 1)],
)
def test_products_are_those_of_the_matrices(
    kernels: Kernels, name: str, dtype: npt.DTypeLike, depth: int, run: int
) -> None:
    random = np.random.default_rng(3)
    # Small integers: every product and sum is exact in float.
    a, b, c = (random.integers(-8, 9, size).astype(float) for size in ((16, depth), (depth, 8), (16, 8)))
    of_a, of_b, of_c = fragments(a, b, c, run)
    d = result(
        kernels, name, (32, 4), np.float32, pack(of_a, dtype), pack(of_b, dtype), of_c.astype(np.float32)
    )
    assert (matrix_of(d) == a @ b + c).all()


def test_tf32_operands_lose_their_lower_bits(kernels: Kernels) -> None:
    a, b = np.full((16, 8), 1 + 2.0**-11), np.ones((8, 8))
    of_a, of_b, of_c = fragments(a, b, np.zeros((16, 8)), 1)
    registers = (pack(of_a, np.float32), pack(of_b, np.float32), of_c.astype(np.float32))
    assert (result(kernels, "tf32", (32, 4), np.float32, *registers) == 8).all()


def test_rounding_to_tf32_is_to_nearest_with_ties_away_from_zero(kernels: Kernels) -> None:
    x = np.zeros(32, np.float32)
    x[:6] = [1.0, 1 + 2**-11, -1 - 2**-11, 1 + 2**-12, np.inf, 3.0e38]
    rounded = result(kernels, "round_tf32", (32,), np.uint32, x).view(np.float32)[:6]
    assert rounded[:5].tolist() == [1.0, 1 + 2**-10, -1 - 2**-10, 1.0, np.inf]
    assert rounded[5] == pytest.approx(3.0e38, rel=2**-11)
    x[0] = np.nan
    assert np.isnan(result(kernels, "round_tf32", (32,), np.uint32, x).view(np.float32)[0])


def test_matrices_are_loaded_as_the_document_spreads_them(kernels: Kernels) -> None:
    rows = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = result(kernels, "load", (32, 14), np.uint32, rows.reshape(-1)).view(np.uint16).reshape(32, 14, 2)
    lane = np.arange(32)
    plain = rows[:, lane // 4].reshape(4, 32, 4, 2)[:, lane, lane % 4]
    turned = rows.transpose(0, 2, 1)[:, lane // 4].reshape(4, 32, 4, 2)[:, lane, lane % 4]
    for expected, first in ((plain, 0), (turned, 7)):
        for count, start in ((1, 0), (2, 1), (4, 3)):
            got = out[:, first + start : first + start + count].transpose(1, 0, 2)
            assert (got == expected[:count]).all()


def test_a_row_needs_an_address_that_is_a_multiple_of_16(kernels: Kernels) -> None:
    out, a = Buffer("out", (32,), np.uint32, writable=True), Buffer.of("A", np.zeros(256, np.uint16))
    found = kernels.only("load_unaligned", out, a, Scalar("shift", np.int32(2)), block=32)
    assert found.kind is FindingKind.MISALIGNED
    assert found.message == "an access of 16 bytes at an address that is not a multiple of it"
    assert (found.memory, found.first) == ("shared rows[2]", kernels.place("unaligned"))


def test_each_lane_reads_the_row_that_it_names(kernels: Kernels) -> None:
    out, a = Buffer("out", (32,), np.uint32, writable=True), Buffer.of("A", np.zeros(64, np.uint16))
    found = kernels.run("load_too_early", out, a, block=32).findings
    races = [f for f in found if f.kind is FindingKind.RACE_SHARED]
    assert races
    for race in races:
        assert race.second is not None
        assert {race.first.line, race.second.line} == {
            kernels.place("stores").line,
            kernels.place("loads").line,
        }


@pytest.mark.parametrize("valid", [0, 3, 16])
def test_copies_fill_up_with_zeros(kernels: Kernels, valid: int) -> None:
    a = np.arange(1, 33, dtype=np.uint8)
    out, given = Buffer("out", (32,), np.uint8, writable=True), Buffer.of("A", a)
    assert kernels.findings("copy", out, given, Scalar("valid", np.int32(valid))) == ()
    expected = a.copy()
    expected[valid:16] = 0
    expected[28:] = 0
    assert out.array.tolist() == expected.tolist()


def test_a_copy_is_there_once_its_group_was_waited_for(kernels: Kernels) -> None:
    out, a = Buffer("out", (1,), np.uint8, writable=True), Buffer.of("A", np.ones(16, np.uint8))
    found = kernels.only("copy_unwaited", out, a)
    assert found.kind is FindingKind.PENDING_COPY
    assert (found.first, found.second) == (
        kernels.place("one group too early"),
        kernels.place("asynchronous"),
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_every_wrapper_compiles_for_a_gpu(tmp_path: Path) -> None:
    source = tmp_path / FILE
    source.write_text(TEXT)
    command = [
        "nvcc",
        "-cubin",
        "-arch=sm_90",
        "-std=c++17",
        "-Werror=all-warnings",
        f"-I{GEMM}",
        str(source),
    ]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "ptx.cubin")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
