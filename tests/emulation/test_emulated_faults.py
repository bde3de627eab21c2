"""How a launch can fail, and that nothing of it reaches the process that asked."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Buffer, Fault, Geometry, Limits, Scalar, launch
from sweeper.errors import SetupError


def out(count: int = 8, dtype: type = np.float32) -> Buffer:
    return Buffer("C", (count,), dtype, writable=True)


def test_a_barrier_that_some_threads_never_reach_is_told_with_its_line(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
          if (threadIdx.x < 5) {
            __syncthreads();
          } else {
            __syncwarp(0xffffffff);
          }
          out[threadIdx.x] = 1;
        }""")
    report = rig.run(module, out(32, np.int32), grid=3, block=32)
    assert report.kind is Fault.DEADLOCK
    assert report.message == (
        "5 threads wait at __syncthreads() in line 4, while 27 wait at a warp-wide operation with mask 0xffffffff, "
        "thread (0, 0, 0) of block (0, 0, 0)"
    )


def test_an_assertion_is_told_with_its_text_and_place(rig: Rig) -> None:
    module = rig.module(
        '__global__ void kernel() {\n  assert(threadIdx.x < 3 && "too many");\n}', name="checked.cu"
    )
    assert rig.run(module, block=3).ok
    report = rig.run(module, block=4)
    assert report.kind is Fault.ASSERTION
    assert report.message == (
        'assertion failed: threadIdx.x < 3 && "too many" at checked.cu:2, thread (3, 0, 0) of block (0, 0, 0)'
    )


@pytest.mark.parametrize("include", ["", "#include <cassert>\n", "#include <assert.h>\n"])
def test_assert_is_the_same_whichever_header_defines_it(rig: Rig, include: str) -> None:
    report = rig.run(rig.module(f"{include}__global__ void kernel() {{ assert(false); }}"))
    assert report.kind is Fault.ASSERTION


def test_a_trap_is_told_with_its_place(rig: Rig) -> None:
    report = rig.run(rig.module("__global__ void kernel() {\n\n  if (blockIdx.x == 2) __trap();\n}"), grid=4)
    assert report.kind is Fault.TRAP
    assert report.message == "__trap() at kernel.cu:3, thread (0, 0, 0) of block (2, 0, 0)"


def test_division_by_zero_is_a_fault(rig: Rig) -> None:
    module = rig.module("__global__ void kernel(int* out, int zero) { out[0] = 7 / zero; }")
    report = rig.run(module, out(1, np.int32), Scalar("zero", np.int32(0)))
    assert report.kind is Fault.ARITHMETIC
    assert report.message.startswith("integer division by zero")


def test_a_kernel_that_never_ends_is_killed_at_the_deadline(rig: Rig) -> None:
    module = rig.module("__global__ void kernel(volatile int* out) { while (out[0] == 0) { } }")
    buffer = out(1, np.int32)
    buffer.array[0] = 0
    start = time.monotonic()
    report = rig.run(module, buffer, deadline_s=0.3)
    assert report.kind is Fault.TIMEOUT
    assert report.message == "still running after 0.3 s"
    assert time.monotonic() - start < 5


def test_a_fault_in_one_block_ends_the_launch_though_other_blocks_would_run_for_ever(rig: Rig) -> None:
    # Blocks after the failed one are not begun; those before it are finished.
    module = rig.module("""
        __global__ void kernel(volatile int* out) {
          if (blockIdx.x == 0) __trap();
          while (blockIdx.x > 1) { }
        }""")
    assert rig.run(module, out(1, np.int32), grid=2, workers=2).kind is Fault.TRAP


def test_what_a_kernel_prints_is_kept(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel() { printf("%s %d: %.2f\\n", "thread", threadIdx.x, threadIdx.x / 3.0f); }""")
    assert rig.run(module, block=3).printed == "thread 0: 0.00\nthread 1: 0.33\nthread 2: 0.67\n"


def test_a_flood_of_printing_is_bounded(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel() {
          for (int i = 0; i < 10000; ++i) printf("%050d\\n", i);
        }""")
    report = rig.run(module, grid=4, workers=2)
    assert report.ok
    assert len(report.printed) < 70_000
    assert report.printed.endswith(f"… and {4 * 10000 * 51 - 65536} more bytes")


def test_what_was_printed_before_a_fault_is_kept(rig: Rig) -> None:
    report = rig.run(rig.module('__global__ void kernel() { printf("before"); __trap(); }'))
    assert (report.kind, report.printed) == (Fault.TRAP, "before")


def test_a_kernel_cannot_pretend_to_have_succeeded(rig: Rig) -> None:
    module = rig.module('extern "C" void _exit(int) noexcept;\n__global__ void kernel() { _exit(0); }')
    report = rig.run(module)
    assert report.kind is Fault.CRASH
    assert report.message == "the process that ran the kernel ended with code 0"


def test_a_killed_launch_is_told_by_its_signal(rig: Rig) -> None:
    module = rig.module('extern "C" int raise(int) noexcept;\n__global__ void kernel() { raise(9); }')
    report = rig.run(module)
    assert (report.kind, report.message) == (
        Fault.CRASH,
        "the process that ran the kernel was killed by SIGKILL",
    )


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "message"),
    [
        (1, (64, 32), 0, "threads 2048 > 1024"),
        (1, (1025,), 0, "block x = 1025 is not within 1 to 1024"),
        (1, (1, 1, 65), 0, "block z = 65 is not within 1 to 64"),
        (0, 1, 0, "grid x = 0 is not within 1 to 2147483647"),
        ((1, 65536), 1, 0, "grid y = 65536 is not within 1 to 65535"),
        (1, 1, 227 * 1024 + 1, "shared memory 232449 B > 232448 B"),
        (1, 1, -1, "dynamic shared memory -1 B < 0"),
    ],
)
def test_limits_are_cudas(
    rig: Rig, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared_bytes: int, message: str
) -> None:
    report = rig.run(
        rig.module("__global__ void kernel() {}"), grid=grid, block=block, shared_bytes=shared_bytes
    )
    assert (report.kind, report.message) == (Fault.LAUNCH, message)


def test_the_largest_launch_is_allowed(rig: Rig) -> None:
    module = rig.module("__global__ void kernel() {}")
    assert rig.run(
        module, grid=(2, 65535), block=(16, 1, 64), shared_bytes=227 * 1024, blocks=np.array([131069])
    ).ok


def test_static_and_dynamic_shared_memory_count_together(rig: Rig) -> None:
    assert (
        Geometry((1, 1, 1), (1, 1, 1), 200_000, 40_000).broken_limit(Limits())
        == "shared memory 240000 B > 232448 B"
    )
    static = Geometry((1, 1, 1), (1, 1, 1), 0, 49_153).broken_limit(Limits())
    assert static == "static shared memory 49153 B > 49152 B"
    assert Geometry((1, 1, 1), (1, 1, 1), 60_000).broken_limit(Limits(shared_bytes=65536)) is None


ELEMENTS = (
    "argument 2 (A): the kernel takes a pointer to floating-point elements of 4 bytes, given is an array of"
)
SAXPY = "__global__ void kernel(float* y, const float* x, float a, int n) {}"


def saxpy(rig: Rig, *arguments: Buffer | Scalar) -> tuple[Fault | None, str]:
    report = rig.run(rig.module(SAXPY), *arguments)
    return report.kind, report.message


def test_arguments_must_be_as_many_as_the_kernel_takes(rig: Rig) -> None:
    y, x, a, n = (
        out(),
        Buffer("x", (8,), np.float32, writable=False),
        Scalar("a", np.float32(2)),
        Scalar("n", np.int32(8)),
    )
    assert saxpy(rig, y, x, a, n) == (None, "")
    assert saxpy(rig, y, x, a) == (Fault.ARGUMENT, "the kernel takes 4 arguments, given are 3")
    assert saxpy(rig, y, x, a, n, n) == (Fault.ARGUMENT, "the kernel takes 4 arguments, given are 5")


@pytest.mark.parametrize(
    ("position", "given", "message"),
    [
        (
            2,
            Scalar("alpha", np.float64(2)),
            "argument 3 (alpha): the kernel takes a floating-point of 4 bytes, given is a floating-point of 8 bytes",
        ),
        (
            2,
            Scalar("alpha", np.int32(2)),
            "argument 3 (alpha): the kernel takes a floating-point of 4 bytes, given is an integer of 4 bytes",
        ),
        (
            3,
            Scalar("N", np.int64(8)),
            "argument 4 (N): the kernel takes an integer of 4 bytes, given is an integer of 8 bytes",
        ),
        (
            1,
            Scalar("x", np.int64(0)),
            "argument 2 (x): the kernel takes a pointer of 8 bytes, given is an integer of 8 bytes",
        ),
        (
            3,
            Buffer("N", (1,), np.int32, writable=False),
            "argument 4 (N): the kernel takes an integer of 4 bytes, given is a pointer of 8 bytes",
        ),
        (
            1,
            Buffer("A", (8,), np.float64, writable=False),
            f"{ELEMENTS} floating-point elements of 8 bytes",
        ),
        (
            1,
            Buffer("A", (8,), np.int32, writable=False),
            f"{ELEMENTS} integer elements of 4 bytes",
        ),
        (
            1,
            Buffer("A", (8,), np.float32, writable=True),
            "argument 2 (A): it is an output, the kernel takes a pointer to constant elements",
        ),
    ],
)
def test_an_argument_of_another_type_is_told_with_both(
    rig: Rig, position: int, given: Buffer | Scalar, message: str
) -> None:
    arguments: list[Buffer | Scalar] = [
        out(),
        Buffer("x", (8,), np.float32, writable=False),
        Scalar("a", np.float32(2)),
        Scalar("n", np.int32(8)),
    ]
    arguments[position] = given
    assert saxpy(rig, *arguments) == (Fault.ARGUMENT, message)


def test_arrays_of_bytes_structures_and_void_take_any_elements(rig: Rig) -> None:
    module = rig.module(
        "__global__ void kernel(void* a, unsigned char* b, float4* c, const void* d) { ((float*)a)[0] = 1; }"
    )
    a, b, c = (Buffer(name, (16,), np.float32, writable=True) for name in "abc")
    assert rig.run(module, a, b, c, Buffer("d", (3,), np.int16, writable=False)).ok


def test_an_array_of_small_integers_is_not_an_array_of_bytes(rig: Rig) -> None:
    module = rig.module(
        "__global__ void kernel(signed char* a, unsigned char small, char c) { a[0] = small + c; }"
    )
    scalars = {"small": np.uint8(3), "c": np.int8(-5)}
    assert rig.out(module, 4, np.int8, scalars=scalars)[0] == -2
    arguments = [Scalar(name, value) for name, value in scalars.items()]
    report = rig.run(module, Buffer("a", (4,), np.float32, writable=True), *arguments)
    assert report.message.startswith(
        "argument 1 (a): the kernel takes a pointer to integer elements of 1 bytes"
    )


def test_a_file_that_is_no_module_is_told(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "module.so").write_bytes(b"nothing")
    report = launch(rig.launcher, tmp_path / "module.so", [], Geometry((1, 1, 1), (1, 1, 1)))
    assert report.kind is Fault.MODULE
    assert report.message.startswith("the module cannot be loaded: ")
    report = rig.run(rig.module("__global__ void kernel() {}"), kernel=3)
    assert report.message == "the module cannot be loaded: it has 1 kernels, number 3 was asked for"


def test_launches_leave_nothing_behind_in_the_process_that_asks(rig: Rig) -> None:
    modules = [
        rig.module(
            f"__device__ char data[1 << 22] = {{1}};\n__global__ void kernel(int* out) {{ out[0] = {i}; }}"
        )
        for i in range(3)
    ]

    def state() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines())

    rig.out(modules[0], 1, np.int32)
    before = state()
    for i in range(60):
        assert rig.out(modules[i % 3], 1, np.int32)[0] == i % 3
    descriptors, mappings = state()
    assert descriptors <= before[0]
    assert mappings <= before[1] + 2


def test_no_child_is_left_and_no_signal_handler_changed(rig: Rig) -> None:
    handlers = [signal.getsignal(s) for s in (signal.SIGSEGV, signal.SIGFPE, signal.SIGCHLD)]
    rig.run(rig.module("__global__ void kernel() { __trap(); }"))
    assert handlers == [signal.getsignal(s) for s in (signal.SIGSEGV, signal.SIGFPE, signal.SIGCHLD)]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_launcher_that_cannot_be_run_is_a_set_up_error(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "launcher").write_bytes(rig.launcher.read_bytes())
    with pytest.raises(SetupError, match=r"launcher .* does not run: Permission denied") as caught:
        rig.run(rig.module("__global__ void kernel() {}"), launcher=tmp_path / "launcher")
    assert "SWEEPER_CACHE" in str(caught.value.hint)
