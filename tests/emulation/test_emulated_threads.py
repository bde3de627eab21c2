"""Threads, blocks and barriers as CUDA defines them."""

from __future__ import annotations

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Buffer, Fault, Order, Scalar

COORDINATES = """
__global__ void kernel(int* out) {
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int* mine = out + 6 * (block * threads + thread);
  mine[0] = threadIdx.x, mine[1] = threadIdx.y, mine[2] = threadIdx.z;
  mine[3] = blockIdx.x, mine[4] = blockIdx.y, mine[5] = blockIdx.z;
}
"""


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("order", list(Order))
def test_every_thread_of_every_block_runs_once_with_its_own_coordinates(
    rig: Rig, order: Order, workers: int
) -> None:
    grid, block = (3, 4, 2), (5, 2, 3)
    got = rig.out(
        rig.module(COORDINATES), (24, 30, 6), np.int32, grid=grid, block=block, order=order, workers=workers
    )
    z, y, x = np.unravel_index(np.arange(30), block[::-1])
    bz, by, bx = np.unravel_index(np.arange(24), grid[::-1])
    assert np.array_equal(got[:, :, :3], np.broadcast_to(np.stack([x, y, z], 1), (24, 30, 3)))
    assert np.array_equal(got[:, 0, 3:], np.stack([bx, by, bz], 1))


def test_a_chosen_subset_of_blocks_runs_and_no_other(rig: Rig) -> None:
    got = rig.out(
        rig.module("__global__ void kernel(int* out) { out[blockIdx.x + 5 * blockIdx.y] = 1; }"),
        (4, 5),
        np.int32,
        grid=(5, 4),
        blocks=np.array([0, 7, 19]),
    )
    assert np.flatnonzero(got).tolist() == [0, 7, 19]


@pytest.mark.parametrize("blocks", [[], [20], [[1, 2]]])
def test_a_subset_that_names_no_blocks_of_the_grid_is_refused(rig: Rig, blocks: list[int]) -> None:
    module = rig.module("__global__ void kernel() {}")
    with pytest.raises(ValueError, match="below 20"):
        rig.run(module, grid=(5, 4), blocks=np.array(blocks))


REVERSAL = """
__global__ void kernel(int* out) {
  __shared__ int values[1024];
  values[threadIdx.x] = 10 * threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}
"""


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("threads", [1, 31, 256, 1024])
def test_after_a_barrier_every_thread_sees_what_the_others_wrote_before_it(
    rig: Rig, order: Order, threads: int
) -> None:
    got = rig.out(rig.module(REVERSAL), threads, np.int32, block=threads, order=order)
    assert got.tolist() == [10 * i for i in reversed(range(threads))]


def test_without_the_barrier_an_order_of_threads_shows_it(rig: Rig) -> None:
    module = rig.module(REVERSAL.replace("__syncthreads();", ""))
    right = [10 * i for i in reversed(range(64))]
    outcomes = [rig.out(module, 64, np.int32, block=64, order=order).tolist() for order in Order]
    assert all(outcome != right for outcome in outcomes)


def test_a_thread_may_pass_many_barriers_with_local_state(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out, int rounds) {
          __shared__ int token;
          int sum = 0;
          for (int round = 0; round < rounds; ++round) {
            if (threadIdx.x == round % blockDim.x) token = round;
            __syncthreads();
            sum += token * (threadIdx.x + 1);
            __syncthreads();
          }
          out[threadIdx.x] = sum;
        }""")
    got = rig.out(
        module, 48, np.int32, block=48, scalars={"rounds": np.int32(100)}, order=Order.SHUFFLED, seed=7
    )
    assert got.tolist() == [4950 * (i + 1) for i in range(48)]


def test_barriers_that_count_and_vote(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          int* mine = out + 5 * threadIdx.x;
          mine[0] = __syncthreads_count(threadIdx.x % 3 == 0);
          mine[1] = __syncthreads_and(threadIdx.x < 100);
          mine[2] = __syncthreads_and(threadIdx.x < 99);
          mine[3] = __syncthreads_or(threadIdx.x == 42);
          mine[4] = __syncthreads_or(threadIdx.x == 100);
        }""")
    got = rig.out(module, (100, 5), np.int32, block=100)
    assert np.array_equal(got, np.tile([34, 1, 0, 1, 0], (100, 1)))


def test_threads_that_have_exited_do_not_hold_up_a_barrier_but_are_remarked(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          if (threadIdx.x >= 40) return;
          out[threadIdx.x] = __syncthreads_count(1);
        }""")
    out = Buffer("out", (40,), np.int32, writable=True)
    report = rig.run(module, out, block=64)
    assert report.ok
    assert out.array.tolist() == [40] * 40
    assert report.hazards == ("__syncthreads() in line 4 after 24 threads of block (0, 0, 0) had exited",)


def test_different_barriers_meet_as_on_hardware_but_are_remarked(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          if (threadIdx.x % 2) {
            __syncthreads();
          } else {
            __syncthreads();
          }
          out[threadIdx.x] = 1;
        }""")
    report = rig.run(module, Buffer("out", (8,), np.int32, writable=True), block=8)
    assert report.ok
    assert report.hazards == ("threads of block (0, 0, 0) meet at different barriers, in lines 4 and 6",)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "if (threadIdx.x < 3) return; __syncthreads();",
            "in line 2 after 3 threads of the block have exited",
        ),
        ("if (threadIdx.x) {\n __syncthreads(); } else {\n __syncthreads(); }", "barriers, in lines 4 and 3"),
    ],
)
def test_strictly_such_barriers_are_faults(rig: Rig, body: str, message: str) -> None:
    report = rig.run(rig.module(f"__global__ void kernel()\n{{ {body} }}"), block=8, strict=True)
    assert report.kind is Fault.BARRIER
    assert message in report.message


def test_a_shuffled_order_depends_on_nothing_but_the_seed(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out, int* turn) {
          out[blockIdx.x * blockDim.x + atomicAdd(turn + blockIdx.x, 1)] = threadIdx.x;
        }""")

    def turns(seed: int, workers: int) -> list[list[int]]:
        out, turn = (
            Buffer("out", (4, 64), np.int32, writable=True),
            Buffer("turn", (4,), np.int32, writable=True),
        )
        turn.array[:] = 0
        assert rig.run(
            module, out, turn, grid=4, block=64, order=Order.SHUFFLED, seed=seed, workers=workers
        ).ok
        result: list[list[int]] = out.array.tolist()
        return result

    once = turns(1, 1)
    assert turns(1, 1) == turns(1, 3) == once
    assert turns(2, 1) != once
    assert once[0] != once[1]
    assert all(sorted(row) == list(range(64)) for row in once)


def test_atomics_count_every_thread_of_every_worker(rig: Rig) -> None:
    module = rig.module("""
        __device__ unsigned done;
        __global__ void kernel(unsigned long long* out) {
          __shared__ unsigned block_sum;
          if (threadIdx.x == 0) block_sum = 0;
          __syncthreads();
          atomicAdd(&block_sum, threadIdx.x);
          __syncthreads();
          if (threadIdx.x == 0) {
            atomicAdd(out, (unsigned long long)block_sum);
            if (atomicInc(&done, gridDim.x - 1) == gridDim.x - 1) out[1] = 1;
          }
        }""")
    got = rig.out(module, 2, np.uint64, grid=500, block=96, workers=4)
    assert got.tolist() == [500 * sum(range(96)), 1]


def test_a_thread_that_spins_lets_the_others_run(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          __shared__ volatile int ready;
          if (threadIdx.x == 0) ready = 0;
          __syncthreads();
          if (threadIdx.x == blockDim.x - 1) ready = 1;
          while (!ready) __nanosleep(20);
          out[threadIdx.x] = 1;
        }""")
    assert rig.out(module, 64, np.int32, block=64).all()


def test_a_lock_taken_by_compare_and_swap_is_passed_on(rig: Rig) -> None:
    module = rig.module("""
        __device__ int lock, total;
        __global__ void kernel(int* out) {
          while (atomicCAS(&lock, 0, 1) != 0) { }
          int before = total;
          __nanosleep(1);
          total = before + 1;
          atomicExch(&lock, 0);
          __syncthreads();
          out[threadIdx.x] = total;
        }""")
    assert rig.out(module, 32, np.int32, block=32).tolist() == [32] * 32


def test_kernels_are_called_with_any_kind_of_argument_and_in_any_namespace(rig: Rig) -> None:
    text = """
        struct Pair { float scale; int shift; };
        namespace deep { namespace er {
        template <typename T, int N, bool FLAG>
        __global__ void __launch_bounds__(N * 2, 1) scaled(T* out, Pair p, unsigned char small, double wide) {
          out[threadIdx.x] = T(threadIdx.x) * T(p.scale) + T(p.shift + N + FLAG + small) + T(wide);
        }
        }}
        extern "C" __global__ void plain(float* out) { out[threadIdx.x] = -1; }
        static __global__ void hidden(float* out) { out[threadIdx.x] = -2; }
    """
    module = rig.module(
        text, "deep::er::scaled<float, 16, true>", "deep::er::scaled<double, 2, false>", "plain", "hidden"
    )
    pair = np.array([(2.5, 7)], np.dtype([("scale", np.float32), ("shift", np.int32)]))[0]
    scalars = {"p": pair, "small": np.uint8(200), "wide": np.float64(0.5)}
    assert rig.out(module, 4, scalars=scalars, block=4).tolist() == [224.5, 227.0, 229.5, 232.0]
    assert rig.out(module, 2, np.float64, scalars=scalars, block=2, kernel=1).tolist() == [209.5, 212.0]
    assert rig.out(module, 2, block=2, kernel=2).tolist() == [-1, -1]
    assert rig.out(module, 2, block=2, kernel=3).tolist() == [-2, -2]


def test_a_scalar_is_passed_to_the_last_bit(rig: Rig) -> None:
    module = rig.module("__global__ void kernel(long long* out, long long value) { *out = value; }")
    value = np.int64(-0x123456789ABCDEF)
    assert rig.out(module, 1, np.int64, scalars={"value": value})[0] == value
    assert Scalar("value", value).value is value
