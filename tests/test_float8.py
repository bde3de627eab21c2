"""The class float8_e4m3: its values, its results in bfloat16, and a bound that tensor cores of Hopper meet."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from bench_rig import OnBench, sizes
from specs import array, contraction, gemm_spec, spec

from sweeper.backend.cuda.cublas_gemm import gemm_of
from sweeper.backend.cuda.tensor_maps import _type
from sweeper.device import target
from sweeper.dtypes import DTYPES, dtype
from sweeper.model import KernelSpec
from sweeper.problem import resolve
from sweeper.problem.tensor_maps import ResolvedTensorMap
from sweeper.problem.verify import is_poison, pattern

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
STEP = 32  # products that one instruction adds up


def float8_spec(**changes: object) -> KernelSpec:
    arguments = (
        array("A", ["M", "K"]),
        array("B", ["K", "N"]),
        array("C", ["M", "N"], "out", dtype="bfloat16"),
    )
    return spec(
        "f8",
        arguments,
        dtype="float8_e4m3",
        reference=contraction("mk,kn->mn"),
        dims=("M", "N", "K"),
        **changes,
    )


def problem_of(k, m=40, n=48):
    return resolve(float8_spec(), {"M": m, "N": n, "K": k}, None, seed=11)


def exponents(x):
    return np.frexp(np.where(x == 0, np.finfo(float).tiny, x))[1]


def as_tensor_cores_sum(a, b, promote=None):
    """C = A·B with what is added of a step cut to 14 bits of the largest; added up apart after `promote` terms."""
    total, c = np.zeros((2, a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], STEP):
        products = a[:, start : start + STEP, None] * b[None, start : start + STEP, :]
        addends = np.concatenate([c[:, None, :], products], axis=1)
        unit = np.exp2(exponents(addends).max(axis=1) - 14.0)
        c = (np.trunc(addends / unit[:, None, :]) * unit[:, None, :]).sum(axis=1)
        if promote and (start + STEP) % promote == 0:
            total, c = total + c, np.zeros_like(c)
    return total + c


def checked(problem, compute):
    inputs = problem.inputs()
    wide = [inputs[name].astype(np.float64) for name in ("A", "B")]
    return problem.check({"C": compute(*wide).astype(ml_dtypes.bfloat16)}, problem.reference(inputs))


@pytest.mark.parametrize("name", ["fp8", "e4m3", "float8_e4m3fn", "float8_e4m3"])
def test_the_class_has_the_names_that_people_use(name):
    assert dtype(name).storage == E4M3
    assert dtype(name).ctype == "__nv_fp8_e4m3"


def test_results_are_stored_in_bfloat16_and_those_of_other_classes_as_before():
    stored = {name: d.result.name for name, d in DTYPES.items()}
    assert stored["float8_e4m3"] == "bfloat16"
    assert stored["int8"] == "int32"
    assert all(
        stored[name] == name for name in ("float64", "float32", "tf32", "float16", "bfloat16", "int32")
    )


@pytest.mark.parametrize("k", [32, 512, 4096, 16384])
@pytest.mark.parametrize("promote", [None, 128], ids=["in the tensor cores", "added in float32"])
def test_sums_of_14_bits_pass(k, promote):
    check = checked(problem_of(k), lambda a, b: as_tensor_cores_sum(a, b, promote))
    assert check.passed
    assert 0 < check.error_ratio < 0.6


@pytest.mark.parametrize("k", [64, 4096])
def test_sums_in_float32_pass(k):
    assert checked(problem_of(k), lambda a, b: a @ b).passed


@pytest.mark.parametrize(("k", "missing"), [(64, 32), (512, 128), (4096, 128), (16384, 2048)])
def test_zeros_and_a_missing_part_of_k_fail(k, missing):
    for terms in (0, k - missing):
        check = checked(problem_of(k), lambda a, b, terms=terms: a[:, :terms] @ b[:terms])
        assert check.wrong > check.checked / 3


def test_the_bound_of_other_classes_does_not_know_of_it():
    assert all(d.sum_bits == 0 for name, d in DTYPES.items() if name != "float8_e4m3")


def test_poison_is_the_one_nan_of_the_class():
    bits = pattern(E4M3)
    assert np.isnan(np.array([bits], np.uint8).view(E4M3).astype(np.float32))[0]
    assert is_poison(np.array([bits, 0x38], np.uint8).view(E4M3)).tolist() == [True, False]


def test_inputs_are_rounded_to_the_class():
    data = problem_of(64).inputs()["A"]
    assert data.dtype == E4M3
    values = data.astype(np.float32)
    assert np.abs(values).max() <= 1
    assert len(np.unique(values)) > 60


def test_its_rate_is_that_of_int8_where_there_are_instructions_for_it():
    h200 = target("h200").flops_per_clock_per_sm
    assert h200["float8_e4m3"] == h200["int8"] == 2 * h200["float16"]
    a100 = target("a100").flops_per_clock_per_sm
    assert a100["float8_e4m3"] == a100["float32"]


@pytest.mark.parametrize(("name", "number"), [("float8_e4m3", 0), ("int8", 0), ("tf32", 11), ("float32", 7)])
def test_tma_moves_it_as_bytes_and_rounds_what_becomes_tf32(name, number):
    """Numbers of CUtensorMapDataType: UINT8, TFLOAT32, FLOAT32."""
    made = ResolvedTensorMap("m", "A", DTYPES[name], (64, 8), (64,), (64, 8), 0, False)
    assert _type(made) == number


CONVERSIONS = r"""
template <typename T> __global__ void product(const T* A, const T* B, float* C, float* R, int N) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  C[i] = static_cast<float>(A[i]);
  R[i] = static_cast<float>(T(static_cast<float>(B[i]) * 1.2345f));
}
"""
CONVERSIONS_PY = """
import ml_dtypes
import numpy as np
def reference(A, B):
    scaled = B.astype(np.float32) * np.float32(1.2345)
    rounded = scaled.astype(ml_dtypes.float8_e4m3fn)
    return {"C": A.astype(np.float32), "R": rounded.astype(np.float32)}
"""


class TestInTheEmulator(OnBench):
    backend = "emulator"

    def test_conversions_are_those_of_the_class(self, bench, tmp_path):
        (bench.folder / "conversions.py").write_text(CONVERSIONS_PY)
        arrays = [
            {"name": "A", "shape": ["N"], "direction": "in", "fill": "normal"},
            {"name": "B", "shape": ["N"], "direction": "in", "fill": "normal"},
            {"name": "C", "shape": ["N"], "direction": "out", "dtype": "float32"},
            {"name": "R", "shape": ["N"], "direction": "out", "dtype": "float32"},
        ]
        kernel = bench.load(
            "conversions",
            CONVERSIONS,
            dtype="float8_e4m3",
            dims=["N"],
            template=["T"],
            launch={"block": [64], "grid": ["ceil(N / 64)"]},
            args=[*arrays, *sizes("N")],
            reference={"python": "conversions.py"},
            tolerance=1e-9,
        )
        assert bench.measure(kernel, {"N": 3000}).check.passed

    def test_a_kernel_written_for_any_class_serves_it(self, bench):
        outcome = bench.measure(bench.shipped("naive", "float8_e4m3"), {"M": 17, "N": 33, "K": 70})
        assert outcome.check.passed


def test_only_cublaslt_has_its_matrix_product():
    gemm = gemm_of(problem_of(64))
    assert (gemm.operand_type, gemm.output_type) == (28, 14)
    assert not gemm.mode.plain
    assert gemm.rounds_its_result
    assert gemm_of(resolve(gemm_spec(), {"M": 2, "N": 2, "K": 2}, None, seed=1)).mode.plain


@pytest.mark.parametrize(("promote", "passes"), [(None, False), (128, True)])
def test_data_of_one_sign_needs_parts_that_are_added_in_float32(promote, passes):
    """What is cut off of it has one sign too, and a sum that has grown large takes no small products any more."""
    problem = problem_of(8192, 8, 8)
    inputs = {name: np.abs(data.astype(np.float32)).astype(E4M3) for name, data in problem.inputs().items()}
    wide = [inputs[name].astype(np.float64) for name in ("A", "B")]
    result = as_tensor_cores_sum(*wide, promote).astype(ml_dtypes.bfloat16)
    assert problem.check({"C": result}, problem.reference(inputs)).passed == passes
