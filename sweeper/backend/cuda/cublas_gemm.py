"""Which matrix product a problem is, and how NVIDIA's libraries are asked to compute it.

cuBLAS and cuBLASLt are column-major: their C (N×M) is our C (M×N) transposed, and Cᵀ = BᵀAᵀ, so the operands
change places and no array is touched. A leading dimension is the same number in either order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.errors import TrialFailed
from sweeper.model import Direction, Stage, Status
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.contraction import Contraction

__all__ = ["Gemm", "Mode", "gemm_of", "neutral_environment", "no_equivalent"]

# Values of library_types.h and cublas_api.h.
_TYPES = {
    "float64": 1, "float32": 0, "tf32": 0, "tf32x3": 0, "float16": 2, "bfloat16": 14, "float8_e4m3": 28, "int8": 3,
    "int32": 10,
}  # fmt: skip
_DEFAULT_MATH = 0
_NO_REDUCED_REDUCTION = 16

# Each of these would silently make the libraries compute in another precision than they were asked for.
_OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION")


@dataclass(frozen=True, slots=True)
class Mode:
    """How the products of one precision class are computed: compute type, type of α and β, math mode.

    `plain` is whether cublasGemmEx has the class; `fast_sums` whether cuBLASLt may leave sums in the tensor
    cores throughout, which keep fewer bits there than their result has.
    """

    compute: int
    name: str
    scale: str
    math: int = _DEFAULT_MATH
    plain: bool = True
    fast_sums: bool = False

    @property
    def scale_type(self) -> int:
        """The library's number for the type of α and β."""
        return _TYPES[self.scale]

    @property
    def reduces_in_full(self) -> bool:
        """Whether partial sums may not be rounded to the output's type on their way."""
        return self.math == _NO_REDUCED_REDUCTION

    def factors(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """α = 1 and β = 0, where a host pointer can be taken."""
        kind = np.dtype(self.scale)
        return np.ones(1, kind), np.zeros(1, kind)

    @property
    def math_name(self) -> str:
        """`default`, `TF32 allowed`, or what restricts the default."""
        if "TF32" in self.name:
            return "TF32 allowed"
        return "default, no reduced-precision reduction" if self.reduces_in_full else "default"

    def __str__(self) -> str:
        more = ", no reduced-precision reduction" if self.reduces_in_full else ""
        return f"{self.name}, default math{more}"


# By the class of the operands. float32 accumulates in float32 and never in TF32; 16-bit classes reduce
# in float32 too, as the kernels they are compared with must.
_MODES = {
    "float64": Mode(70, "CUBLAS_COMPUTE_64F", "float64"),
    "float32": Mode(68, "CUBLAS_COMPUTE_32F", "float32"),
    "tf32": Mode(77, "CUBLAS_COMPUTE_32F_FAST_TF32", "float32"),
    # The libraries have no such class: what is as exact there is float32.
    "tf32x3": Mode(68, "CUBLAS_COMPUTE_32F", "float32"),
    "float16": Mode(68, "CUBLAS_COMPUTE_32F", "float32", _NO_REDUCED_REDUCTION),
    "bfloat16": Mode(68, "CUBLAS_COMPUTE_32F", "float32", _NO_REDUCED_REDUCTION),
    "float8_e4m3": Mode(
        68, "CUBLAS_COMPUTE_32F", "float32", _NO_REDUCED_REDUCTION, plain=False, fast_sums=True
    ),
    "int8": Mode(72, "CUBLAS_COMPUTE_32I", "int32"),
}
_OUTPUTS = {
    "float64": ("float64",),
    "float32": ("float32",),
    "tf32": ("float32", "tf32"),
    "tf32x3": ("float32", "tf32x3"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float8_e4m3": ("bfloat16", "float16", "float32"),
    "int8": ("int32",),
}


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[M,N] = op(A)·op(B), row-major: names of the arrays, their leading dimensions, and their classes.

    op(A) is M×K and op(B) K×N; a transposed operand lies in memory as K×M, or N×K. Of a `batch` of products,
    the matrices of one array are `strides` elements apart, in the order A, B, C.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    lda: int
    ldb: int
    ldc: int
    operands: str
    output: str
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    strides: tuple[int, int, int] = (0, 0, 0)

    @property
    def mode(self) -> Mode:
        return _MODES[self.operands]

    @property
    def operand_type(self) -> int:
        """The libraries' number for the operands' class."""
        return _TYPES[self.operands]

    @property
    def output_type(self) -> int:
        return _TYPES[self.output]

    @property
    def rounds_its_result(self) -> bool:
        """Whether an element of C is narrower than what it is summed in."""
        return self.mode.reduces_in_full and self.output != "float32"

    @property
    def stored_a(self) -> tuple[int, int]:
        """Rows and columns of A as it lies in memory, row-major."""
        return (self.k, self.m) if self.transpose_a else (self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int]:
        return (self.n, self.k) if self.transpose_b else (self.k, self.n)

    def __str__(self) -> str:
        times = f"{self.batch} times " if self.batch > 1 else ""
        return f"{self.operands} at {times}{self.m}×{self.n}×{self.k}{self._turned}"

    @property
    def _turned(self) -> str:
        turned = [name for name, t in ((self.a, self.transpose_a), (self.b, self.transpose_b)) if t]
        return f", {' and '.join(turned)} transposed" if turned else ""


def gemm_of(problem: Problem) -> Gemm:
    """The matrix product that `problem` is. Raises TrialFailed (infeasible) if the libraries have no such product."""
    contraction = problem.contraction
    operands = [a for a in problem.arrays if a.direction is Direction.IN]
    outputs = [a for a in problem.arrays if a.direction in (Direction.OUT, Direction.INOUT)]
    if contraction is None or len(contraction.operands) != 2 or len(outputs) != 1:
        raise no_equivalent("the problem is no matrix product")
    batch, ((first, second), out) = _without_batch(contraction)
    summed = (set(first) & set(second)) - set(out)
    two_by_two = all(len(labels) == len(set(labels)) == 2 for labels in (first, second, out))
    if (
        not two_by_two
        or len(summed) != 1
        or batch in (*first, *second, *out)
        or outputs[0].direction is not Direction.OUT
    ):
        raise no_equivalent(f"{contraction.text} is not mk,kn->mn")
    kernel = problem.spec.dtype.name
    if kernel not in _MODES or any(a.dtype.storage != problem.spec.dtype.storage for a in operands):
        raise no_equivalent(f"operands of {' and '.join(a.dtype.name for a in operands)}")
    if outputs[0].dtype.name not in _OUTPUTS[kernel]:
        raise no_equivalent(f"{kernel} operands with a result of {outputs[0].dtype.name}")
    # Of the two, the left factor is the one that the rows of the result come from.
    if out[0] in first:
        (left, a), (right, b) = (first, operands[0]), (second, operands[1])
    else:
        (left, a), (right, b) = (second, operands[1]), (first, operands[0])
    k, sizes = summed.pop(), contraction.sizes
    return Gemm(
        m=sizes[out[0]],
        n=sizes[out[1]],
        k=sizes[k],
        a=a.name,
        b=b.name,
        c=outputs[0].name,
        lda=_leading(a),
        ldb=_leading(b),
        ldc=_leading(outputs[0]),
        operands=kernel,
        output=outputs[0].dtype.name,
        transpose_a=left[0] == k,
        transpose_b=right[1] == k,
        batch=sizes[batch] if batch else 1,
        strides=(_apart(a), _apart(b), _apart(outputs[0])) if batch else (0, 0, 0),
    )


def _without_batch(contraction: Contraction) -> tuple[str, tuple[tuple[str, str], str]]:
    """The letter that counts products of a batch, if one stands first everywhere, and the letters without it."""
    first, second = contraction.operands
    out = contraction.output
    letter = out[:1]
    if len(out) != 3 or not letter or {first[:1], second[:1]} != {letter}:
        return "", ((first, second), out)
    return letter, ((first[1:], second[1:]), out[1:])


def _apart(array: ResolvedArray) -> int:
    """Elements from one matrix of a batch to the next."""
    return array.shape[-2] * array.pitch


def _leading(array: ResolvedArray) -> int:
    """Elements from one row to the next."""
    return array.pitch


def no_equivalent(why: str) -> TrialFailed:
    return TrialFailed(Status.INFEASIBLE, Stage.LAUNCH, f"no library equivalent: {why}")


def neutral_environment() -> None:
    """Drop environment variables that change the libraries' precision behind our back."""
    for name in _OVERRIDES:
        os.environ.pop(name, None)
