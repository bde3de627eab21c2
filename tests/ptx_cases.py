"""Kernels around the wrappers of kernels/common/ptx.cuh, and by NumPy what each must write.

Where a lane's elements lie is written down here from the tables of the PTX ISA document, "Matrix Fragments for
mma.m16n8k16 with floating point type", "… for mma.m16n8k8" and "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

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


@dataclass(frozen=True)
class Case:
    """One launch of one warp: `kernel(out, *inputs, *scalars)` must write `expected`."""

    name: str
    kernel: str
    inputs: tuple[Array, ...]
    scalars: tuple[np.generic, ...]
    expected: Array


def cases() -> list[Case]:
    return [*_products(), _loads(), *_copies(), _rounding()]


def registers(values: Array, dtype: npt.DTypeLike) -> npt.NDArray[np.uint32]:
    """Pairs of 16-bit values, the first in the lower half; or one 32-bit value each."""
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint32)


def fragments(a: Array, b: Array, c: Array, run: int) -> tuple[Array, Array, Array]:
    """Every lane's elements; `run` neighbouring ones of k share a register (2 of 16 bits, or 1)."""
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


def _products() -> Iterator[Case]:
    random = np.random.default_rng(3)
    kinds: tuple[tuple[str, npt.DTypeLike, int, int], ...] = (
        ("f16", np.float16, 16, 2),
        ("bf16", ml_dtypes.bfloat16, 16, 2),
        ("tf32", np.float32, 8, 1),
    )
    for name, dtype, depth, run in kinds:
        # Small integers: every product and sum is exact in float.
        a, b, c = (random.integers(-8, 9, size).astype(float) for size in ((16, depth), (depth, 8), (16, 8)))
        of_a, of_b, of_c = fragments(a, b, c, run)
        inputs = (registers(of_a, dtype), registers(of_b, dtype), of_c.astype(np.float32))
        expected = fragments(a, b, a @ b + c, run)[2].astype(np.float32)
        yield Case(f"product {name}", name, inputs, (), expected)


def _loads() -> Case:
    rows = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    lane = np.arange(32)
    plain, turned = (
        matrices[:, lane // 4].reshape(4, 32, 4, 2)[:, lane, lane % 4]
        for matrices in (rows, rows.transpose(0, 2, 1))
    )
    parts = [matrices[:count] for matrices in (plain, turned) for count in (1, 2, 4)]
    expected = np.concatenate(parts).transpose(1, 0, 2)
    return Case(
        "loads", "load", (rows.reshape(-1),), (), np.ascontiguousarray(expected).view(np.uint32)[..., 0]
    )


def _copies() -> Iterator[Case]:
    a = np.arange(1, 33, dtype=np.uint8)
    for valid in (0, 3, 16):
        expected = a.copy()
        expected[valid:16] = 0
        expected[28:] = 0
        yield Case(f"copy of {valid} bytes", "copy", (a,), (np.int32(valid),), expected)


def _rounding() -> Case:
    """To nearest, ties away from zero."""
    x = np.ones(32, np.float32)
    x[:6] = [1 + 2**-11, -1 - 2**-11, 1 + 2**-12, 1 + 3 * 2**-12, np.inf, 2.0**-120]
    expected = np.ones(32, np.float32)
    expected[:6] = [1 + 2**-10, -1 - 2**-10, 1, 1 + 2**-10, np.inf, 2.0**-120]
    return Case("rounding", "round_tf32", (x,), (), expected.view(np.uint32))
