"""Few rows of A past a streamed B: what the description promises of its space and launches, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.dtypes import dtype as precision
from sweeper.errors import NoValidConfiguration
from sweeper.model import KernelSpec
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import launch_of, why_not_emulable, why_not_launchable, why_unsupported
from sweeper.space import Space

H200 = target("h200")
CLASSES = ["float32", "float64", "float16", "bfloat16"]


def described(dtype: str = "float32") -> KernelSpec:
    with Composer() as composer:
        return composer.compose(["kernel=streamed_gemv", f"++kernel.dtype={dtype}"])[0]


def sizes(m: int, n: int = 4096, k: int = 4096, **gaps: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n, **gaps}


def sample(space: Space, most: int = 800) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


def tiles(params: Mapping[str, Any], dims: Mapping[str, int], size: int) -> int:
    """Strips of columns times groups of rows."""
    columns, rows = int(params["panels"]) * 128 // size, int(params["rows"])
    return -(-dims["N"] // columns) * -(-dims["M"] // rows)


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("m", [1, 3, 8, 16, 20, 32])
def test_there_are_configurations_for_every_few_rows(dtype: str, m: int) -> None:
    assert len(feasible_space(described(dtype), sizes(m), H200)) > 50


@pytest.mark.parametrize("dtype", CLASSES)
def test_the_default_configuration_is_feasible(dtype: str) -> None:
    spec = described(dtype)
    assert feasible_space(spec, sizes(16), H200).why_infeasible(spec.default_point) is None


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("shape", [(3, 4096, 4096), (16, 14336, 4096), (32, 8, 24)])
def test_every_configuration_can_be_built_and_launched(dtype: str, shape: tuple[int, int, int]) -> None:
    """What the source asserts, and what the device has, said once more: no feasible point fails for it."""
    spec, dims, size = described(dtype), sizes(*shape), precision(dtype).bytes
    for p in sample(feasible_space(spec, dims, H200)):
        launch = launch_of(spec, spec.default_point.of(p), dims, H200)
        assert why_not_launchable(launch, H200) is None, p
        assert launch.threads == p["panels"] * p["down"] * 32 + 32
        assert launch.cluster == (p["cluster"], 1, 1)
        assert p["bk"] * size % 128 == 0
        assert p["bk"] % (p["down"] * min(16, 64 // size)) == 0
        assert size > 2 or p["rows"] % 8 == 0
        ring = p["stages"] * p["bk"] * (p["panels"] * 128 + p["rows"] * size)
        sums = p["down"] * p["rows"] * p["panels"] * 128 // size * max(4, size)
        barriers = 8 * (2 * p["stages"] + 2)
        # Up to 1023 bytes go to the ring's alignment.
        assert launch.shared_bytes >= 1023 + ring + sums + barriers
        assert p["blocks"] * (launch.shared_bytes + 1024) <= H200.max_shared_bytes + 1024


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("m", [1, 5, 16, 40])
def test_no_configuration_multiplies_twice_the_rows_that_there_are(dtype: str, m: int) -> None:
    least = 8 if precision(dtype).bytes == 2 else 1
    for p in sample(feasible_space(described(dtype), sizes(m), H200), 200):
        assert p["rows"] < 2 * max(m, least)


@pytest.mark.parametrize("shape", [(1, 4096, 4096), (16, 14336, 4096), (16, 128256, 4096), (33, 40, 64)])
def test_as_few_clusters_as_take_no_more_turns_than_all_that_the_device_holds(
    shape: tuple[int, int, int],
) -> None:
    spec, dims = described(), sizes(*shape)
    for p in sample(feasible_space(spec, dims, H200), 300):
        blocks = launch_of(spec, spec.default_point.of(p), dims, H200).grid[0]
        assert blocks % p["cluster"] == 0
        clusters, held = blocks // p["cluster"], p["blocks"] * H200.sm_count // p["cluster"]
        needed = tiles(p, dims, 4)
        assert clusters <= min(held, needed)
        turns = -(-needed // clusters)
        assert turns == -(-needed // held)
        assert (clusters - 1) * turns < needed


@pytest.mark.parametrize(("gaps", "reason"), [({"LDB": 4097}, "LDB = 4097"), ({"LDA": 4098}, "LDA = 4098")])
def test_rows_that_tma_cannot_read_are_a_reason(gaps: dict[str, int], reason: str) -> None:
    with pytest.raises(NoValidConfiguration, match=reason):
        feasible_space(described(), sizes(4, **gaps), H200)


def test_rows_of_the_result_may_begin_anywhere() -> None:
    assert len(feasible_space(described(), sizes(4, LDC=4099), H200)) > 50


def test_it_runs_where_tma_is() -> None:
    assert why_unsupported(described(), sizes(4), H200) is None
    assert why_unsupported(described(), sizes(4), target("a100")) == "needs cc >= 9.0, have 8.0"
    assert "TMA" in (why_not_emulable(described()) or "")
