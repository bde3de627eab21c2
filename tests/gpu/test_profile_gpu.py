"""On a GPU with ncu: counters show the mistake that was planted, and not in the kernel beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeper.profile import Failed, Profile, Profiler, counters, job_of
from sweeper.profile.figures import FIGURES

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"


def _no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


pytestmark = [
    pytest.mark.skipif(_no_gpu(), reason="no GPU, or no PyCUDA"),
    pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu on PATH"),
]

CUBE = {"M": 512, "N": 512, "K": 512}

# Y = X transposed through a tile that is `pad` words wider than it is high; without, a column is one bank.
TRANSPOSE_CU = r"""
extern "C" __global__ void transpose(const float* X, float* Y, int N) {
  __shared__ float tile[32][32 + PAD];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32, row = blockIdx.y * 32;
  for (int i = 0; i < 32; i += 8) tile[y + i][x] = X[(row + y + i) * N + column + x];
  __syncthreads();
  for (int i = 0; i < 32; i += 8) Y[(column + y + i) * N + row + x] = tile[x][y + i];
}
"""

# Half of the lanes of each warp, or every other warp, take the long way: the same work.
BRANCHES_CU = r"""
extern "C" __global__ void branches(const float* X, float* Y, int N) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int way = BY_WARP ? (threadIdx.x / 32) & 1 : threadIdx.x & 1;
  float x = X[i];
  if (way) { for (int k = 0; k < 400; ++k) x = x * 0.5f + 1.0f; }
  else { for (int k = 0; k < 400; ++k) x = x * 0.25f - 1.0f; }
  Y[i] = x;
}
"""


@pytest.fixture(scope="module")
def profiler() -> Iterator[Profiler]:
    with Profiler() as profiler:
        yield profiler


@pytest.fixture(scope="module")
def products(profiler: Profiler) -> Mapping[str, Profile]:
    """The rungs and cuBLAS at 512³, by kernel."""
    wanted = [
        job_of("uncoalesced", {"block_x": 32, "block_y": 8}, CUBE),
        job_of("naive", {"block_x": 32, "block_y": 8}, CUBE),
        job_of("tiled", {"tile": 32}, CUBE),
        job_of("tiled", {"tile": 32}, CUBE, library="cublas"),
    ]
    found = counters(wanted, profiler=profiler)
    assert not [f.reason for f in found if isinstance(f, Failed)]
    return {f.job.kernel: f for f in found if isinstance(f, Profile)}


def own(folder: Path, name: str, source: str, **node: Any) -> Path:
    (folder / f"{name}.cu").write_text(source)
    described = {
        "name": name,
        "source": f"{name}.cu",
        "entry": name,
        "reference": {"kernel": name, "launch": {key: node["launch"][key] for key in ("block", "grid")}},
        **node,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(described, sort_keys=False))
    return path


def pair(profiler: Profiler, path: Path, parameter: str, dims: Mapping[str, int]) -> tuple[Profile, Profile]:
    """The kernel with the parameter 0 and 1."""
    bad, good = counters([(path, {parameter: value}, dims) for value in (0, 1)], profiler=profiler)
    assert isinstance(bad, Profile), bad.reason
    assert isinstance(good, Profile), good.reason
    return bad, good


def value(profile: Profile, name: str) -> float:
    found = profile[name]
    assert found is not None, f"{name} could not be had"
    return found


def test_every_figure_is_known_on_this_gpu(products: Mapping[str, Profile]) -> None:
    missing = {f.name for f in FIGURES} - set(products["tiled"].figures)
    assert not missing


def test_uncoalesced_loads_take_a_sector_a_lane_and_use_little_of_it(products: Mapping[str, Profile]) -> None:
    bad, good = products["uncoalesced"], products["naive"]
    assert value(bad, "load_sectors") > 12
    assert value(good, "load_sectors") < 4.5
    assert value(bad, "load_bytes_per_sector") < value(good, "load_bytes_per_sector")
    assert any("neighbouring threads should read neighbouring words" in a.text for a in bad.advice)
    assert not any("neighbouring threads should read" in a.text for a in good.advice)


def test_traffic_is_at_least_compulsory_and_near_the_model(products: Mapping[str, Profile]) -> None:
    tiled = products["tiled"]
    assert value(tiled, "dram_read_bytes") >= 0.95 * 2 * 512 * 512 * 4
    assert 0.8 < value(tiled, "l2_per_model") < 1.3


def test_theoretical_occupancy_is_our_calculator_s(products: Mapping[str, Profile]) -> None:
    for name in ("naive", "tiled"):
        profile = products[name]
        assert profile.expected.occupancy is not None
        assert value(profile, "occupancy_limit_percent") == pytest.approx(
            100 * profile.expected.occupancy, abs=0.1
        )
        assert value(profile, "occupancy_percent") <= value(profile, "occupancy_limit_percent") + 1


def test_shares_are_between_0_and_100(products: Mapping[str, Profile]) -> None:
    for profile in products.values():
        for name, figure in profile.figures.items():
            if name.endswith("_percent"):
                assert 0 <= figure <= 100.5, name
        assert 0 < sum(profile.stalls.values()) <= 100.5


def test_the_library_s_kernel_is_seen_under_its_own_name(products: Mapping[str, Profile]) -> None:
    library = products["cublas"]
    assert library.kernels
    assert not any("gemm_tiled" in name for name in library.kernels)
    assert value(library, "profiled_ms") < value(products["tiled"], "profiled_ms")


def test_a_column_of_shared_memory_is_32_ways_in_conflict_and_a_pad_ends_it(
    profiler: Profiler, tmp_path: Path
) -> None:
    path = own(
        tmp_path,
        "transpose",
        TRANSPOSE_CU,
        dims=["N"],
        params={"pad": [0, 1]},
        defines={"PAD": "pad"},
        launch={
            "block": [32, 8],
            "grid": ["N // 32", "N // 32"],
            "static_shared_bytes": "32 * (32 + pad) * 4",
        },
        args=[
            {"name": "X", "shape": ["N", "N"], "direction": "in"},
            {"name": "Y", "shape": ["N", "N"], "direction": "out"},
            {"name": "N", "scalar": "int32", "value": "N"},
        ],
    )
    bad, good = pair(profiler, path, "pad", {"N": 2048})
    assert value(bad, "shared_load_ways") == pytest.approx(32, rel=0.05)
    assert value(good, "shared_load_ways") < 1.2
    assert value(bad, "bank_conflict_percent") > 80
    assert value(good, "bank_conflict_percent") < 10
    assert any("bank conflicts" in advice.text for advice in bad.advice)
    assert not any("bank conflicts" in advice.text for advice in good.advice)


def test_lanes_that_part_ways_are_seen_and_warps_that_do_are_not(profiler: Profiler, tmp_path: Path) -> None:
    path = own(
        tmp_path,
        "branches",
        BRANCHES_CU,
        dims=["N"],
        params={"by_warp": [0, 1]},
        defines={"BY_WARP": "by_warp"},
        launch={"block": [256], "grid": ["N // 256"]},
        args=[
            {"name": "X", "shape": ["N"], "direction": "in"},
            {"name": "Y", "shape": ["N"], "direction": "out"},
            {"name": "N", "scalar": "int32", "value": "N"},
        ],
    )
    bad, good = pair(profiler, path, "by_warp", {"N": 1 << 20})
    assert value(bad, "threads_per_instruction") < 20
    assert value(good, "threads_per_instruction") > 31
    assert any("lanes are active" in advice.text for advice in bad.advice)


def test_a_results_folder_is_profiled_by_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    swept = [sys.executable, "-m", "sweeper", "kernel=tiled", "shape=256x256x256", "measure=quick"]
    subprocess.run([*swept, f"results_dir={out}"], check=True, capture_output=True, timeout=300)
    command = [sys.executable, "-m", "sweeper.profile", str(out), "--library", "cublas"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "DRAM traffic" in ran.stdout
    assert (out / "profile.csv").read_text().count("\n") == 3
