"""Times and peak memory of building and asking search spaces: `python bench/bench_space.py [case …]`.

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sweeper.expressions import Value, parse
from sweeper.model import ParamSpec
from sweeper.space import Space, build_space


def _build(
    levels: Mapping[str, Sequence[Value]], constraints: Sequence[str], constants: Mapping[str, Value]
) -> Space:
    params = [ParamSpec(name, tuple(values), values[0]) for name, values in levels.items()]
    begin = time.perf_counter()
    space = build_space(params, [parse(text) for text in constraints], constants)
    seconds = time.perf_counter() - begin
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {space.product_size:>22,} → {len(space):>10,} points"
        f"   {1e3 * seconds:9.1f} ms   {peak_mb:6.0f} MiB peak"
    )
    return space


def clblast_gemm() -> None:
    """CLBlast's xgemm with the levels of its restricted tuning run."""
    space = _build(
        {
            "MWG": (16, 32, 64, 128),
            "NWG": (16, 32, 64, 128),
            "KWG": (32,),
            "MDIMC": (8, 16, 32),
            "NDIMC": (8, 16, 32),
            "MDIMA": (8, 16, 32),
            "NDIMB": (8, 16, 32),
            "KWI": (2,),
            "VWM": (1, 2, 4, 8),
            "VWN": (1, 2, 4, 8),
            "STRM": (0,),
            "STRN": (0,),
            "SA": (0, 1),
            "SB": (0, 1),
            "PRECISION": (32,),
        },
        [
            "KWG % KWI == 0",
            "MWG % (MDIMC * VWM) == 0",
            "NWG % (NDIMC * VWN) == 0",
            "MWG % (MDIMA * VWM) == 0",
            "NWG % (NDIMB * VWN) == 0",
            "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
            "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
        ],
        {},
    )
    assert len(space) == 17_956


_TILES: Mapping[str, Sequence[Value]] = {
    "bm": range(16, 257, 16),
    "bn": range(16, 257, 16),
    "bk": (4, 8, 12, 16, 20, 24, 32, 40, 48, 64),
    "tm": range(1, 9),
    "tn": range(1, 9),
    "stages": (1, 2, 3, 4, 5),
    "vec": (1, 2, 4, 8),
    "pad": (0, 4, 8),
    "swizzle": (False, True),
}
_TILE_CONSTRAINTS = (
    "bm % tm == 0 and bn % tn == 0",
    "32 <= (bm // tm) * (bn // tn) <= max_threads",
    "(bm // tm) * (bn // tn) % 32 == 0",
    "stages * bk * (bm + bn + 2 * pad) * 4 <= max_shared_bytes",
    "bm * bk % (vec * (bm // tm) * (bn // tn)) == 0",
    "bn * bk % (vec * (bm // tm) * (bn // tn)) == 0",
    "not (swizzle and pad > 0)",
)
_LIMITS: Mapping[str, Value] = {"max_threads": 1024, "max_shared_bytes": 232_448}


def tiles() -> None:
    """A register-tiled GEMM over a product of 19.7 million points, and what a search asks of it."""
    space = _build(_TILES, _TILE_CONSTRAINTS, _LIMITS)
    _ask(space)


def loose() -> None:
    """The same product with one loose constraint: most points stay."""
    _build(_TILES, ("bm * bn <= 50000",), _LIMITS)


def unconstrained() -> None:
    """The same product with none: all points are kept."""
    _build(_TILES, (), _LIMITS)


def enormous() -> None:
    """A product of 10^12 points whose constraints link small groups of parameters."""
    _build(
        {f"p{i}": tuple(range(1, 11)) for i in range(12)},
        [f"p{i} * p{i + 1} == 12 and p{i} != p{i + 1}" for i in range(0, 11, 2)]
        + [f"p{i} + p{i + 1} <= 9" for i in range(1, 11, 2)]
        + [" + ".join(f"p{i}" for i in range(12)) + " <= 48"],
        {},
    )


def enormous_chain() -> None:
    """A product of 10^12 points that only a chain of comparisons links."""
    _build(
        {f"p{i}": tuple(range(10)) for i in range(12)},
        [f"p{i} <= p{i + 1}" for i in range(11)],
        {},
    )


def enormous_hierarchy() -> None:
    """Block, warp and thread tiles of three dimensions in a product of more than 10^12 points."""
    powers = tuple(2**i for i in range(9))
    levels = {f"{level}_{axis}": powers for level in ("block", "warp", "thread") for axis in "mnk"}
    levels |= {"stages": (1, 2, 3, 4, 5, 6), "split_k": powers, "vec_a": powers[:5], "vec_b": powers[:5]}
    levels |= {"swizzle": powers[:4]}
    _build(
        levels,
        [f"block_{a} % warp_{a} == 0 and warp_{a} % thread_{a} == 0" for a in "mnk"]
        + [
            "thread_m * thread_n * thread_k == 64 and thread_m >= 4 and thread_n >= 4",
            "warp_m * warp_n == 32 * thread_m * thread_n and warp_k == thread_k",
            "(block_m // warp_m) * (block_n // warp_n) in (4, 8)",
            "block_k // warp_k in (2, 4)",
            "stages * block_k * (block_m + block_n) * 2 <= 100000",
            "thread_m % vec_a == 0 and thread_n % vec_b == 0",
            "split_k * block_k <= 128",
        ],
        {},
    )


def wide() -> None:
    """A product of more than 10^12 points under two constraints that each involve every parameter."""
    levels = {f"p{i}": tuple(2**k for k in range(11)) for i in range(12)}
    _build(levels, [f"16 <= {' * '.join(levels)} <= 64", f"{' + '.join(levels)} < 24"], {})


def _ask(space: Space) -> None:
    rng = np.random.default_rng(0)
    rows = space.sample(rng, 200)
    seen = np.zeros(len(space), dtype=bool)
    vectors = [space.indices[row] + 0.3 for row in rows[:20]]
    points = [space.point(int(row)) for row in rows]
    adjacent: Callable[[], object] = lambda: [space.neighbours(int(row)) for row in rows]  # noqa: E731
    for name, count, ask in (
        ("row(point)", len(rows), lambda: [space.row(point) for point in points]),
        ("why_infeasible", len(rows), lambda: [space.why_infeasible(point) for point in points]),
        ("neighbours", len(rows), adjacent),
        ("sample(200)", 1, lambda: space.sample(rng, 200)),
        ("nearest_feasible", 20, lambda: [space.nearest_feasible(v, exclude=seen) for v in vectors]),
        ("removed_by", 1, lambda: space.removed_by),
    ):
        begin = time.perf_counter()
        ask()
        print(f"      {name:<18} {1e3 * (time.perf_counter() - begin) / count:9.3f} ms")


CASES = (clblast_gemm, tiles, loose, unconstrained, enormous, enormous_chain, enormous_hierarchy, wide)


def main(chosen: Sequence[str]) -> None:
    """Run the case that is `chosen`, or each of several (all of them) in a process of its own, for its peak memory."""
    by_name = {case.__name__: case for case in CASES}
    if len(chosen) == 1:
        by_name[chosen[0]]()
        return
    for name in chosen or by_name:
        print(f"{name}: {by_name[name].__doc__}", flush=True)
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
