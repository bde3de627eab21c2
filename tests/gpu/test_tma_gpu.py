"""On a GPU with TMA: tensor maps by value, clusters, multicast, and the kernel that is fed by them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_rig import Bench, no_gpu

from sweeper.build.make import make_builder
from sweeper.paths import kernels_dir

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# 8×64 of C a block, a column a thread; the two blocks of a cluster get A's tile from the first of them.
CLUSTER_CU = r"""
#include "hopper.cuh"
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K,
                        const __grid_constant__ hopper::TensorMap a_map,
                        const __grid_constant__ hopper::TensorMap b_map) {
  __shared__ alignas(128) float a[8][8];
  __shared__ alignas(128) float b[8][64];
  __shared__ alignas(8) unsigned long long word;
  const unsigned barrier = hopper::shared_address(&word);
  if (threadIdx.x == 0) {
    hopper::mbarrier_init(barrier, 1);
    hopper::mbarrier_init_fence();
  }
  hopper::cluster_sync();
  const int column = blockIdx.x * 64 + threadIdx.x;
  float sum[8] = {};
  for (int k = 0, phase = 0; k < K; k += 8, phase ^= 1) {
    if (threadIdx.x == 0) {
      hopper::mbarrier_arrive_expect(barrier, sizeof(a) + sizeof(b));
      hopper::tma_load(hopper::shared_address(b), &b_map, barrier, blockIdx.x * 64, k);
      if (hopper::cluster_rank() == 0)
        hopper::tma_load_multicast(hopper::shared_address(a), &a_map, barrier, k, blockIdx.y * 8, 3);
    }
    hopper::mbarrier_wait(barrier, phase);
    for (int i = 0; i < 8; ++i)
      for (int n = 0; n < 8; ++n) sum[i] += a[i][n] * b[n][threadIdx.x];
    hopper::cluster_sync();
  }
  for (int i = 0; i < 8; ++i) {
    const int row = blockIdx.y * 8 + i;
    if (row < M && column < N) C[row * N + column] = sum[i];
  }
}
"""
CLUSTERED = {
    "launch": {"block": [64], "grid": ["2 * ceil(N / 128)", "ceil(M / 8)"], "cluster": [2]},
    "tensor_maps": [
        {"name": "a_map", "array": "A", "box": [8, 8]},
        {"name": "b_map", "array": "B", "box": [8, 64]},
    ],
    "requires": {"min_cc": "9.0"},
}

# One block tile exactly, one element, no size a multiple of a tile, more tiles than the device has blocks.
SHAPES = [
    {"M": 128, "N": 256, "K": 64},
    {"M": 1, "N": 4, "K": 4},
    {"M": 131, "N": 260, "K": 36},
    {"M": 77, "N": 61, "K": 45, "LDA": 48, "LDB": 64},
    {"M": 300, "N": 515, "K": 100, "LDB": 516, "LDC": 517},
    {"M": 2500, "N": 2500, "K": 52},
]
CONFIGURATIONS = [
    {"bm": 128, "bn": 256, "bk": 32, "wm": 64, "wn": 64, "stages": 4, "group": 8},
    {"bm": 256, "bn": 128, "bk": 16, "wm": 64, "wn": 64, "stages": 8, "group": 4},
    {"bm": 128, "bn": 128, "bk": 32, "wm": 64, "wn": 32, "stages": 3, "group": 16},
    {"bm": 192, "bn": 128, "bk": 16, "wm": 64, "wn": 32, "stages": 5, "group": 8},
    {"bm": 128, "bn": 192, "bk": 32, "wm": 64, "wn": 32, "stages": 4, "group": 8},
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("kernels"))
    if made.target.cc != (9, 0):
        made.close()
        pytest.skip("TMA kernels are written for compute capability 9.0")
    yield made
    made.close()


@pytest.mark.parametrize("dims", SHAPES, ids=lambda d: "x".join(map(str, d.values())))
def test_the_pipeline_is_right_at_edges_and_with_gaps_between_rows(
    bench: Bench, dims: dict[str, int]
) -> None:
    spec = bench.shipped("tma_pipeline")
    for params in CONFIGURATIONS:
        outcome = bench.measure(spec, dims, params)
        assert outcome.check is not None
        assert outcome.check.passed, params
        assert outcome.build is not None
        assert outcome.build.local_bytes == 0, params


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_either_compiler_builds_it(bench: Bench, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = make_builder("cuda", compiler, cache=True)
    monkeypatch.setattr(bench, "builder", builder)
    try:
        outcome = bench.measure(bench.shipped("tma_pipeline"), SHAPES[0])
    finally:
        builder.close()
    assert outcome.check is not None
    assert outcome.check.passed
    assert outcome.build is not None
    assert outcome.build.compiler.startswith(compiler)


def test_blocks_of_a_cluster_share_what_one_of_them_loads(bench: Bench) -> None:
    shutil.copy(kernels_dir() / "common" / "hopper.cuh", Path(bench.folder))
    spec = bench.load("clustered", CLUSTER_CU, **CLUSTERED)
    for dims in ({"M": 64, "N": 256, "K": 64}, {"M": 13, "N": 196, "K": 20}):
        outcome = bench.measure(spec, dims)
        assert outcome.check is not None
        assert outcome.check.passed
        assert outcome.launch is not None
        assert outcome.launch.cluster == (2, 1, 1)
