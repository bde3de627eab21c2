"""The kernels that the backend itself launches: `device_code.cu`, compiled ahead to PTX for every GPU.

The driver compiles that PTX for the GPU it finds (0.2 s, kept in its own cache). Its version and target are
the oldest that hold these instructions: any driver since CUDA 10.0 takes it, for any GPU since Volta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.dtypes import DType

__all__ = ["MOST_LISTED", "PART_BYTES", "PTX_PATH", "RECORD", "DeviceCode", "Split", "Wanted", "type_code"]

PTX_PATH = Path(__file__).with_suffix(".ptx")

# As `enum Type` in the source counts them.
_TYPE_CODES = {
    "float64": 0,
    "float32": 1,
    "tf32": 1,
    "tf32x3": 1,
    "float16": 2,
    "bfloat16": 3,
    "int8": 4,
    "int32": 5,
    "int64": 6,
    "uint32": 7,
    "uint64": 8,
    "float8_e4m3": 9,
}
_THREADS = 256
_MOST_BLOCKS = 2048
_TILE = 64

MOST_LISTED = 5
PART_BYTES = 56
RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("wrong", "not_finite", "poison", "differing")),
        *((name, np.float64) for name in ("error", "ratio")),
        *((name, np.uint64) for name in ("index", "listed")),
        (
            "first",
            [("index", np.uint64), *((name, np.float64) for name in ("got", "want", "bound"))],
            (MOST_LISTED,),
        ),
    ]
)
"""What `conclude` writes: `struct Record` of the source."""

# By kernel, the letters of `struct` for its arguments.
_ARGUMENTS = {
    "canary": "PI",
    "spin": "Q",
    "empty": "",
    "fill": "PQQ",
    "negate": "PQi",
    "gather": "PQQQiP",
    "gaps": "PQQQiQP",
    "digest": "PQP",
    "compare": "PPPPQQiiiQP",
    "conclude": "PPPQQiiiiPP",
    "widen": "PQiP",
    "product": "PPqqqqqqqPP",
    "bound": "PPQdddddddi",
    "whole": "PQ",
}


def type_code(precision: DType) -> int:
    """The number by which the kernels know how elements of this class are stored."""
    return _TYPE_CODES[precision.name]


@dataclass(frozen=True, slots=True)
class Split:
    """How `count` elements are split: `parts` blocks compare `share` each, the last one what is left."""

    count: int
    share: int
    parts: int

    @classmethod
    def of(cls, count: int) -> Split:
        wanted = max(1, min(_MOST_BLOCKS, -(-count // (4 * _THREADS))))
        share = -(-count // (wanted * _THREADS)) * _THREADS
        return cls(count, share, -(-count // share))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Device addresses of what an array should hold: doubles and their bounds, or integers (`exact`)."""

    values: int
    bounds: int
    exact: bool


class DeviceCode:
    """The kernels, loaded in the current context; every call queues one launch on `stream`.

    Addresses are device pointers, `type_` is a `type_code`. May raise PyCUDA's errors.
    """

    def __init__(self, drv: Any, stream: Any) -> None:
        self._stream = stream
        self._module = drv.module_from_buffer(PTX_PATH.read_bytes() + b"\0")
        self._functions: dict[str, Any] = {}

    def _launch(self, name: str, blocks: int, threads: int, *arguments: float) -> None:
        function = self._functions.get(name)
        if function is None:
            function = self._module.get_function(f"sweeper_{name}").prepare(list(_ARGUMENTS[name]))
            self._functions[name] = function
        function.prepared_async_call((blocks, 1), (threads, 1, 1), self._stream, *arguments)

    def canary(self, out: int, seed: int, blocks: int) -> None:
        """out[i] = seed + i in 32-bit words, for 256·blocks of them."""
        self._launch("canary", blocks, _THREADS, out, seed)

    def spin(self, cycles: int) -> None:
        """Keep the device busy for so many cycles of its clock."""
        self._launch("spin", 1, 1, cycles)

    def nothing(self) -> None:
        """A kernel that does nothing."""
        self._launch("empty", 1, 1)

    def fill(self, data: int, nbytes: int, pattern: int) -> None:
        """Repeat the 64-bit `pattern` over 8-byte aligned memory."""
        self._launch("fill", _blocks(-(-nbytes // 8)), _THREADS, data, nbytes, pattern)

    def negate(self, data: int, count: int, type_: int) -> None:
        self._launch("negate", _blocks(count), _THREADS, data, count, type_)

    def gather(self, data: int, to: int, *, count: int, width: int, pitch: int, item_bytes: int) -> None:
        """Copy `count` elements, whose rows of `width` begin `pitch` apart, to rows that follow each other."""
        self._launch("gather", _blocks(count), _THREADS, data, count, width, pitch, item_bytes, to)

    def gaps(
        self, data: int, found: int, *, count: int, width: int, pitch: int, item_bytes: int, pattern: int
    ) -> None:
        """Add to the 64-bit word at `found` how many of the `count` elements between rows are not `pattern`,
        and raise the next one to the complement of the first one's number among them."""
        where = (data, count, width, pitch, item_bytes)
        self._launch("gaps", _blocks(count), _THREADS, *where, pattern, found)

    def digest(self, data: int, nbytes: int, digest: int) -> None:
        """Add the digest of `nbytes` at `data` to the 64-bit word at `digest`."""
        self._launch("digest", _blocks(-(-nbytes // 8)), _THREADS, data, nbytes, digest)

    def compare(
        self,
        got: int,
        previous: int,
        wanted: Wanted,
        split: Split,
        *,
        type_: int,
        negated: bool,
        pattern: int,
        parts: int,
    ) -> None:
        """Compare `got` with what is `wanted`, or its negative, and bit for bit with `previous`; write `parts`."""
        where = (got, previous, wanted.values, wanted.bounds, split.count, split.share)
        how = (type_, int(wanted.exact), int(negated), pattern)
        self._launch("compare", split.parts, _THREADS, *where, *how, parts)

    def conclude(
        self, got: int, wanted: Wanted, split: Split, *, type_: int, negated: bool, parts: int, record: int
    ) -> None:
        """Put `parts` together into `record`, and name in it the first wrong elements."""
        where = (got, wanted.values, wanted.bounds, split.count, split.share, split.parts)
        self._launch("conclude", 1, _THREADS, *where, type_, int(wanted.exact), int(negated), parts, record)

    def widen(self, data: int, count: int, type_: int, wide: int) -> None:
        """Elements as doubles, at `wide`."""
        self._launch("widen", _blocks(count), _THREADS, data, count, type_, wide)

    def product(
        self, a: int, b: int, sizes: Sequence[int], strides: Sequence[int], values: int, magnitudes: int
    ) -> None:
        """values[r, c] = Σ a[r, k]·b[c, k] of doubles, and the sums of magnitudes, row-major.

        `sizes` are those of r, c, k; `strides`, in elements, a's along r and k and b's along c and k.
        """
        rows, columns, _ = sizes
        blocks = -(-rows // _TILE) * -(-columns // _TILE)
        self._launch("product", blocks, _THREADS, a, b, *sizes, *strides, values, magnitudes)

    def bound(self, values: int, magnitudes: int, count: int, coefficients: Sequence[float]) -> None:
        """Turn magnitudes into bounds, by the coefficients of `contraction_bound` as the source names them."""
        *numbers, nearest = coefficients
        self._launch("bound", _blocks(count), _THREADS, values, magnitudes, count, *numbers, int(nearest))

    def whole(self, values: int, count: int) -> None:
        """Turn doubles into 64-bit integers of the same value, in place."""
        self._launch("whole", _blocks(count), _THREADS, values, count)


def _blocks(count: int) -> int:
    return max(1, min(_MOST_BLOCKS, -(-count // _THREADS)))
