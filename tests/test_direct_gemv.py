"""Few rows of A and B straight into registers: right in the emulator, and what the description promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeper.check import check_kernel
from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.errors import NoValidConfiguration
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import launch_of, why_not_emulable, why_not_launchable, why_unsupported
from sweeper.space import Space

H200 = target("h200")
CLASSES = ["bfloat16", "float16"]


def described(dtype: str = "bfloat16") -> KernelSpec:
    with Composer() as composer:
        return composer.compose(["kernel=direct_gemv", f"++kernel.dtype={dtype}"])[0]


def sizes(m: int, n: int = 4096, k: int = 4096, **gaps: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n, **gaps}


def sample(space: Space, most: int = 800) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The description without its clusters, each block alone with its strip: what the emulator can run."""
    node = yaml.safe_load((conf_dir() / "kernel" / "direct_gemv.yaml").read_text(encoding="utf-8"))
    del node["launch"]["cluster"]
    node["params"]["cluster"] = [1]
    node["default"]["cluster"] = 1
    path = tmp_path / "kernel" / "alone.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**node, "name": "alone"}), encoding="utf-8")
    return path


@pytest.mark.parametrize("dtype", CLASSES)
def test_a_block_alone_with_its_strip_is_right_and_races_with_nobody(alone: Path, dtype: str) -> None:
    """All but the clusters: which lane has what of B and of A, the walk along K, and the sums' meeting."""
    report = check_kernel(alone, overrides=[f"kernel.dtype={dtype}"], configurations=5, shapes_each=5)
    assert report.clean, str(report)


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("m", [1, 3, 8, 16, 20, 32])
def test_there_are_configurations_for_every_few_rows(dtype: str, m: int) -> None:
    assert len(feasible_space(described(dtype), sizes(m), H200)) > 50


@pytest.mark.parametrize("dtype", CLASSES)
def test_the_default_configuration_is_feasible(dtype: str) -> None:
    spec = described(dtype)
    assert feasible_space(spec, sizes(16), H200).why_infeasible(spec.default_point) is None


@pytest.mark.parametrize("shape", [(3, 4096, 4096), (16, 28672, 4096), (40, 8, 24)])
def test_every_configuration_can_be_built_and_launched(shape: tuple[int, int, int]) -> None:
    """What the source asserts, and what the device has, said once more: no feasible point fails for it."""
    spec, dims = described(), sizes(*shape)
    for p in sample(feasible_space(spec, dims, H200)):
        launch = launch_of(spec, spec.default_point.of(p), dims, H200)
        assert why_not_launchable(launch, H200) is None, p
        assert launch.threads == p["across"] * p["down"] * 32
        assert launch.cluster == (p["cluster"], 1, 1)
        assert launch.grid[0] == -(-dims["N"] // (8 * p["width"] * p["across"])) * p["cluster"]
        assert launch.grid[1] == -(-dims["M"] // p["rows"])
        # A part from every warp of the cluster of this block's rows, and a barrier.
        parts = p["cluster"] * p["down"] * (p["rows"] // p["cluster"]) * p["across"] * 8 * p["width"]
        assert launch.shared_bytes == 4 * parts + 16


@pytest.mark.parametrize("m", [1, 5, 16, 40])
def test_no_configuration_multiplies_twice_the_rows_that_there_are(m: int) -> None:
    for p in sample(feasible_space(described(), sizes(m), H200), 200):
        assert p["rows"] < 2 * max(m, 8)


@pytest.mark.parametrize(
    ("shape", "gaps"), [((4, 4100, 4096), {}), ((4, 4096, 4100), {}), ((4, 64, 64), {"LDB": 68})]
)
def test_rows_that_do_not_begin_where_16_bytes_do_are_a_reason(
    shape: tuple[int, int, int], gaps: dict[str, int]
) -> None:
    dims = sizes(*shape, **gaps)
    with pytest.raises(NoValidConfiguration):
        feasible_space(described(), dims, H200)


def test_it_runs_where_clusters_are() -> None:
    assert why_unsupported(described(), sizes(4), H200) is None
    assert why_unsupported(described(), sizes(4), target("a100")) == "needs cc >= 9.0, have 8.0"
    assert "clusters" in (why_not_emulable(described()) or "")
