"""The shapes of every precision class, and the rungs that are searched at each kind of shape. Data: edit it freely.

To let a kernel take part, add a `Rung` to the rungs of its classes in `FAMILIES`, the likeliest first. A rung
whose description is not there, or does not serve the class or the shape, is left out and said so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.kernel.layout import layout_of

__all__ = ["FAMILIES", "KINDS", "Family", "Rung", "dims_of", "kinds", "suiting"]

KINDS = {
    "gemv": "M or N at most 16",
    "skinny": "M or N at most 128, and no gemv",
    "few": "fewer than 400 tiles of 128 × 128, and no gemv",
    "large": "at least 64 tiles of 128 × 128, and no gemv",
    "odd": "rows that do not begin at multiples of 16 bytes, whatever else it is",
}
"""What a shape may be; it is of several kinds at once."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A kernel, the kinds of shapes that it is tried at, and what is searched there.

    `levels` takes the place of the description's levels, by parameter; all others keep theirs. `budgets`:
    how many configurations where a launch takes less than a millisecond, and where it takes more.
    """

    kernel: str
    kinds: frozenset[str]
    levels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    budgets: tuple[int, int] = (40, 16)


@dataclass(frozen=True, slots=True)
class Family:
    """All that is measured in one precision class; `short` names its tables."""

    short: str
    shapes: tuple[str, ...]
    rungs: tuple[Rung, ...]


def dims_of(shape: str) -> dict[str, int]:
    """`MxNxK`, or `MxNxK-nt` with the layout, as sizes. Raises ValueError for anything else."""
    layout = layout_of(shape)
    parts = shape.removesuffix(f"-{layout}").split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"shape {shape!r} is not MxNxK or MxNxK-nt, such as 4096x4096x4096")
    return dict(zip("MNK", map(int, parts), strict=True))


def kinds(dims: Mapping[str, int], element_bytes: int) -> frozenset[str]:
    """The kinds of a shape."""
    m, n, k = dims["M"], dims["N"], dims["K"]
    found = {"odd"} if n * element_bytes % 16 or k * element_bytes % 16 else set()
    if min(m, n) <= 16:
        return frozenset(found | {"gemv"})
    tiles = math.ceil(m / 128) * math.ceil(n / 128)
    found |= {"skinny"} if min(m, n) <= 128 else set()
    found |= {"few"} if tiles < 400 else set()
    found |= {"large"} if tiles >= 64 else set()
    return frozenset(found)


def suiting(family: Family, dims: Mapping[str, int], element_bytes: int) -> list[Rung]:
    """The rungs to try at a shape, the likeliest first."""
    these = kinds(dims, element_bytes)
    return [rung for rung in family.rungs if rung.kinds & these]


def _on(text: str) -> frozenset[str]:
    chosen = frozenset(text.split())
    if unknown := chosen - set(KINDS):
        raise ValueError(f"no such kind of shape: {', '.join(sorted(unknown))}")
    return chosen


# ------------------------------------------------------------------------------------------ rungs: float32

_PIPELINE = {"bk": [16, 32], "stages": [3], "group": [8], "unroll": [2]}
_LARGE_TILES = {
    "bm": [64, 128], "bn": [128, 256], "wm": [32, 64], "wn": [64, 128], "tm": [8], "tn": [8, 16],
    "bursts": [1, 4], "paired": [0], "blocks": [1, 2],
}  # fmt: skip
_SMALL_TILES = {
    "bm": [32, 64, 128], "bn": [32, 64, 128], "wm": [16, 32, 64], "wn": [32, 64], "tm": [4, 8], "tn": [4, 8],
    "bursts": [1], "paired": [0, 1], "blocks": [1, 2], "splits": [1, 2, 3, 4, 6, 8, 16, 32, 64, 128],
}  # fmt: skip
_GEMV = {
    "vec": [1, 2, 4], "across": [1, 2, 4, 8], "down": [2, 4, 8], "unroll": [2, 4, 8, 16],
    "splits": [1, 2, 4, 8, 16, 32, 64],
}  # fmt: skip

# More than 100 KB under way in a multiprocessor only push more out of the second-level cache.
_STREAMED = {
    "down": [1, 2, 4, 8], "stages": [2, 3, 4, 5, 6, 8, 10, 12], "cluster": [1, 2, 4],
}  # fmt: skip
_STREAM_K = {
    "bk": [16, 32, 64], "stages": [3, 4, 5, 6, 8, 10], "group": [8], "stream": [0, 1, 2, 3], "parts": [1, 2, 4, 8],
}  # fmt: skip

FLOAT32 = (
    Rung("streamed_gemv", _on("gemv"), _STREAMED, (56, 56)),
    Rung("gemv", _on("gemv"), _GEMV, (24, 24)),
    Rung("tma_pipeline", _on("large"), {"bk": [16, 32], "stages": [4, 6], "group": [4, 8, 16]}, (16, 10)),
    Rung("stream_k", _on("few large odd"), _STREAM_K, (64, 24)),
    Rung("split_k", _on("few"), {**_PIPELINE, **_SMALL_TILES}, (32, 10)),
    Rung("async_pipeline", _on("odd"), {**_PIPELINE, **_LARGE_TILES}, (12, 8)),
)

# ------------------------------------------------------------------------- rungs: bfloat16 and float16

_WGMMA = {"bk": [64], "group": [4, 8, 16], "order": [0, 2], "buffers": [2]}
# Loads that leave the cache first spare it 10 % of the time where B is read once. A cluster of 4 or 8 reaches 120
# of 132 multiprocessors.
_SWAPPED = {
    "bn": [64, 128, 192, 256], "stages": [4, 5, 6, 8, 10, 12, 20], "splits": [1, 2, 3, 4], "waves": [0],
    "hint": [0, 1], "ahead": [0, 2], "blocks": [1, 2], "persistent": [132],
}  # fmt: skip
_STREAM_16 = {
    "bm": [64, 128, 192, 256], "stages": [2, 3, 4, 5, 6, 8, 12], "group": [8, 16], "waves": [0, 1, 2],
    "ahead": [0, 2, 4], "blocks": [1, 2],
    "splits": [0, 1, 2, 3, 4, 8, 12, 16, 24, 28, 32, 56, 64, 66, 112, 120, 128], "persistent": [132],
}  # fmt: skip

HALF = (
    Rung("streamed_gemv", _on("gemv"), _STREAMED, (56, 56)),
    Rung("wgmma_swapped", _on("gemv skinny few"), _SWAPPED, (48, 24)),
    Rung(
        "wgmma_persistent",
        _on("large few"),
        {**_WGMMA, "bn": [64, 128, 192, 224, 256], "buffers": [1], "blocks": [1], "hint": [0, 3]},
        (48, 24),
    ),
    Rung("wgmma_pingpong", _on("large few"), {**_WGMMA, "ahead": [0, 2]}, (32, 16)),
    # Where whole tiles leave a part of the last wave idle, its share of a line of k-blocks is the way out.
    Rung("wgmma_stream_k", _on("few skinny large"), _STREAM_16, (56, 24)),
    Rung("mma_sync", _on("odd few"), {"group": [8]}, (24, 12)),
)

# ---------------------------------------------------------- rungs: tf32, 3xTF32, float64, int8 and fp8

TF32 = (
    Rung("wgmma_turned", _on("few large skinny"), {"group": [8, 16], "order": [0, 2]}, (40, 20)),
    Rung("wgmma_k_major", _on("few large skinny odd"), {"promote": [0], "order": [0, 2]}, (40, 20)),
    Rung("mma_tf32", _on("few large skinny odd"), {"group": [8]}, (24, 12)),
)
TF32X3 = (Rung("mma_tf32x3", _on("few large skinny odd"), {"group": [8]}, (32, 16)),)
FLOAT64 = (
    Rung("dmma", _on("few large skinny odd"), {"group": [8]}, (48, 20)),
    Rung("split_k", _on("few"), budgets=(24, 10)),
    Rung("streamed_gemv", _on("gemv"), _STREAMED, (40, 40)),
)
INT8 = (
    Rung("wgmma_k_major", _on("few large skinny odd"), {"promote": [0], "order": [0, 2]}, (40, 20)),
    Rung("mma_sync", _on("few large skinny odd"), {"group": [8]}, (24, 12)),
)
FP8 = (Rung("wgmma_k_major", _on("few large skinny odd"), {"order": [0, 2]}, (48, 24)),)

# ------------------------------------------------------------------------------------------------- shapes

_SQUARES = tuple(f"{n}x{n}x{n}" for n in (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192))
_ODD = (
    *(f"{n}x{n}x{n}" for n in (1000, 1023, 1025, 2047, 4095, 4097, 5000)),
    "4096x4096x4100",
    "352x384x672",
)
_ROWS = tuple(f"{m}x4096x4096" for m in (1, 4, 8, 16, 64, 128, 256))
_STRESS = (
    "64x64x65536", "128x128x65536", "256x256x16384", "4096x4096x64", "65536x128x128", "32768x64x1024",
    "32768x32x4096", "1408x3072x4096", "1536x3072x4096",
)  # fmt: skip
_LLAMA = (
    "512x4096x4096", "2048x4096x4096", "1x6144x4096", "16x28672x4096", "16x4096x14336", "64x28672x4096",
    "128x6144x4096", "128x28672x4096", "512x6144x4096", "512x4096x14336", "2048x6144x4096",
    "1x128256x4096", "4x8192x8192", "64x8192x8192", "256x10240x8192", "2048x8192x28672", "512x57344x8192",
)  # fmt: skip
_SOME = (
    *(f"{n}x{n}x{n}" for n in (1024, 2048, 4096, 8192)), "4096x4096x4112", "128x4096x4096", "2048x4096x4096",
)  # fmt: skip
# B as rows of N, along which these units want it.
_TURNED = (*_SOME, "4096x4096x4096-nt", "8192x8192x8192-nt")

_FLOAT32 = (*_SQUARES, *_ODD, *_ROWS, "16x14336x4096", "128x28672x4096", "512x6144x4096", *_STRESS)
_HALF = (*_SQUARES, "16384x16384x16384", *_ODD, *_ROWS, *_LLAMA, *_STRESS)

FAMILIES = {
    "float32": Family("fp32", _FLOAT32, FLOAT32),
    "bfloat16": Family("bf16", _HALF, HALF),
    "float16": Family("fp16", _HALF, HALF),
    "tf32": Family("tf32", _TURNED, TF32),
    "tf32x3": Family("tf32x3", _SOME, TF32X3),
    "float64": Family("fp64", _SOME, FLOAT64),
    "int8": Family("int8", _TURNED, INT8),
    "float8_e4m3": Family("fp8", _TURNED, FP8),
}
"""By the name of the precision class, as `--dtype` takes it."""
