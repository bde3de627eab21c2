"""Rung 11 without a GPU: what it may be asked for, how it is launched, and which rows are copied."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.model import KernelSpec, Launch, Point
from sweeper.problem import Problem, resolve
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import launch_of, why_not_launchable

H200 = target("h200")
SHAPES = {
    "square": (4096, 4096, 4096),
    "odd": (1025, 1025, 1025),
    "few rows": (128, 4096, 4096),
    "deep": (64, 64, 65536),
    "tall": (32768, 32, 4096),
    "one element": (1, 1, 1),
}
SMALLEST = {"bm": 64, "bn": 64, "bk": 32, "wm": 64, "wn": 64, "wk": 8, "stages": 4, "group": 8}


@cache
def described() -> KernelSpec:
    with Composer() as composer:
        return composer.compose(["kernel=stream_k"])[0]


def sizes(m: int, n: int, k: int, **leading: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n} | leading


def point(**params: Any) -> Point:
    spec = described()
    return spec.default_point.of({**spec.default_point.params, **params})


def launch(dims: dict[str, int], **params: Any) -> Launch:
    return launch_of(described(), point(**params), dims, H200)


def problem(dims: dict[str, int], **params: Any) -> Problem:
    return resolve(described(), dims, point(**params), seed=0)


def points(dims: dict[str, int], most: int = 1500) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    space = feasible_space(described(), dims, H200)
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


@pytest.mark.parametrize("shape", SHAPES)
def test_there_are_configurations_at_every_kind_of_shape(shape: str) -> None:
    """The default among them; nothing that can win is left out for an alignment."""
    dims = sizes(*SHAPES[shape])
    space = feasible_space(described(), dims, H200)
    assert len(space) > 1000
    assert space.why_infeasible(described().default_point) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_every_configuration_can_be_launched_and_built(shape: str) -> None:
    """Within the device's limits, and what the source asserts at compile time holds."""
    dims = sizes(*SHAPES[shape])
    for p in points(dims):
        how = launch(dims, **p)
        assert why_not_launchable(how, H200) is None, p
        # The blocks wait for each other, so all of them have to run at the same time; those of clusters do not.
        assert 1 <= how.blocks <= H200.sm_count or p["parts"] > 1, p
        copies = dims["LDA"] % 4 > 0 or dims["LDB"] % 4 > 0
        assert p["parts"] == 1 or (p["stream"] == 0 and not copies), p
        assert p["parts"] <= -(-dims["K"] // p["bk"]), p
        warps = p["bm"] // p["wm"] * (p["bn"] // p["wn"]) * p["wk"]
        assert how.threads == 32 * warps + 128, p
        assert p["bm"] % p["wm"] == p["bn"] % p["wn"] == 0, p
        assert p["bk"] % (4 * p["wk"]) == 0, p
        assert p["bm"] * p["bn"] % 512 == 0, p
        ring = p["stages"] * (p["bm"] + p["bn"]) * p["bk"] * 4
        exchanged = 0 if p["wk"] == 1 and p["wm"] == 64 else warps * (p["wm"] // 8) * 32 * 16
        assert p["parts"] == 1 or p["bm"] * p["bn"] * 4 <= ring, p
        assert how.shared_bytes >= 1023 + ring + 16 * p["stages"] + exchanged, p


def test_whole_tiles_need_no_more_blocks_than_there_are_tiles() -> None:
    assert launch(sizes(128, 4096, 4096), **SMALLEST, stream=0).grid == (128, 1, 1)
    assert launch(sizes(4096, 4096, 4096), **SMALLEST, stream=0).grid == (132, 1, 1)


def test_work_is_dealt_to_all_multiprocessors_as_far_as_it_goes() -> None:
    assert launch(sizes(64, 64, 65536), **SMALLEST, stream=2).grid == (132, 1, 1)
    assert launch(sizes(64, 64, 100), **SMALLEST, stream=2).grid == (4, 1, 1)


def test_equal_parts_a_tile_fill_as_many_multiprocessors_as_their_number_allows() -> None:
    """Of 50 tiles, two parts each."""
    assert launch(sizes(64, 3200, 4096), **SMALLEST, stream=1).grid == (100, 1, 1)
    space = feasible_space(described(), sizes(64, 6400, 4096), H200)
    why = space.why_infeasible(point(**SMALLEST, stream=1))
    assert why is not None
    assert "stream != 1" in why


def test_parts_of_a_tile_make_up_a_cluster() -> None:
    how = launch(sizes(512, 512, 512), **SMALLEST, stream=0, parts=2)
    assert (how.grid, how.cluster) == ((128, 1, 1), (2, 1, 1))


def test_partial_sums_have_two_slots_a_block_and_none_where_tiles_are_whole() -> None:
    def slots(stream: int) -> int:
        dims = sizes(1024, 1024, 1024)
        (partial,) = (a for a in problem(dims, **SMALLEST, stream=stream).scratch if a.name == "partial")
        assert partial.shape[1:] == (64, 64)
        return partial.shape[0]

    assert slots(0) == 0
    assert slots(2) >= 2 * H200.sm_count


@pytest.mark.parametrize(
    ("leading", "arrays", "copied"),
    [
        ({}, ["A", "B"], [0, 0]),
        ({"LDA": 101}, ["a_copy", "B"], [60 * 100, 0]),
        ({"LDB": 83}, ["A", "b_copy"], [0, 100 * 80]),
        ({"LDA": 101, "LDB": 83, "LDC": 85}, ["a_copy", "b_copy"], [60 * 100, 100 * 80]),
    ],
)
def test_only_rows_that_tma_cannot_read_are_copied(
    leading: dict[str, int], arrays: list[str], copied: list[int]
) -> None:
    at = problem(sizes(60, 80, 100, **leading))
    assert [made.array for made in at.tensor_maps] == arrays
    assert [a.size for a in at.scratch if a.name.endswith("copy")] == copied
    assert feasible_space(described(), sizes(60, 80, 100, **leading), H200)


def test_a_copy_has_rows_of_whole_16_bytes() -> None:
    a_map, b_map = problem(sizes(60, 81, 101)).tensor_maps
    assert (a_map.sizes, a_map.strides) == ((104, 60), (416,))
    assert (b_map.sizes, b_map.strides) == ((84, 101), (336,))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
@pytest.mark.parametrize(
    "params",
    [
        SMALLEST,
        {},
        {"bm": 192, "bn": 192, "wm": 96, "wn": 48, "stages": 3},
        {"bm": 128, "bn": 32, "wn": 32, "wk": 4},
        {**SMALLEST, "stream": 0, "parts": 4},
    ],
    ids=["all of k shared", "none shared", "squares", "narrow", "clusters"],
)
def test_everything_is_kept_in_registers(tmp_path: Path, params: dict[str, Any]) -> None:
    """Tiles that fill the register file, in the warps that multiply; few registers in those that load."""
    spec = described()
    builder = NvccBuilder(BuildCache(tmp_path / "cache"))
    try:
        build = builder.build(translation_unit(spec, point(**params)), arch="sm_90a", deadline_s=120)
    finally:
        builder.close()
    assert build.spill_bytes == 0
    assert build.local_bytes == 0
