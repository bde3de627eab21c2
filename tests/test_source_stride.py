"""How far apart a kernel puts its blocks, read from its source; and whom the block's own number is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.source.entry import find_entry
from sweeper.source.includes import read_tree
from sweeper.source.stride import BlockStride, block_strides


def strides(folder: Path, body: str, before: str = "", after: str = "") -> dict[tuple[int, str], BlockStride]:
    """By axis and name, those of a kernel with this body."""
    path = folder / "k.cu"
    path.write_text(
        f"{before}\n__global__ void __launch_bounds__(256) k(float* y, int n) {{\n{body}\n}}\n{after}\n"
    )
    tree = read_tree(path, (folder,))
    signature = find_entry(tree, "k")
    assert signature is not None
    return {(s.axis, s.name): s for s in block_strides(signature, tree)}


@pytest.mark.parametrize(
    "body",
    [
        "y[blockIdx.x * TILE + threadIdx.x] = 0;",
        "y[threadIdx.x + blockIdx.x * TILE] = 0;",
        "y[TILE * blockIdx.x + threadIdx.x] = 0;",
        "int i = (blockIdx.x * TILE) + threadIdx.x; y[i] = 0;",
        "const int x = threadIdx.x, y0 = threadIdx.y; int i = blockIdx.x * TILE + x; y[i] = 0;",
        "const int b = blockIdx.x; int x = threadIdx.x; y[b * TILE + x] = 0;",
    ],
)
def test_an_index_is_found_however_it_is_written(tmp_path: Path, body: str) -> None:
    assert set(strides(tmp_path, body)) == {(0, "TILE")}


def test_each_axis_has_its_own(tmp_path: Path) -> None:
    body = """int row = blockIdx.y * BM + threadIdx.y;
    int column = blockIdx.x * BN + threadIdx.x;
    int plane = blockIdx.z * BK + threadIdx.z;"""
    assert set(strides(tmp_path, body)) == {(1, "BM"), (0, "BN"), (2, "BK")}


@pytest.mark.parametrize(
    "body",
    [
        "y[blockIdx.x * blockDim.x + threadIdx.x] = 0;",
        "y[blockIdx.x * TILE + threadIdx.y] = 0;",
        "y[blockIdx.x * TILE + 4 * threadIdx.x] = 0;",
        "y[blockIdx.x * TILE + threadIdx.x * 4] = 0;",
        "y[blockIdx.x * TILE * 2 + threadIdx.x] = 0;",
        "y[2 * blockIdx.x * TILE + threadIdx.x] = 0;",
        "y[blockIdx.x * TILE - threadIdx.x] = 0;",
        "int x = threadIdx.x % 8; y[blockIdx.x * TILE + x] = 0;",
        "y[blockIdx.x * TILE] = 0;",
        "y[threadIdx.x] = 0;",
        "// y[blockIdx.x * TILE + threadIdx.x] = 0;",
    ],
)
def test_what_is_another_index_is_none_of_these(tmp_path: Path, body: str) -> None:
    assert not [name for _, name in strides(tmp_path, body) if name == "TILE"]


INDEX = "const int i = blockIdx.x * TILE + threadIdx.x; y[i] = 0;"


def allows(folder: Path, body: str, threads: int = 8, block: int = 64, **around: str) -> bool:
    return strides(folder, body, **around)[0, "TILE"].allows(threads, block)


def test_a_kernel_that_knows_of_no_other_number_is_right_with_its_tile_only(tmp_path: Path) -> None:
    assert not allows(tmp_path, INDEX)
    assert not allows(tmp_path, INDEX + " for (int k = 0; k < TILE; ++k) y[i] += k;")


@pytest.mark.parametrize(
    "more",
    [
        " for (int j = threadIdx.x; j < TILE; j += blockDim.x) y[j] = 0;",
        " for (int j = 0; j < TILE; j += 8) y[i + j] = 0;",
        " for (int j = 0; j < TILE; j += 8u) y[i + j] = 0;",
        " if (threadIdx.x < TILE) y[0] = 0;",
        " if (threadIdx.x >= TILE) return;",
        " y[i + TILE / 2] = 0;",
        " y[i + (TILE >> 1)] = 0;",
        " for (int j = 0; j < TILE * TILE; j += 64) y[j] = 0;",
    ],
)
def test_a_kernel_that_deals_with_fewer_threads_is_believed(tmp_path: Path, more: str) -> None:
    assert allows(tmp_path, INDEX + more)


def test_the_number_may_stand_in_a_constant_or_a_helper(tmp_path: Path) -> None:
    assert allows(tmp_path, INDEX, before="constexpr int ROWS = 8;")
    assert allows(tmp_path, INDEX, before="#define ROWS 8")
    assert allows(tmp_path, INDEX, before="__device__ int wide() { return blockDim.x; }")


def test_a_default_of_the_tile_and_another_kernel_say_nothing(tmp_path: Path) -> None:
    assert not allows(tmp_path, INDEX, before="#ifndef TILE\n#define TILE 8\n#endif")
    assert not allows(tmp_path, INDEX, after="__global__ void plain(float* y) { y[blockDim.x] = 8; }")


def test_one_thread_may_do_it_all_and_a_warp_may_know_its_size(tmp_path: Path) -> None:
    assert allows(tmp_path, INDEX, threads=1, block=1)
    assert allows(tmp_path, INDEX + " y[i + warpSize] = 0;", threads=32, block=32)
    assert not allows(tmp_path, INDEX + " y[i + warpSize] = 0;", threads=64, block=64)


def test_a_declaration_without_a_body_has_no_index(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "__global__ void k(float* y);\n__global__ void other() { int i = blockIdx.x * TILE + threadIdx.x; }\n"
    )
    tree = read_tree(path, (tmp_path,))
    signature = find_entry(tree, "k")
    assert signature is not None
    assert block_strides(signature, tree) == ()
