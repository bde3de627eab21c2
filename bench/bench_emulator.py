"""Processor time of emulated launches, and wall time of verified configurations.

    python -m bench.bench_emulator [M N K]

Every launch is a process of its own: its figures include mapping the arrays and the threads' stacks.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweeper.emulation import (
    Buffer,
    Geometry,
    ModuleSource,
    Scalar,
    compile_module,
    find_compiler,
    launch,
    launcher_path,
    static_shared_bytes,
)
from sweeper.paths import kernels_dir

REPEATS = 3


@dataclass(frozen=True)
class Case:
    """One kernel of the ladder with its block and the tile of C that a block computes."""

    name: str
    source: str
    entry: str
    block: tuple[int, int]
    tile: tuple[int, int]


def register_tile(*sizes: int) -> Case:
    bm, bn, bk, tm, tn = sizes
    arguments = ", ".join(str(size) for size in sizes)
    entry = f"gemm_register_tile<float, {arguments}>"
    block = (bm // tm * (bn // tn), 1)
    return Case(f"register {bm}x{bn}x{bk} {tm}x{tn}", "04_register_tile.cu", entry, block, (bm, bn))


CASES = (
    Case("naive 16x16", "01_naive.cu", "gemm_naive<float>", (16, 16), (16, 16)),
    Case("tiled 16", "02_tiled.cu", "gemm_tiled<float, 16>", (16, 16), (16, 16)),
    Case("tiled 32", "02_tiled.cu", "gemm_tiled<float, 32>", (32, 32), (32, 32)),
    register_tile(64, 64, 8, 4, 4),
    register_tile(128, 128, 8, 8, 8),
)


def run(case: Case, shape: Mapping[str, int], folder: Path) -> str:
    """One line of the table: the best of a few launches."""
    compiler, gemm = find_compiler(), kernels_dir() / "gemm"
    text = (gemm / case.source).read_text()
    source = ModuleSource(case.source, text, (case.entry,), include_dirs=(gemm,))
    module = folder / "module.so"
    built = compile_module(source, module, compiler=compiler, folder=folder, deadline_s=60)
    if not built.ok:
        raise SystemExit(built.error)
    m, n, k = (shape[name] for name in "MNK")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n)))
    out = Buffer("C", (m, n), np.float32, writable=True)
    arguments = [Buffer.of("A", a), Buffer.of("B", b), out, *(Scalar(d, np.int32(shape[d])) for d in "MNK")]
    grid = (-(-n // case.tile[1]), -(-m // case.tile[0]), 1)
    geometry = Geometry(grid, (*case.block, 1), 0, static_shared_bytes(module))
    best = None
    for _ in range(REPEATS):
        out.array.fill(np.nan)
        start = time.perf_counter()
        report = launch(launcher_path(compiler), module, arguments, geometry, deadline_s=600)
        wall_s = time.perf_counter() - start
        if not report.ok:
            raise SystemExit(report.message)
        best = min(best or (report.cpu_s, wall_s), (report.cpu_s, wall_s))
    assert best is not None
    error = float(np.abs(out.array - a.astype(np.float64) @ b).max())
    rate = 2 * m * n * k / best[0] / 1e9
    return (
        f"{case.name:24s} compile {built.seconds:5.2f} s  processor {best[0] * 1e3:8.1f} ms"
        f"  wall {best[1] * 1e3:8.1f} ms  {rate:6.2f} GFLOP/s  {report.switches:9d} switches  error {error:.1e}"
    )


def main() -> None:
    m, n, k = (int(size) for size in sys.argv[1:4]) if len(sys.argv) > 3 else (512, 512, 512)
    print(f"{m}x{n}x{k}, {find_compiler().version}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            print(run(case, {"M": m, "N": n, "K": k}, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
