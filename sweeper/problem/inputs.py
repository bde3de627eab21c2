"""Input data from a seed: the same seed and array name give the same bytes, whatever else there is.

Every array has a random stream of its own, derived from the SHA-256 of seed and name, so neither the
order of the arguments nor an argument added later changes what the others hold. Two arrays of one
shape differ, and none is symmetric, so a kernel that swaps or transposes its operands is found out.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.dtypes import DType
from sweeper.errors import KernelError
from sweeper.problem.arguments import ResolvedArray, ResolvedScalar
from sweeper.problem.rounding import largest

__all__ = ["FILLS", "amplitude", "generate", "scaled", "stream"]

Argument = ResolvedArray | ResolvedScalar

FILLS = ("uniform", "normal", "integers", "zeros", "ones")

# Beyond eight standard deviations lies a normal value in 10^15.
_NORMAL_PEAK = 8.0
# Whole numbers that all precision classes hold exactly, and whose products they hold too.
_SMALL_INTEGER = 8
_INTEGER = 127
_CHUNK = 1 << 16
_MOST_THREADS = 8
# Fewer elements than this are drawn sooner than a thread is there.
_THREAD_SHARE = 1 << 19


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream of the array `name` under `seed` (any integer)."""
    entropy = hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(entropy, "little"))))


def amplitude(precision: DType, fill: str, *, terms: int, operands: int, output: DType) -> float:
    """What to scale a fill by so that a sum of `terms` products of `operands` values fits `output`.

    If no |value| exceeds a = (L/terms)^(1/operands), L half the largest `output`, no sum exceeds L,
    in any order of summation. Floating-point data is scaled by a power of two, which rounds nothing;
    1 wherever that already suffices. Integers get the largest whole amplitude up to 127 (8 for whole
    numbers in a floating-point array), but at least 1.
    """
    limit = largest(output) if output.is_integer else largest(output) / 2
    budget = (limit / terms) ** (1 / operands)
    if precision.is_integer or fill == "integers":
        return float(max(1, min(_INTEGER if precision.is_integer else _SMALL_INTEGER, math.floor(budget))))
    budget /= _NORMAL_PEAK if fill == "normal" else 1.0
    return 1.0 if budget >= 1 else 2.0 ** math.floor(math.log2(budget))


def scaled(args: Sequence[Argument], terms: int) -> tuple[Argument, ...]:
    """`args` with the amplitudes of a contraction of `terms` terms of all inputs into the one output."""
    inputs = [a for a in args if isinstance(a, ResolvedArray) and a.is_input]
    output = next(a.dtype for a in args if isinstance(a, ResolvedArray) and a.is_output)
    return tuple(
        replace(a, amplitude=amplitude(a.dtype, a.fill, terms=terms, operands=len(inputs), output=output))
        if a in inputs
        else a
        for a in args
    )


def generate(array: ResolvedArray, seed: int) -> npt.NDArray[Any]:
    """The data of `array`: C-contiguous, of its storage type, generated in it or a chunk at a time.

    `uniform` lies in [−a, a) before it is rounded to the storage type, a the array's amplitude;
    `normal` has mean 0 and standard deviation a; `integers` are whole and uniform in [−a, a]. In an
    integer array all three are whole, and in an unsigned one none is negative.
    """
    if array.fill not in FILLS:
        raise KernelError(f"array {array}: fill {array.fill!r} is none of {', '.join(FILLS)}")
    if array.fill == "zeros":
        return np.zeros(array.shape, array.dtype.storage)
    if array.fill == "ones":
        return np.ones(array.shape, array.dtype.storage)
    rng = stream(seed, array.name)
    if array.dtype.is_integer:
        top = int(array.amplitude)
        low = 0 if array.dtype.storage.kind == "u" else -top
        whole: npt.NDArray[Any] = rng.integers(low, top + 1, array.shape, dtype=array.dtype.storage.type)
        return whole
    data = np.empty(array.shape, array.dtype.storage)
    flat = data.reshape(-1)
    # NumPy draws float32 and float64 itself; the 16-bit types are rounded from float32.
    native = array.dtype.storage if array.dtype.bytes >= 4 else np.dtype(np.float32)
    workers = min(_MOST_THREADS, os.cpu_count() or 1, flat.size // _THREAD_SHARE)
    if array.fill != "uniform" or workers < 2:
        _fill(rng, array, flat, native)
        return data
    share = -(-flat.size // workers // _CHUNK) * _CHUNK
    with ThreadPoolExecutor(workers, thread_name_prefix="inputs") as threads:
        starts = range(0, flat.size, share)
        parts = [flat[start : start + share] for start in starts]
        streams = [_further(stream(seed, array.name), start, native) for start in starts]
        for done in [
            threads.submit(_fill, *each, native) for each in zip(streams, repeat(array), parts, strict=False)
        ]:
            done.result()
    return data


def _further(rng: np.random.Generator, drawn: int, native: np.dtype[Any]) -> np.random.Generator:
    """`rng` as it is after `drawn` uniform values (an even number): of float32 one step gives two."""
    bits: Any = rng.bit_generator
    bits.advance(drawn * native.itemsize // 8)
    return rng


def _fill(
    rng: np.random.Generator, array: ResolvedArray, flat: npt.NDArray[Any], native: np.dtype[Any]
) -> None:
    for part in _chunks(flat):
        drawn = part if native == part.dtype else np.empty(part.size, native)
        _draw(rng, array, drawn)
        if drawn is not part:
            part[...] = drawn


def _chunks(flat: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Views that fit a core's cache, so that drawing, scaling and rounding read memory once."""
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def _draw(rng: np.random.Generator, array: ResolvedArray, out: npt.NDArray[Any]) -> None:
    kind: Any = out.dtype.type
    if array.fill == "integers":
        top = int(array.amplitude)
        out[...] = rng.integers(-top, top + 1, out.size, dtype=np.int8)
    elif array.fill == "normal":
        rng.standard_normal(out=out, dtype=kind)
        out *= kind(array.amplitude)
    else:
        rng.random(out=out, dtype=kind)
        out *= kind(2 * array.amplitude)
        out -= kind(array.amplitude)
