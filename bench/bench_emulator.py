"""Processor time of emulated launches at a shape, and of checked ones at 128x128x128.

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


@dataclass(frozen=True)
class Timing:
    """Best of a few launches, in seconds; `error` is the largest one of an element."""

    compile_s: float
    processor_s: float
    wall_s: float
    switches: int
    error: float


def measure(case: Case, shape: Mapping[str, int], folder: Path, *, checked: bool) -> Timing:
    compiler, gemm = find_compiler(), kernels_dir() / "gemm"
    text = (gemm / case.source).read_text()
    source = ModuleSource(case.source, text, (case.entry,), include_dirs=(gemm,))
    module = folder / "module.so"
    built = compile_module(source, module, compiler=compiler, folder=folder, deadline_s=60, checked=checked)
    if not built.ok:
        raise SystemExit(built.error)
    m, n, k = (shape[name] for name in "MNK")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n)))
    out = Buffer("C", (m, n), np.float32, writable=True)
    arguments = [Buffer.of("A", a), Buffer.of("B", b), out, *(Scalar(d, np.int32(shape[d])) for d in "MNK")]
    grid = (-(-n // case.tile[1]), -(-m // case.tile[0]), 1)
    geometry = Geometry(grid, (*case.block, 1), 0, static_shared_bytes(module))
    times = []
    for _ in range(REPEATS):
        out.array.fill(np.nan)
        start = time.perf_counter()
        report = launch(launcher_path(compiler), module, arguments, geometry, checked=checked, deadline_s=600)
        times.append((report.cpu_s, time.perf_counter() - start))
        if not report.ok or report.findings:
            raise SystemExit(report.message or str(report.findings[0]))
    processor_s, wall_s = min(times)
    error = float(np.abs(out.array - a.astype(np.float64) @ b).max())
    return Timing(built.seconds, processor_s, wall_s, report.switches, error)


def line(case: Case, shape: Mapping[str, int], folder: Path, *, checked: bool) -> str:
    """One line of a table."""
    t = measure(case, shape, folder, checked=checked)
    rate = 2 * shape["M"] * shape["N"] * shape["K"] / t.processor_s / 1e9
    return (
        f"{case.name:24s} compile {t.compile_s:5.2f} s  processor {t.processor_s * 1e3:8.1f} ms"
        f"  wall {t.wall_s * 1e3:8.1f} ms  {rate:6.2f} GFLOP/s  {t.switches:9d} switches  error {t.error:.1e}"
    )


def main() -> None:
    """Print a line for each kernel at the sizes M N K of the command line (512 each), and checked at 128."""
    m, n, k = (int(size) for size in sys.argv[1:4]) if len(sys.argv) > 3 else (512, 512, 512)
    tables = [({"M": m, "N": n, "K": k}, False), ({"M": 128, "N": 128, "K": 128}, True)]
    with tempfile.TemporaryDirectory() as folder:
        for shape, checked in tables:
            how = "checked" if checked else "fast"
            print(f"{how}, {'x'.join(map(str, shape.values()))}, {find_compiler().version}")
            for case in CASES:
                print(line(case, shape, Path(folder), checked=checked), flush=True)


if __name__ == "__main__":
    main()
