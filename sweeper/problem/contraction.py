"""Contractions such as `mk,kn->mn`: checked against array shapes, then evaluated through BLAS.

The text is Einstein notation with the output spelt out: a letter an axis, operands in the order of
the kernel's input arrays, letters that are not in the output summed over.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.errors import KernelError

__all__ = ["Contraction", "Selection", "evaluate", "parse_contraction", "rectangles", "take"]

Array = npt.NDArray[Any]
Selection = Mapping[str, npt.NDArray[np.intp]]
Shape = tuple[int, ...]

_TEXT = re.compile(r"[a-zA-Z]+(,[a-zA-Z]+)*->[a-zA-Z]*")

# More products than this cost more than the elements they save.
_MOST_RECTANGLES = 64

# OpenBLAS starts threads beyond 2^18 multiplications; beyond 2^28 they pay even on busy cores.
_CUBE = 64
_MOST_CUBES = 2**10


@dataclass(frozen=True, slots=True)
class Contraction:
    """A contraction at one problem size: `operands` and `output` are letters, `sizes` theirs."""

    text: str
    operands: tuple[str, ...]
    output: str
    sizes: Mapping[str, int]

    @property
    def terms(self) -> int:
        """K: how many products are summed into one element; 1 where nothing is summed."""
        return math.prod(size for letter, size in self.sizes.items() if letter not in self.output)

    @property
    def flops(self) -> int:
        """Floating-point operations, exact.

        With n operands and P the product of all sizes: n·P where something is summed (n − 1
        multiplications and one addition a term), else (n − 1)·P. So 2·M·N·K for a matrix product.
        """
        summed = any(letter not in self.output for letter in self.sizes)
        return (len(self.operands) - (0 if summed else 1)) * math.prod(self.sizes.values())


def parse_contraction(
    text: str, inputs: Sequence[tuple[str, Shape]], output: tuple[str, Shape], *, where: str
) -> Contraction:
    """The contraction `text` of `inputs` into `output`, each given as name and shape.

    An output without letters has one element. Raises KernelError naming the piece that does not fit.
    """
    packed = text.replace(" ", "")
    place = f"{where}: contraction {text!r}"
    if not _TEXT.fullmatch(packed):
        raise KernelError(f"{place} is not letters, commas and one `->`", hint="write it like mk,kn->mn")
    left, result = packed.split("->")
    operands = tuple(left.split(","))
    if len(operands) != len(inputs):
        names = ", ".join(name for name, _ in inputs) or "none"
        raise KernelError(
            f"{place} has {len(operands)} operands, but the kernel has {len(inputs)} input arrays ({names})"
        )
    sizes: dict[str, int] = {}
    for letters, (name, shape) in zip(operands, inputs, strict=True):
        _match(letters, name, shape, sizes, place)
    _check_output(result, output, sizes, place)
    return Contraction(packed, operands, result, sizes)


def _check_output(result: str, output: tuple[str, Shape], sizes: dict[str, int], place: str) -> None:
    name, shape = output
    for letter in result:
        if letter not in sizes:
            raise KernelError(f"{place}: the output's letter {letter!r} is in no operand")
        if result.count(letter) > 1:
            raise KernelError(f"{place}: the output has the letter {letter!r} twice")
    if result or math.prod(shape) != 1:
        _match(result, name, shape, sizes, place)


def _match(letters: str, name: str, shape: Shape, sizes: dict[str, int], place: str) -> None:
    """Enter the sizes of `letters` from `shape`, or compare them with what is known."""
    if len(letters) != len(shape):
        raise KernelError(
            f"{place}: {letters!r} has {len(letters)} axes, but {name} has {len(shape)}: {shape}"
        )
    for axis, (letter, size) in enumerate(zip(letters, shape, strict=True)):
        if sizes.setdefault(letter, size) != size:
            raise KernelError(
                f"{place}: {letter!r} is {sizes[letter]} before, but axis {axis} of {name} has {size}"
            )


def take(contraction: Contraction, arrays: Sequence[Array], select: Selection) -> list[Array]:
    """`arrays` with the selected indices only, along the letters that `select` names.

    The contraction of these is the part of the whole at the selected indices of the output's letters.
    """
    return [_take(letters, data, select) for letters, data in zip(contraction.operands, arrays, strict=True)]


def _take(letters: str, data: Array, select: Selection) -> Array:
    for axis, letter in enumerate(letters):
        if letter in select:
            data = np.take(data, select[letter], axis)
    return data


def evaluate(contraction: Contraction, arrays: Sequence[Array]) -> Array:
    """The contraction of `arrays`, in their type; axes in the order of the output's letters.

    Operands are folded from left to right, each pair by one (batched) matrix product of BLAS: 2·M·N·K
    operations, about 1 s for 4096³ in float64 on two cores and half of that in float32.
    """
    rest = [_diagonal(*pair) for pair in zip(contraction.operands, arrays, strict=True)]
    letters, data = rest.pop(0)
    while rest:
        other_letters, other = rest.pop(0)
        needed = set(contraction.output).union(*(after for after, _ in rest))
        letters, data = _pair(letters, data, other_letters, other, needed)
    result: Array = np.asarray(np.einsum(f"{letters}->{contraction.output}", data), order="C")
    return result


def _diagonal(letters: str, data: Array) -> tuple[str, Array]:
    """`data` with one axis a letter: the diagonal of a letter that it has twice."""
    distinct = "".join(dict.fromkeys(letters))
    return (letters, data) if distinct == letters else (distinct, np.einsum(f"{letters}->{distinct}", data))


def _pair(left: str, a: Array, right: str, b: Array, needed: set[str]) -> tuple[str, Array]:
    """The product of two operands, summed over every letter that is not `needed` any more."""
    left, a = _sum_out(left, a, needed | set(right))
    right, b = _sum_out(right, b, needed | set(left))
    batch = "".join(x for x in left if x in right and x in needed)
    summed = "".join(x for x in left if x in right and x not in needed)
    rows = "".join(x for x in left if x not in right)
    columns = "".join(x for x in right if x not in left)
    result = batch + rows + columns
    if not summed:
        return result, np.einsum(f"{left},{right}->{result}", a, b)
    size = dict(zip(left, a.shape, strict=True)) | dict(zip(right, b.shape, strict=True))
    first = _as_matrices(left, a, (batch, rows, summed))
    second = _as_matrices(right, b, (batch, summed, columns))
    return result, _product(first, second).reshape([size[x] for x in result])


def _sum_out(letters: str, data: Array, needed: set[str]) -> tuple[str, Array]:
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in needed)
    kept = "".join(letter for letter in letters if letter in needed)
    return (kept, data.sum(axis=axes)) if axes else (letters, data)


def _as_matrices(letters: str, data: Array, groups: tuple[str, str, str]) -> Array:
    """`data` with its axes grouped into three, or two where there is no batch; a view if it can be."""
    ordered = data.transpose([letters.index(x) for group in groups for x in group])
    size = dict(zip(letters, data.shape, strict=True))
    shape = [math.prod(size[x] for x in group) for group in groups]
    return ordered.reshape(shape if groups[0] else shape[1:])


def _product(a: Array, b: Array) -> Array:
    """a·b; a product of moderate size in cubes so small that BLAS computes each on the calling thread.

    The threads of a BLAS wait for each other by spinning: beside compilers on the same cores, a
    product of a millisecond takes hundreds of them. A large one gains more than it can lose.
    """
    multiplications = math.prod(a.shape[-2:]) * b.shape[-1]
    if a.ndim > 2 or not _CUBE**3 < multiplications <= _MOST_CUBES * _CUBE**3:
        whole: Array = np.matmul(a, b)
        return whole
    result = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i, j, k in itertools.product(*(range(0, size, _CUBE) for size in (*result.shape, a.shape[1]))):
        end = k + _CUBE
        result[i : i + _CUBE, j : j + _CUBE] += a[i : i + _CUBE, k:end] @ b[k:end, j : j + _CUBE]
    return result


def rectangles(mask: npt.NDArray[np.bool_]) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Rows × columns that together cover every True of a 2-D `mask`, each row in one of them.

    Rows with the same pattern share a rectangle that holds nothing else: a dozen written tiles of
    64×64 cost a dozen small products. A mask with too many patterns gives one rectangle of all its
    rows and columns, which then also holds elements that are not in the mask.
    """
    rows = np.flatnonzero(mask.any(axis=1))
    if rows.size == 0:
        return []
    patterns, group = np.unique(np.packbits(mask[rows], axis=1), axis=0, return_inverse=True)
    if len(patterns) > _MOST_RECTANGLES:
        return [(rows, np.flatnonzero(mask.any(axis=0)))]
    members = [rows[group.reshape(-1) == i] for i in range(len(patterns))]
    return [(part, np.flatnonzero(mask[part[0]])) for part in members]
