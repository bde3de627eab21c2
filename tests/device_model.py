"""What `device_code.cu` computes, in NumPy: for a pretended GPU, and to hold the code itself against.

Functions take and give arrays; `type_` is a `type_code`, `Wanted`-like arrays are float64 with bounds, or
int64 with None.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from sweeper.backend.cuda.device_code import MOST_LISTED, RECORD

STORAGE = (
    np.dtype(np.float64),
    np.dtype(np.float32),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
    *(np.dtype(kind) for kind in (np.int8, np.int32, np.int64, np.uint32, np.uint64)),
    np.dtype(ml_dtypes.float8_e4m3fn),
)
PART = np.dtype(
    [
        ("error", np.float64),
        ("ratio", np.float64),
        *((name, np.uint64) for name in ("index", "wrong", "not_finite", "poison", "differing")),
    ]
)
NOWHERE = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def bits_of(data: np.ndarray) -> np.ndarray:
    return data.view(f"u{data.dtype.itemsize}").astype(np.uint64)


def digest(data: np.ndarray) -> int:
    """The digest of the bytes of `data`."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    words = np.zeros(-(-flat.size // 8), np.uint64)
    words.view(np.uint8)[: flat.size] = flat
    with np.errstate(over="ignore"):
        z = words + np.arange(1, words.size + 1, dtype=np.uint64) * np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int((z ^ (z >> np.uint64(31))).sum(dtype=np.uint64))


def negative(data: np.ndarray) -> np.ndarray:
    """Every element with its sign bit turned, integers as two's complement."""
    bits = data.view(f"u{data.dtype.itemsize}")
    if data.dtype.kind in "iu":
        return (~bits + bits.dtype.type(1)).view(data.dtype)
    sign = bits.dtype.type(1 << (8 * data.dtype.itemsize - 1))
    return (bits ^ sign).view(data.dtype)


def judged(got: np.ndarray, want: np.ndarray, bounds: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """(error, ratio, right) of each element."""
    if bounds is None:
        whole = got.astype(np.int64)
        right = whole == want
        return np.abs(whole.astype(np.float64) - want), np.where(right, 0.0, np.inf), right
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        finite = np.isfinite(error)
        error = np.where(finite, error, np.inf)
        ratio = error / np.maximum(bounds, np.finfo(np.float64).tiny)
        return error, ratio, finite & (error <= bounds)


def compare(
    got: np.ndarray,
    previous: np.ndarray,
    want: np.ndarray,
    bounds: np.ndarray | None,
    *,
    share: int,
    negated: bool,
    pattern: int,
) -> np.ndarray:
    """The tally of every `share` elements, a `PART` each."""
    error, ratio, right = judged(got, -want if negated else want, bounds)
    parts = np.zeros(-(-got.size // share), PART)
    for number, part in enumerate(parts):
        where = slice(number * share, (number + 1) * share)
        worst = int(ratio[where].argmax())
        part["error"] = error[where].max()
        part["ratio"] = ratio[where][worst]
        part["index"] = number * share + worst if part["ratio"] > 0 else NOWHERE
        part["wrong"] = np.count_nonzero(~right[where])
        part["not_finite"] = np.count_nonzero(np.isinf(error[where]))
        part["poison"] = np.count_nonzero(bits_of(got[where]) == np.uint64(pattern))
        part["differing"] = np.count_nonzero(bits_of(got[where]) != bits_of(previous[where]))
    return parts


def conclude(
    got: np.ndarray, want: np.ndarray, bounds: np.ndarray | None, parts: np.ndarray, *, negated: bool
) -> np.ndarray:
    """One `RECORD` of all parts and the first wrong elements."""
    record = np.zeros((), RECORD)
    for name in ("wrong", "not_finite", "poison", "differing"):
        record[name] = parts[name].sum()
    record["error"], record["ratio"] = parts["error"].max(), parts["ratio"].max()
    record["index"] = parts["index"][parts["ratio"] == record["ratio"]].min()
    target = -want if negated else want
    wrong = np.flatnonzero(~judged(got, target, bounds)[2])[:MOST_LISTED]
    record["listed"] = wrong.size
    for place, i in enumerate(wrong):
        bound = 0.0 if bounds is None else float(bounds[i])
        record["first"][place] = (i, float(got[i]), float(target[i]), bound)
    return record


def product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ a[r, k]·b[c, k] of doubles, and the sums of magnitudes."""
    return a @ b.T, np.abs(a) @ np.abs(b).T


def bound(values: np.ndarray, magnitudes: np.ndarray, *coefficients: Any) -> np.ndarray:
    """The bound of `contraction_bound` from its coefficients."""
    step, peak, underflow, mean, chance, u_out, least, nearest = coefficients
    size, spread = np.abs(values), np.sqrt(peak * magnitudes)
    error = step * (np.minimum(magnitudes, size + spread) if nearest else magnitudes) + underflow
    error += mean * size + chance * spread
    return error * (1 + u_out) + u_out * size + least
