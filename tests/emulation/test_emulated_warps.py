"""Warp-wide operations, against the same written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Buffer, Fault, Order

FULL = "0xffffffffu"
LANES = np.arange(32)


def collect(rig: Rig, expression: str, *, lanes: int = 32, dtype: str = "int", **how: object) -> list[int]:
    """`expression` evaluated by every lane of one warp; `lane` and `v` = 100 + lane are in scope."""
    module = rig.module(f"""
        __global__ void kernel({dtype}* out) {{
          const int lane = threadIdx.x, v = 100 + lane;
          out[lane] = {expression};
        }}""")
    numpy_type = {"int": np.int32, "unsigned": np.uint32, "float": np.float32, "double": np.float64}[dtype]
    got: list[int] = rig.out(module, lanes, numpy_type, block=lanes, **how).tolist()  # type: ignore[arg-type]
    return got


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("width", [2, 8, 32])
def test_shuffles_take_from_the_lane_that_cuda_names(rig: Rig, width: int, order: Order) -> None:
    start = LANES // width * width
    place = LANES % width
    expected = {
        f"__shfl_sync({FULL}, v, 5, {width})": start + 5 % width,
        f"__shfl_sync({FULL}, v, lane + 3, {width})": start + (LANES + 3) % width,
        f"__shfl_up_sync({FULL}, v, 1, {width})": np.where(place >= 1, LANES - 1, LANES),
        f"__shfl_down_sync({FULL}, v, 3, {width})": np.where(place + 3 < width, LANES + 3, LANES),
        f"__shfl_xor_sync({FULL}, v, 1, {width})": LANES ^ 1,
    }
    for expression, source in expected.items():
        assert collect(rig, expression, order=order) == (100 + source).tolist(), expression


def test_an_exclusive_or_beyond_the_segment_returns_the_own_value(rig: Rig) -> None:
    # Earlier groups may be read, later ones not (CUDA C++ Programming Guide, warp shuffle functions).
    expected = [100 + (lane ^ 8 if (lane ^ 8) <= (lane | 7) else lane) for lane in range(32)]
    assert collect(rig, f"__shfl_xor_sync({FULL}, v, 8, 8)") == expected


@pytest.mark.parametrize("dtype", ["float", "double", "unsigned"])
def test_every_type_is_shuffled(rig: Rig, dtype: str) -> None:
    got = collect(rig, f"__shfl_down_sync({FULL}, ({dtype})v / 4, 1)", dtype=dtype)
    divide = np.floor_divide if dtype == "unsigned" else np.true_divide
    assert got[:31] == divide(100 + LANES[1:], 4).tolist()


def test_what_an_absent_lane_sends_is_all_ones(rig: Rig) -> None:
    got = collect(rig, "lane < 16 ? __shfl_down_sync(0xffffu, (float)v, 8) : 0.0f", dtype="float")
    assert got[:8] == list(range(108, 116))
    assert np.isnan(got[8:16]).all()


def test_votes(rig: Rig) -> None:
    assert collect(rig, f"__ballot_sync({FULL}, lane % 3 == 0)", dtype="unsigned") == [0x49249249] * 32
    assert collect(rig, f"__any_sync({FULL}, lane == 7) + 2 * __any_sync({FULL}, lane == 32)") == [1] * 32
    assert collect(rig, f"__all_sync({FULL}, lane < 32) + 2 * __all_sync({FULL}, lane < 31)") == [1] * 32
    assert collect(rig, f"__uni_sync({FULL}, lane < 32) + 2 * __uni_sync({FULL}, lane < 5)") == [1] * 32


def test_matches(rig: Rig) -> None:
    got = collect(rig, f"__match_any_sync({FULL}, lane / 8)", dtype="unsigned")
    assert got == [0xFF << (lane // 8 * 8) for lane in range(32)]
    got = collect(rig, f"[&] {{ int same; __match_all_sync({FULL}, lane / 32, &same); return same; }}()")
    assert got == [1] * 32
    got = collect(
        rig, f"[&] {{ int same; unsigned m = __match_all_sync({FULL}, lane / 8, &same); return same + m; }}()"
    )
    assert got == [0] * 32


def test_reductions(rig: Rig) -> None:
    expected = {
        f"__reduce_add_sync({FULL}, lane)": 496,
        f"__reduce_min_sync({FULL}, lane - 20)": -20,
        f"__reduce_max_sync({FULL}, -lane)": 0,
        f"(int)__reduce_and_sync({FULL}, 0xf0u | lane)": int(np.bitwise_and.reduce(0xF0 | LANES)),
        f"(int)__reduce_or_sync({FULL}, 1u << (lane % 5))": 31,
        f"(int)__reduce_xor_sync({FULL}, (unsigned)lane * lane)": int(np.bitwise_xor.reduce(LANES * LANES)),
    }
    for expression, value in expected.items():
        assert collect(rig, expression) == [value] * 32, expression


def test_halves_of_a_warp_go_their_own_ways(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          const int lane = threadIdx.x;
          int v = lane;
          if (lane < 16) {
            for (int i = 0; i < 5; ++i) v += __shfl_xor_sync(0x0000ffffu, v, 1);
          } else {
            v = __reduce_add_sync(0xffff0000u, v);
            v += __shfl_sync(0xffff0000u, v, 31);
          }
          __syncwarp();
          out[lane] = __shfl_sync(0xffffffffu, v, 31 - lane);
        }""")
    got = rig.out(module, 32, np.int32, block=32)
    upper = 2 * sum(range(16, 32))
    assert got[:16].tolist() == [upper] * 16
    pair_sums = [4 * (lane // 2) + 1 for lane in range(16)]
    assert got[16:].tolist() == [16 * s for s in reversed(pair_sums)]


def test_the_last_warp_may_be_short_and_lanes_may_have_exited(rig: Rig) -> None:
    assert collect(rig, f"__reduce_add_sync({FULL}, 1)", lanes=40) == [32] * 32 + [8] * 8
    module = rig.module("""
        __global__ void kernel(int* out) {
          if (threadIdx.x % 2) return;
          out[threadIdx.x] = __reduce_add_sync(0xffffffffu, 1);
        }""")
    got = rig.out(module, 32, np.int32, block=32)
    assert got[::2].tolist() == [16] * 16


@pytest.mark.parametrize("order", list(Order))
def test_the_active_mask_is_of_the_lanes_that_come_to_the_same_line(rig: Rig, order: Order) -> None:
    module = rig.module("""
        __global__ void kernel(unsigned* out, int* sums) {
          const int lane = threadIdx.x % 32;
          if (lane < 5) {
            out[threadIdx.x] = __activemask();
          } else if (lane < 30) {
            unsigned mask = __activemask();
            out[threadIdx.x] = mask;
            sums[threadIdx.x] = __reduce_add_sync(mask, 1);
          }
          __syncthreads();
        }""")
    out, sums = (Buffer(name, (64,), np.uint32, writable=True) for name in ("out", "sums"))
    out.array[:] = sums.array[:] = 0
    assert rig.run(module, out, sums, block=64, order=order).ok
    assert out.array.reshape(2, 32).tolist() == [[0x1F] * 5 + [0x3FFFFFE0] * 25 + [0] * 2] * 2
    assert sums.array.reshape(2, 32).tolist() == [[0] * 5 + [25] * 25 + [0] * 2] * 2


def test_lanes_see_each_others_shared_memory_after_syncwarp_only(rig: Rig) -> None:
    text = """
        __global__ void kernel(int* out) {
          __shared__ int values[64];
          values[threadIdx.x] = threadIdx.x;
          __syncwarp();
          out[threadIdx.x] = values[threadIdx.x ^ 31];
        }"""
    expected = [i ^ 31 for i in range(64)]
    assert rig.out(rig.module(text), 64, np.int32, block=64).tolist() == expected
    without = rig.module(text.replace("__syncwarp();", ""))
    assert rig.out(without, 64, np.int32, block=64).tolist() != expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("__shfl_sync(0xfffffffeu, 1, 0);", "with mask 0xfffffffe in lane 0, which the mask leaves out"),
        (
            "if (threadIdx.x < 4) __any_sync(0xffffffffu, 1); else __shfl_sync(0xffffffffu, 1, 0);",
            "lanes of one warp meet at different warp-wide operations",
        ),
    ],
)
def test_a_wrong_mask_is_a_fault(rig: Rig, body: str, message: str) -> None:
    report = rig.run(rig.module(f"__global__ void kernel() {{ {body} }}"), block=32)
    assert report.kind is Fault.WARP
    assert message in report.message
    assert report.block == (0, 0, 0)


def test_lanes_that_never_come_are_a_deadlock(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel() {
          if (threadIdx.x < 10) {
            __shfl_sync(0xffffffffu, 1, 0);
          } else {
            __syncthreads();
          }
        }""")
    report = rig.run(module, block=32)
    assert report.kind is Fault.DEADLOCK
    assert "22 threads wait at __syncthreads() in line 6" in report.message
    assert "10 wait at a warp-wide operation with mask 0xffffffff" in report.message


def test_cooperative_groups(rig: Rig) -> None:
    module = rig.module("""
        #include <cooperative_groups.h>
        #include <cooperative_groups/reduce.h>
        namespace cg = cooperative_groups;
        __global__ void kernel(int* out) {
          cg::thread_block block = cg::this_thread_block();
          __shared__ int values[64];
          values[block.thread_rank()] = block.thread_rank();
          block.sync();
          auto tile = cg::tiled_partition<8>(block);
          int v = values[63 - threadIdx.x];
          int* mine = out + 5 * threadIdx.x;
          mine[0] = cg::reduce(tile, v, cg::plus<int>());
          mine[1] = tile.shfl_down(v, 1);
          mine[2] = tile.thread_rank() + 10 * tile.meta_group_rank() + 100 * tile.meta_group_size();
          mine[3] = tile.ballot(tile.thread_rank() == 2);
          mine[4] = block.size() + cg::coalesced_threads().size();
          cg::sync(block);
        }""")
    got = rig.out(module, (64, 5), np.int32, block=64)
    v = 63 - np.arange(64)
    assert got[:, 0].tolist() == np.repeat(v.reshape(8, 8).sum(1), 8).tolist()
    assert got[:, 1].tolist() == np.where(np.arange(64) % 8 < 7, v - 1, v).tolist()
    assert got[:, 2].tolist() == [800 + 10 * (i // 8) + i % 8 for i in range(64)]
    assert set(got[:, 3]) == {4}
    assert set(got[:, 4]) == {96}


def test_a_warp_operation_in_a_block_that_also_has_barriers(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(float* out, const float* in) {
          __shared__ float partial[32];
          float v = in[blockIdx.x * blockDim.x + threadIdx.x];
          for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
          if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
          __syncthreads();
          if (threadIdx.x < 32) {
            v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
            for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
            if (threadIdx.x == 0) out[blockIdx.x] = v;
          }
        }""")
    values = np.random.default_rng(0).integers(0, 100, (6, 256)).astype(np.float32)
    for order in Order:
        got = rig.out(module, 6, inputs={"in": values.reshape(-1)}, grid=6, block=256, order=order, workers=2)
        assert got.tolist() == values.sum(1).tolist()


def test_one_thread_switch_suffices_for_a_shuffle(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          int v = threadIdx.x;
          for (int i = 0; i < 1000; ++i) v = __shfl_xor_sync(0xffffffffu, v, 1);
          out[threadIdx.x] = v;
        }""")
    out = Buffer("out", (32,), np.int32, writable=True)
    assert rig.run(module, out, block=32).switches == 32 * 1000
