"""Number formats and mathematical functions, against NumPy's."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation_rig import Rig

BF16 = ml_dtypes.bfloat16
EVERY_HALF = np.arange(65536, dtype=np.uint16)
FORMATS = {
    "half": ("cuda_fp16.h", "__half", np.float16, "__half2float", "__float2half_rn", "__half2"),
    "bfloat16": (
        "cuda_bf16.h",
        "__nv_bfloat16",
        BF16,
        "__bfloat162float",
        "__float2bfloat16_rn",
        "__nv_bfloat162",
    ),
}
# Without the compiler's own 16-bit type the headers convert bit by bit.
VARIANTS = [("half", ()), ("half", (("SIMT_SOFTWARE_HALF", "1"),)), ("bfloat16", ())]


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    """Bit for bit, where any NaN equals any other."""
    bits = f"u{got.dtype.itemsize}"
    with np.errstate(all="ignore"):
        nan = np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return got.dtype == expected.dtype and bool(np.all(nan | (got.view(bits) == expected.view(bits))))


@pytest.mark.parametrize(("name", "defines"), VARIANTS)
def test_widening_is_exact_for_every_value(rig: Rig, name: str, defines: Any) -> None:
    header, ctype, dtype, widen, *_ = FORMATS[name]
    module = rig.module(
        f"#include <{header}>\n__global__ void kernel(float* out, const {ctype}* in)"
        f" {{ int i = blockIdx.x * 256 + threadIdx.x; out[i] = {widen}(in[i]); }}",
        defines=defines,
    )
    values = EVERY_HALF.view(dtype)
    got = rig.out(module, 65536, inputs={"in": values}, grid=256, block=256)
    assert same(got, values.astype(np.float32))


@pytest.mark.parametrize(("name", "defines"), VARIANTS)
def test_narrowing_rounds_to_nearest_even(rig: Rig, name: str, defines: Any) -> None:
    header, ctype, dtype, _, narrow, _ = FORMATS[name]
    module = rig.module(
        f"#include <{header}>\n__global__ void kernel({ctype}* out, const float* in)"
        f" {{ int i = blockIdx.x * 256 + threadIdx.x; out[i] = {narrow}(in[i]); }}",
        defines=defines,
    )
    every = EVERY_HALF.view(dtype).astype(np.float32)
    random = np.random.default_rng(1).integers(0, 2**32, 10240, dtype=np.uint32).view(np.float32)
    special = np.array(
        [0, -0.0, 65519.99, 65520, 1e-8, 2.0**-25, 3 * 2.0**-26, 2.0**-133, np.inf, -np.inf, np.nan, 3.4e38]
    )
    with np.errstate(all="ignore"):
        ties = (every[:-1] + every[1:]) / 2
        beside = np.nextafter(every, np.float32(1))
        everything = np.concatenate(
            [random, every[::16], beside[::16], ties[::8], special.astype(np.float32)]
        )
        everything = np.resize(everything, -(-everything.size // 256) * 256)
        expected = everything.astype(dtype)
    got = rig.out(
        module, everything.size, dtype, inputs={"in": everything}, grid=everything.size // 256, block=256
    )
    assert same(got, expected)


ARITHMETIC = {
    "a + b": np.add,
    "a - b": np.subtract,
    "a * b": np.multiply,
    "a / b": np.divide,
    "-a": lambda a, b: -a,
    "a < b ? a : b": lambda a, b: np.where(a < b, a, b),
    "[&] { T x = a; x += b; x *= b; return x; }()": lambda a, b: (a + b) * b,
    "__hadd(a, b)": np.add,
    "__hmul(a, b)": np.multiply,
    "__hmax(a, b)": np.fmax,
    "__habs(a)": lambda a, b: np.abs(a),
    "hsqrt(__habs(a))": lambda a, b: np.sqrt(np.abs(a)),
    "(P(a, b) + P(b, a)).y": np.add,
    "__hmul2(P(a, b), P(b, b)).x": np.multiply,
}


@pytest.mark.parametrize("name", list(FORMATS))
def test_arithmetic_rounds_each_result_once(rig: Rig, name: str) -> None:
    header, ctype, dtype, _, _, pair = FORMATS[name]
    body = "".join(f"out[{i} * 512 + threadIdx.x] = {text};\n" for i, text in enumerate(ARITHMETIC))
    module = rig.module(
        f"#include <{header}>\nusing T = {ctype};\nusing P = {pair};\n"
        "__global__ void kernel(T* out, const T* as, const T* bs)"
        f" {{ T a = as[threadIdx.x], b = bs[threadIdx.x];\n{body} }}"
    )
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(512).astype(dtype) for _ in "ab")
    got = rig.out(module, (len(ARITHMETIC), 512), dtype, inputs={"as": a, "bs": b}, block=512)
    for row, (text, function) in zip(got, ARITHMETIC.items(), strict=True):
        assert same(row, function(a, b)), text


def test_a_fused_half_multiply_add_keeps_the_product(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_fp16.h>
        __global__ void kernel(half* out, half a, half b, half c) { out[0] = __hfma(a, b, c); out[1] = a * b + c; }""")
    a = np.float16(1 + 2**-10)
    scalars = {"a": a, "b": a, "c": np.float16(-1 - 2**-9)}
    assert rig.out(module, 2, np.float16, scalars=scalars).tolist() == [2.0**-20, 0.0]


def test_half_and_bfloat16_are_passed_by_value_and_summed_atomically(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        __global__ void kernel(__half* out, __nv_bfloat16* wide, __half x, __nv_bfloat16 y) {
          atomicAdd(out, x);
          atomicAdd(wide, y);
          atomicAdd((__half2*)(out + 2), __floats2half2_rn(1.0f, 2.0f));
        }""")
    from sweeper.emulation import Buffer, Scalar

    out, wide = Buffer("out", (4,), np.float16, writable=True), Buffer("wide", (1,), BF16, writable=True)
    out.array[:] = 0
    wide.array[:] = 0
    arguments = [out, wide, Scalar("x", np.float16(0.5)), Scalar("y", BF16(0.25))]
    assert rig.run(module, *arguments, block=32).ok
    assert out.array.tolist() == [16, 0, 32, 64]
    assert float(wide.array[0]) == 8
    report = rig.run(module, *arguments[:3], Scalar("y", np.float16(0.25)), block=32)
    assert "takes a __nv_bfloat16 of 2 bytes, given is a __half of 2 bytes" in report.message


def test_conversions_of_packed_and_integer_values(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        __global__ void kernel(float* out) {
          half2 h = __floats2half2_rn(1.5f, -2.0f);
          __nv_bfloat162 b = __floats2bfloat162_rn(3.0f, 4.0f);
          float all[] = {__low2float(h), __half2float(__high2half(h)), __half22float2(h).y, (float)__half2int_rn(2.5),
                         __half2float(__ushort_as_half(0x3c00)), (float)__half_as_ushort(half(1.0f)),
                         __low2float(b), __bfloat1622float2(b).y, (float)__bfloat16_as_ushort(__nv_bfloat16(1.0f)),
                         float(__int2half_rn(7)), static_cast<float>(half(3) < half(4))};
          for (int i = 0; i < 11; ++i) out[i] = all[i];
        }""")
    assert rig.out(module, 11).tolist() == [1.5, -2, -2, 2, 1, 0x3C00, 3, 4, 0x3F80, 7, 1]


X = np.array([0.1, 0.5, 1.0, 1.7, 2.5, 3.25, 9.0], np.float32)
EXACT = {
    "rsqrtf(x)": lambda x: 1 / np.sqrt(x),
    "rsqrt(x)": lambda x: 1 / np.sqrt(x),
    "sqrt(x)": np.sqrt,
    "__fsqrt_rn(x)": np.sqrt,
    "__frcp_rn(x)": lambda x: 1 / x,
    "__fdividef(x, 3.0f)": lambda x: x / 3,
    "fmaf(x, x, -1.0f)": lambda x: x * x - 1,
    "__fmaf_rn(x, 2.0f, 1.0f)": lambda x: 2 * x + 1,
    "fma(x, x, x)": lambda x: x * x + x,
    "expf(x)": np.exp,
    "exp(x)": np.exp,
    "__expf(x)": np.exp,
    "logf(x)": np.log,
    "__logf(x)": np.log,
    "log2(x)": np.log2,
    "log10f(x)": np.log10,
    "exp2f(x)": np.exp2,
    "exp10f(x)": lambda x: 10.0**x,
    "__powf(x, 1.5f)": lambda x: x**1.5,
    "pow(x, 3)": lambda x: x**3,
    "sinf(x)": np.sin,
    "__sinf(x)": np.sin,
    "cos(x)": np.cos,
    "tanhf(x)": np.tanh,
    "tanh(x)": np.tanh,
    "sinpif(x)": lambda x: np.sin(np.pi * x),
    "[&] { float s, c; sincosf(x, &s, &c); return s * c; }()": lambda x: np.sin(x) * np.cos(x),
    "[&] { float s, c; __sincosf(x, &s, &c); return s + c; }()": lambda x: np.sin(x) + np.cos(x),
    "floorf(x) + ceil(x)": lambda x: np.floor(x) + np.ceil(x),
    "rintf(x)": np.rint,
    "truncf(-x)": lambda x: np.trunc(-x),
    "roundf(x)": lambda x: np.floor(x + 0.5),
    "fabsf(-x) + fabs(-x)": lambda x: 2 * x,
    "abs(-x)": lambda x: x,
    "fmodf(x, 0.75f)": lambda x: np.fmod(x, 0.75),
    "fminf(x, 1.0f) + fmaxf(x, 2.0f)": lambda x: np.minimum(x, 1) + np.maximum(x, 2),
    "min(x, 1.0f) + max(x, 2.0f)": lambda x: np.minimum(x, 1) + np.maximum(x, 2),
    "copysignf(x, -1.0f)": lambda x: -x,
    "__saturatef(x - 0.5f)": lambda x: np.clip(x - 0.5, 0, 1),
    "hypotf(x, 1.0f)": lambda x: np.hypot(x, 1),
    "__fadd_rn(x, 1.0f) * __fmul_rn(x, x) - __fsub_rn(x, 2.0f)": lambda x: (x + 1) * x * x - (x - 2),
    "(float)__float2int_rn(x) + __float2int_rz(x) + __float2int_ru(x) + __float2int_rd(x)": lambda x: (
        np.rint(x) + np.trunc(x) + np.ceil(x) + np.floor(x)
    ),
    "(float)__double2float_rn((double)x) + __int2float_rn((int)x) + __uint2float_rn(2u)": lambda x: (
        x + np.trunc(x) + 2
    ),
    "(isnan(x) || isinf(x / 0.0f) + !isfinite(x)) ? 1.0f : 0.0f": np.ones_like,
    "erff(x) + lgammaf(x) * 0": np.vectorize(math.erf),
}


def test_functions_of_float(rig: Rig) -> None:
    body = "".join(f"out[{i} * blockDim.x + threadIdx.x] = {text};\n" for i, text in enumerate(EXACT))
    module = rig.module(
        f"__global__ void kernel(float* out, const float* in) {{ float x = in[threadIdx.x];\n{body}}}"
    )
    got = rig.out(module, (len(EXACT), X.size), inputs={"in": X}, block=X.size)
    for row, (text, function) in zip(got, EXACT.items(), strict=True):
        expected = function(X.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(row, expected, rtol=3e-6, atol=1e-6, err_msg=text)


INTEGERS = {
    "min(3, -2) + max(3u, 2u)": 1,
    "min(-1, 5u)": 5,
    "__popc(0xf0f0u)": 8,
    "__clz(1) + 100 * __clz(0)": 3231,
    "__clzll(1)": 63,
    "__ffs(8) + 100 * __ffs(0)": 4,
    "__ffsll(1ll << 40)": 41,
    "__popcll(~0ull)": 64,
    "(int)__brev(1u)": -(2**31),
    "__brevll(1ull) >> 60": 8,
    "__mulhi(1 << 20, 1 << 20)": 256,
    "__umulhi(~0u, 2u)": 1,
    "__umul64hi(1ull << 40, 1ull << 40) >> 8": 256,
    "__mul24(1000, -3)": -3000,
    "__sad(3, 10, 5u)": 12,
    "(int)__byte_perm(0x33221100, 0x77665544, 0x7160)": 0x77116600,
    "(int)__funnelshift_l(0x80000000u, 1u, 1)": 3,
    "(int)__funnelshift_r(2u, 1u, 1)": -(2**31) + 1,
    "__dp4a(0x01020304, 0x01010101, 10)": 20,
    "__dp4a(int(0xff000000), 0x02000000, 0)": -2,
    "__float_as_int(1.0f)": 0x3F800000,
    "(int)__int_as_float(0x40400000)": 3,
    "__float_as_uint(-0.0f) >> 31": 1,
    "(long long)__longlong_as_double(0x4008000000000000ll)": 3,
    "__double2hiint(1.0) >> 20": 0x3FF,
    "(int)__hiloint2double(0x40080000, 0)": 3,
    "__float2int_rn(3e9f)": 2**31 - 1,
    "__float2uint_rn(-3.0f)": 0,
    '__float2int_rn(nanf(""))': 0,
    "__double2ll_rz(-2.9)": -2,
    "warpSize": 32,
    "sizeof(float4) + 100 * alignof(float4)": 1616,
    "alignof(double2) + sizeof(float3)": 28,
    "alignof(char4) * 10 + alignof(short2)": 44,
    "make_int3(1, 2, 3).z + make_uint2(4, 5).y + (int)make_double4(1, 2, 3, 4).w": 12,
    "dim3(5).y + dim3(2, 3).z + dim3(1, 2, 3).z": 5,
    "__ldg(&table[2]) + __ldcg(&table[1]) + __ldcs(&table[0])": 60,
    "[&] { int i = 3, *p = &i; __stcg(p, 9); return i; }()": 9,
    "__CUDA_ARCH__": 900,
    "[] { auto twice = [](auto v) { return v + v; }; return twice(4); }()": 8,
    "clock64() - clock64() <= 0": 1,
    "(int)(CUDART_PI_F * 100) + (CUDART_INF_F > 1)": 315,
}


def test_integer_intrinsics_types_and_conversions(rig: Rig) -> None:
    body = "".join(f"out[{i}] = {text};\n" for i, text in enumerate(INTEGERS))
    module = rig.module(
        "#include <math_constants.h>\n__device__ int table[3] = {10, 20, 30};\n"
        f"__global__ void kernel(long long* out) {{\n{body} }}"
    )
    got = rig.out(module, len(INTEGERS), np.int64).tolist()
    assert dict(zip(INTEGERS, got, strict=True)) == INTEGERS


def test_standard_headers_can_be_included_beside_cudas(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_runtime.h>
        #include "device_launch_parameters.h"
        #include <cmath>
        #include <math.h>
        #include <cstdint>
        #include <cstdio>
        #include <stdlib.h>
        #include <algorithm>
        #include <limits>
        #include <type_traits>
        #include <utility>
        #include <vector>
        using namespace std;
        __global__ void kernel(float* out) {
          float x = 2.25f;
          out[0] = sqrt(x) + std::sqrt(x) + fabs(-x) + std::abs(-x) + pow(x, 2.0f);
          out[0] += std::numeric_limits<float>::epsilon();
          out[1] = isnan(x) + std::isnan(x) + std::min(3, 4) + (int)max(1.0f, x);
        }""")
    assert rig.out(module, 2).tolist() == pytest.approx([12.5625, 5])


def test_fast_math_still_sees_nan_and_infinity(rig: Rig) -> None:
    module = rig.module(
        "__global__ void kernel(int* out, float x, float y) { out[0] = isnan(x), out[1] = x != x, out[2] = isinf(y); }",
        options=("-use_fast_math",),
    )
    scalars = {"x": np.float32(np.nan), "y": np.float32(np.inf)}
    assert rig.out(module, 3, np.int32, scalars=scalars).tolist() == [1, 1, 1]


def test_explicit_roundings_are_not_contracted(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(float* out, float a, float b) {
          out[0] = __fadd_rn(__fmul_rn(a, a), -b);
          out[1] = __fmaf_rn(a, a, -b);
        }""")
    a = np.float32(1 + 2**-12)
    got = rig.out(module, 2, scalars={"a": a, "b": np.float32(a * a)})
    assert got[0] == 0
    assert got[1] == 2.0**-24


MATRIX = """
#include <mma.h>
using namespace nvcuda;
__global__ void kernel(OUT* d, const IN* a, const IN* b, const OUT* c) {
  wmma::fragment<wmma::matrix_a, M, N, K, TYPE, wmma::A_LAYOUT> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, TYPE, wmma::B_LAYOUT> fb;
  wmma::fragment<wmma::accumulator, M, N, K, OUT> fc, fd;
  wmma::load_matrix_sync(fa, a, wmma::A_LD);
  wmma::load_matrix_sync(fb, b, wmma::B_LD);
  wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2;
  wmma::mma_sync(fd, fa, fb, fc);
  wmma::store_matrix_sync(d, fd, N, wmma::mem_row_major);
}
"""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("ctype", "fragment", "dtype", "result", "shape"),
    [
        ("half", "half", np.float16, "float", (16, 16, 16)),
        ("half", "half", np.float16, "half", (32, 8, 16)),
        ("__nv_bfloat16", "__nv_bfloat16", BF16, "float", (8, 32, 16)),
        ("float", "wmma::precision::tf32", np.float32, "float", (16, 16, 8)),
        ("double", "double", np.float64, "double", (8, 8, 4)),
        ("signed char", "signed char", np.int8, "int", (16, 16, 16)),
    ],
)
def test_matrix_fragments_multiply(
    rig: Rig,
    ctype: str,
    fragment: str,
    dtype: Any,
    result: str,
    shape: tuple[int, int, int],
    transposed: bool,
) -> None:
    m, n, k = shape
    text = MATRIX.replace("wmma::A_LD", str(m if transposed else k)).replace(
        "wmma::B_LD", str(k if transposed else n)
    )
    layout = "col_major" if transposed else "row_major"
    defines = {
        "IN": ctype,
        "TYPE": fragment,
        "OUT": result,
        "M": m,
        "N": n,
        "K": k,
        "A_LAYOUT": layout,
        "B_LAYOUT": layout,
    }
    module = rig.module(text, defines=tuple((name, str(value)) for name, value in defines.items()))
    random = np.random.default_rng(3)
    a, b = (random.integers(-8, 8, size).astype(dtype) for size in ((m, k), (k, n)))
    out = {"float": np.float32, "half": np.float16, "double": np.float64, "int": np.int32}[result]
    c = random.integers(-8, 8, (m, n)).astype(out)
    given = [np.asfortranarray(x).T.copy() if transposed else x for x in (a, b)]
    got = rig.out(module, (m, n), out, inputs={"a": given[0], "b": given[1], "c": c}, block=32)
    assert np.array_equal(got, (a.astype(np.float64) @ b.astype(np.float64) + 2 * c).astype(out))


def test_tf32_reads_ten_bits_of_significand(rig: Rig) -> None:
    text = MATRIX.replace("wmma::A_LD", "8").replace("wmma::B_LD", "16")
    defines = {"IN": "float", "TYPE": "wmma::precision::tf32", "OUT": "float", "M": 16, "N": 16, "K": 8}
    defines |= {"A_LAYOUT": "row_major", "B_LAYOUT": "row_major"}
    module = rig.module(text, defines=tuple((name, str(value)) for name, value in defines.items()))
    a, b = np.zeros((16, 8), np.float32), np.eye(8, 16, dtype=np.float32)
    a[0, :2] = 1 + 2**-10, 1 + 2**-11
    got = rig.out(module, (16, 16), inputs={"a": a, "b": b, "c": np.zeros((16, 16), np.float32)}, block=32)
    assert got[0, :2].tolist() == [1 + 2**-10, 1]
