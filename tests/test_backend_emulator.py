"""Configurations proved right, or found wrong, without a GPU."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specs import array, contraction, gemm_spec, launch, param_specs, saxpy_spec, scalar, spec

from sweeper.backend import emulator_verify
from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.emulator import EmulatorBackend
from sweeper.backend.emulator_sample import reduced_dims, sample_blocks
from sweeper.build.cache import BuildCache
from sweeper.build.host import HostBuilder
from sweeper.build.source import translation_unit
from sweeper.device import target
from sweeper.errors import ConfigError, KernelError, SetupError, TrialFailed
from sweeper.expressions import parse
from sweeper.model import Build, KernelSpec, Launch, Point, ReferenceSpec, Requires, Stage, Status
from sweeper.paths import kernels_dir
from sweeper.problem import resolve
from sweeper.resources.geometry import launch_of

TILED = """
template <typename T, int tile>
__global__ void matmul(const T* A, const T* B, T* C, int M, int N, int K) {
  __shared__ T a[tile][tile];
  __shared__ T b[tile][tile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
  T sum = 0;
  for (int k = 0; k < K; k += tile) {
    a[y][x] = row < M && k + x < K ? A[row * K + k + x] : T(0);
    b[y][x] = k + y < K && column < N ? B[(k + y) * N + column] : T(0);
    __syncthreads();  // loaded
    for (int i = 0; i < tile; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();  // used
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
"""
STORE = "if (row < M && column < N) C[row * N + column] = sum;"
SMALL, MIDDLE, LARGE = (70, 50, 40), (190, 200, 177), (1000, 1001, 999)


class Rig:
    """One backend with its builder; `run` builds, prepares and measures."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.backend = EmulatorBackend(cache=BuildCache(folder / "cache"), **options)
        self.target, self.identity = self.backend.open(0, None)
        self.builder = HostBuilder(BuildCache(folder / "cache"))
        self._prepared: object = None

    def source(self, text: str, name: str = "matmul.cu") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(
        self,
        kernel: KernelSpec,
        sizes: Sequence[int],
        *,
        seed: int = 1,
        protocol: MeasureProtocol | None = None,
        **params: Any,
    ) -> Outcome:
        point = Point.of({**kernel.default_point.params, **params})
        dims = dict(zip(kernel.dims, sizes, strict=True))
        if self._prepared != (kernel, dims, seed):
            self.backend.prepare(kernel, resolve(kernel, dims, point, seed=seed))
            self._prepared = kernel, dims, seed
        build = self.builder.build(translation_unit(kernel, point), arch=self.target.arch, deadline_s=60)
        where = launch_of(kernel, point, dims, self.target)
        return self.backend.measure(point, where, build, protocol or MeasureProtocol(deadline_s=8))

    def tiled(self, sizes: Sequence[int], old: str = "", new: str = "", **how: Any) -> Outcome:
        """The tiled kernel with `old` replaced by `new`."""
        assert old in TILED
        return self.run(
            gemm_spec(source=self.source(TILED.replace(old, new) if old else TILED)), sizes, **how
        )

    def failure(self, sizes: Sequence[int], old: str, new: str, **how: Any) -> TrialFailed:
        with pytest.raises(TrialFailed) as caught:
            self.tiled(sizes, old, new, **how)
        return caught.value


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.backend.close()


def test_it_stands_for_a_gpu_from_the_table_and_says_so(tmp_path: Path) -> None:
    backend = EmulatorBackend()
    assert backend.name == "emulator"
    default, identity = backend.open(0, None)
    assert default is target("h200")
    assert identity.name == "emulated NVIDIA H200"
    assert (identity.uuid, identity.driver, identity.memory_bytes) == ("", "", 0)
    chosen, identity = backend.open(0, "A100")
    assert chosen is target("a100")
    assert identity.name.startswith("emulated NVIDIA A100")
    with pytest.raises(ConfigError, match="unknown target"):
        backend.open(0, "h2000")


def test_a_small_problem_is_run_whole_and_every_element_compared(rig: Rig) -> None:
    outcome = rig.tiled(SMALL)
    assert outcome.timing is None
    assert outcome.check.passed
    assert outcome.check.checked == 70 * 50
    assert 0 < outcome.check.error_ratio < 1
    assert outcome.check.note == "whole grid at 70x50x40"
    assert outcome.launch == Launch((8, 8, 1), (7, 9, 1), 0, 512)


def test_a_larger_one_is_run_whole_at_a_smaller_shape_first(rig: Rig) -> None:
    outcome = rig.tiled(MIDDLE, tile=16)
    assert outcome.check.note == "whole grid at 190x200x177, whole grid at 158x136x145"
    assert outcome.check.checked == 190 * 200


def test_of_a_large_one_a_sample_of_blocks_is_run(rig: Rig) -> None:
    outcome = rig.tiled(LARGE, tile=32)
    assert outcome.check.note == "12 of 1024 blocks at 1000x1001x999, whole grid at 136x137x135"
    # A third row of blocks and a fourth column are cut to 8 and 9 elements.
    assert outcome.check.checked == (2 * 32 + 8) * (3 * 32 + 9)


@pytest.mark.parametrize(
    ("blocks", "run"), [(1, "1 of 1024 blocks"), (5, "4 of 1024 blocks"), (0, "whole grid")]
)
def test_the_protocol_says_how_many_blocks_to_sample(rig: Rig, blocks: int, run: str) -> None:
    protocol = MeasureProtocol(emulated_blocks=blocks, deadline_s=60)
    outcome = rig.tiled((1000, 1001, 60 if blocks == 0 else 999), tile=32, protocol=protocol)
    assert outcome.check.note.startswith(f"{run} at 1000x1001x")


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 3, 431), (17, 1, 33), (33, 32, 32), (256, 512, 64), (1, 700, 300)]
)
def test_edges_of_every_kind_pass(rig: Rig, sizes: tuple[int, int, int]) -> None:
    for tile in (8, 32):
        assert rig.tiled(sizes, tile=tile).check.passed


@pytest.mark.parametrize(
    ("dtype", "output"),
    [("float64", None), ("float16", None), ("bfloat16", None), ("tf32", None), ("int8", "int32")],
)
def test_every_precision_class_of_the_shipped_kernel(rig: Rig, dtype: str, output: str | None) -> None:
    kernel = gemm_spec(
        dtype=dtype,
        output=output,
        leading=True,
        source=kernels_dir() / "gemm" / "02_tiled.cu",
        entry="gemm_tiled",
    )
    outcome = rig.run(kernel, (130, 70, 300), tile=16)
    assert outcome.check.passed
    assert outcome.check.checked == 130 * 70


BUGS = {
    "the remainder of K is dropped": ("k < K; k += tile", "k + tile <= K; k += tile"),
    "K is walked one tile too far": ("k < K; k += tile", "k <= K + tile; k += tile * 2"),
    "rows and columns are exchanged": (STORE, "if (row < M && column < N) C[column * M + row] = sum;"),
    "one element is NaN": (STORE, STORE + " if (row == 3 && column == 4) C[row * N + column] = T(0) / T(0);"),
    "one element is slightly off": (
        STORE,
        STORE + " if (row == 3 && column == 4) C[row * N + column] *= 1.0001f;",
    ),
    "half the rows are not written": (STORE, STORE.replace("row < M", "row < M / 2")),
    "nothing is written": (STORE, ""),
    "what was there is added to": (STORE, STORE.replace("= sum", "+= sum")),
    "the edge is not filled with zeros": (": T(0);", ": b[y][x];"),
    "an element of the tile is left out": ("int i = 0", "int i = 1"),
    "the first barrier is missing": ("__syncthreads();  // loaded", ""),
    "the second barrier is missing": ("__syncthreads();  // used", ""),
    "shared memory is read before it is written": ("T sum = 0", "T sum = a[y][x]"),
}


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_wrong_kernel_is_found_at_every_size(rig: Rig, bug: str) -> None:
    for sizes in (SMALL, LARGE):
        failed = rig.failure(sizes, *BUGS[bug], tile=16)
        assert (failed.status, failed.stage) == (Status.WRONG_RESULT, Stage.VERIFY), failed.reason


def test_a_wrong_result_is_told_with_its_first_elements(rig: Rig) -> None:
    failed = rig.failure((64, 64, 64), *BUGS["one element is NaN"], tile=16)
    first, second = failed.reason.split("; ")
    assert first.startswith("1 of 4096 elements are wrong")
    assert first.endswith("(at 64x64x64)")
    assert second.startswith("C[3, 4] = nan, expected ")
    check = failed.details["check"]
    assert (check.wrong, check.mismatches[0].index) == (1, (3, 4))


def test_a_missing_barrier_that_one_order_survives_is_told(rig: Rig) -> None:
    # The thread that writes comes before the threads that read, in order but not in reverse.
    text = """
        __global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
          __shared__ float row[1024];
          const int x = threadIdx.x;
          if (x == 0) for (int k = 0; k < K; ++k) row[k] = A[blockIdx.x * K + k];
          float sum = 0;
          for (int k = 0; k < K; ++k) sum += row[k] * B[k * N + x];
          C[blockIdx.x * N + x] = sum;
        }"""
    kernel = gemm_spec(source=rig.source(text), params={}, template=False, launch=launch(["N"], ["M"]))
    with pytest.raises(TrialFailed) as caught:
        rig.run(kernel, (20, 30, 10))
    assert "threads of a block in reverse order" in caught.value.reason
    assert (
        "right with them in order: threads of a block use each other's data without a barrier"
        in caught.value.reason
    )


def test_a_kernel_that_fails_only_at_the_true_shape_is_found(rig: Rig) -> None:
    # Row numbers beyond 255 come out wrong.
    failed = rig.failure(LARGE, "A[row * K + k + x]", "A[(unsigned char)row * K + k + x]", tile=32)
    assert failed.status is Status.WRONG_RESULT
    assert "(at 1000x1001x999)" in failed.reason


def test_every_configuration_is_verified_on_its_own(rig: Rig) -> None:
    assert rig.tiled(MIDDLE, tile=16).check.passed
    assert rig.failure(MIDDLE, *BUGS["nothing is written"], tile=16).status is Status.WRONG_RESULT
    assert rig.failure(MIDDLE, *BUGS["half the rows are not written"], tile=8).status is Status.WRONG_RESULT
    assert rig.tiled(MIDDLE, tile=16).check.passed


FAULTS = [
    (
        STORE,
        "C[row * N + column + 100000] = sum;",
        Status.CRASH,
        "write of element 100000, past the end of C",
    ),
    (
        "A[row * K + k + x]",
        "A[row * K + k + x - 5000]",
        Status.CRASH,
        "read of element -5000, before the start of A",
    ),
    (
        STORE,
        "const_cast<T*>(A)[row * K] = sum;",
        Status.CRASH,
        "write to read-only input A at element [0, 0]",
    ),
    (
        "T sum = 0;",
        "T sum = 0; assert(M > 100000);",
        Status.CRASH,
        "assertion failed: M > 100000 at matmul.cu:8",
    ),
    (
        "T sum = 0;",
        "T sum = 0; if (row == 5) __trap();",
        Status.CRASH,
        "__trap() at matmul.cu:8, thread (0, 5, 0)",
    ),
    (
        "__syncthreads();  // used",
        "if (x < 4) __syncthreads(); else __syncwarp(0xffffffff);",
        Status.CRASH,
        "threads wait at __syncthreads() in line 14, while",
    ),
]


@pytest.mark.parametrize(("old", "new", "status", "message"), FAULTS)
def test_a_fault_is_told_and_the_next_configuration_is_right(
    rig: Rig, old: str, new: str, status: Status, message: str
) -> None:
    failed = rig.failure(SMALL, old, new, tile=32 if "row == 5" in new else 8)
    assert failed.status is status
    assert failed.stage is Stage.LAUNCH
    assert message in failed.reason
    assert failed.reason.endswith("(at 70x50x40)")
    assert "sticky" not in failed.details
    assert rig.tiled(SMALL).check.passed


def test_a_kernel_that_never_ends_is_a_time_out(rig: Rig) -> None:
    failed = rig.failure(
        SMALL, "T sum = 0;", "T sum = 0; while (M) __nanosleep(1);", protocol=MeasureProtocol(deadline_s=1)
    )
    assert failed.status is Status.TIMEOUT
    assert failed.reason == "still running after 0.5 s (at 70x50x40)"


def test_limits_of_the_target_are_a_launch_error(rig: Rig) -> None:
    kernel = gemm_spec(source=rig.source(TILED), params={"tile": (64,)}, constraints=())
    with pytest.raises(TrialFailed) as caught:
        rig.run(kernel, SMALL, tile=64)
    assert (caught.value.status, caught.value.stage) == (Status.LAUNCH_ERROR, Stage.LAUNCH)
    assert caught.value.reason == "threads 4096 > 1024 (at 70x50x40)"


STAGED = """
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  DECLARATION
  const int row = blockIdx.x;
  for (int k = threadIdx.x; k < K; k += blockDim.x) staged[k] = A[row * K + k];
  __syncthreads();
  for (int n = threadIdx.x; n < N; n += blockDim.x) {
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += staged[k] * B[k * N + n];
    C[row * N + n] = sum;
  }
}
"""


@pytest.mark.parametrize(("dynamic", "bytes_"), [(True, 65536), (False, 49152), (True, 232448)])
def test_shared_memory_up_to_the_targets_limits_is_there(rig: Rig, dynamic: bool, bytes_: int) -> None:
    declaration = (
        "extern __shared__ float staged[];" if dynamic else f"__shared__ float staged[{bytes_} / 4];"
    )
    kernel = gemm_spec(
        source=rig.source(STAGED.replace("DECLARATION", declaration)),
        params={},
        template=False,
        launch=launch([64], ["M"], shared_bytes=bytes_ if dynamic else 0),
    )
    assert rig.run(kernel, (9, 70, 100)).check.passed


@pytest.mark.parametrize(
    ("dynamic", "bytes_", "message"),
    [
        (False, 65536, "static shared memory 65536 B > 49152 B"),
        (True, 232452, "shared memory 232452 B > 232448 B"),
    ],
)
def test_more_shared_memory_than_the_target_has_is_a_launch_error(
    rig: Rig, dynamic: bool, bytes_: int, message: str
) -> None:
    # Though the description keeps silent about what the source declares.
    declaration = (
        "extern __shared__ float staged[];" if dynamic else f"__shared__ float staged[{bytes_} / 4];"
    )
    kernel = gemm_spec(
        source=rig.source(STAGED.replace("DECLARATION", declaration)),
        params={},
        template=False,
        launch=launch([64], ["M"], shared_bytes=bytes_ if dynamic else 0),
    )
    with pytest.raises(TrialFailed) as caught:
        rig.run(kernel, (9, 70, 100))
    assert caught.value.status is Status.LAUNCH_ERROR
    assert caught.value.reason.startswith(message)


def test_an_argument_of_another_type_is_a_launch_error(rig: Rig) -> None:
    wrong = gemm_spec(source=rig.source(TILED.replace("int N, int K", "int N, long long K")))
    with pytest.raises(TrialFailed) as caught:
        rig.run(wrong, SMALL)
    assert caught.value.status is Status.LAUNCH_ERROR
    assert caught.value.reason.startswith(
        "argument 6 (K): the kernel takes an integer of 8 bytes, given is an integer of 4 bytes"
    )


def test_what_is_remarkable_about_a_right_kernel_is_noted(rig: Rig) -> None:
    text = """
        __global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
          if (threadIdx.x >= N) return;
          if (blockIdx.x + threadIdx.x == 0) printf("first\\nblock");
          __syncthreads();
          float sum = 0;
          for (int k = 0; k < K; ++k) sum += A[blockIdx.x * K + k] * B[k * N + threadIdx.x];
          C[blockIdx.x * N + threadIdx.x] = sum;
        }"""
    kernel = gemm_spec(source=rig.source(text), params={}, template=False, launch=launch([32], ["M"]))
    assert rig.run(kernel, (5, 20, 9)).note == (
        "__syncthreads() in line 5 after 12 threads of block (0, 0, 0) had exited; printed: first | block"
    )
    assert rig.run(kernel, (5, 32, 9)).note == "printed: first | block"


def test_the_same_seed_gives_the_same_words(tmp_path: Path) -> None:
    def told(folder: str, seed: int, workers: int) -> tuple[object, str, str]:
        (tmp_path / folder).mkdir()
        rig = Rig(tmp_path / folder, workers=workers)
        check = rig.tiled(LARGE, tile=16, seed=seed).check
        wrong = rig.failure(LARGE, *BUGS["one element is slightly off"], tile=16, seed=seed).reason
        crash = rig.failure(LARGE, FAULTS[0][0], FAULTS[0][1], tile=16, seed=seed).reason
        rig.backend.close()
        return check, wrong, crash

    first = told("one", 1, 1)
    assert told("two", 1, 3) == first
    assert told("three", 2, 1) != first


def test_an_array_that_is_read_and_written_begins_as_its_input(rig: Rig, tmp_path: Path) -> None:
    text = """
        __global__ void saxpy(int n, float a, const float* x, float* y) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = a * x[i] + y[i];
        }"""
    kernel = saxpy_spec(source=rig.source(text, "saxpy.cu"), work_flops=parse("2000 * N"))
    assert rig.run(kernel, (1000,)).check.checked == 1000
    outcome = rig.run(kernel, (1_000_000,), block=128)
    assert outcome.check.note == "12 of 7813 blocks at 1000000, whole grid at 128"
    assert outcome.check.checked == 11 * 128 + 64
    wrong = saxpy_spec(source=rig.source(text.replace("+ y[i]", "- y[i]"), "saxpy.cu"))
    with pytest.raises(TrialFailed) as caught:
        rig.run(wrong, (1000,))
    assert caught.value.status is Status.WRONG_RESULT


COUNT = """
extern "C" __global__ void plain(const float* A, float* C, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) C[i] = 2 * A[i] + REFERENCE;
}
extern "C" __global__ void fast(const float* A, float* C, int N) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) C[i] = A[i] + A[i];
}
"""


def counting(source: Path, **changes: Any) -> KernelSpec:
    return spec(
        "count",
        (array("A", ["N"]), array("C", ["N"], "out"), scalar("N", "N")),
        reference=ReferenceSpec("kernel", "plain", launch=launch([128], ["ceil(N / 128)"])),
        dims=["N"],
        source=source,
        entry="fast",
        params=param_specs({"block": (64, 256)}),
        launch=launch(["block"], ["min(8, ceil(N / block))"]),
        **changes,
    )


def test_a_plain_kernel_of_the_same_source_can_be_the_reference(rig: Rig) -> None:
    kernel = counting(rig.source(COUNT, "count.cu"), options=("-DREFERENCE=0",))
    assert rig.run(kernel, (5000,), block=256).check.passed
    wrong = counting(rig.source(COUNT, "count.cu"), options=("-DREFERENCE=1",))
    with pytest.raises(TrialFailed) as caught:
        rig.run(wrong, (5000,))
    assert caught.value.status is Status.WRONG_RESULT


def test_a_reference_kernel_that_takes_too_long_leaves_the_true_shape_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator_verify, "_REFERENCE_BUDGET_S", 1e-6)
    kernel = counting(rig.source(COUNT, "count.cu"), options=("-DREFERENCE=0",))
    check = rig.run(kernel, (5000,)).check
    assert check.note == "whole grid at 136; not at 5000: the reference kernel takes too long there"
    assert check.checked == 136


def test_a_reference_kernel_that_fails_is_the_descriptions_fault(rig: Rig) -> None:
    text = COUNT.replace("2 * A[i]", "2 * A[i - 100000]")
    with pytest.raises(
        KernelError, match="its reference plain failed: read of element -100000, before the start of A"
    ):
        rig.run(counting(rig.source(text, "count.cu"), options=("-DREFERENCE=0",)), (5000,))


def test_a_persistent_kernel_runs_fewer_blocks(rig: Rig) -> None:
    text = """
        __global__ void saxpy(int n, float a, const float* x, float* y) {
          for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += a * x[i];
        }"""
    # As told, each thousand elements take 1 ms: the eight blocks together far more than a sample may.
    kernel = saxpy_spec(
        source=rig.source(text, "saxpy.cu"),
        launch=launch(["block"], ["min(8, ceil(N / block))"]),
        work_flops=parse("2000 * N"),
    )
    assert rig.run(kernel, (10_000_000,)).check.note == "1 of 8 blocks at 10000000, whole grid at 128"


def test_a_problem_beyond_the_targets_memory_is_out_of_memory(rig: Rig) -> None:
    kernel = gemm_spec(source=rig.source(TILED))
    with pytest.raises(TrialFailed) as caught:
        rig.run(kernel, (200_000, 200_000, 200_000))
    assert (caught.value.status, caught.value.stage) == (Status.OUT_OF_MEMORY, Stage.LOAD)
    assert caught.value.reason.startswith("the arrays need 480.0 GB, NVIDIA H200 has ")
    assert caught.value.details["wanted_bytes"] == 480_000_000_000
    assert rig.run(kernel, SMALL).check.passed


def test_a_problem_beyond_this_machines_memory_is_verified_at_the_smaller_shape(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator_verify, "_free_memory", lambda: 1e6)
    check = rig.tiled(LARGE).check
    assert check.note == (
        "whole grid at 136x137x135; not at 1000x1001x999: its arrays take 0.0 GB, more than this machine has free"
    )
    monkeypatch.setattr(emulator_verify, "_free_memory", lambda: 100.0)
    with pytest.raises(TrialFailed, match="more than this machine has free"):
        rig.tiled(SMALL)


def test_many_configurations_take_no_more_memory_than_one(rig: Rig) -> None:
    kernels = [gemm_spec(source=rig.source(TILED + f"// {i}\n", f"mm{i}.cu")) for i in range(3)]
    rig.run(kernels[0], MIDDLE)

    def state() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines())

    before = state()
    for i in range(24):
        rig.run(kernels[i % 3], (190 + i // 3, 200, 177))
    after = state()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 4


def test_libraries_need_a_gpu(rig: Rig) -> None:
    with pytest.raises(SetupError, match="cublas cannot be run without a GPU"):
        rig.backend.baseline("cublas", MeasureProtocol())


def test_out_of_turn_it_says_what_comes_first(tmp_path: Path) -> None:
    backend = EmulatorBackend()
    build = Build("", "host", tmp_path, "", "")
    some = Launch((1, 1, 1), (1, 1, 1), 0)
    with pytest.raises(SetupError, match="before it was opened"):
        backend.prepare(gemm_spec(), resolve(gemm_spec(), {"M": 1, "N": 1, "K": 1}, None, seed=0))
    with pytest.raises(SetupError, match="before a problem was prepared"):
        backend.measure(Point(()), some, build, MeasureProtocol())


def test_a_build_of_another_kind_is_refused(rig: Rig) -> None:
    rig.tiled(SMALL)
    with pytest.raises(SetupError, match="cannot run what nvcc builds"):
        rig.backend.measure(
            Point(()), Launch((1, 1, 1), (1, 1, 1), 0), Build("", "nvcc", Path(), "", ""), MeasureProtocol()
        )


# The smaller shape and the sample of blocks.

H200 = target("h200")


def reduced(sizes: Sequence[int], kernel: KernelSpec | None = None, **params: Any) -> tuple[int, ...] | None:
    kernel = kernel or gemm_spec()
    point = Point.of({**kernel.default_point.params, **params})
    small = reduced_dims(kernel, point, dict(zip(kernel.dims, sizes, strict=True)), H200)
    return None if small is None else tuple(small.values())


@pytest.mark.parametrize(
    "sizes", [(4096, 4096, 4096), (4095, 4097, 1000), (161, 200, 100_003), (5, 4096, 160)]
)
def test_a_smaller_shape_keeps_remainders_and_small_sizes(sizes: tuple[int, ...]) -> None:
    small = reduced(sizes)
    assert small is not None
    for size, kept in zip(sizes, small, strict=True):
        assert kept == size if size <= 160 else 128 <= kept < 160
        assert kept % 32 == size % 32


def test_small_problems_have_no_smaller_shape() -> None:
    assert reduced((160, 160, 160)) is None
    assert reduced((1, 1, 1)) is None


def test_a_smaller_shape_fulfils_what_the_kernel_asks_for() -> None:
    requires = Requires(conditions=(parse("K % 256 == 0"), parse("M >= 300")))
    small = reduced((4096, 4096, 4096), gemm_spec(requires=requires))
    assert small == (320, 128, 256)
    splits = gemm_spec(
        params={"tile": (16,), "splits": (32,)}, constraints=(parse("K >= 8 * tile * splits"),)
    )
    small = reduced((512, 512, 65536), splits)
    assert small is not None
    assert small[:2] == (128, 128)
    assert 4096 <= small[2] < 6000


def test_where_no_smaller_shape_will_do_there_is_none() -> None:
    assert (
        reduced((4096, 4096, 4096), gemm_spec(constraints=(parse("K == 4096 and M == 4096 and N == 4096"),)))
        is None
    )


def test_without_a_smaller_shape_a_sample_is_run_all_the_same(rig: Rig) -> None:
    kernel = gemm_spec(source=rig.source(TILED), constraints=(parse("M == 1000 and N == 1001 and K == 999"),))
    assert rig.run(kernel, LARGE, tile=32).check.note == "12 of 1024 blocks at 1000x1001x999"


@pytest.mark.parametrize(
    ("grid", "count", "taken"),
    [
        ((64, 32, 1), 12, 12),
        ((1000, 1, 1), 12, 12),
        ((3, 2, 1), 12, 6),
        ((9, 9, 9), 12, 12),
        ((64, 32, 1), 1, 1),
        ((1, 1, 1), 5, 1),
    ],
)
def test_a_sample_holds_corners_edges_and_the_interior(
    grid: tuple[int, int, int], count: int, taken: int
) -> None:
    blocks = sample_blocks(grid, count, seed=3)
    assert blocks.size == taken
    assert np.array_equal(blocks, np.unique(blocks))
    assert blocks[-1] == grid[0] * grid[1] * grid[2] - 1
    assert np.array_equal(blocks, sample_blocks(grid, count, seed=3))
    if count >= 12 and grid[1] > 1:
        x, y = blocks % grid[0], blocks // grid[0] % grid[1]
        corners = {(a, b) for a in (0, grid[0] - 1) for b in (0, grid[1] - 1)}
        assert corners <= set(zip(x.tolist(), y.tolist(), strict=True))


def test_another_seed_samples_other_blocks_of_the_interior() -> None:
    assert not np.array_equal(sample_blocks((64, 64, 1), 12, 1), sample_blocks((64, 64, 1), 12, 2))


def test_a_contraction_of_three_axes_is_sampled_too(rig: Rig) -> None:
    text = """
        template <typename T, int tile>
        __global__ void matmul(const T* A, const T* B, T* C, int N, int K) {
          int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
          if (x >= N) return;
          T sum = 0;
          for (int k = 0; k < K; ++k) sum += A[(z * gridDim.y + y) * K + k] * B[(z * K + k) * N + x];
          C[(z * gridDim.y + y) * N + x] = sum;
        }"""
    kernel = spec(
        "batched",
        (
            array("A", ["B", "M", "K"]),
            array("B", ["B", "K", "N"]),
            array("C", ["B", "M", "N"], "out"),
            scalar("N", "N"),
            scalar("K", "K"),
        ),
        reference=contraction("bmk,bkn->bmn"),
        dims=("B", "M", "N", "K"),
        source=rig.source(text, "batched.cu"),
        entry="matmul",
        template=("T", parse("tile")),
        params=param_specs({"tile": (32,)}),
        launch=launch(["tile"], ["ceil(N / tile)", "M", "B"]),
    )
    check = rig.run(kernel, (6, 300, 500, 700)).check
    assert check.note == "12 of 28800 blocks at 6x300x500x700, whole grid at 6x140x148x156"
    assert check.passed
