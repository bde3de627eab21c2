"""Rounding-error bounds: how far a right kernel may lie from the reference, element by element.

Notation: u_acc, u_out are the unit roundoffs of accumulator and output, u_op that of an operand in
the multiplier, K the terms of a sum, |A|·|B| the same contraction of magnitudes, c the tolerance.

Accumulation. A sum of K products in any order, with or without fused multiply-add, multiplies each
product by at most K factors (1 + δ), |δ| ≤ u_acc. With δ independent and of mean zero the error is
at most c·√K·u_acc·(|A|·|B|) with probability at least 1 − 2K·exp(−c²/2)
(Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5),
2019, A2815–A2835, on inner products); the worst case has K in place of √K. The probability is a bound:
seen are errors up to about 1·√K·u·(|A|·|B|) for positive data and far smaller ones for data of mean zero,
also from tensor cores, which truncate (Fasi, Higham, Mikaitis and Pranesh, Numerical Behavior of NVIDIA
Tensor Cores, PeerJ Comput. Sci. 7, 2021, e330).

Random data. Where every step rounds to nearest (float32, float64), the error is Σ δ·s over the partial
sums s, at most c·u_acc·√(Σ s²). Products that are independent of their order stray from their share of
the result by about ‖a∘b‖₂, so |C| + ‖a∘b‖₂ stands for |A|·|B| where it is smaller: by √K for data of mean zero
(Higham and Mary, Sharper Probabilistic Backward Error Analysis for Basic Linear Algebra Kernels with
Random Data, SIAM J. Sci. Comput. 42(5), 2020, A3427–A3446). Without this, tf32 results at K = 8192 pass
for float32 ones. ‖a∘b‖₂² = Σ(a·b)² ≤ max|a|·max|b|·(|a|·|b|), which leaves a factor of 1.5 for uniform data.
Data sorted by size could break it; generated data cannot.

That is asked of tf32x3 too, whose kernels should add up in float32 what leaves the tensor cores every few steps:
sums that stay there are cut off at each step, and leave the bound somewhere beyond K = 8192.

Sums of fewer bits than their register. Tensor cores of Hopper keep p = 14 bits of what they add for float8,
and truncate: u_acc = 2^(1-p), which stands for the roundoff of the accumulator. The data is random too, and the
sums s are those of the kernel, so |C| + ‖a∘b‖₂ takes the place of |A|·|B| where it is smaller; without that
the bound would be larger than the results from K = 4096 on, and nothing could fail. Data of one sign can break
it: what is cut off then has one sign too, and a kernel has to add parts in float32 every few steps.

Reference. Its float64 sums err in the same way with 2^-53, so u_acc + 2^-53 stands for u_acc: nothing
for float32, a factor of two for float64.

Underflow. Each product may lose up to the smallest normal number of the accumulator where subnormals
are flushed; the K-fold of it is added (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
chapter 2).

Output. One rounding to nearest: u_out·|C|, or half the spacing of subnormals where C is that small
(IEEE 754-2019, 4.3.1). The operands are those that the kernel reads, already rounded to the storage
type, and so contribute nothing, except in tf32.

tf32 operands. A multiplier that keeps p = 11 bits rounds to nearest (relative error at most u_op = 2^-11)
or truncates (at most 2·u_op, towards zero). The relative error ε of a product of n operands then lies
in [−n·u_op, n·u_op] or [−2n·u_op, 0], up to O(u_op²). Its mean multiplies the whole sum: at most
2n·u_op·|C|. The rest is a sum of independent terms of mean zero, within c·n·u_op·‖a∘b‖₂ with probability
at least 1 − 2·exp(−c²/2) (Hoeffding, Probability Inequalities for Sums of Bounded Random Variables,
J. Amer. Statist. Assoc. 58, 1963, theorem 2), with ‖a∘b‖₂ as above.
The worst case 2n·u_op·(|A|·|B|) grows with K instead of √K: a whole missing tile would pass it.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sweeper.dtypes import DTYPES, DType
from sweeper.errors import ConfigError

__all__ = [
    "accumulation",
    "contraction_bound",
    "function_bound",
    "largest",
    "require_in_range",
    "sums_stray",
]

Floats = npt.NDArray[np.float64]

REFERENCE_ROUNDOFF = 2.0**-53

# Operands that lose no more than this are those of a class as exact as its accumulator (tf32x3: two bits).
_FEW_BITS = 2

# Elements at once: a core's cache holds the temporaries.
_CHUNK = 1 << 15


def largest(precision: DType) -> float:
    """The largest finite value of `precision` (exact for integers up to 2^53, else rounded up)."""
    if precision.is_integer:
        return float(np.iinfo(precision.storage).max)
    return float(_finfo(precision).max)


def _finfo(precision: DType) -> Any:
    """NumPy's finfo, which ml_dtypes extends to bfloat16."""
    finfo: Any = ml_dtypes.finfo
    return finfo(precision.storage)


def require_in_range(name: str, values: npt.NDArray[Any], output: DType) -> None:
    """Raise ConfigError, `input range`, if a reference value cannot be held by its `output` type.

    Compared as infinities such an element would equal a kernel's overflow, and pass.
    """
    low: float
    high: float
    if output.is_integer:
        limits = np.iinfo(output.storage)
        low, high = int(limits.min), int(limits.max)
        bad = not (low <= int(values.min()) and int(values.max()) <= high)
    else:
        low, high = -largest(output), largest(output)
        # Negated, so that NaN, for which every comparison is false, is out of range too.
        bad = not (values.min() >= low and values.max() <= high)
    if bad:
        first = int(np.flatnonzero(~((values >= low) & (values <= high)))[0])
        index = ", ".join(str(int(i)) for i in np.unravel_index(first, values.shape))
        value = values.reshape(-1)[first]
        if np.isnan(value):
            raise ConfigError(f"input range: the reference for {name}[{index}] is not a number")
        raise ConfigError(
            f"input range: {name}[{index}] should be {value:g}, beyond {output.name}'s range "
            f"of {low:g} to {high:g}",
            hint="use a fill of smaller values, a smaller problem, or a wider output type",
        )


def contraction_bound(
    values: Floats,
    magnitudes: npt.NDArray[Any],
    *,
    terms: int,
    operands: int,
    peak: float,
    kernel: DType,
    output: DType,
    tolerance: float,
) -> Floats:
    """The bound on |C − reference| of a contraction, shaped like `values`; see the module's text.

    `magnitudes` is the contraction of absolute values, `peak` the product of the operands' largest.
    """
    bound = np.empty(values.shape)
    flat, want, summed = bound.reshape(-1), values.reshape(-1), magnitudes.reshape(-1)
    accumulator, u_acc = accumulation(kernel, output)
    exact_operands = kernel.operand_bits == kernel.significand_bits
    nearest = sums_stray(kernel, accumulator)
    u_op = 0.0 if exact_operands else kernel.operand_roundoff
    step = tolerance * math.sqrt(terms) * (u_acc + REFERENCE_ROUNDOFF)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        size = np.abs(want[part])
        spread = np.sqrt(peak * summed[part].astype(np.float64))
        error = step * (
            np.minimum(summed[part], size + spread) if nearest else summed[part].astype(np.float64)
        )
        error += terms * _smallest_normal(accumulator)
        error += (2 * operands * u_op) * size + (tolerance * operands * u_op) * spread
        flat[part] = _rounded(want[part], error, output)
    return bound


def function_bound(
    values: Floats,
    magnitudes: npt.NDArray[Any] | None,
    *,
    terms: int,
    kernel: DType,
    output: DType,
    tolerance: float,
    sides: int = 1,
) -> Floats:
    """The bound for a reference of unknown inner structure, shaped like `values`.

        sides·(c·(u_acc + 2^-53)·(√terms·|ref| + 2·m) + c·u_op·s + u_out·|ref|)

    s = max(|ref|, root mean square of ref) judges elements near zero by the size of their neighbours;
    m = max(s, `magnitudes`), what is summed before anything cancels. The first term is that of random data:
    √K·‖p‖₂ is at most K times the root mean square of the K terms p, about their magnitudes' sum. Without
    magnitudes √terms·s takes the place of m. A kernel may also compute in its own class throughout, hence u_op
    (half precision, tf32). `terms` is the length of the sums; `sides` is 2 where the reference was
    computed in the kernel's own precision. There is no theorem for an arbitrary function: a kernel
    with an ill-conditioned one raises its `tolerance`.
    """
    accumulator, u_acc = accumulation(kernel, output)
    scale: Floats = np.abs(values)
    size = np.maximum(scale, math.sqrt(float(np.mean(np.square(values)))))
    summed = math.sqrt(terms) * size if magnitudes is None else np.maximum(size, magnitudes)
    u_op = output.unit_roundoff if kernel.is_integer else kernel.operand_roundoff
    error: Floats = math.sqrt(terms) * scale + 2 * summed
    error *= tolerance * (u_acc + REFERENCE_ROUNDOFF)
    error += tolerance * u_op * size
    error += terms * _smallest_normal(accumulator)
    return sides * _rounded(values, error, output)


def accumulation(kernel: DType, output: DType) -> tuple[DType, float]:
    """What sums are kept in, and the roundoff of a step of theirs.

    For integers on their way to a floating-point output, that output.
    """
    accumulator = DTYPES[kernel.accumulator]
    accumulator = output if accumulator.is_integer else accumulator
    if kernel.sum_bits:
        return accumulator, 2.0 ** (1 - kernel.sum_bits)
    return accumulator, accumulator.unit_roundoff


def sums_stray(kernel: DType, accumulator: DType) -> bool:
    """Whether |C| + ‖a∘b‖₂ bounds what errors of sums are in proportion to: see the module's text."""
    lost = kernel.significand_bits - kernel.operand_bits
    return bool(kernel.sum_bits) or (
        lost <= _FEW_BITS and kernel.significand_bits == accumulator.significand_bits
    )


def _smallest_normal(precision: DType) -> float:
    return float(_finfo(precision).smallest_normal)


def _rounded(values: Floats, error: Floats, output: DType) -> Floats:
    """`error` before, plus the rounding to `output` of a value that is off by so much."""
    u_out = output.unit_roundoff
    error *= 1 + u_out
    error += u_out * np.abs(values)
    error += float(_finfo(output).smallest_subnormal) / 2
    return error
