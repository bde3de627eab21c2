"""Which accesses of different threads a checked launch calls a race, and which it knows to be ordered."""

from __future__ import annotations

import numpy as np
import pytest
from check_rig import Kernels, given, out, with_every_compiler

from sweeper.emulation import Finding, FindingKind, HostCompiler, Order

TEXT = """
__global__ void read_after_write(float* C) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;  //raw write
  C[threadIdx.x] = tile[threadIdx.x ^ 32];  //raw read
}

__global__ void write_after_read(float* C) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;
  __syncthreads();
  C[threadIdx.x] = tile[63 - threadIdx.x];  //war read
  tile[threadIdx.x] = 2;  //war write
}

__global__ void write_after_write(float* C) {
  __shared__ float total;
  total = 1;  //waw
  __syncthreads();
  C[threadIdx.x] = total;
}

__global__ void one_thread_writes(float* C) {
  __shared__ float total;
  if (threadIdx.x == 5) total = 1;
  __syncthreads();
  C[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x == 9) total = C[9];
  __syncthreads();
  C[threadIdx.x] += total;
}

__global__ void neighbours_in_a_word(char* C) {
  __shared__ char bytes[64];
  bytes[threadIdx.x] = threadIdx.x;
  __syncthreads();
  C[threadIdx.x] = bytes[threadIdx.x ^ 1];
  bytes[threadIdx.x ^ 1] = 0;
}

__global__ void word_over_bytes(int* C) {
  __shared__ __align__(4) unsigned char bytes[64];
  bytes[threadIdx.x] = 1;  //byte
  if (threadIdx.x == 7) C[0] = *reinterpret_cast<int*>(&bytes[4]);  //word
}

__global__ void lanes_in_step(float* C) {
  __shared__ float tile[32];
  tile[threadIdx.x] = 1;
  __syncwarp();
  const float other = tile[31 - threadIdx.x];
  __syncwarp();
  tile[threadIdx.x] = other;
  const float sum = __shfl_xor_sync(~0u, other, 1);
  C[threadIdx.x] = tile[31 - threadIdx.x] + sum;
}

__global__ void lanes_out_of_step(float* C) {
  __shared__ float tile[32];
  tile[threadIdx.x] = 1;  //lane write
  C[threadIdx.x] = tile[threadIdx.x ^ 1];  //lane read
}

__global__ void warps_do_not_meet(float* C) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;  //warp write
  __syncwarp();
  C[threadIdx.x] = tile[threadIdx.x ^ 32];  //warp read
}

__global__ void half_a_warp_meets(float* C) {
  __shared__ float tile[32];
  tile[threadIdx.x] = 1;  //half write
  if (threadIdx.x < 16) {
    __syncwarp(0x0000ffff);
    C[threadIdx.x] = tile[threadIdx.x ^ 1];
    if (threadIdx.x == 3) C[threadIdx.x] = tile[20];  //half read
  }
}

__global__ void handed_from_pair_to_pair(float* C) {
  __shared__ float cell;
  if (threadIdx.x == 0) cell = 1;
  if (threadIdx.x < 2) __syncwarp(0x3);
  if (threadIdx.x == 1 || threadIdx.x == 2) __syncwarp(0x6);
  if (threadIdx.x == 2) C[0] = cell;
}

__global__ void volatile_is_no_barrier(float* C) {
  __shared__ volatile float tile[32];
  tile[threadIdx.x] = 1;  //volatile write
  C[threadIdx.x] = tile[threadIdx.x ^ 1];  //volatile read
}

__global__ void global_in_a_block(float* C, float* D) {
  C[threadIdx.x] = 1;  //global write
  D[threadIdx.x] = C[threadIdx.x ^ 32];  //global read
}

__global__ void global_behind_a_barrier(float* C, float* D) {
  C[threadIdx.x + 64 * blockIdx.x] = 1;
  __syncthreads();
  D[threadIdx.x + 64 * blockIdx.x] = C[(threadIdx.x ^ 32) + 64 * blockIdx.x];
}

__global__ void two_blocks(float* C) {
  C[threadIdx.x] = blockIdx.x;  //blocks
}

__global__ void reads_what_a_block_wrote(float* C, float* D) {
  if (blockIdx.x == 1) C[threadIdx.x] = 1;  //block write
  if (blockIdx.x == 2) D[threadIdx.x] = C[threadIdx.x];  //block read
}

__global__ void add_up(int* C) {
  atomicAdd(C + threadIdx.x % 2, 1);
  atomicMax(C + 2, static_cast<int>(threadIdx.x));
}

__global__ void add_up_floats(float* C) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, 1.0f);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(C, total);
}

__global__ void atomic_then_plain(int* C) {
  __shared__ int bins[2];
  if (threadIdx.x < 2) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[threadIdx.x % 2], 1);  //atomic
  if (threadIdx.x == 63) C[0] = bins[1];  //plain
}

__global__ void last_block(float* C, int* finished, float* sum) {
  __shared__ bool last;
  if (threadIdx.x < 4) C[blockIdx.x * 4 + threadIdx.x] = 1;  //part
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(finished, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < 4 * gridDim.x; ++i) total += C[i];
    *sum = total;
  }
}

__global__ void last_block_without_fence(float* C, int* finished, float* sum) {
  C[blockIdx.x] = 1;  //unfenced
  const bool last = atomicAdd(finished, 1) == gridDim.x - 1;
  if (last) *sum = C[0];  //last read
}

__global__ void chained(float* C, volatile int* flag) {
  float before = 0;
  if (blockIdx.x > 0) {
    while (flag[blockIdx.x - 1] == 0) {
    }
    __threadfence();
    before = C[blockIdx.x - 1] + (blockIdx.x > 1 ? C[blockIdx.x - 2] : 0);
  }
  C[blockIdx.x] = before + 1;
  __threadfence();
  flag[blockIdx.x] = 1;
}

__global__ void locked(float* C, int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *C += 1;
  __threadfence();
  atomicExch(lock, 0);
}

__global__ void copies_between_stages(const float* A, float* C) {
  __shared__ float stage[2][32];
  __pipeline_memcpy_async(&stage[0][threadIdx.x], A + threadIdx.x, 4);
  __pipeline_commit();
  for (int i = 0; i < 4; ++i) {
    __pipeline_memcpy_async(&stage[(i + 1) % 2][threadIdx.x], A + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    C[threadIdx.x] = stage[i % 2][31 - threadIdx.x];
    __syncthreads();
  }
}

__global__ void copy_waited_without_barrier(const float* A, float* C) {
  __shared__ float stage[32];
  __pipeline_memcpy_async(&stage[threadIdx.x], A + threadIdx.x, 4);  //landed
  __pipeline_wait_prior(0);
  C[threadIdx.x] = stage[threadIdx.x ^ 1];  //not ours
}

__global__ void copy_over_readers(const float* A, float* C) {
  __shared__ float stage[32];
  stage[threadIdx.x] = 1;
  __syncthreads();
  C[threadIdx.x] = stage[31 - threadIdx.x];  //still reads
  __pipeline_memcpy_async(&stage[threadIdx.x], A + threadIdx.x, 4);  //overwrites
  __pipeline_wait_prior(0);
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("races"), TEXT, headers=("cuda_pipeline.h",))


def pair(found: Finding) -> tuple[object, object]:
    return found.first, found.second


def ints(count: int = 8, name: str = "N") -> object:
    return out(count, np.int32, name)


def test_a_read_of_what_a_thread_of_another_warp_writes(kernels: Kernels) -> None:
    first = kernels.findings("read_after_write", out(), block=64, order=Order.REVERSE)
    assert {f.kind for f in first} == {FindingKind.UNINITIALISED, FindingKind.RACE_SHARED}
    by_message = {f.message: f for f in first}
    found = by_message["a read of what another thread writes, with nothing to order them"]
    assert pair(found) == (kernels.place("raw read", 31), kernels.place("raw write", 63))
    assert (found.memory, found.count) == ("shared tile[63]", 32)
    found = by_message["a write of what another thread reads, with nothing to order them"]
    assert pair(found) == (kernels.place("raw write", 31), kernels.place("raw read", 63))


def test_a_write_over_what_another_thread_may_still_read(kernels: Kernels) -> None:
    races = kernels.findings("write_after_read", out(), block=64)
    assert {f.kind for f in races} == {FindingKind.RACE_SHARED}
    assert (kernels.place("war read", 32), kernels.place("war write", 31)) in map(pair, races)
    assert (kernels.place("war write", 32), kernels.place("war read", 31)) in map(pair, races)


def test_two_writes_of_one_value_are_a_race_all_the_same(kernels: Kernels) -> None:
    found = kernels.only("write_after_write", out(), block=64)
    assert found.message == "two writes by different threads, with nothing to order them"
    assert pair(found) == (kernels.place("waw", 1), kernels.place("waw", 0))
    assert (found.memory, found.count) == ("shared total", 63)


@pytest.mark.parametrize("order", list(Order))
def test_a_barrier_orders_all_threads(kernels: Kernels, order: Order) -> None:
    assert kernels.findings("one_thread_writes", out(), block=64, order=order) == ()


def test_bytes_of_one_word_belong_to_different_threads(kernels: Kernels) -> None:
    assert kernels.findings("neighbours_in_a_word", out(64, np.int8), block=64) == ()


def test_a_wide_access_meets_every_byte(kernels: Kernels) -> None:
    found = kernels.only("word_over_bytes", ints(1), block=8)
    assert pair(found) == (kernels.place("word", 7), kernels.place("byte", 4))
    assert found.memory == "shared bytes[4]"


@pytest.mark.parametrize("order", list(Order))
def test_lanes_that_meet_are_ordered(kernels: Kernels, order: Order) -> None:
    assert kernels.findings("lanes_in_step", out(), block=32, order=order) == ()


def test_lanes_of_one_warp_are_not_in_step_by_themselves(kernels: Kernels) -> None:
    found = [f for f in kernels.findings("lanes_out_of_step", out(), block=32) if "read of what" in f.message]
    assert [pair(f) for f in found if f.kind is FindingKind.RACE_SHARED] == [
        (kernels.place("lane read", 1), kernels.place("lane write", 0))
    ]


def test_a_warp_wide_meeting_does_not_order_warps(kernels: Kernels) -> None:
    found = kernels.findings("warps_do_not_meet", out(), block=64)
    races = [f for f in found if f.kind is FindingKind.RACE_SHARED]
    assert (kernels.place("warp read", 32), kernels.place("warp write", 0)) in map(pair, races)


def test_a_meeting_orders_only_the_lanes_of_its_mask(kernels: Kernels) -> None:
    found = kernels.only("half_a_warp_meets", out(), block=32, order=Order.REVERSE)
    assert pair(found) == (kernels.place("half read", 3), kernels.place("half write", 20))


def test_meetings_pass_on_what_their_lanes_know(kernels: Kernels) -> None:
    assert kernels.findings("handed_from_pair_to_pair", out(), block=32) == ()


def test_volatile_orders_nothing_in_shared_memory(kernels: Kernels) -> None:
    races = [
        f
        for f in kernels.findings("volatile_is_no_barrier", out(), block=32)
        if f.kind is FindingKind.RACE_SHARED
    ]
    assert (kernels.place("volatile read", 1), kernels.place("volatile write", 0)) in map(pair, races)


def test_global_memory_is_followed_within_a_block(kernels: Kernels) -> None:
    races = kernels.findings("global_in_a_block", out(), out(name="D"), block=64)
    assert {f.kind for f in races} == {FindingKind.RACE_GLOBAL}
    assert (kernels.place("global read", 32), kernels.place("global write", 0)) in map(pair, races)


def test_a_barrier_orders_accesses_to_global_memory_too(kernels: Kernels) -> None:
    assert kernels.findings("global_behind_a_barrier", out(128), out(128, name="D"), grid=2, block=64) == ()


@pytest.mark.parametrize(
    ("blocks", "first", "second"), [(None, 1, 0), ([4, 2, 3], 2, 4)], ids=["all", "chosen"]
)
def test_blocks_are_never_ordered(
    kernels: Kernels, blocks: list[int] | None, first: int, second: int
) -> None:
    chosen = None if blocks is None else np.array(blocks)
    found = kernels.only("two_blocks", out(), grid=(2, 3), block=8, blocks=chosen)
    assert found.kind is FindingKind.RACE_GLOBAL

    def where(block: int) -> tuple[int, int]:
        return block % 2, block // 2

    assert pair(found) == (
        kernels.place("blocks", 0, where(first)),
        kernels.place("blocks", 0, where(second)),
    )
    assert found.count == 8 * ((6 if blocks is None else len(blocks)) - 1)


def test_a_read_of_what_another_block_wrote(kernels: Kernels) -> None:
    found = kernels.only("reads_what_a_block_wrote", out(), out(name="D"), grid=4, block=2)
    assert pair(found) == (kernels.place("block read", 0, 2), kernels.place("block write", 0, 1))


def test_atomic_operations_are_no_race_among_themselves(kernels: Kernels) -> None:
    assert kernels.findings("add_up", ints(), grid=3, block=64) == ()
    assert kernels.findings("add_up_floats", out(1), grid=3, block=64) == ()


def test_an_atomic_operation_and_a_plain_access_are_one(kernels: Kernels) -> None:
    found = kernels.only("atomic_then_plain", ints(1), block=64)
    assert found.kind is FindingKind.RACE_SHARED
    assert found.first == kernels.place("plain", 63)
    assert found.second is not None
    assert (found.second.line, found.memory) == (kernels.place("atomic").line, "shared bins[1]")


def test_the_last_block_may_read_what_the_others_released(kernels: Kernels) -> None:
    total = out(1, name="sum")
    assert kernels.findings("last_block", out(16), ints(1), total, grid=4, block=64) == ()
    assert total.array[0] == 16


def test_without_a_fence_nothing_is_released(kernels: Kernels) -> None:
    found = kernels.only("last_block_without_fence", out(4), ints(1), out(1, name="sum"), grid=4)
    assert pair(found) == (kernels.place("last read", 0, 3), kernels.place("unfenced", 0, 0))


def test_a_flag_hands_on_what_was_handed_to_its_writer(kernels: Kernels) -> None:
    assert kernels.findings("chained", out(8), ints(8), grid=8) == ()


def test_a_lock_orders_those_who_hold_it(kernels: Kernels) -> None:
    total = out(1)
    assert kernels.findings("locked", total, ints(1), grid=2, block=40) == ()
    assert total.array[0] == 80


def test_copies_that_are_waited_for_and_fenced_by_barriers_are_in_order(kernels: Kernels) -> None:
    assert kernels.findings("copies_between_stages", given(32), out(32), block=32) == ()


def test_another_threads_copy_needs_a_barrier_behind_its_wait(kernels: Kernels) -> None:
    found = kernels.findings("copy_waited_without_barrier", given(32), out(32), block=32)
    races = [f for f in found if f.kind is FindingKind.RACE_SHARED]
    assert (kernels.place("not ours", 1), kernels.place("landed", 0)) in map(pair, races)


def test_a_copy_over_what_others_still_read(kernels: Kernels) -> None:
    races = kernels.findings("copy_over_readers", given(32), out(32), block=32)
    assert {f.kind for f in races} == {FindingKind.RACE_SHARED}
    assert (kernels.place("overwrites", 16), kernels.place("still reads", 15)) in map(pair, races)
    assert (kernels.place("still reads", 16), kernels.place("overwrites", 15)) in map(pair, races)


def test_the_same_launch_gives_the_same_findings(kernels: Kernels) -> None:
    once, again = (kernels.findings("write_after_read", out(), block=64, grid=3) for _ in range(2))
    assert once == again
