"""On a GPU: what the worker loads, proves, times and survives. Kernels are compiled here, run there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.errors import TrialFailed
from sweeper.kernel import description as kernel
from sweeper.model import KernelSpec, Point, Stage, Status
from sweeper.statistics import summary
from sweeper.worker.pool import DeviceWorker

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"

# What `gemm<T, act>` does beside the product, by the position of its name.
ACTS = (
    "right",
    "nothing",
    "one_nan",
    "half",
    "past_end",
    "before_start",
    "into_input",
    "from_memory",
    "unsteady",
    "illegal_address",
    "trap",
    "assert",
    "misaligned",
    "endless",
    "prints",
)

GEMM_CU = r"""
#include <cassert>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <typename T> struct Sum { using type = float; };
template <> struct Sum<double> { using type = double; };

__device__ bool known[1 << 20];
__device__ double kept[1 << 20];

template <typename T, int act>
__global__ void gemm(const T* A, const T* B, T* C, int M, int N, int K) {
  using S = typename Sum<T>::type;
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  const bool first = i == 0 && j == 0;
  if (act == 1 || i >= M || j >= N) return;
  S sum = 0;
  for (int k = 0; k < K; ++k) sum += S(A[i * K + k]) * S(B[k * N + j]);
  const int at = i * N + j;
  if (act == 3 && i >= M / 2) return;
  if (act == 7) {
    if (known[at]) sum = S(kept[at]);
    kept[at] = double(sum);
    known[at] = true;
  }
  if (act == 8) sum *= S(1) + S(clock64() & 3) * S(1e-7);
  C[at] = T(sum);
  if (act == 2 && i == 1 && j == 1) C[at] = T(S(0) / (S(0) * sum));
  if (!first) return;
  if (act == 4) C[M * N + 2] = T(S(1));
  if (act == 5) C[-1] = T(S(1));
  if (act == 6) const_cast<T*>(A)[0] = T(S(3));
  if (act == 9) C[1ll << 42] = T(S(1));
  if (act == 10) __trap();
  if (act == 11) assert(M < 0);
  if (act == 12) *reinterpret_cast<int*>(reinterpret_cast<char*>(C) + 1) = 1;
  if (act == 13) while (clock64() != 0) {}
  if (act == 14) for (int n = 0; n < 50; ++n) printf("{\"id\": \"1\", \"reply\": {\"ok\": true}}\n");
}
"""

COPY_CU = r"""
#include <cuda_fp16.h>
template <typename T, int block, int heavy>
__global__ void copy(const T* x, T* y, T scale, int n) {
  extern __shared__ float scratch[];
  const int i = blockIdx.x * block + threadIdx.x;
  if (heavy) {
    float r[160];
#pragma unroll
    for (int j = 0; j < 160; ++j) r[j] = float(x[(i * 7 + j) % n]);
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 160; ++j) sum += r[j] * r[159 - j] + r[(j * 3) % 160];
    if (i < n) y[i] = T(sum);
    return;
  }
  scratch[threadIdx.x] = 0;
  if (i < n) y[i] = x[i] * scale;
}
"""

PLAIN_CU = r"""
template <typename T>
__global__ void product(const T* A, const T* B, SUM* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  SUM sum = 0;
  for (int k = 0; k < K; ++k) sum += SUM(A[i * K + k]) * SUM(B[k * N + j]);
  C[i * N + j] = sum;
}
"""


def _no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


pytestmark = pytest.mark.skipif(_no_gpu(), reason="no GPU, or no PyCUDA")

SHAPE = {"M": 131, "N": 77, "K": 200}
QUICK = MeasureProtocol(warmup_ms=2.0, min_samples=6, max_samples=20, max_seconds=0.5, deadline_s=20.0)


class Gpu:
    """A worker on GPU 0 with a compiler beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worker = DeviceWorker("cuda")
        self.target, self.identity = self.worker.open()
        self.builder = NvccBuilder(BuildCache(folder / "cache"))
        self.spec: KernelSpec | None = None
        self._where: tuple[str, str] | None = None

    def load(self, name: str, source: str, **node: Any) -> KernelSpec:
        (self.folder / f"{name}.cu").write_text(source)
        return kernel.load({"name": name, "source": f"{name}.cu", **node}, self.folder / f"{name}.yaml")

    def prepare(self, spec: KernelSpec, dims: dict[str, int]) -> None:
        """Prepare, unless that is what is prepared."""
        where = (spec.node_json, json.dumps(dims))
        if where != self._where:
            self._where = None
            self.worker.prepare(spec, dims, seed=7)
            self.spec, self._where = spec, where

    def measure(self, params: dict[str, Any], protocol: MeasureProtocol = QUICK) -> Outcome:
        assert self.spec is not None
        point = Point.of(params)
        unit = translation_unit(self.spec, point)
        build = self.builder.build(unit, arch=self.target.arch, deadline_s=120)
        return self.worker.measure(point, build, protocol)

    def failure(self, params: dict[str, Any], protocol: MeasureProtocol = QUICK) -> TrialFailed:
        with pytest.raises(TrialFailed) as caught:
            self.measure(params, protocol)
        return caught.value


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    gpu = Gpu(tmp_path_factory.mktemp("gpu"))
    yield gpu
    gpu.worker.close()


def gemm(gpu: Gpu, dtype: str = "float32", dims: dict[str, int] | None = None) -> Gpu:
    """`gpu` with the GEMM of many acts prepared."""
    spec = gpu.load(
        f"gemm_{dtype}",
        GEMM_CU,
        entry="gemm",
        template=["T", "act"],
        dtype=dtype,
        dtypes=["float32", "float64", "float16", "bfloat16"],
        dims=["M", "N", "K"],
        params={"act": list(range(len(ACTS)))},
        launch={"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)"]},
        args=[*_matrices(None), *({"name": d, "scalar": "int32", "value": d} for d in "MNK")],
        reference={"contraction": "mk,kn->mn"},
    )
    gpu.prepare(spec, dims or SHAPE)
    return gpu


def _matrices(output: str | None) -> list[dict[str, Any]]:
    c = {"name": "C", "shape": ["M", "N"], "direction": "out"}
    return [
        {"name": "A", "shape": ["M", "K"], "direction": "in"},
        {"name": "B", "shape": ["K", "N"], "direction": "in"},
        {**c, "dtype": output} if output else c,
    ]


def copy(gpu: Gpu, dtype: str = "float32", size: int = 100_000) -> Gpu:
    """`gpu` with a copy prepared whose block, registers and shared memory can be chosen."""
    spec = gpu.load(
        f"copy_{dtype}",
        COPY_CU,
        entry="copy",
        template=["T", "block", "heavy"],
        dtype=dtype,
        dtypes=["float32", "float16"],
        dims=["N"],
        params={"block": [128, 512, 1024, 2048], "heavy": [0, 1], "shared": [0, 4096, 65536, 400_000]},
        launch={"block": ["block"], "grid": ["ceil(N / block)"], "shared_bytes": "max(shared, 4 * block)"},
        args=[
            {"name": "x", "shape": ["N"], "direction": "in"},
            {"name": "y", "shape": ["N"], "direction": "out"},
            {"name": "scale", "scalar": dtype, "value": 1},
            {"name": "n", "scalar": "int32", "value": "N"},
        ],
        reference={"contraction": "n->n"},
    )
    gpu.prepare(spec, {"N": size})
    return gpu


def act(name: str) -> dict[str, Any]:
    return {"act": ACTS.index(name)}


def shape(block: int, heavy: int = 0, shared: int = 0) -> dict[str, Any]:
    return {"block": block, "heavy": heavy, "shared": shared}


def test_the_device_says_who_it_is(gpu):
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    assert gpu.identity.uuid.startswith("GPU-")
    assert not listed or gpu.identity.uuid in listed
    assert gpu.identity.pci_bus_id.count(":") == 2
    assert gpu.target.sm_count > 0
    assert gpu.target.max_shared_bytes >= gpu.target.static_shared_bytes


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_right_kernel_passes_in_every_class(gpu, dtype):
    outcome = gemm(gpu, dtype).measure(act("right"))
    assert outcome.check.passed
    assert outcome.check.checked == SHAPE["M"] * SHAPE["N"]
    assert outcome.check.error_ratio < 1
    assert outcome.build.registers > 0
    assert all(sample > 0 for sample in outcome.timing.samples_ms)
    assert outcome.note == ""


@pytest.mark.parametrize("name", ["one_nan", "nothing", "half", "from_memory"])
def test_a_wrong_result_fails_although_the_one_before_was_right(gpu, name):
    gemm(gpu).measure(act("right"))
    failure = gpu.failure(act(name))
    assert (failure.status, failure.stage) == (Status.WRONG_RESULT, Stage.VERIFY)
    assert gpu.measure(act("right")).check.passed


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("past_end", "wrote outside C: 4 bytes after its end, the nearest 8 bytes away"),
        ("before_start", "wrote outside C: 4 bytes before its start, the nearest 0 bytes away"),
        ("into_input", "wrote into its input A"),
    ],
)
def test_a_stray_write_is_told(gpu, name, told):
    assert told in gemm(gpu).failure(act(name)).reason
    assert gpu.measure(act("right")).check.passed


def test_results_that_vary_are_noted(gpu):
    assert "non-deterministic" in gemm(gpu).measure(act("unsteady")).note


# More products than the host would compute in passing.
LARGE = {"M": 517, "N": 384, "K": 300}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_large_product_is_judged_by_a_reference_of_the_gpus(gpu, dtype):
    """The smaller problem has one of the host's: both must judge alike."""
    large = gemm(gpu, dtype, LARGE).measure(act("right")).check
    wrong = gpu.failure(act("one_nan")).details["check"]
    small = gemm(gpu, dtype, {"M": 64, "N": 48, "K": 300}).measure(act("right")).check
    assert large.passed
    assert small.passed
    assert large.checked == LARGE["M"] * LARGE["N"]
    assert large.error_ratio < 5 * small.error_ratio
    if dtype != "float64":  # the GPU's own float64 reference adds in the kernel's order: no error is left
        assert large.error_ratio > 0.2 * small.error_ratio
    assert (wrong.wrong, wrong.mismatches[0].index) == (1, (1, 1))


def test_a_large_result_that_is_half_written_is_told_by_counts_and_places(gpu):
    failure = gemm(gpu, dims=LARGE).failure(act("half"))
    check = failure.details["check"]
    written = LARGE["M"] // 2
    assert check.wrong == (LARGE["M"] - written) * LARGE["N"]
    assert [m.index for m in check.mismatches] == [(written, column) for column in range(5)]
    assert f"{check.wrong} still hold what was there before the launch" in failure.reason


def test_inputs_are_themselves_again_after_a_trial_that_damaged_one(gpu):
    gemm(gpu, dims=LARGE)
    before = gpu.measure(act("right")).check
    assert "wrote into its input A" in gpu.failure(act("into_input")).reason
    assert gpu.measure(act("right")).check == before


def test_a_candidate_above_the_limit_is_verified_and_sampled_a_few_times(gpu):
    gemm(gpu, dims={"M": 1024, "N": 1024, "K": 1024})
    whole = gpu.measure(act("right"), MeasureProtocol(min_samples=10)).timing
    limit_ms = summary(whole.samples_ms).median / 2
    outcome = gpu.measure(act("right"), MeasureProtocol(min_samples=10, stop_above_ms=limit_ms))
    assert outcome.check.passed
    assert 2 <= len(outcome.timing.samples_ms) <= 5, outcome.timing
    assert "stopped early: at least" in outcome.timing.note
    assert gpu.failure(act("one_nan"), MeasureProtocol(stop_above_ms=limit_ms)).status is Status.WRONG_RESULT


def test_a_trial_tells_where_its_time_went(gpu):
    phases = gemm(gpu).measure(act("right")).phases_s
    assert set(phases) == {"load", "verify", "warmup", "measure", "finish"}
    assert all(0 < seconds < 10 for seconds in phases.values()), phases


def test_printed_results_are_no_results(gpu):
    assert gemm(gpu).measure(act("prints")).check.checked == SHAPE["M"] * SHAPE["N"]


@pytest.mark.parametrize("name", ["illegal_address", "trap", "assert", "misaligned"])
def test_a_lost_context_is_a_crash_and_the_next_trial_is_true(gpu, name):
    failure = gemm(gpu).failure(act(name))
    assert failure.status is Status.CRASH
    assert failure.details["sticky"]
    assert gpu.measure(act("right")).check.passed


def test_a_kernel_that_never_ends_is_a_timeout_and_the_next_trial_is_true(gpu):
    failure = gemm(gpu).failure(act("endless"), MeasureProtocol(deadline_s=2.0))
    assert failure.status is Status.TIMEOUT
    assert gpu.measure(act("right")).check.passed


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (shape(2048), "threads 2048 > 1024"),
        (shape(128, shared=400_000), "400000"),
        (shape(1024, heavy=1), "1024"),
    ],
)
def test_a_launch_beyond_a_limit_is_refused_with_its_numbers(gpu, params, told):
    restarts = copy(gpu).worker.restarts
    failure = gpu.failure(params)
    assert failure.status is Status.LAUNCH_ERROR
    assert told in failure.reason
    assert gpu.measure(shape(128)).check.passed
    assert gpu.worker.restarts == restarts


def test_dynamic_shared_memory_beyond_48_kib_is_opted_into(gpu):
    assert copy(gpu).measure(shape(128, shared=65536)).check.passed


def test_a_half_precision_scalar_arrives(gpu):
    assert copy(gpu, "float16").measure(shape(128)).check.passed


def test_a_problem_beyond_the_memory_fails_alone(gpu):
    with pytest.raises(TrialFailed) as caught:
        gemm(gpu, dims={"M": 200_000, "N": 200_000, "K": 200_000})
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert gemm(gpu, dims={"M": 64, "N": 64, "K": 64}).measure(act("right")).check.passed


def test_a_missing_kernel_names_those_there_are(gpu):
    point = Point.of(act("right"))
    unit = translation_unit(gemm(gpu).spec, point)
    build = replace(gpu.builder.build(unit, arch=gpu.target.arch, deadline_s=120), entry="gemm")
    with pytest.raises(TrialFailed, match="no kernel 'gemm'") as caught:
        gpu.worker.measure(point, build, QUICK)
    assert "gemm<" in caught.value.reason


def test_memory_stays_flat_over_hundreds_of_trials(gpu):
    """Every trial loads its module anew; every tenth is wrong, every hundredth damages an input."""
    gemm(gpu, dims={"M": 64, "N": 64, "K": 64})
    acts = ["into_input" if n % 100 == 99 else "nothing" if n % 10 == 9 else "right" for n in range(300)]
    for name in ("right", "nothing", "into_input"):
        _outcome_of(gpu, name)
    device_mib, host_kib = [_memory_used(gpu)], [_resident_kib(gpu)]
    for n, name in enumerate(acts, start=1):
        assert _outcome_of(gpu, name) == (name == "right"), f"trial {n}: {name}"
        if n % 100 == 0:
            device_mib.append(_memory_used(gpu))
            host_kib.append(_resident_kib(gpu))
    assert max(device_mib) - device_mib[0] < 8, f"MiB of the device after each hundred: {device_mib}"
    assert host_kib[-1] - host_kib[1] < 4096, f"KiB resident after each hundred: {host_kib}"


def _outcome_of(gpu: Gpu, name: str) -> bool:
    """Whether a trial passed."""
    try:
        return gpu.measure(act(name)).check.passed
    except TrialFailed:
        return False


def _resident_kib(gpu: Gpu) -> int:
    """Of the worker process."""
    status = Path(f"/proc/{gpu.worker._child.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def _memory_used(gpu: Gpu) -> int:
    """MiB in use on the whole device."""
    query = [
        "nvidia-smi",
        "--query-gpu=memory.used",
        "--format=csv,noheader,nounits",
        "-i",
        gpu.identity.uuid,
    ]
    asked = subprocess.run(query, capture_output=True, text=True, check=False)
    return int(asked.stdout) if asked.returncode == 0 else 0


def test_a_cold_time_is_no_shorter_than_a_warm_one(gpu):
    times = {}
    for cache in ("cold", "warm"):
        protocol = MeasureProtocol(cache=cache, min_samples=20, max_samples=50)
        outcome = gemm(gpu, dims={"M": 512, "N": 512, "K": 512}).measure(act("right"), protocol)
        assert outcome.timing.cache == cache
        times[cache] = summary(outcome.timing.samples_ms).median
    assert times["cold"] > 0.95 * times["warm"]


def test_one_sample_without_warm_up_is_close_to_the_steady_state(gpu):
    gemm(gpu, dims={"M": 1024, "N": 1024, "K": 1024})
    steady = summary(gpu.measure(act("right")).timing.samples_ms).median
    single = MeasureProtocol(warmup_ms=0.0, min_samples=1, max_samples=1)
    (first,) = gpu.measure(act("right"), single).timing.samples_ms
    assert first < 2 * steady


def test_samples_of_one_configuration_agree(gpu):
    gemm(gpu, dims={"M": 1024, "N": 1024, "K": 1024})
    found = summary(
        gpu.measure(act("right"), MeasureProtocol(min_samples=30, max_samples=60)).timing.samples_ms
    )
    assert (found.q75 - found.q25) / found.median < 0.05


def test_a_short_kernel_is_timed_in_batches(gpu):
    timing = copy(gpu, size=4096).measure(shape(128)).timing
    assert timing.method.startswith("graph×")
    assert summary(timing.samples_ms).median < 0.1


def test_times_scale_with_work(gpu):
    small = summary(gemm(gpu, dims={"M": 512, "N": 512, "K": 512}).measure(act("right")).timing.samples_ms)
    large = summary(gemm(gpu, dims={"M": 1024, "N": 1024, "K": 1024}).measure(act("right")).timing.samples_ms)
    assert large.median > 3 * small.median


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_cublas_is_right_for_unequal_sizes(gpu, dtype):
    outcome = gemm(gpu, dtype, {"M": 256, "N": 512, "K": 64}).worker.baseline("cublas", QUICK)
    assert outcome.check.passed
    assert outcome.note.startswith("cuBLAS ")
    assert outcome.timing.samples_ms


@pytest.mark.parametrize(("dtype", "output"), [("int8", "int32"), ("tf32", "float32")])
def test_cublas_is_right_in_tensor_core_classes(gpu, dtype, output):
    spec = gpu.load(
        f"product_{dtype}",
        PLAIN_CU.replace("SUM", "int" if dtype == "int8" else "float"),
        entry="product",
        template=["T"],
        dtype=dtype,
        dtypes=[dtype],
        dims=["M", "N", "K"],
        params={},
        launch={"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)"]},
        args=[*_matrices(output), *({"name": d, "scalar": "int32", "value": d} for d in "MNK")],
        reference={"contraction": "mk,kn->mn"},
    )
    gpu.prepare(spec, {"M": 256, "N": 512, "K": 64})
    assert gpu.measure({}).check.passed
    assert gpu.worker.baseline("cublas", QUICK).check.passed


def test_cublas_is_faster_than_one_thread_an_element(gpu):
    gemm(gpu, dims={"M": 1024, "N": 1024, "K": 1024})
    naive = summary(gpu.measure(act("right")).timing.samples_ms).median
    library = summary(gpu.worker.baseline("cublas", QUICK).timing.samples_ms).median
    assert library < naive


def test_what_is_no_product_has_no_library_equivalent(gpu):
    with pytest.raises(TrialFailed) as caught:
        copy(gpu).worker.baseline("cublas", QUICK)
    assert caught.value.status is Status.INFEASIBLE
