"""What all blocks of a grid do together (kernels/common/grid.cuh), as far as the emulator can run it: the copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from bench_rig import Bench

from sweeper.model import KernelSpec
from sweeper.paths import kernels_dir

COPY_CU = r"""
#include "grid.cuh"
template <typename T>
__global__ void padded(const T* from, T* to, int rows, int columns, int ld, int pitch) {
  grid::copy_padded(to, pitch, from, ld, rows, columns);
}
"""
REFERENCE_PY = """
import numpy as np

def reference(source, pitch):
    return np.pad(source, ((0, 0), (0, int(pitch) - source.shape[1])))
"""
# A row of one element, of less than 16 bytes, of many; more rows than threads; every remainder of 16 bytes.
SHAPES = [(1, 1), (7, 3), (5, 131), (400, 9), (33, 260), *((9, 61 + n) for n in range(8))]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("grid")
    shutil.copy(kernels_dir() / "common" / "grid.cuh", folder)
    (folder / "reference.py").write_text(REFERENCE_PY)
    made = Bench("emulator", folder)
    yield made
    made.close()


def copy(bench: Bench, dtype: str) -> KernelSpec:
    pitch = "16 // elem_bytes * ceil(COLUMNS * elem_bytes / 16)"
    args: list[dict[str, Any]] = [
        {"name": "source", "shape": ["ROWS", "COLUMNS"], "pitch": "LD"},
        {"name": "copy", "shape": ["ROWS", pitch], "direction": "out"},
        *({"name": name, "scalar": "int32", "value": name.upper()} for name in ("rows", "columns", "ld")),
        {"name": "pitch", "scalar": "int32", "value": pitch},
    ]
    return bench.load(
        "padded",
        COPY_CU,
        entry="padded",
        template=["T"],
        dtype=dtype,
        dims={"ROWS": None, "COLUMNS": None, "LD": "COLUMNS"},
        launch={"block": [64], "grid": [3]},
        args=args,
        reference={"python": "reference.py"},
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("gap", [0, 1, 4])
def test_a_copy_has_the_same_elements_and_zeros_behind_each_row(bench: Bench, dtype: str, gap: int) -> None:
    """Whatever the alignment of a row: what lies between the rows, NaN here, gets nowhere."""
    spec = copy(bench, dtype)
    for rows, columns in SHAPES:
        outcome = bench.measure(spec, {"ROWS": rows, "COLUMNS": columns, "LD": columns + gap})
        assert outcome.check.passed, (rows, columns)
