"""The GEMM ladder: every rung has a description, a space without dead points, and is right in the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.ladder_contract")

from contract.ladder_contract import CASES, CONFIGURATIONS, LadderContract, rows_touch  # noqa: E402

from sweeper.check import check_kernel  # noqa: E402
from sweeper.check.compose import Composer  # noqa: E402
from sweeper.device import target  # noqa: E402
from sweeper.model import KernelSpec  # noqa: E402
from sweeper.paths import conf_dir  # noqa: E402
from sweeper.resources.feasible import feasible_space  # noqa: E402
from sweeper.resources.geometry import launch_of, why_not_launchable  # noqa: E402

H200 = target("h200")
FEW = {"gemv": "few_rows", "gemv_columns": "few_columns"}
SHAPES = {
    "square": (4096, 4096, 4096),
    "odd": (1000, 900, 77),
    "deep": (64, 64, 65536),
    "few_rows": (3, 4096, 4096),
    "few_columns": (4096, 3, 4096),
}


def described(name: str, dtype: str = "float32") -> KernelSpec:
    with Composer() as composer:
        return composer.compose([f"kernel={name}", f"++kernel.dtype={dtype}"])[0]


def dims(name: str) -> dict[str, int]:
    m, n, k = SHAPES[name]
    return {"M": m, "N": n, "K": k, **rows_touch(n, k)}


def sample(spec: KernelSpec, sizes: Mapping[str, int], most: int = 1500) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    space = feasible_space(spec, sizes, H200)
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


class TestLadderEmulated(LadderContract):
    backend = "emulator"


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_configuration_of_a_rung_can_be_launched(name: str, dtype: str) -> None:
    """Whole sizes within the device's limits, whole warps, and no more shared memory than there is."""
    spec = described(name, dtype)
    sizes = dims(FEW.get(name, "odd"))
    for params in sample(spec, sizes):
        point = spec.default_point.of(params)
        launch = launch_of(spec, point, sizes, H200)
        assert why_not_launchable(launch, H200) is None, params
        assert launch.threads % H200.warp_size == 0, params


@pytest.mark.parametrize("name", list(CONFIGURATIONS))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rung_has_configurations_at_every_kind_of_shape(name: str, shape: str) -> None:
    assert len(feasible_space(described(name), dims(shape), H200)) > 50


@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_the_default_configuration_is_feasible(name: str) -> None:
    spec = described(name)
    m, n = {"gemv": (8, 4096), "gemv_columns": (4096, 8)}.get(name, (4096, 4096))
    sizes = {"M": m, "N": n, "K": 4096, **rows_touch(n, 4096)}
    assert feasible_space(spec, sizes, H200).why_infeasible(spec.default_point) is None


@pytest.mark.parametrize("name", ["async_pipeline", "split_k"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pipeline_is_only_asked_for_tiles_that_divide(name: str, dtype: str) -> None:
    """What the source asserts at compile time, said once more: no feasible point fails to build for it."""
    spec = described(name, dtype)
    size = 8 if dtype == "float64" else 4
    width = 16 // size
    for p in sample(spec, dims("deep")):
        warps = p["bm"] // p["wm"] * (p["bn"] // p["wn"])
        threads = 32 * warps
        assert p["bm"] % p["wm"] == p["bn"] % p["wn"] == p["wm"] % p["tm"] == p["wn"] % p["tn"] == 0
        assert (p["wm"] // p["tm"]) * (p["wn"] // p["tn"]) == 32
        assert p["tm"] % width == p["tn"] % width == p["unroll"] % 2 == p["bk"] % (8 * p["bursts"]) == 0
        assert p["bk"] // p["bursts"] % p["unroll"] == 0
        assert p["bm"] % (threads // 8) == 0
        assert threads % (p["bn"] // width) == 0
        assert p["bk"] * p["bn"] // width % threads == 0
        ring = p["stages"] * p["bk"] * (p["bm"] + width + p["bn"])
        assert warps * (p["wm"] // p["tm"]) * (p["wn"] + width) <= ring
        assert ring * size <= H200.max_shared_bytes


@pytest.mark.parametrize("name", [*CONFIGURATIONS, "batched_pipeline", "batched_split_k"])
def test_a_rung_is_clean_in_check_mode(name: str) -> None:
    """Races, reads of what nobody wrote, copies that nobody waited for, and results that depend on the order."""
    report = check_kernel(conf_dir() / "kernel" / f"{name}.yaml", configurations=3, shapes_each=3)
    assert report.clean, str(report)
