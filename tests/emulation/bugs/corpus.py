"""Kernels with one known bug each, and how to launch them.

Each is a `.cu` file beside this one; compiled with `-DFIXED` it is right. Lines marked `// BUG` are those
that a finding has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.emulation import FindingKind

__all__ = ["BUGS", "FOLDER", "Array", "Bug", "Launch", "Scalar", "marked_lines"]

FOLDER = Path(__file__).resolve().parent

Data = Mapping[str, npt.NDArray[np.generic]]
Size = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument. `fill` is `uniform` in [-1, 1), `whole` numbers from -4 to 4, `counting` from 0, `zero`,
    or another array's name for a copy of it; an array that is not `read` holds NaN before a launch."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    fill: str = "uniform"
    written: bool = False
    read: bool = True


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument."""

    name: str
    value: int
    dtype: str = "int32"


@dataclass(frozen=True, slots=True)
class Launch:
    """Sizes along x, y and z, those left out being 1, and dynamic shared memory in bytes."""

    grid: Size
    block: Size
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bug:
    """A kernel with a bug; `kinds` are those of which check mode has to find one, none where only numbers tell.

    `also` are kinds that the same bug may show as; `fixed` is the launch of the right kernel where it is
    another; `expected` computes the right outputs from the inputs. `fast` says that running it without
    instrumentation finds it too; `nondeterministic` that its results depend on the order of threads.
    """

    name: str
    args: tuple[Array | Scalar, ...]
    launch: Launch
    expected: Callable[[Data], Mapping[str, npt.NDArray[np.generic]]]
    kinds: frozenset[FindingKind] = frozenset()
    also: frozenset[FindingKind] = frozenset()
    fixed: Launch | None = None
    fast: bool = False
    nondeterministic: bool = False

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.cu"

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(a for a in self.args if isinstance(a, Array))


def marked_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines that end with `// BUG`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(i for i, line in enumerate(lines, start=1) if line.endswith("// BUG"))


def kinds(*given: FindingKind) -> frozenset[FindingKind]:
    return frozenset(given)


def product(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"C": data["A"].astype(np.float64) @ data["B"].astype(np.float64)}


def row_sums(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"sums": data["A"].astype(np.float64).sum(axis=1)}


def twice(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"y": 2 * data["x"]}


def same(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"y": data["x"]}


def total(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"total": data["x"].astype(np.float64).sum(keepdims=True)}


def chunk_sums(size: int) -> Callable[[Data], dict[str, npt.NDArray[np.generic]]]:
    def expected(data: Data) -> dict[str, npt.NDArray[np.generic]]:
        x = data["x"].astype(np.float64)
        return {"sums": np.add.reduceat(x, np.arange(0, x.size, size))}

    return expected


def matmul(
    name: str,
    kinds: frozenset[FindingKind] = frozenset(),
    *,
    sizes: tuple[int, int, int] = (50, 35, 37),
    tile: int = 16,
    block: Size = (16, 16),
    shared_bytes: int = 0,
    dtype: str = "float32",
    rows: int | None = None,
    also: frozenset[FindingKind] = frozenset(),
    fixed: Launch | None = None,
    fast: bool = False,
) -> Bug:
    """C = A·B with a tile of C a block, `rows` high where it is not square."""
    m, n, k = sizes
    arrays = (
        Array("A", (m, k), dtype),
        Array("B", (k, n), dtype),
        Array("C", (m, n), written=True, read=False),
    )
    scalars = tuple(Scalar(name, size) for name, size in zip("MNK", sizes, strict=True))
    grid = (-(-n // tile), -(-m // (rows or tile)))
    launch = Launch(grid, block, shared_bytes)
    return Bug(name, (*arrays, *scalars), launch, product, kinds, also, fixed, fast)


def vector(
    name: str,
    kinds: frozenset[FindingKind] = frozenset(),
    *,
    n: int = 200,
    grid: int = 2,
    block: int = 128,
    dtype: str = "float32",
    fill: str = "uniform",
    output: Array | None = None,
    expected: Callable[[Data], Mapping[str, npt.NDArray[np.generic]]] = twice,
    extra: tuple[Array | Scalar, ...] = (),
    also: frozenset[FindingKind] = frozenset(),
    fixed: Launch | None = None,
    fast: bool = False,
    nondeterministic: bool = False,
) -> Bug:
    """A kernel of x, an output (y, of the same size, unless given), their size n, and `extra`."""
    y = output or Array("y", (n,), dtype, written=True, read=False)
    args = (Array("x", (n,), dtype, fill), y, Scalar("n", n), *extra)
    launch = Launch(grid, block)
    return Bug(name, args, launch, expected, kinds, also, fixed, fast, nondeterministic)


def rows(
    name: str,
    kinds: frozenset[FindingKind] = frozenset(),
    *,
    m: int,
    k: int,
    launch: Launch,
    also: frozenset[FindingKind] = frozenset(),
    fast: bool = False,
) -> Bug:
    """The sum of every row of A[M, K]."""
    arrays = (Array("A", (m, k)), Array("sums", (m,), written=True, read=False))
    args = (*arrays, Scalar("M", m), Scalar("K", k))
    return Bug(name, args, launch, row_sums, kinds, also, fast=fast)


def _split_k() -> Bug:
    sizes = {"M": 20, "N": 20, "K": 64, "parts": 4}
    arrays = (
        Array("A", (20, 64), fill="whole"),
        Array("B", (64, 20), fill="whole"),
        Array("C", (20, 20), fill="zero", written=True),
    )
    args = (*arrays, *(Scalar(name, value) for name, value in sizes.items()))
    launch = Launch((2, 2, 4), (16, 16))
    return Bug("accumulate_without_atomic", args, launch, product, GLOBAL_RACE)


def _neighbours(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    """In each warp of 32: the next lane's value."""
    x = np.concatenate([data["x"], np.zeros(-data["x"].size % 32, np.float32)]).reshape(-1, 32)
    return {"y": np.roll(x, -1, axis=1).reshape(-1)[: data["x"].size]}


def _reversed_blocks(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"y": data["x"].reshape(-1, 128)[:, ::-1].reshape(-1)}


def _swapped_pairs(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    pairs = data["x"].reshape(-1, 2)[:, ::-1].copy()
    pairs[:, 1] *= np.float32(-1)
    return {"y": pairs.reshape(-1)}


def _both_arrays(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"y": data["x"].astype(np.float64).sum() - data["x"]}


def _means(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    x = data["x"]
    return {"y": np.append(np.float32(0.5) * (x[:-1] + x[1:]), x[-1:])}


def _histogram(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"counts": np.bincount(data["x"].astype(np.int64) & 15, minlength=16)}


def _not_negative(data: Data) -> dict[str, npt.NDArray[np.generic]]:
    return {"count": np.array([np.count_nonzero(data["x"].astype(np.float32) >= 0)])}


F = FindingKind
SHARED_RACE, GLOBAL_RACE = kinds(F.RACE_SHARED), kinds(F.RACE_GLOBAL)
UNSET, OUTSIDE, PENDING = kinds(F.UNINITIALISED), kinds(F.OUT_OF_BOUNDS), kinds(F.PENDING_COPY)
WHOLE = (48, 48, 64)
SMALL_INTS = {"dtype": "int32", "fill": "whole", "grid": 1, "block": 64, "n": 50}

BUGS: tuple[Bug, ...] = (
    matmul("tile_barrier_after_load", SHARED_RACE, sizes=WHOLE, also=UNSET, fast=True),
    matmul("tile_barrier_before_next", SHARED_RACE, sizes=WHOLE, fast=True),
    matmul("double_buffer_barrier", SHARED_RACE, sizes=WHOLE, also=UNSET, fast=True),
    matmul("no_bounds_read", OUTSIDE, fast=True),
    vector("no_bounds_write", OUTSIDE, fast=True),
    matmul("tile_load_guard", OUTSIDE, fast=True),
    matmul("store_guard_forgets_n", OUTSIDE | GLOBAL_RACE, fast=True),
    matmul("k_remainder_dropped", fast=True),
    matmul("shared_row_end", kinds(F.INDEX_RANGE), sizes=WHOLE, also=OUTSIDE | UNSET, fast=True),
    matmul("shared_array_end", kinds(F.INDEX_RANGE), sizes=WHOLE, also=OUTSIDE, fast=True),
    vector(
        "shared_pointer_past_array",
        OUTSIDE,
        n=64,
        grid=1,
        block=64,
        expected=_both_arrays,
    ),
    matmul(
        "dynamic_shared_too_small",
        OUTSIDE,
        shared_bytes=16 * 16 * 4,
        fixed=Launch((3, 4), (16, 16), 2 * 16 * 16 * 4),
        fast=True,
    ),
    matmul("edge_tile_not_cleared", UNSET, sizes=(50, 35, 9), fast=True),
    matmul("early_return", kinds(F.BARRIER_AFTER_EXIT), also=UNSET, fast=True),
    matmul(
        "barrier_in_condition",
        kinds(F.BARRIER_DIVERGENCE),
        also=SHARED_RACE | kinds(F.BARRIER_AFTER_EXIT),
        fast=True,
    ),
    vector(
        "barrier_in_branches",
        kinds(F.BARRIER_DIVERGENCE),
        n=128,
        block=64,
        expected=_swapped_pairs,
        fast=True,
    ),
    vector("deadlock", kinds(F.DEADLOCK), expected=same, fast=True),
    rows("float4_of_a_row", kinds(F.MISALIGNED), m=40, k=37, launch=Launch(2, 32)),
    matmul(
        "block_smaller_than_tile",
        UNSET,
        sizes=WHOLE,
        block=(8, 16),
        fixed=Launch((3, 3), (16, 16)),
        fast=True,
    ),
    matmul(
        "block_too_large", kinds(F.LAUNCH), block=(33, 33), fixed=Launch((2, 4), (32, 16)), tile=33, fast=True
    ),
    vector(
        "copy_without_wait",
        PENDING,
        n=256,
        expected=_reversed_blocks,
        also=SHARED_RACE,
        fast=True,
    ),
    matmul("copy_wait_of_another_group", PENDING, sizes=WHOLE, fast=True),
    matmul("copy_barrier_before_next", SHARED_RACE, sizes=WHOLE, also=PENDING),
    vector(
        "copy_seen_by_its_own_thread_only",
        SHARED_RACE,
        n=256,
        expected=_reversed_blocks,
        also=UNSET,
        fast=True,
    ),
    rows("shuffle_mask_omits_lanes", kinds(F.WARP_MASK), m=7, k=64, launch=Launch(2, (32, 4)), fast=True),
    vector(
        "shuffle_from_exited_lanes",
        kinds(F.WARP_MASK),
        n=20,
        grid=1,
        block=32,
        output=Array("total", (1,), written=True, read=False),
        expected=total,
        fast=True,
    ),
    matmul("two_blocks_one_element", GLOBAL_RACE, fast=True),
    _split_k(),
    vector(
        "atomic_and_plain",
        GLOBAL_RACE,
        output=Array("count", (1,), "int32", "zero", written=True),
        expected=_not_negative,
        fast=True,
    ),
    vector("no_syncwarp", SHARED_RACE, n=250, expected=_neighbours, also=UNSET, fast=True),
    vector(
        "reduction_steps",
        SHARED_RACE,
        n=500,
        block=256,
        output=Array("sums", (2,), written=True, read=False),
        expected=chunk_sums(256),
        fast=True,
    ),
    vector(
        "shared_histogram",
        SHARED_RACE,
        dtype="int32",
        fill="counting",
        n=500,
        grid=1,
        output=Array("counts", (16,), "int32", written=True, read=False),
        expected=_histogram,
    ),
    vector(
        "in_place_stencil",
        GLOBAL_RACE,
        output=Array("y", (200,), fill="x", written=True),
        expected=_means,
        fast=True,
    ),
    matmul("wmma_tiles_barrier", SHARED_RACE, sizes=(64, 48, 64), rows=32, block=64, dtype="float16"),
    vector("writes_an_input", kinds(F.READ_ONLY), expected=lambda data: {"y": data["x"] / 2}, fast=True),
    Bug(
        "index_overflow",
        (
            Array("x", (256,)),
            Array("y", (256,), written=True, read=False),
            Scalar("rows", 65536),
            Scalar("columns", 65536),
        ),
        Launch(2, 128),
        same,
        kinds(F.OVERFLOW),
        fast=True,
    ),
    Bug(
        "shift_by_width",
        (
            Array("x", (64,), "int32", "whole"),
            Array("y", (64,), "int32", written=True, read=False),
            Scalar("bits", 32),
        ),
        Launch(1, 64),
        same,
        kinds(F.OVERFLOW),
    ),
    vector(
        "division_by_zero",
        kinds(F.OVERFLOW),
        **SMALL_INTS,
        extra=(Scalar("parts", 64),),
        expected=lambda data: {"y": data["x"] + np.arange(50)},
        fast=True,
    ),
    vector(
        "device_assert",
        kinds(F.ASSERT),
        **SMALL_INTS,
        expected=lambda data: {"y": np.abs(data["x"])},
        fast=True,
    ),
    vector(
        "trap",
        kinds(F.TRAP),
        **SMALL_INTS,
        expected=lambda data: {"y": (data["x"].astype(int) & 3) + 1},
        fast=True,
    ),
    vector("register_array_index", kinds(F.INDEX_RANGE), n=200, grid=1, block=64, extra=(Scalar("each", 4),)),
    vector(
        "atomic_order",
        n=1000,
        grid=8,
        output=Array("total", (1,), fill="zero", written=True),
        expected=total,
        nondeterministic=True,
        fast=True,
    ),
    vector(
        "no_threadfence",
        GLOBAL_RACE,
        n=512,
        grid=4,
        output=Array("total", (1,), written=True, read=False),
        expected=total,
        extra=(
            Array("partial", (4,), written=True, read=False),
            Array("finished", (1,), "int32", "zero", written=True),
        ),
    ),
    vector("grid_rounded_down", grid=1, fixed=Launch(2, 128), fast=True),
    vector(
        "accumulator_not_cleared",
        UNSET,
        n=128,
        block=64,
        output=Array("sums", (2,), written=True, read=False),
        expected=chunk_sums(64),
        fast=True,
    ),
    rows("register_not_cleared", m=50, k=9, launch=Launch(2, 32)),
    vector("output_not_cleared", fast=True),
)
