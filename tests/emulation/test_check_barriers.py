"""What a checked launch tells of threads that wait for each other in vain, or not as CUDA asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from check_rig import Kernels, given, kinds, out, with_every_compiler

from sweeper.emulation import Fault, FindingKind, HostCompiler, Place, Scalar

TEXT = """
__global__ void two_barriers(float* C) {
  __shared__ float tile[64];
  if (threadIdx.x < 40) {
    tile[threadIdx.x] = 1;
    __syncthreads();  //one
  } else {
    tile[threadIdx.x] = 2;
    __syncthreads();  //other
  }
  C[threadIdx.x + 64 * blockIdx.x] = tile[63 - threadIdx.x];
}

__global__ void leaves_early(const float* A, float* C, int n) {
  if (threadIdx.x >= n) return;  //leaves
  C[threadIdx.x] = A[threadIdx.x];
  __syncthreads();  //barrier
  C[threadIdx.x] += A[n - 1 - threadIdx.x];
}

__global__ void in_a_function(float* C) {
  auto wait = [&](int limit) {
    if (threadIdx.x < limit) __syncthreads();  //inner
  };
  wait(32);
  __syncthreads();  //outer
  C[threadIdx.x] = 1;
}

__global__ void counted(int* C) {
  C[threadIdx.x] = threadIdx.x % 2 ? __syncthreads_count(1) : __syncthreads_or(0);  //counted
}

__global__ void deadlock(float* C) {
  if (threadIdx.x < 5) {
    __syncthreads();  //block waits
  } else {
    __syncwarp();  //warp waits
  }
  C[threadIdx.x] = 1;
}

__global__ void lane_never_comes(float* C) {
  if (threadIdx.x == 7) {
    __syncwarp(0x0000ff00 | 1 << 7);  //elsewhere
  } else {
    C[threadIdx.x] = __shfl_sync(0xffffffff, 1.0f, 0);  //waits for it
  }
}

__global__ void outside_its_mask(float* C) {
  C[threadIdx.x] = __shfl_xor_sync(0x0000ffff, 1.0f, 1);  //outside
}

__global__ void different_operations(int* C) {
  if (threadIdx.x < 16) {
    C[threadIdx.x] = __ballot_sync(~0u, 1);
  } else {
    C[threadIdx.x] = __shfl_sync(~0u, 1, 0);  //different
  }
}

__global__ void reads_a_lane_that_left(float* C) {
  if (threadIdx.x >= 20) return;  //left
  C[threadIdx.x] = __shfl_down_sync(0xffffffff, 1.0f, 16);  //reads it
}

__global__ void reads_outside_the_mask(float* C) {
  if (threadIdx.x < 8) C[threadIdx.x] = __shfl_sync(0x000000ff, 1.0f, 12);  //not in the mask
}

__global__ void beyond_the_block(float* C) {
  C[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1.0f, 16);  //beyond
}

__global__ void votes_with_lanes_that_left(int* C) {
  if (threadIdx.x >= 20) return;
  C[threadIdx.x] = __ballot_sync(0xffffffff, 1);
  __syncwarp();
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("barriers"), TEXT)


def test_threads_at_different_barriers(kernels: Kernels) -> None:
    found = kernels.only("two_barriers", out(128), grid=2, block=64)
    assert found.kind is FindingKind.BARRIER_DIVERGENCE
    assert (found.first, found.second) == (kernels.place("other", 40), kernels.place("one", 39))
    assert (found.memory, found.count) == ("", 2)


def test_a_barrier_is_known_by_its_line_in_a_lambda_too(kernels: Kernels) -> None:
    found = kernels.findings("in_a_function", out(), block=64)
    assert found[0].kind is FindingKind.BARRIER_DIVERGENCE
    assert {found[0].first.line, found[0].second.line if found[0].second else 0} == {
        kernels.place("inner").line,
        kernels.place("outer").line,
    }


def test_one_line_may_hold_two_ways_of_waiting(kernels: Kernels) -> None:
    assert kernels.findings("counted", out(64, np.int32), block=64) == ()


def test_a_barrier_after_threads_have_left(kernels: Kernels) -> None:
    found = kernels.findings("leaves_early", given(), out(), Scalar("n", np.int32(50)), block=64)
    assert kinds(found) == {FindingKind.BARRIER_AFTER_EXIT}
    assert found[0].message == "a barrier after 14 of the block's 64 threads have exited"
    assert (found[0].first, found[0].second) == (kernels.place("barrier"), left(kernels, "leaves", 50))


def left(kernels: Kernels, mark: str, thread: int) -> Place:
    """Where a thread left the kernel, as far as its compiler lets it be known."""
    place = kernels.place(mark, thread)
    return place if kernels.tells_returns else replace(place, line=0)


def test_a_deadlock_names_two_places_where_threads_wait(kernels: Kernels) -> None:
    report = kernels.run("deadlock", out(), block=32)
    assert report.kind is Fault.DEADLOCK
    (found,) = report.findings
    assert found.kind is FindingKind.DEADLOCK
    assert found.message.startswith("5 threads wait at __syncthreads() in line")
    assert (found.first, found.second) == (kernels.place("block waits"), kernels.place("warp waits", 5))


def test_a_lane_that_waits_elsewhere(kernels: Kernels) -> None:
    report = kernels.run("lane_never_comes", out(), block=32)
    assert report.kind is Fault.DEADLOCK
    (found,) = report.findings
    assert {found.first, found.second} == {kernels.place("waits for it"), kernels.place("elsewhere", 7)}


def test_a_lane_that_its_own_mask_leaves_out(kernels: Kernels) -> None:
    report = kernels.run("outside_its_mask", out(), block=32)
    assert report.kind is Fault.WARP
    (found,) = report.findings
    assert found.kind is FindingKind.WARP_MASK
    assert found.message == "a warp-wide operation with mask 0x0000ffff in lane 16, which the mask leaves out"
    assert (found.first, found.second) == (kernels.place("outside", 16), None)


def test_lanes_that_meet_in_different_operations(kernels: Kernels) -> None:
    report = kernels.run("different_operations", out(64, np.int32), block=32)
    (found,) = report.findings
    assert found.kind is FindingKind.WARP_MASK
    assert found.first == kernels.place("different", 16)


def test_a_shuffle_from_a_lane_that_has_left(kernels: Kernels) -> None:
    found = kernels.only("reads_a_lane_that_left", out(), block=64)
    assert found.kind is FindingKind.WARP_MASK
    assert found.message == "lane 4 reads from lane 20, which has exited"
    assert (found.first, found.second) == (kernels.place("reads it", 4), left(kernels, "left", 20))
    assert found.count == 12


def test_a_shuffle_from_a_lane_outside_the_mask(kernels: Kernels) -> None:
    found = kernels.only("reads_outside_the_mask", out(), block=32)
    assert found.message == "lane 0 reads from lane 12, which takes no part"
    assert found.first == kernels.place("not in the mask")


def test_a_shuffle_from_a_lane_that_the_block_does_not_have(kernels: Kernels) -> None:
    found = kernels.only("beyond_the_block", out(), block=20)
    assert found.message == "lane 4 reads from lane 20, which the block does not have"
    assert found.first == kernels.place("beyond", 4)


def test_a_vote_is_one_of_the_lanes_that_are_left(kernels: Kernels) -> None:
    """The Programming Guide asks only the mask's lanes that have not exited."""
    assert kernels.findings("votes_with_lanes_that_left", out(64, np.int32), block=32) == ()
