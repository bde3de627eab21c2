"""What a checked launch tells of indices, arithmetic, and kernels that end themselves or never begin."""

from __future__ import annotations

import numpy as np
import pytest
from check_rig import FILE, Kernels, out, with_every_compiler
from emulation_rig import Rig

from sweeper.emulation import Fault, FindingKind, HostCompiler, ModuleSource, Place, Scalar

TEXT = """
__global__ void index_of_a_row(int* C, int column) {
  __shared__ int tile[4][8];
  tile[threadIdx.x][column] = 1;  //row
}

__global__ void index_of_a_local(int* C, int i) {
  int four[4] = {1, 2, 3, 4};
  C[0] = four[i & 3] + four[(i + 1) & 7];  //local
}

__global__ void adds(int* C, int a) {
  C[threadIdx.x] = a + threadIdx.x * 0 + 1;
  const int sum = a + static_cast<int>(threadIdx.x);  //add
  C[threadIdx.x] = sum;
}

__global__ void multiplies(long long* C, int m, int n) {
  C[0] = m * n;  //multiply
}

__global__ void negates(int* C, int a) {
  C[0] = -a;  //negate
}

__global__ void shifts(int* C, int by) {
  C[0] = 1 << by;  //shift
}

__global__ void shifts_sign(int* C, int one) {
  C[0] = one << 31;
  C[1] = -1 << 4;
}

__global__ void divides(int* C, int by) {
  C[threadIdx.x] = 7 / (by - static_cast<int>(threadIdx.x));  //divide
}

__global__ void wraps(unsigned* C, unsigned a) {
  C[0] = a + 1u;
  C[1] = a * a;
  C[2] = __reduce_add_sync(__activemask(), 0x7fffffff);
  C[3] = __dp4a(0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff);
  C[4] = __mul24(0x7fffff, 0x7fffff);
  C[5] = __sad(-2147483647, 2147483647, 3u);
}

__global__ void asserts(int* C) {
  assert(threadIdx.x < 3);  //assert
}

__global__ void traps(int* C) {
  if (threadIdx.x == 2) __trap();  //trap
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("arithmetic"), TEXT)


def ints(*values: int) -> tuple[Scalar, ...]:
    return tuple(Scalar("value", np.int32(value)) for value in values)


def result(count: int = 8) -> object:
    return out(count, np.int32)


def test_an_index_beyond_a_row_of_a_shared_array(kernels: Kernels) -> None:
    found = kernels.only("index_of_a_row", result(), *ints(8), block=3)
    assert found.kind is FindingKind.INDEX_RANGE
    assert found.message.replace("'", "").replace("[8]", " [8]").replace("  ", " ") == (
        "index 8 is out of range for int [8]"
    )
    assert (found.first, found.second, found.count) == (kernels.place("row"), None, 3)


def test_an_index_beyond_an_array_of_registers(kernels: Kernels) -> None:
    found = kernels.only("index_of_a_local", result(), *ints(4))
    assert found.kind is FindingKind.INDEX_RANGE
    assert found.first == kernels.place("local")


def test_a_sum_that_overflows(kernels: Kernels) -> None:
    found = kernels.only("adds", result(), *ints(2**31 - 3), block=5)
    assert found.kind is FindingKind.OVERFLOW
    assert found.message in (
        "2147483645 + 3 does not fit into 'int'",
        "3 + 2147483645 does not fit into 'int'",
    )
    assert (found.first, found.count) == (kernels.place("add", 3), 2)


def test_a_product_that_overflows_before_it_is_widened(kernels: Kernels) -> None:
    found = kernels.only("multiplies", out(1, np.int64), *ints(65536, -65536))
    assert found.message == "65536 * -65536 does not fit into 'int'"
    assert found.first == kernels.place("multiply")


def test_the_smallest_integer_has_no_opposite(kernels: Kernels) -> None:
    found = kernels.only("negates", result(), *ints(-(2**31)))
    assert found.message == "-(-2147483648) does not fit into 'int'"
    assert found.first == kernels.place("negate")


@pytest.mark.parametrize("by", [32, -1])
def test_a_shift_by_more_than_there_are_bits(kernels: Kernels, by: int) -> None:
    found = kernels.only("shifts", result(), *ints(by))
    assert found.kind is FindingKind.OVERFLOW
    assert found.message == f"a shift of 'int' by {by}"
    assert found.first == kernels.place("shift")


def test_shifts_into_the_sign_are_left_alone(kernels: Kernels) -> None:
    """Every GPU does what is meant, and so does C++20."""
    assert kernels.findings("shifts_sign", result(), *ints(1)) == ()


def test_a_division_by_zero_ends_the_launch(kernels: Kernels) -> None:
    report = kernels.run("divides", result(), *ints(2), block=4)
    assert report.kind is Fault.ARITHMETIC
    (found,) = report.findings
    assert found.kind is FindingKind.OVERFLOW
    assert found.message == "division of 7 by zero"
    assert found.first == kernels.place("divide", 2)


def test_what_is_meant_to_wrap_may(kernels: Kernels) -> None:
    c = out(6, np.uint32)
    assert kernels.findings("wraps", c, Scalar("a", np.uint32(2**32 - 1))) == ()
    total = 4 * 127 * 127 + 2**31 - 1
    assert c.array.tolist() == [0, 1, 2**31 - 1, total, (2**23 - 1) ** 2 % 2**32, 1]


def test_an_assertion(kernels: Kernels) -> None:
    report = kernels.run("asserts", result(), block=4)
    (found,) = report.findings
    assert (report.kind, found.kind) == (Fault.ASSERTION, FindingKind.ASSERT)
    assert found.message == f"threadIdx.x < 3 at {FILE}:{kernels.place('assert').line}"
    assert found.first == kernels.place("assert", 3)


def test_a_trap(kernels: Kernels) -> None:
    report = kernels.run("traps", result(), block=4)
    (found,) = report.findings
    assert (report.kind, found.kind) == (Fault.TRAP, FindingKind.TRAP)
    assert found.first == kernels.place("trap", 2)


def test_a_launch_that_no_device_takes(kernels: Kernels) -> None:
    report = kernels.run("traps", result(), block=(33, 32))
    (found,) = report.findings
    assert (report.ok, report.kind, found.kind) == (False, Fault.LAUNCH, FindingKind.LAUNCH)
    assert found.message == "threads 1056 > 1024"
    assert found.first == Place("?", 0)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '__global__ void kernel() {\n  asm volatile("bar.sync 0;");\n}',
            'inline PTX has no meaning on a CPU: asm("bar.sync 0;")',
        ),
        ("\n#include <cuda/ptx>\n__global__ void kernel() {}", "not emulable: <cuda/ptx> is for GPUs"),
        (
            "#include <cooperative_groups.h>\n__global__ void kernel() { cooperative_groups::this_cluster(); }",
            "not emulable: thread block clusters",
        ),
        (
            "#include <cooperative_groups.h>\n__global__ void kernel() { cooperative_groups::this_grid().sync(); }",
            "not emulable: a barrier of all blocks, which run one after another",
        ),
    ],
    ids=["ptx", "header", "cluster", "grid"],
)  # fmt: skip
def test_what_only_a_gpu_has_is_refused_with_its_line(
    compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory, text: str, message: str, checked: bool
) -> None:
    rig = Rig(compiler, tmp_path_factory.mktemp("refused"))
    done = rig.compile(ModuleSource(FILE, f'#line 1 "{FILE}"\n{text}', ("kernel",)), checked=checked)
    assert not done.ok
    (found,) = done.findings
    assert (found.kind, found.message, found.first) == (FindingKind.NOT_EMULABLE, message, Place(FILE, 2))
    assert done.error == (
        f"{FILE}:2: {message} (give the kernel another way under #ifdef __SWEEPER_EMULATOR__)"
    )


def test_assembly_that_a_cpu_would_take_is_refused_all_the_same(
    compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The template is never called, and `nop` means something to an assembler for x86."""
    rig = Rig(compiler, tmp_path_factory.mktemp("silent"))
    text = 'template <int N> __device__ void wait() {\n  asm("nop");\n}\n__global__ void kernel() {}'
    done = rig.compile(ModuleSource(FILE, f'#line 1 "{FILE}"\n{text}', ("kernel",)), checked=True)
    assert [finding.first for finding in done.findings] == [Place(FILE, 2)]


def test_an_empty_statement_of_assembly_is_a_barrier_for_the_compiler(
    compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = '__global__ void kernel() {\n  asm volatile("" ::: "memory");\n  const char* s = "asm(1)";\n}'
    Kernels(compiler, tmp_path_factory.mktemp("empty"), text)
