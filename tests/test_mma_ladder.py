"""The rungs on mma.sync: every one has a description, a space without dead points, and is right in the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.tensor_contract")

from contract.tensor_contract import CASES, CLASSES, CONFIGURATIONS, TensorContract  # noqa: E402

from sweeper.check import check_kernel  # noqa: E402
from sweeper.check.compose import Composer  # noqa: E402
from sweeper.device import target  # noqa: E402
from sweeper.dtypes import dtype as precision  # noqa: E402
from sweeper.model import KernelSpec  # noqa: E402
from sweeper.paths import conf_dir  # noqa: E402
from sweeper.resources.feasible import feasible_space  # noqa: E402
from sweeper.resources.geometry import launch_of, why_not_launchable  # noqa: E402

H200 = target("h200")
SHAPES = {"square": (4096, 4096, 4096), "odd": (1000, 900, 77), "few_rows": (3, 4096, 4096)}
MULTIPLIED = [name for name in CONFIGURATIONS if name != "wmma"]


def described(name: str, dtype: str) -> KernelSpec:
    with Composer() as composer:
        return composer.compose([f"kernel={name}", f"++kernel.dtype={dtype}"])[0]


def dims(name: str) -> dict[str, int]:
    m, n, k = SHAPES[name]
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n}


def sample(spec: KernelSpec, sizes: Mapping[str, int], most: int = 1500) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    space = feasible_space(spec, sizes, H200)
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


class TestTensorLadderEmulated(TensorContract):
    backend = "emulator"


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_configuration_of_a_rung_can_be_launched(name: str, dtype: str) -> None:
    """Whole sizes within the device's limits, whole warps, and no more shared memory than there is."""
    spec = described(name, dtype)
    for params in sample(spec, dims("odd")):
        launch = launch_of(spec, spec.default_point.of(params), dims("odd"), H200)
        assert why_not_launchable(launch, H200) is None, params
        assert launch.threads % H200.warp_size == 0, params


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_rung_has_configurations_at_every_kind_of_shape(name: str, dtype: str, shape: str) -> None:
    assert len(feasible_space(described(name, dtype), dims(shape), H200)) > 50


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_configurations_that_are_known_are_feasible(name: str, dtype: str) -> None:
    """The default, which is one of the fastest, and those that the contract runs."""
    spec = described(name, dtype)
    space = feasible_space(spec, dims("square"), H200)
    for point in (spec.default_point, *map(spec.default_point.of, CONFIGURATIONS[name])):
        assert space.why_infeasible(point) is None


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_walk_is_only_asked_for_tiles_that_divide(name: str) -> None:
    """What the source asserts at compile time, said once more: no feasible point fails to build for it."""
    for dtype in CLASSES[name]:
        size = precision(dtype).bytes
        for p in sample(described(name, dtype), dims("square")):
            threads = p["bm"] // p["wm"] * (p["bn"] // p["wn"]) * 32
            assert p["bm"] % p["wm"] == p["bn"] % p["wn"] == 0
            step = p["depth"] if name == "dmma" else 32 // size
            assert p["bk"] % step == 0
            assert not p["ahead"] or p["bk"] // step % 2 == 0
            assert p["bn"] * size >= 128
            for rows, row in ((p["bm"], p["bk"] * size), (p["bk"], p["bn"] * size)):
                assert threads % (row // 16) == 0
                assert rows % (threads // (row // 16)) == 0
            assert p["stages"] * (p["bm"] + p["bn"]) * p["bk"] * size <= H200.max_shared_bytes


def test_deep_products_of_float64_are_left_to_gpus_that_have_them() -> None:
    """Before compute capability 9.0 there is only the one of depth 4."""
    space = feasible_space(described("dmma", "float64"), dims("square"), target("a100"))
    assert {space.point(row).params["depth"] for row in range(len(space))} == {4}


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_rung_is_clean_in_check_mode(name: str, dtype: str) -> None:
    """Races, reads of what nobody wrote, copies that nobody waited for, and results that depend on the order."""
    report = check_kernel(
        conf_dir() / "kernel" / f"{name}.yaml",
        overrides=[f"kernel.dtype={dtype}"],
        configurations=3,
        shapes_each=3,
    )
    assert report.clean, str(report)
