"""The kernels of `device_code.cu` on pretended device memory: addresses and numbers in, `device_model` inside."""

from __future__ import annotations

from typing import Any

import device_model
import numpy as np


def fill(memory: Any, data: int, nbytes: int, pattern: int) -> None:
    assert data % 8 == 0
    repeated = np.frombuffer(pattern.to_bytes(8, "little"), np.uint8)
    memory.view(data, nbytes)[:] = np.resize(repeated, nbytes)


def negate(memory: Any, data: int, count: int, type_: int) -> None:
    values = memory.array(data, (count,), device_model.STORAGE[type_])
    values[:] = device_model.negative(values)


def _rows_apart(memory: Any, data: int, rows: int, width: int, pitch: int, item_bytes: int) -> np.ndarray:
    """Bits of `rows` runs of `width` elements, a pitch apart."""
    flat = memory.array(data, ((rows - 1) * pitch + width,), f"u{item_bytes}")
    return np.lib.stride_tricks.as_strided(flat, (rows, width), (pitch * item_bytes, item_bytes))


def gather(memory: Any, data: int, count: int, width: int, pitch: int, item_bytes: int, to: int) -> None:
    rows = _rows_apart(memory, data, count // width, width, pitch, item_bytes)
    memory.array(to, (count,), rows.dtype)[:] = rows.reshape(-1)


def gaps(memory: Any, data: int, count: int, width: int, pitch: int, *numbers: int) -> None:
    item_bytes, pattern, found = numbers
    between = _rows_apart(
        memory, data + width * item_bytes, count // (pitch - width), pitch - width, pitch, item_bytes
    )
    changed = np.flatnonzero(between.reshape(-1) != pattern)
    if changed.size:
        record = memory.array(found, (2,), np.uint64)
        record[0] += np.uint64(changed.size)
        record[1] = max(record[1], np.uint64(2**64 - 1 - int(changed[0])))


def digest(memory: Any, data: int, nbytes: int, out: int) -> None:
    total = memory.array(out, (1,), np.uint64)
    with np.errstate(over="ignore"):
        total += np.uint64(device_model.digest(memory.view(data, nbytes)))


def compare(memory: Any, got: int, previous: int, *numbers: int) -> None:
    want, bounds, count, share, type_, exact, negated, pattern, parts = numbers
    results = [memory.array(address, (count,), device_model.STORAGE[type_]) for address in (got, previous)]
    wanted = _wanted(memory, want, bounds, count, exact)
    made = device_model.compare(*results, *wanted, share=share, negated=bool(negated), pattern=pattern)
    memory.array(parts, made.shape, made.dtype)[:] = made


def conclude(memory: Any, got: int, want: int, bounds: int, count: int, share: int, *numbers: int) -> None:
    parts_made, type_, exact, negated, parts, record = numbers
    assert parts_made == -(-count // share)
    results = memory.array(got, (count,), device_model.STORAGE[type_])
    tallies = memory.array(parts, (parts_made,), device_model.PART)
    wanted = _wanted(memory, want, bounds, count, exact)
    made = device_model.conclude(results, *wanted, tallies, negated=bool(negated))
    memory.array(record, (1,), made.dtype)[0] = made


def _wanted(memory: Any, want: int, bounds: int, count: int, exact: int) -> list[Any]:
    if exact:
        return [memory.array(want, (count,), np.int64), None]
    return [memory.array(address, (count,), np.float64) for address in (want, bounds)]


def widen(memory: Any, data: int, count: int, type_: int, wide: int) -> None:
    values = memory.array(data, (count,), device_model.STORAGE[type_])
    memory.array(wide, (count,), np.float64)[:] = values.astype(np.float64)


def product(memory: Any, a: int, b: int, *numbers: int) -> None:
    rows, columns, terms, a_outer, a_inner, b_outer, b_inner, values, magnitudes = numbers
    left = _strided(memory, a, (rows, terms), (a_outer, a_inner))
    right = _strided(memory, b, (columns, terms), (b_outer, b_inner))
    results = device_model.product(left, right)
    for address, result in zip((values, magnitudes), results, strict=True):
        memory.array(address, (rows, columns), np.float64)[:] = result


def _strided(memory: Any, address: int, shape: tuple[int, int], strides: tuple[int, int]) -> np.ndarray:
    """Doubles at `address` with strides in elements."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    flat = memory.array(address, (reach,), np.float64)
    return np.lib.stride_tricks.as_strided(flat, shape, [8 * stride for stride in strides])


def bound(memory: Any, values: int, magnitudes: int, count: int, *coefficients: Any) -> None:
    made = memory.array(magnitudes, (count,), np.float64)
    made[:] = device_model.bound(memory.array(values, (count,), np.float64), made, *coefficients)


def whole(memory: Any, values: int, count: int) -> None:
    rounded = memory.array(values, (count,), np.float64).astype(np.int64)
    memory.array(values, (count,), np.int64)[:] = rounded


KERNELS = {
    run.__name__: run
    for run in (fill, negate, gather, gaps, digest, compare, conclude, widen, product, bound, whole)
}
