"""cuBLAS as the library's answer to a matrix product, for row-major arrays.

cuBLAS is column-major: its C (N×M) is our C (M×N) transposed, and Cᵀ = BᵀAᵀ, so the operands change
places and no array is touched.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.backend.cuda.cublas_api import CublasError, load_cublas
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Direction, Stage, Status
from sweeper.problem import Problem

__all__ = ["Cublas", "Gemm", "gemm_of", "neutral_environment"]

# Values of cublas_api.h and library_types.h.
_NO_TRANSPOSE = 0
_DEFAULT_ALGORITHM = -1
_DEFAULT_MATH = 0
_NO_REDUCED_REDUCTION = 16
_TYPES = {"float64": 1, "float32": 0, "tf32": 0, "float16": 2, "bfloat16": 14, "int8": 3, "int32": 10}
_ARCH_MISMATCH, _NOT_SUPPORTED = 8, 15

# Each of these would silently make the library compute in another precision than it was asked for.
_OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION")


@dataclass(frozen=True, slots=True)
class _Mode:
    """How the products of one precision class are computed: compute type, type of α and β, math mode."""

    compute: int
    name: str
    scale: Any
    math: int = _DEFAULT_MATH

    def __str__(self) -> str:
        more = ", no reduced-precision reduction" if self.math == _NO_REDUCED_REDUCTION else ""
        return f"{self.name}, default math{more}"


# By the class of the operands. float32 accumulates in float32 and never in TF32; 16-bit classes reduce
# in float32 too, as the kernels they are compared with must.
_MODES = {
    "float64": _Mode(70, "CUBLAS_COMPUTE_64F", np.float64),
    "float32": _Mode(68, "CUBLAS_COMPUTE_32F", np.float32),
    "tf32": _Mode(77, "CUBLAS_COMPUTE_32F_FAST_TF32", np.float32),
    "float16": _Mode(68, "CUBLAS_COMPUTE_32F", np.float32, _NO_REDUCED_REDUCTION),
    "bfloat16": _Mode(68, "CUBLAS_COMPUTE_32F", np.float32, _NO_REDUCED_REDUCTION),
    "int8": _Mode(72, "CUBLAS_COMPUTE_32I", np.int32),
}
_OUTPUTS = {
    "float64": ("float64",),
    "float32": ("float32",),
    "tf32": ("float32", "tf32"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32",),
}


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[M,N] = A[M,K]·B[K,N], row-major; the names of the arrays and the classes of operands and result."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    operands: str
    output: str

    @property
    def mode(self) -> str:
        return str(_MODES[self.operands])


def gemm_of(problem: Problem) -> Gemm:
    """The matrix product that `problem` is. Raises TrialFailed (infeasible) if cuBLAS has no such product."""
    contraction = problem.contraction
    operands = [a for a in problem.arrays if a.direction is Direction.IN]
    outputs = [a for a in problem.arrays if a.direction is not Direction.IN]
    if contraction is None or len(contraction.operands) != 2 or len(outputs) != 1:
        raise _no_equivalent("the problem is no matrix product")
    (left, right), out = contraction.operands, contraction.output
    two_by_two = len(left) == len(right) == 2 and len({*left, *right}) == 3
    product = two_by_two and left[1] == right[0] and out == left[0] + right[1]
    if not product or outputs[0].direction is not Direction.OUT:
        raise _no_equivalent(f"{contraction.text} is not mk,kn->mn")
    kernel = problem.spec.dtype.name
    if kernel not in _MODES or any(a.dtype.storage != problem.spec.dtype.storage for a in operands):
        raise _no_equivalent(f"operands of {' and '.join(a.dtype.name for a in operands)}")
    if outputs[0].dtype.name not in _OUTPUTS[kernel]:
        raise _no_equivalent(f"{kernel} operands with a result of {outputs[0].dtype.name}")
    sizes = contraction.sizes
    return Gemm(
        m=sizes[left[0]],
        n=sizes[right[1]],
        k=sizes[left[1]],
        a=operands[0].name,
        b=operands[1].name,
        c=outputs[0].name,
        operands=kernel,
        output=outputs[0].dtype.name,
    )


def _no_equivalent(why: str) -> TrialFailed:
    return TrialFailed(Status.INFEASIBLE, Stage.LAUNCH, f"no library equivalent: {why}")


def neutral_environment() -> None:
    """Drop environment variables that change the library's precision behind our back."""
    for name in _OVERRIDES:
        os.environ.pop(name, None)


class Cublas:
    """A cuBLAS handle in the current context, on one stream. Raises SetupError where there is no cuBLAS."""

    def __init__(self, stream_handle: int) -> None:
        neutral_environment()
        try:
            self._api = load_cublas()
            self._api.set_stream(stream_handle)
            self.version = self._api.version()
        except CublasError as error:
            raise SetupError(f"cuBLAS cannot be started: {error}") from error

    def describe(self, gemm: Gemm) -> str:
        """Library, version and how it computes."""
        return f"cuBLAS {self.version}, {gemm.mode}"

    def run(self, gemm: Gemm, a: int, b: int, c: int) -> None:
        """Queue C = A·B on device pointers.

        Raises TrialFailed: infeasible where cuBLAS declines the types or sizes, else a launch error.
        """
        mode = _MODES[gemm.operands]
        one, zero = np.array([1], mode.scale), np.array([0], mode.scale)
        operand, result = _TYPES[gemm.operands], _TYPES[gemm.output]
        m, n, k = gemm.m, gemm.n, gemm.k
        try:
            self._api.set_math_mode(mode.math)
            self._api.gemm_ex(
                *(_NO_TRANSPOSE, _NO_TRANSPOSE, n, m, k, one.ctypes.data),
                *(b, operand, n, a, operand, k, zero.ctypes.data),
                *(c, result, n, mode.compute, _DEFAULT_ALGORITHM),
            )
        except CublasError as error:
            if error.status in (_ARCH_MISMATCH, _NOT_SUPPORTED):
                raise _no_equivalent(f"cuBLAS does not support {gemm.operands} at {m}×{n}×{k}") from None
            raise TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, f"cuBLAS: {error}") from None

    def close(self) -> None:
        with contextlib.suppress(CublasError):
            self._api.close()
