"""Kernels around the wrappers of kernels/common/ptx.cuh, and by NumPy what each must write.

Where a lane's elements lie is written down here from the tables of the PTX ISA document, "Matrix Fragments for
mma.m16n8k16 with floating point type", "… for mma.m16n8k8", "… for mma.m16n8k32", "… for mma.m8n8k4 with .f64
floating point type" and "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_TEXT = """#include "../common/ptx.cuh"

template <class T> __device__ void stage(T* to, const T* from, int count) {
  for (int i = threadIdx.x; i < count; i += 32) to[i] = from[i];
  __syncwarp();
}

template <int OfA, int OfB, int OfC, class Register, class Sum, class Multiply>
__device__ void product(Sum* D, const Register* A, const Register* B, const Sum* C, Multiply multiply) {
  const int lane = threadIdx.x;
  Register a[OfA], b[OfB];
  Sum c[OfC], d[OfC];
  for (int i = 0; i < OfA; ++i) a[i] = A[OfA * lane + i];
  for (int i = 0; i < OfB; ++i) b[i] = B[OfB * lane + i];
  for (int i = 0; i < OfC; ++i) c[i] = C[OfC * lane + i];
  multiply(d, a, b, c);
  for (int i = 0; i < OfC; ++i) D[OfC * lane + i] = d[i];
}

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


_PRODUCT = """
struct NAME_product {
  __device__ void operator()(SUM (&d)[OF_C], const REGISTER (&a)[OF_A], const REGISTER (&b)[OF_B],
                             const SUM (&c)[OF_C]) const {
    ptx::INSTRUCTION(d, a, b, c);
  }
};

__global__ void NAME(SUM* D, const REGISTER* A, const REGISTER* B, const SUM* C) {
  product<OF_A, OF_B, OF_C>(D, A, B, C, NAME_product{});
}
"""


@dataclass(frozen=True)
class Product:
    """A product of `rows`×`depth` and `depth`×8; `run` neighbouring elements of k share a register."""

    name: str
    instruction: str
    dtype: npt.DTypeLike
    sums: npt.DTypeLike
    rows: int
    depth: int
    run: int

    @property
    def text(self) -> str:
        """The kernel of this name: one warp, one product."""
        types = {"float32": "float", "int32": "int", "float64": "double"}
        values = {
            "NAME": self.name,
            "INSTRUCTION": self.instruction,
            "REGISTER": "double" if self.dtype is np.float64 else "unsigned",
            "SUM": types[np.dtype(self.sums).name],
            "OF_A": str(self.rows * self.depth // 32 // self.run),
            "OF_B": str(self.depth // 4 // self.run),
            "OF_C": str(self.rows // 4),
        }
        text = _PRODUCT
        for key, value in values.items():
            text = text.replace(key, value)
        return text


PRODUCTS = (
    Product("f16", "mma_m16n8k16_f16", np.float16, np.float32, 16, 16, 2),
    Product("bf16", "mma_m16n8k16_bf16", ml_dtypes.bfloat16, np.float32, 16, 16, 2),
    Product("tf32", "mma_m16n8k8_tf32", np.float32, np.float32, 16, 8, 1),
    Product("s8", "mma_m16n8k32_s8", np.int8, np.int32, 16, 32, 4),
    Product("f64_few_rows", "mma_m8n8k4_f64", np.float64, np.float64, 8, 4, 1),
    Product("f64_k4", "mma_m16n8k4_f64", np.float64, np.float64, 16, 4, 1),
    Product("f64_k8", "mma_m16n8k8_f64", np.float64, np.float64, 16, 8, 1),
    Product("f64_k16", "mma_m16n8k16_f64", np.float64, np.float64, 16, 16, 1),
)
TEXT = _TEXT + "".join(product.text for product in PRODUCTS)


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


def registers(values: Array, dtype: npt.DTypeLike) -> Array:
    """As many values as 32 bits hold in each, the first in the lowest bits; doubles as they are."""
    packed = np.ascontiguousarray(values.astype(dtype))
    return packed if packed.itemsize == 8 else packed.view(np.uint32)


def fragments(a: Array, b: Array, c: Array, run: int) -> tuple[Array, Array, Array]:
    """Every lane's elements; `run` neighbouring ones of k share a register."""
    lane = np.arange(32)[:, None]
    g, t = lane // 4, lane % 4
    rows, depth = a.shape
    i = np.arange(rows * depth // 32)[None, :]
    half, beyond = i // run % (rows // 8), i // run // (rows // 8)
    of_a = a[g + 8 * half, run * (t + 4 * beyond) + i % run]
    i = np.arange(depth // 4)[None, :]
    of_b = b[run * (t + 4 * (i // run)) + i % run, np.broadcast_to(g, (32, depth // 4))]
    i = np.arange(rows // 4)[None, :]
    of_c = c[g + 8 * (i >= 2), 2 * t + i % 2]
    return of_a, of_b, of_c


def _products() -> Iterator[Case]:
    random = np.random.default_rng(3)
    for p in PRODUCTS:
        # Small integers: every product and sum is exact in float.
        shapes = ((p.rows, p.depth), (p.depth, 8), (p.rows, 8))
        a, b, c = (random.integers(-8, 9, size).astype(float) for size in shapes)
        of_a, of_b, of_c = fragments(a, b, c, p.run)
        inputs = (registers(of_a, p.dtype), registers(of_b, p.dtype), of_c.astype(p.sums))
        expected = fragments(a, b, a @ b + c, p.run)[2].astype(p.sums)
        yield Case(f"product {p.name}", p.name, inputs, (), expected)


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
