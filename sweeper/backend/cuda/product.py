"""The reference of a large matrix product, computed on the GPU in float64 and proved on a sample of rows.

The host takes seconds for what a GPU does in milliseconds. Our own kernel reads the operands where the
kernels under test will, and gives for each element its value and the bound on its error. NumPy computes
some rows of both from the host's inputs, the first and the last among them; where they disagree by more
than float64 explains, the GPU cannot be trusted with anything. A batch of products is one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.device_code import type_code
from sweeper.backend.cuda.reference import DeviceReference
from sweeper.dtypes import DType
from sweeper.errors import SetupError
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.contraction import Contraction, evaluate, take
from sweeper.problem.inputs import stream
from sweeper.problem.rounding import (
    REFERENCE_ROUNDOFF,
    accumulation,
    contraction_bound,
    largest,
    sums_stray,
)

__all__ = ["Product", "bound_coefficients", "product_of"]

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]

# With fewer the host is as quick, and depends on nothing.
_LEAST_MULTIPLICATIONS = 1 << 24
_SAMPLED_ROWS = 16
_CHUNK = 1 << 16
_WORD_BYTES = 8
# Every integer up to here is a float64.
_EXACT = 2.0**53
# The two bounds are one formula: they differ by what their arguments' last bits make of it.
_SAME_BOUND = 1e-9


@dataclass(frozen=True, slots=True)
class Product:
    """out[r, c] = Σ a[r, k]·b[c, k] over arrays with these strides (in elements) along r or c, and along k.

    `a` and `b` are operands in any order, `sizes` those of r, c and k, `peak` the product of the largest
    magnitudes in them. No sum of the terms leaves `out`'s range, nor float64's where it is exact. There are
    `batch` of them, whose operands lie `apart` elements behind each other.
    """

    problem: Problem
    a: ResolvedArray
    b: ResolvedArray
    out: ResolvedArray
    sizes: tuple[int, int, int]
    strides: tuple[int, int, int, int]
    peak: float
    batch: int = 1
    apart: tuple[int, int] = (0, 0)

    @property
    def contraction(self) -> Contraction:
        if self.problem.contraction is None:
            raise AssertionError("a product is a contraction")
        return self.problem.contraction

    @property
    def scratch_bytes(self) -> int:
        """What computing it takes on the device beside the reference: both operands in float64."""
        operands = self.a.stored_size + self.b.stored_size
        return (operands + (self.out.size if self.out.dtype.is_integer else 0)) * _WORD_BYTES

    def reference(
        self, device: CudaDevice, arguments: Arguments, inputs: Mapping[str, Array]
    ) -> DeviceReference:
        """Compute it from the arguments' arrays, prove it against `inputs`.

        Raises TrialFailed where the device has not the memory, SetupError where it computes wrongly.
        """
        reference = DeviceReference(device, self.out)
        code, wanted, count = device.code, reference.wanted, self.out.size
        operands = []
        for array in (self.a, self.b):
            operands.append(device.allocate(array.stored_size * _WORD_BYTES))
            pointer = arguments.arrays[array.name].pointer
            code.widen(pointer, array.stored_size, type_code(array.dtype), int(operands[-1]))
        scratch = device.allocate(count * _WORD_BYTES) if wanted.exact else None
        magnitudes = int(scratch) if scratch is not None else wanted.bounds
        each = [*self.apart, *2 * [self.sizes[0] * self.sizes[1]]]
        for number in range(self.batch):
            held = (*map(int, operands), wanted.values, magnitudes)
            a, b, values, sums = (at + number * n * _WORD_BYTES for at, n in zip(held, each, strict=True))
            code.product(a, b, self.sizes, self.strides, values, sums)
        if wanted.exact:
            code.whole(wanted.values, count)
        else:
            code.bound(wanted.values, magnitudes, count, bound_coefficients(self))
        device.synchronize()
        self._prove(device, reference, inputs)
        return reference

    def _prove(self, device: CudaDevice, reference: DeviceReference, inputs: Mapping[str, Array]) -> None:
        contraction, wanted = self.contraction, reference.wanted
        rows = _sampled(self.sizes[0], self.problem.seed)
        some = np.unique([0, self.batch // 2, self.batch - 1])
        select = {contraction.output[0]: some, contraction.output[-2]: rows}  # one letter without a batch
        rows = (some[:, None] * self.sizes[0] + rows).reshape(-1)
        chosen = take(contraction, list(inputs.values()), select)
        wide = [data.astype(np.float64) for data in chosen]
        values = evaluate(contraction, wide).reshape(len(rows), -1)
        if wanted.exact:
            got = self._fetch(device, wanted.values, rows, np.int64)
            _require(np.asarray(got == values), self.out, rows)
            return
        magnitudes = evaluate(contraction, [np.abs(data, out=data) for data in wide]).reshape(values.shape)
        terms = contraction.terms
        spread = 2 * self.problem.spec.tolerance * math.sqrt(terms) * REFERENCE_ROUNDOFF * magnitudes
        off = np.abs(self._fetch(device, wanted.values, rows, np.float64) - values)
        _require(off <= spread + terms * np.finfo(np.float64).smallest_normal, self.out, rows)
        bound = contraction_bound(
            values,
            magnitudes,
            terms=terms,
            operands=2,
            peak=self.peak,
            kernel=self.problem.spec.dtype,
            output=self.out.dtype,
            tolerance=self.problem.spec.tolerance,
        )
        off = np.abs(self._fetch(device, wanted.bounds, rows, np.float64) - bound)
        _require(off <= _SAME_BOUND * bound, self.out, rows, what="the bound on ")

    def _fetch(self, device: CudaDevice, address: int, rows: Rows, kind: Any) -> Array:
        columns = self.sizes[1]
        fetched = np.empty((len(rows), columns), kind)
        for row, data in zip(rows, fetched, strict=True):
            device.drv.memcpy_dtoh(data, address + int(row) * columns * _WORD_BYTES)
        return fetched


def product_of(problem: Problem, inputs: Mapping[str, Array]) -> Product | None:
    """The product that `problem` is, if it is one, large, and certain not to leave its output's range."""
    contraction = problem.contraction
    operands = [array for array in problem.arrays if array.name in inputs]
    if contraction is None:
        return None
    layout = _layout(_one_of_batch(contraction), contraction.sizes, [array.pitch for array in operands])
    if layout is None:
        return None
    (first, second), sizes, strides = layout
    batched = len(contraction.output) == 3  # else the first letter is the rows'
    batch = contraction.sizes[contraction.output[0]] if batched else 1
    if batch * math.prod(sizes) < _LEAST_MULTIPLICATIONS:
        return None
    (out,) = problem.outputs
    reach = largest(out.dtype) if not out.dtype.is_integer else min(largest(out.dtype), _EXACT - 1)
    peak = math.prod(_largest(inputs[array.name]) for array in operands)
    # Negated, so that NaN is beyond any range.
    if not contraction.terms * peak <= reach:
        return None
    a, b = operands[first], operands[second]
    apart = (a.shape[1] * a.pitch, b.shape[1] * b.pitch) if batched else (0, 0)
    return Product(problem, a, b, out, sizes, strides, peak, batch, apart)


def _one_of_batch(contraction: Contraction) -> list[str]:
    """Letters of the operands and of the output; without the one that counts a batch, where it leads them all."""
    letters = [*contraction.operands, contraction.output]
    batch = contraction.output[:1]
    leads = all(len(each) == 3 and each[0] == batch and each.count(batch) == 1 for each in letters)
    return [each[1:] for each in letters] if leads else letters


def _layout(
    letters: Sequence[str], size: Mapping[str, int], pitches: Sequence[int]
) -> tuple[tuple[int, int], tuple[int, int, int], tuple[int, int, int, int]] | None:
    """Which operand holds the result's rows and which its columns, the sizes, and the operands' strides."""
    *operands, out = letters
    if len(operands) != 2 or len(out) != 2 or any(len(set(o)) != 2 or len(o) != 2 for o in operands):
        return None
    summed = set(operands[0]) & set(operands[1])
    holders = [[n for n, letters in enumerate(operands) if letter in letters] for letter in out]
    if len(summed) != 1 or summed & set(out) or any(len(holder) != 1 for holder in holders):
        return None
    (rows,), (columns,), (k,) = holders[0], holders[1], summed
    strides = tuple(
        1 if operands[n][1] == letter else pitches[n]
        for n, letter in ((rows, out[0]), (rows, k), (columns, out[1]), (columns, k))
    )
    return (rows, columns), (size[out[0]], size[out[1]], size[k]), strides  # type: ignore[return-value]


def _largest(data: Array) -> float:
    """The largest magnitude; a chunk at a time, since bfloat16 is compared slowly."""
    flat = data.reshape(-1)
    chunks = (flat[start : start + _CHUNK].astype(np.float64) for start in range(0, flat.size, _CHUNK))
    return max(max(-float(chunk.min()), float(chunk.max())) for chunk in chunks)


def _sampled(rows: int, seed: int) -> Rows:
    """Some of so many rows in ascending order, the first and the last among them."""
    if rows <= _SAMPLED_ROWS:
        return np.arange(rows)
    inner = stream(seed, "proof of the reference").choice(rows - 2, _SAMPLED_ROWS - 2, replace=False)
    return np.array([0, *sorted(int(row) + 1 for row in inner), rows - 1])


def _require(right: npt.NDArray[np.bool_], out: ResolvedArray, rows: Rows, what: str = "") -> None:
    if right.all():
        return
    row, column = (int(i) for i in np.argwhere(~right)[0])
    place = ", ".join(str(int(i)) for i in (*np.unravel_index(rows[row], out.shape[:-1]), column))
    raise SetupError(
        f"this GPU computes float64 products wrongly: {what}{out.name}[{place}] and "
        f"{int(np.count_nonzero(~right)) - 1} more of {right.size} elements that were computed again",
        hint="look at dmesg and nvidia-smi -q; nothing measured on it can be trusted",
    )


def bound_coefficients(product: Product) -> tuple[float, ...]:
    """The coefficients of `contraction_bound`, which has their meaning, in the order of `DeviceCode.bound`."""
    problem, out, terms = product.problem, product.out.dtype, product.contraction.terms
    kernel, tolerance = problem.spec.dtype, problem.spec.tolerance
    accumulator, roundoff = accumulation(kernel, out)
    exact_operands = kernel.operand_bits == kernel.significand_bits
    u_op = 0.0 if exact_operands else kernel.operand_roundoff
    return (
        tolerance * math.sqrt(terms) * (roundoff + REFERENCE_ROUNDOFF),
        product.peak,
        terms * float(_finfo(accumulator).smallest_normal),
        2 * 2 * u_op,
        tolerance * 2 * u_op,
        out.unit_roundoff,
        float(_finfo(out).smallest_subnormal) / 2,
        sums_stray(kernel, accumulator),
    )


def _finfo(precision: DType) -> Any:
    """NumPy's finfo, which ml_dtypes extends to bfloat16."""
    finfo: Any = ml_dtypes.finfo
    return finfo(precision.storage)
