"""Global, shared and local memory, and what happens beyond their ends."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Buffer, Fault, LaunchReport, Scalar, static_shared_bytes

STORE = "__global__ void kernel(float* out, long long i) { out[i + threadIdx.x] = 1.0f; }"
LOAD = "__global__ void kernel(float* out, const float* in, long long i) { out[0] = in[i]; }"


def store(rig: Rig, index: int, shape: tuple[int, ...] = (100, 10), **how: object) -> LaunchReport:
    out = Buffer("C", shape, np.float32, writable=True)
    return rig.run(rig.module(STORE), out, Scalar("i", np.int64(index)), **how)  # type: ignore[arg-type]


def load(rig: Rig, index: int, text: str = LOAD) -> LaunchReport:
    out, source = (
        Buffer("C", (1,), np.float32, writable=True),
        Buffer("A", (100, 10), np.float32, writable=False),
    )
    return rig.run(rig.module(text), out, source, Scalar("i", np.int64(index)))


def test_writes_within_an_array_pass(rig: Rig) -> None:
    assert store(rig, 0).ok
    assert store(rig, 999).ok


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (1000, "write of element 1000, past the end of C (100×10 float32), which has 1000"),
        (1003, "write of element 1003, past the end"),
        (1000 + 2_000_000, "write of element 2001000, past the end"),
        (-1, "write of element -1, before the start of C"),
        (-5_000_000, "write of element -5000000, before the start of C"),
    ],
)
def test_a_write_beyond_an_array_is_a_fault_that_names_array_and_element(
    rig: Rig, index: int, message: str
) -> None:
    report = store(rig, index)
    assert not report.ok
    assert message in report.message


def test_a_write_into_the_last_bytes_before_the_inaccessible_page_is_seen_too(rig: Rig) -> None:
    report = store(rig, 3, (3,))  # 12 bytes: the page ends 4 bytes later
    assert report.kind is Fault.OVERRUN
    assert report.message == "write of element 3, past the end of C (3 float32), which has 3"
    assert store(rig, 4, (3,)).kind is Fault.ILLEGAL_ADDRESS


def test_the_thread_and_the_block_to_blame_are_named(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(float* out) {
          if (blockIdx.x == 2 && blockIdx.y == 1 && threadIdx.y == 3 && threadIdx.x == 1) out[1 << 20] = 0;
        }""")
    report = rig.run(module, Buffer("C", (8,), np.float32, writable=True), grid=(4, 2), block=(2, 4))
    assert report.kind is Fault.ILLEGAL_ADDRESS
    assert (report.thread, report.block) == ((1, 3, 0), (2, 1, 0))
    assert report.message.endswith("thread (1, 3, 0) of block (2, 1, 0)")


def test_of_several_faults_the_first_blocks_is_reported_whatever_the_number_of_workers(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(float* out) {
          for (volatile int i = 0; i < (blockIdx.x % 7) * 1000; ++i) { }
          if (blockIdx.x >= 5 && threadIdx.x >= 2) out[blockIdx.x * 100000 + threadIdx.x] = 1;
        }""")
    reports = [
        rig.run(module, Buffer("C", (8,), np.float32, writable=True), grid=200, block=8, workers=workers)
        for workers in (1, 2, 8, 8, 8)
    ]
    assert {(r.message, r.thread, r.block) for r in reports} == {
        (
            "write of element 500002, past the end of C (8 float32), which has 8, thread (2, 0, 0) of block (5, 0, 0)",
            (2, 0, 0),
            (5, 0, 0),
        )
    }


def test_reading_beyond_an_array_is_a_fault(rig: Rig) -> None:
    assert load(rig, 999).ok
    report = load(rig, 1000)
    assert report.kind is Fault.ILLEGAL_ADDRESS
    assert report.message.startswith(
        "read of element 1000, past the end of A (100×10 float32), which has 1000"
    )


def test_an_input_cannot_be_written(rig: Rig) -> None:
    report = load(rig, 42, "__global__ void kernel(float* out, float* in, long long i) { in[i] = 1; }")
    assert report.kind is Fault.ILLEGAL_ADDRESS
    assert report.message.startswith("write to read-only input A at element [4, 2], thread (0, 0, 0)")


@pytest.mark.parametrize("offset", [0, 24])
def test_a_null_pointer_is_named(rig: Rig, offset: int) -> None:
    report = rig.run(
        rig.module("__global__ void kernel(float* out, unsigned long long p) { *(float*)p = 1; }"),
        Buffer("C", (8,), np.float32, writable=True),
        Scalar("p", np.uint64(offset)),
    )
    assert report.message.startswith(f"write through a null pointer, at {offset} bytes from it")


def test_an_address_of_nowhere_is_told_without_the_address(rig: Rig) -> None:
    report = rig.run(
        rig.module("__global__ void kernel(float* out, unsigned long long p) { *(float*)p = 1; }"),
        Buffer("C", (8,), np.float32, writable=True),
        Scalar("p", np.uint64(0x10_0000_0000)),
    )
    assert report.message.startswith("write of an address that belongs to no array, thread")


def test_a_vector_access_must_be_aligned(rig: Rig) -> None:
    text = """
        __global__ void kernel(float* out, const float* in, long long i) {
          *(float4*)out = *(const float4*)(in + i);
        }"""
    out = Buffer("C", (4,), np.float32, writable=True)
    module = rig.module(text)
    source = Buffer.of("A", np.arange(8, dtype=np.float32))
    assert rig.run(module, out, source, Scalar("i", np.int64(4))).ok
    assert out.array.tolist() == [4, 5, 6, 7]
    report = rig.run(module, out, source, Scalar("i", np.int64(1)))
    assert report.kind is Fault.MISALIGNED_ADDRESS


@pytest.mark.parametrize("count", [4, 6, 64, 100, 1024, 5000])
def test_arrays_are_aligned_as_cuda_allocations_where_their_size_allows(count: int) -> None:
    buffer = Buffer("A", (count,), np.float32, writable=True)
    address = buffer.array.ctypes.data
    assert address % 16 == 0
    if count % 64 == 0:
        assert address % 256 == 0
    end = address + buffer.nbytes
    assert -end % os.sysconf("SC_PAGE_SIZE") < 16


SHARED = """
__global__ void kernel(int* out, int set) {
  __shared__ int values[32];
  __shared__ float number;
  out[2 * blockIdx.x] = values[7];
  out[2 * blockIdx.x + 1] = isnan(number);
  values[7] = set;
  number = 1.0f;
}
"""


def test_shared_memory_is_nan_at_the_start_of_every_block(rig: Rig) -> None:
    got = rig.out(rig.module(SHARED), (5, 2), np.int32, grid=5, scalars={"set": np.int32(3)})
    assert got.tolist() == [[-1, 1]] * 5


def test_a_module_knows_how_much_shared_memory_it_declares(rig: Rig, tmp_path: Path) -> None:
    text = "__global__ void kernel(int* out, int i) { __shared__ int a[32][3]; a[i][i] = i; *out = a[1][i]; }"
    assert static_shared_bytes(rig.module(text)) == 384
    assert static_shared_bytes(rig.module("__global__ void kernel() {}")) == 0
    (tmp_path / "other").write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match="not a module"):
        static_shared_bytes(tmp_path / "other")


def test_each_instance_of_a_template_has_its_own_shared_array(rig: Rig) -> None:
    module = rig.module(
        """
        template <typename T, int N> __device__ T* tile() { __shared__ T values[N]; return values; }
        template <typename T, int N> __global__ void kernel(T* out) {
          tile<T, N>()[threadIdx.x] = threadIdx.x;
          __syncthreads();
          out[threadIdx.x] = tile<T, N>()[N - 1 - threadIdx.x];
        }""",
        "kernel<float, 8>",
        "kernel<double, 16>",
    )
    assert rig.out(module, 8, block=8).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert rig.out(module, 16, np.float64, block=16, kernel=1).tolist() == list(range(15, -1, -1))


def test_shared_variables_of_every_kind(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_fp16.h>
        struct Item { float weight; int next[3]; };
        __shared__ int at_file_scope[8];
        namespace { __shared__ Item hidden; }
        struct Storage { static __device__ float* get() { __shared__ __align__(16) float data[4]; return data; } };
        __global__ void kernel(float* out) {
          __shared__ half halves[4][2];
          __shared__ float4 quads[2];
          __shared__ volatile int flag;
          if (threadIdx.x == 0) {
            at_file_scope[3] = 5, hidden.weight = 0.5f, hidden.next[2] = 9, halves[1][1] = __float2half(1.5f);
            quads[1] = make_float4(1, 2, 3, 4), flag = 6, Storage::get()[3] = 7;
          }
          __syncthreads();
          float all[] = {(float)at_file_scope[3], hidden.weight, (float)hidden.next[2], __half2float(halves[1][1]),
                         quads[1].w, (float)flag, Storage::get()[3]};
          out[threadIdx.x] = all[threadIdx.x];
        }""")
    assert rig.out(module, 7, block=7).tolist() == [5, 0.5, 9, 1.5, 4, 6, 7]


DYNAMIC = [
    "extern __shared__ float tile[];\n__global__ void kernel(float* out) {\n BODY }",
    "__global__ void kernel(float* out) { extern __shared__ float tile[]; BODY }",
    "__global__ void kernel(float* out) { extern __shared__ __align__(16) float tile[]; BODY }",
    "__global__ void kernel(float* out) { extern __align__(128) __shared__ float tile[]; BODY }",
    """__global__ void kernel(float* out) {
      extern __shared__ alignas(16) unsigned char raw[];
      float* tile = reinterpret_cast<float*>(raw); BODY }""",
    """extern __shared__ char raw[];
    __global__ void kernel(float* out) { float* tile = reinterpret_cast<float*>(&raw[0]); BODY }""",
    """namespace n { extern __shared__ float4 raw[]; }
    __global__ void kernel(float* out) { float* tile = (float*)n::raw; BODY }""",
    """#define TILE(T, name) extern __shared__ T name[]
    __global__ void kernel(float* out) { TILE(float, tile); BODY }""",
    "extern volatile __shared__ float tile[];\n__global__ void kernel(float* out) { BODY }",
    "__global__ void kernel(float* out) { extern __shared__ float rows[][4]; float* tile = rows[0]; BODY }",
    "extern __shared__ float rows[][4];\n__global__ void kernel(float* out) { float* tile = &rows[0][0]; BODY }",
    """template <typename T> struct Shared {
      static __device__ T* get() { extern __shared__ T memory[]; return memory; }
    };
    __global__ void kernel(float* out) { float* tile = Shared<float>::get(); (void)Shared<double>::get(); BODY }""",
]


@pytest.mark.parametrize("text", DYNAMIC)
def test_dynamic_shared_memory_is_declared_in_many_ways(rig: Rig, text: str) -> None:
    body = "tile[threadIdx.x] = threadIdx.x; __syncthreads(); out[threadIdx.x] = tile[15 - threadIdx.x];"
    got = rig.out(rig.module(text.replace("BODY", body)), 16, block=16, shared_bytes=64, workers=2)
    assert got.tolist() == list(range(15, -1, -1))


def test_two_kernels_see_one_dynamic_array_under_different_names_and_types(rig: Rig) -> None:
    module = rig.module(
        """
        extern __shared__ float floats[];
        extern __shared__ double doubles[];
        __global__ void one(float* out) { floats[0] = 2.5f; out[0] = floats[0]; }
        __global__ void two(double* out) { doubles[1] = 3.5; out[0] = doubles[1]; }
        __global__ void same(int* out) { out[0] = (void*)floats == (void*)doubles; }""",
        "one",
        "two",
        "same",
    )
    assert rig.out(module, 1, shared_bytes=16)[0] == 2.5
    assert rig.out(module, 1, np.float64, shared_bytes=16, kernel=1)[0] == 3.5
    assert rig.out(module, 1, np.int32, shared_bytes=16, kernel=2)[0] == 1


@pytest.mark.parametrize(
    ("shared_bytes", "index", "kind", "message"),
    [
        (64, 16, Fault.ILLEGAL_ADDRESS, "write of byte 64 of dynamic shared memory, which has 64 bytes"),
        (40, 10, Fault.OVERRUN, "write past the end of dynamic shared memory (40 bytes), to byte 40"),
        (0, 0, Fault.ILLEGAL_ADDRESS, "write of byte 0 of dynamic shared memory, which has 0 bytes"),
        (64, -1, Fault.OVERRUN, "write before the start of dynamic shared memory (64 bytes), to byte -4"),
    ],
)
def test_dynamic_shared_memory_ends_where_the_launch_says(
    rig: Rig, shared_bytes: int, index: int, kind: Fault, message: str
) -> None:
    module = rig.module(f"extern __shared__ float tile[];\n__global__ void kernel() {{ tile[{index}] = 1; }}")
    report = rig.run(module, shared_bytes=shared_bytes)
    assert report.kind is kind
    assert message in report.message


def test_dynamic_shared_memory_is_nan_at_the_start_of_every_block(rig: Rig) -> None:
    module = rig.module("""
        extern __shared__ float tile[];
        __global__ void kernel(float* out) { out[blockIdx.x] = tile[5]; tile[5] = 1; }""")
    assert np.isnan(rig.out(module, 4, grid=4, shared_bytes=32)).all()


def test_local_memory_is_there_and_its_end_is_a_fault(rig: Rig) -> None:
    text = """
        __global__ void kernel(float* out) {
          float local[COUNT];
          for (int i = 0; i < COUNT; ++i) local[i] = i + threadIdx.x;
          __syncthreads();
          float sum = 0;
          for (int i = COUNT - 1; i >= 0; --i) sum += local[i];
          out[threadIdx.x] = sum;
        }"""
    got = rig.out(rig.module(text, defines=(("COUNT", "4096"),)), 8, block=8)
    assert got.tolist() == [sum(range(4096)) + 4096 * i for i in range(8)]
    report = rig.run(
        rig.module(text, defines=(("COUNT", "100000"),)),
        Buffer("C", (8,), np.float32, writable=True),
        block=8,
    )
    assert report.kind is Fault.LOCAL_MEMORY
    assert report.message.startswith("local memory exhausted (128 KiB a thread), thread (0, 0, 0)")


def test_device_and_constant_data_keep_their_initial_values_and_are_shared_by_blocks(rig: Rig) -> None:
    module = rig.module("""
        __constant__ float weights[3] = {1.0f, 2.0f, 4.0f};
        __device__ int counter = 10;
        __global__ void kernel(float* out) {
          atomicAdd(&counter, 1);
          out[blockIdx.x] = weights[blockIdx.x] + (counter > 10);
        }""")
    assert rig.out(module, 3, grid=3).tolist() == [2, 3, 5]


def test_asynchronous_copies_arrive_when_they_are_waited_for(rig: Rig) -> None:
    module = rig.module("""
        #include <cuda_pipeline.h>
        __global__ void kernel(float* out, const float* in) {
          __shared__ __align__(16) float tile[3][4];
          for (int i = 0; i < 3; ++i) {
            __pipeline_memcpy_async(tile[i], in + 4 * i, 16, i == 2 ? 8 : 0);
            __pipeline_commit();
          }
          out[0] = tile[0][0];
          __pipeline_wait_prior(2);
          out[1] = tile[0][0], out[2] = tile[1][0];
          __pipeline_wait_prior(0);
          out[3] = tile[1][3], out[4] = tile[2][1], out[5] = tile[2][2];
        }""")
    values = np.arange(10, 22, dtype=np.float32)
    got = rig.out(module, 6, inputs={"in": values})
    assert np.isnan(got[[0, 2]]).all()
    assert got[[1, 3, 4, 5]].tolist() == [10, 17, 19, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("__pipeline_memcpy_async(tile + 1, in, 16)", "16 bytes at an address that is not a multiple of it"),
        (
            "__pipeline_memcpy_async(tile, in, 12)",
            "an asynchronous copy of 12 bytes; 4, 8 or 16 are possible",
        ),
    ],
)
def test_an_asynchronous_copy_that_hardware_cannot_do_is_a_fault(rig: Rig, call: str, message: str) -> None:
    module = rig.module(
        "#include <cuda_pipeline.h>\n__global__ void kernel(const float* in)"
        f" {{ __shared__ __align__(16) float tile[8]; {call}; }}"
    )
    report = rig.run(module, Buffer("A", (8,), np.float32, writable=False))
    assert report.kind is Fault.MISALIGNED_ADDRESS
    assert message in report.message
