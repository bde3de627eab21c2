"""Check mode on rows that lie apart, and on scratch that nobody has filled."""

from __future__ import annotations

import numpy as np
import pytest
from check_rig import Kernels, with_every_compiler

from sweeper.emulation import Buffer, Fault, FindingKind, HostCompiler, Scalar

TEXT = """
__global__ void sums(const float* A, float* C, int rows, int width, int pitch) {
  const int i = threadIdx.x;
  if (i < rows) {
    float sum = 0;
    for (int k = 0; k < width; ++k) sum += A[i * pitch + k];  //read
    C[i * 2] = sum;
  }
}

__global__ void spill(const float* A, float* C, int rows, int width, int pitch) {
  const int i = threadIdx.x;
  if (i < rows) C[i * 2 + (i == 3)] = A[i * pitch];  //write
}

__global__ void wide(const float4* A, float* C) {
  C[0] = A[1].x;  //vector
}

__global__ void leftover(unsigned int* seen, float* C) {
  if (threadIdx.x == 0) C[0] = seen[0];  //unwritten
}

__global__ void counted(unsigned int* seen, float* C) {
  if (threadIdx.x == 0) {
    seen[0] = 3;
    C[0] = seen[0];
  }
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    made: HostCompiler = request.param
    return made


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("storage"), TEXT)


def matrix(pitch: int = 8) -> Buffer:
    """Five rows of six, each `pitch` after the one before."""
    made = Buffer("A", (5, 6), np.float32, writable=False, pitch=pitch)
    made.array[...] = np.arange(30, dtype=np.float32).reshape(5, 6)
    return made


def column(rows: int = 5) -> Buffer:
    """One element a row, rows two apart."""
    made = Buffer("C", (rows, 1), np.float32, writable=True, pitch=2)
    made.array[...] = 0
    return made


def numbers(*values: int) -> list[Scalar]:
    return [Scalar(f"n{i}", np.int32(value)) for i, value in enumerate(values)]


def test_what_is_between_rows_may_lie_there(kernels: Kernels) -> None:
    c = column()
    assert kernels.findings("sums", matrix(), c, *numbers(5, 6, 8), block=32) == ()
    assert c.array.reshape(-1).tolist() == [15, 51, 87, 123, 159]


def test_a_read_between_rows_is_out_of_bounds(kernels: Kernels) -> None:
    found = kernels.only("sums", matrix(), column(), *numbers(5, 7, 8), block=32)
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "read of A[0, 6], between the rows of A (5×6 float32, rows 8 apart)"
    assert found.first.line == kernels.place("read").line
    # The last row has no gap behind it: the array ends there.
    assert found.count == 5


def test_a_write_between_rows_is_out_of_bounds_and_undone(kernels: Kernels) -> None:
    c = column()
    found = kernels.only("spill", matrix(), c, *numbers(5, 6, 8), block=32)
    assert (found.kind, found.memory) == (FindingKind.OUT_OF_BOUNDS, "C[3, 1]")
    assert found.message == "write of C[3, 1], between the rows of C (5×1 float32, rows 2 apart)"
    assert c.gap_write() is None


def test_an_access_that_begins_in_a_row_and_ends_behind_it_is_out_of_bounds(kernels: Kernels) -> None:
    four = np.dtype([(axis, np.float32) for axis in "xyzw"])
    a = Buffer("A", (2, 1), four, writable=False, pitch=2)
    found = kernels.only("wide", a, column())
    assert found.message == "read of A[0, 1], between the rows of A (2×1 " + f"{four}, rows 2 apart)"


def test_scratch_that_is_not_filled_may_not_be_read_before_it_is_written(kernels: Kernels) -> None:
    empty = Buffer("seen", (4,), np.uint32, writable=True, empty=True)
    found = kernels.only("leftover", empty, column(), block=32)
    assert (found.kind, found.message) == (
        FindingKind.UNINITIALISED,
        "a read of scratch that no thread has written",
    )
    assert found.memory == "seen[0]"
    assert found.first.line == kernels.place("unwritten").line
    assert kernels.findings("counted", empty, column(), block=32) == ()


def test_scratch_that_is_filled_may_be_read(kernels: Kernels) -> None:
    filled = Buffer("seen", (4,), np.uint32, writable=True)
    filled.array[...] = 0
    assert kernels.findings("leftover", filled, column(), block=32) == ()


def test_without_checks_a_write_between_rows_is_told_after_the_launch(kernels: Kernels) -> None:
    module = kernels.rig.module(TEXT, *kernels.names)
    c = column()
    number = kernels.names.index("spill")
    report = kernels.rig.run(module, matrix(), c, *numbers(5, 6, 8), block=32, kernel=number)
    assert (report.ok, report.kind) == (False, Fault.BETWEEN_ROWS)
    assert report.message == "write of C[3, 1], between the rows of C (5×1 float32, rows 2 apart)"
    assert kernels.rig.run(module, matrix(), column(), *numbers(5, 6, 8), block=3, kernel=number).ok
