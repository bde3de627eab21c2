"""What a checked launch tells of accesses to memory that they should not have been made to."""

from __future__ import annotations

import numpy as np
import pytest
from check_rig import Kernels, given, kinds, out, with_every_compiler

from sweeper.emulation import FindingKind, HostCompiler, Scalar

TEXT = """
__global__ void read_past(const float* A, float* C, int shift) {
  C[blockIdx.x * 8 + threadIdx.x] = A[blockIdx.x * 8 + threadIdx.x + shift];  //read past
}

__global__ void write_before(float* C, int shift) {
  if (threadIdx.x == 3) C[shift] = 1;  //write before
}

__global__ void straddle(float* C) {
  const float4 value = make_float4(1, 2, 3, 4);
  __builtin_memcpy(C + 62, &value, sizeof value);  //straddle
}

__global__ void copied(const float* A, float* C) {
  float four[4];
  memcpy(four, A + 62, sizeof four);  //memcpy
  C[0] = four[0];
}

__global__ void writes_input(const float* A, float* C) {
  const_cast<float*>(A)[threadIdx.x + 8] = 2;  //input
  C[threadIdx.x] = A[threadIdx.x + 8];
}

__global__ void null(float* C, size_t address) {
  C[0] = *reinterpret_cast<const float*>(address);  //null
}

__global__ void shared_end(float* C, int count) {
  __shared__ float first[4][8];
  __shared__ float second[16];
  float* flat = &first[0][0];
  second[threadIdx.x % 16] = 0;
  flat[threadIdx.x + count] = 1;  //shared end
  C[threadIdx.x] = flat[threadIdx.x + count];
}

__global__ void dynamic_end(float* C) {
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = 1;  //dynamic end
  C[threadIdx.x] = 1;
}

__global__ void dynamic_start(float* C, int minus) {
  extern __shared__ float scratch[];
  C[0] = scratch[minus];  //dynamic start
}

__global__ void misaligned(char* C) {
  *reinterpret_cast<int*>(C + 4 * threadIdx.x + 1) = 7;  //misaligned
}

__global__ void misaligned_copy(const float* A, float* C) {
  __shared__ __align__(16) float tile[8];
  if (threadIdx.x == 1) __pipeline_memcpy_async(tile, A + 1, 16);  //misaligned copy
}

__global__ void unwritten(float* C) {
  __shared__ float tile[4][8];
  if (threadIdx.x < 31) tile[threadIdx.x / 8][threadIdx.x % 8] = 1;
  __syncthreads();
  C[32 * blockIdx.x + threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];  //unwritten
}

__global__ void half_written(float* C) {
  __shared__ __half tile[8];
  if (threadIdx.x != 5) tile[threadIdx.x] = __float2half(1);
  __syncthreads();
  C[threadIdx.x] = __half2float(tile[threadIdx.x]);  //half written
}

__global__ void written_by_the_block_before(float* C) {
  __shared__ int once;
  if (blockIdx.x == 0) once = 1;
  C[blockIdx.x] = once;  //block before
}

__global__ void pending(const float* A, float* C) {
  __shared__ __align__(16) float tile[2][32];
  __pipeline_memcpy_async(&tile[1][threadIdx.x], A + threadIdx.x, 4);  //copy
  __pipeline_commit();
  C[threadIdx.x] = tile[1][threadIdx.x];  //too early
  __pipeline_wait_prior(0);
  C[threadIdx.x] += tile[1][threadIdx.x];
}

__global__ void pending_behind_a_barrier(const float* A, float* C) {
  __shared__ float tile[32];
  __pipeline_memcpy_async(&tile[threadIdx.x], A + threadIdx.x, 4);  //unwaited
  __syncthreads();
  C[threadIdx.x] = tile[31 - threadIdx.x];  //no wait
}

__global__ void copy_past(const float* A, float* C, int filled) {
  __shared__ __align__(16) float tile[3][4];
  __pipeline_memcpy_async(tile[0], A + 64, 16, filled);
  __pipeline_memcpy_async(tile[1], A + 60, 16);
  __pipeline_memcpy_async(tile[2], A + 64, 16, filled - 4);  //copy past
  __pipeline_wait_prior(0);
  C[0] = tile[0][0] + tile[1][1] + tile[2][1];
}

__device__ float table[2][4];

__global__ void device_table(float* C, int place) {
  if (threadIdx.x == 2) (&table[0][0])[place] = 1;  //fill
  C[threadIdx.x] = table[1][1];  //table
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    headers = ("cuda_pipeline.h", "cuda_fp16.h")
    return Kernels(compiler, tmp_path_factory.mktemp("memory"), TEXT, headers=headers)


def number(name: str, value: int) -> Scalar:
    return Scalar(name, np.int32(value))


def test_a_read_past_the_end_names_the_element_by_its_coordinates(kernels: Kernels) -> None:
    found = kernels.only("read_past", given((4, 8)), out(16), number("shift", 20), grid=2, block=8)
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "read of element 32, past the end of A (4×8 float32), which has 32"
    assert found.memory == "A[4, 0]"
    assert (found.first, found.second) == (kernels.place("read past", 4, 1), None)
    assert found.count == 4


def test_a_write_before_the_start_is_told_with_negative_coordinates(kernels: Kernels) -> None:
    found = kernels.only("write_before", out((4, 8)), number("shift", -3), block=32)
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "write of element -3, before the start of C (4×8 float32)"
    assert found.memory == "C[-1, 5]"
    assert found.first == kernels.place("write before", 3)


def test_the_launch_goes_on_after_an_access_outside(kernels: Kernels) -> None:
    c = out(8)
    report = kernels.run("read_past", given(8), c, number("shift", 4), block=8)
    assert report.ok
    assert c.array[:4].tolist() == [1, 1, 1, 1]


def test_an_index_with_the_wrong_extent_far_outside_is_found(kernels: Kernels) -> None:
    found = kernels.only("read_past", given(8), out(8), number("shift", 3_000_000), block=1)
    assert found.memory == "A[3000000]"


def test_a_wide_access_that_straddles_the_end_is_outside(kernels: Kernels) -> None:
    found = kernels.only("straddle", out(64))
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "write of 16 bytes at C[62] that reaches past the end of C"
    assert found.first == kernels.place("straddle")


def test_copying_memory_is_an_access(kernels: Kernels) -> None:
    found = kernels.only("copied", given(64), out(1))
    assert found.message == "read of 16 bytes at A[62] that reaches past the end of A"
    assert found.first == kernels.place("memcpy")


def test_a_write_to_an_input_is_told_and_leaves_the_input_alone(kernels: Kernels) -> None:
    a, c = given((4, 8)), out(8)
    found = kernels.only("writes_input", a, c, block=8)
    assert found.kind is FindingKind.READ_ONLY
    assert found.message == "write to read-only input A at element [1, 0]"
    assert (found.memory, found.first, found.count) == ("A[1, 0]", kernels.place("input"), 8)
    assert (a.array == 1).all()
    assert (c.array == 2).all(), "the kernel sees what it wrote"


def test_a_null_pointer_ends_the_launch(kernels: Kernels) -> None:
    report = kernels.run("null", out(), Scalar("address", np.uint64(8)))
    assert not report.ok
    assert [f.message for f in report.findings] == ["read through a null pointer, at 8 bytes from it"]
    assert report.findings[0].first == kernels.place("null")


def test_an_address_of_no_array_ends_the_launch(kernels: Kernels) -> None:
    report = kernels.run("null", out(), Scalar("address", np.uint64(2**46)))
    assert not report.ok
    assert [f.message for f in report.findings] == ["read of an address that belongs to no array"]


def test_the_end_of_a_shared_array_is_seen_though_another_follows(kernels: Kernels) -> None:
    found = kernels.findings("shared_end", out(), number("count", 4), block=32)
    outside = [f for f in found if f.kind is FindingKind.OUT_OF_BOUNDS]
    assert outside[0].message == "write of 4 bytes past the end of first, which has 128"
    assert outside[0].memory == "shared first[4][0]"
    assert outside[0].first == kernels.place("shared end", 28)
    assert outside[0].count == 4


def test_dynamic_shared_memory_has_the_size_of_the_launch(kernels: Kernels) -> None:
    found = kernels.only("dynamic_end", out(), block=32, shared_bytes=100)
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "write of byte 100 of dynamic shared memory, which has 100 bytes"
    assert (found.memory, found.first) == ("dynamic shared+0x64", kernels.place("dynamic end", 25))


def test_dynamic_shared_memory_has_a_start(kernels: Kernels) -> None:
    found = kernels.only("dynamic_start", out(), number("minus", -1), shared_bytes=4096)
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.memory == "dynamic shared-0x4"


def test_a_misaligned_access_names_the_type_that_needs_more(kernels: Kernels) -> None:
    found = kernels.only("misaligned", out(64, np.uint8), block=3)
    assert found.kind is FindingKind.MISALIGNED
    assert found.message == "an access as 'int', which needs an address that is a multiple of 4"
    assert (found.memory, found.first, found.count) == ("C[1]", kernels.place("misaligned"), 3)


def test_an_asynchronous_copy_of_16_bytes_needs_their_alignment(kernels: Kernels) -> None:
    report = kernels.run("misaligned_copy", given(), out(), block=2)
    assert not report.ok
    assert kinds(report.findings) == {FindingKind.MISALIGNED}
    assert report.findings[0].first == kernels.place("misaligned copy", 1)


def test_a_read_of_shared_memory_that_nobody_wrote(kernels: Kernels) -> None:
    found = kernels.only("unwritten", out(64), block=32, grid=2)
    assert found.kind is FindingKind.UNINITIALISED
    assert found.memory == "shared tile[3][7]"
    assert (found.first, found.second) == (kernels.place("unwritten", 31), None)
    assert found.count == 2, "in each block anew"


def test_two_bytes_of_a_word_are_told_apart(kernels: Kernels) -> None:
    found = kernels.only("half_written", out(8), block=8)
    assert found.kind is FindingKind.UNINITIALISED
    assert (found.memory, found.first) == ("shared tile[5]", kernels.place("half written", 5))


def test_what_another_block_left_in_shared_memory_is_not_initialised(kernels: Kernels) -> None:
    found = kernels.only("written_by_the_block_before", out(2), grid=2)
    assert found.kind is FindingKind.UNINITIALISED
    assert found.first == kernels.place("block before", 0, 1)


def test_a_read_before_the_copy_was_waited_for_names_the_copy(kernels: Kernels) -> None:
    found = kernels.only("pending", given(32), out(32), block=32)
    assert found.kind is FindingKind.PENDING_COPY
    assert found.memory == "shared tile[1][0]"
    assert (found.first, found.second) == (kernels.place("too early"), kernels.place("copy"))
    assert found.count == 32


def test_a_barrier_is_no_wait(kernels: Kernels) -> None:
    found = kernels.only("pending_behind_a_barrier", given(32), out(32), block=32)
    assert found.kind is FindingKind.PENDING_COPY
    assert (found.first, found.second) == (kernels.place("no wait"), kernels.place("unwaited", 31))


def test_an_asynchronous_copy_reads_only_what_is_not_filled_with_zeros(kernels: Kernels) -> None:
    found = kernels.only("copy_past", given(64), out(1), number("filled", 16))
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "read of element 64, past the end of A (64 float32), which has 64"
    assert found.first == kernels.place("copy past")


def test_variables_of_the_device_are_memory_of_all_threads(kernels: Kernels) -> None:
    write, read = kernels.findings("device_table", out(), number("place", 5), block=4)
    assert {write.kind, read.kind} == {FindingKind.RACE_GLOBAL}
    assert write.memory == read.memory == "table[1][1]"
    assert (write.first, write.second) == (kernels.place("fill", 2), kernels.place("table", 0))
    assert (read.first, read.second) == (kernels.place("table", 3), kernels.place("fill", 2))


def test_findings_need_a_module_that_was_compiled_for_them(kernels: Kernels) -> None:
    plain = kernels.rig.module("__global__ void kernel() {}")
    report = kernels.rig.run(plain, checked=True)
    assert report.message == "the module cannot be loaded: it was built without checks"
    report = kernels.rig.run(kernels.module, out(), kernel=kernels.names.index("dynamic_end"))
    assert report.message == "the module cannot be loaded: it was built with checks"
