"""The rule by which a shape finds its row: the very shape, else the nearest one.

A size's logarithm to base 2 is taken in integers, rounded down to 1/65536, so that every language that can multiply
comes to the same answer. The nearest row has the least sum of squared differences of the sizes' logarithms; of
rows as near the first. Rows with other names of sizes do not answer. A size of 0 is one that is not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What to run. `exact`: the row is of this very shape; else `doublings` tells how far its shape is.

    `row` is all that is known of the row: its own `dims`, `time_ms`, `timed` (confirmed, measured, …) and so on.
    """

    kernel: str
    params: dict[str, Any]
    exact: bool
    doublings: float
    row: dict[str, Any]


def log2_fixed(size: int) -> int:
    """floor(65536 · log2(size)), to within a unit, for 1 ≤ size < 2^63."""
    exponent = size.bit_length() - 1
    mantissa = size >> (exponent - 31) if exponent > 31 else size << (31 - exponent)
    found = exponent
    for _ in range(16):
        mantissa = (mantissa * mantissa) >> 31
        found <<= 1
        if mantissa >> 32:
            mantissa >>= 1
            found |= 1
    return found


def find(
    rows: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, int],
    kernel: str | None = None,
    dtype: str | None = None,
    layout: str | None = None,
    device: str | None = None,
) -> Answer:
    """The row for `sizes`, of `kernel` or, without one, of the best kernel.

    A class or device that is not named is the only one of the rows; a layout is nn where they have it. Raises
    LookupError for what the rows do not have and for what has to be named, ValueError for a size below 0.
    """
    for name, size in sizes.items():
        if not 0 <= size < 1 << 63:
            raise ValueError(f"size {name} is {size}")
    asked = {name: int(size) for name, size in sizes.items() if size}
    rows = [row for row in rows if (row["best"] if kernel is None else row["kernel"] == kernel)]
    if not rows:
        raise LookupError(f"no kernel {kernel!r}")
    wanted = {
        "device": _named("device", device, rows),
        "dtype": _named("dtype", dtype, rows),
        "layout": _named("layout", layout, rows),
    }
    rows = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    rows = [row for row in rows if set(row["dims"]) == set(asked)]
    if not rows:
        raise LookupError(f"no row with sizes {', '.join(asked) or '(none)'} for {wanted}")
    row = min(rows, key=lambda row: _squared(row["dims"], asked))
    for same in rows:
        if same["dims"] == asked:
            return Answer(same["kernel"], dict(same["params"]), True, 0.0, dict(same))
    far = _squared(row["dims"], asked) ** 0.5 / 65536
    return Answer(row["kernel"], dict(row["params"]), False, far, dict(row))


def _squared(dims: Mapping[str, int], asked: Mapping[str, int]) -> int:
    return sum((log2_fixed(size) - log2_fixed(asked[name])) ** 2 for name, size in dims.items())


def _named(what: str, value: str | None, rows: Iterable[Mapping[str, Any]]) -> str:
    has = list(dict.fromkeys(str(row[what]) for row in rows))
    if value is None:
        if len(has) == 1:
            return has[0]
        if what == "layout" and "nn" in has:
            return "nn"
        raise LookupError(f"name the {what}: {', '.join(has)}")
    if value not in has:
        raise LookupError(f"no {what} {value!r}; there is {', '.join(has)}")
    return value
