"""What is read from a checked module's file: lines of instructions, names and shapes of shared variables."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from check_rig import FILE, Kernels, given, out, with_every_compiler

from sweeper.emulation import HostCompiler, Place
from sweeper.emulation.debug import DebugInfo
from sweeper.emulation.elf import Elf, redzone
from sweeper.emulation.variables import Variable

TEXT = """
#define TWICE(statement) statement; statement
__device__ __forceinline__ float read_at(const float* from, int i) {
  return from[i];  //inlined
}
__device__ __noinline__ float called(const float* from, int i) {
  return from[i];  //called
}
template <class T> struct Box {
  T value[2][3];
};
template <int N> __device__ float sum_of(float x) {
  __shared__ float parts[N][2];
  parts[threadIdx.x][0] = x;  //parts
  return parts[threadIdx.x][1];  //unwritten part
}

__global__ void lines(const float* A, float* C) {
  C[0] = read_at(A, 100);
  C[1] = called(A, 200);
  auto in_lambda = [&](int i) {
    return A[i];  //lambda
  };
  C[2] = in_lambda(300);
  C[3] = __ldg(A + 400);  //cached load
  atomicAdd(C + 500, 1.0f);  //atomic
  C[4] = __half2float(*(reinterpret_cast<const __half*>(A) + 1201));  //half
  TWICE(C[600] = 1);  //macro
}

__global__ void shared_names(float* C) {
  __shared__ float matrix[3][5];
  __shared__ float4 vectors[4];
  __shared__ Box<short> box;
  __shared__ int scalar;
  __shared__ __half halves[2][2];
  C[0] = matrix[2][4];
  C[1] = vectors[3].y;
  C[2] = box.value[1][2];
  C[3] = scalar;
  C[4] = sum_of<7>(1.0f);
  C[5] = halves[1][0];
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("debug"), TEXT, headers=("cuda_fp16.h",))


def test_an_access_has_the_users_line_however_it_was_inlined(kernels: Kernels) -> None:
    places = {f.memory: f.first for f in kernels.findings("lines", given(8), out(8))}
    expected = {
        "A[100]": "inlined",
        "A[200]": "called",
        "A[300]": "lambda",
        "A[400]": "cached load",
        "C[500]": "atomic",
        "A[600]+0x2": "half",
        "C[600]": "macro",
    }
    assert places == {memory: kernels.place(mark) for memory, mark in expected.items()}


def test_shared_variables_have_their_names_and_coordinates(kernels: Kernels) -> None:
    found = {f.memory for f in kernels.findings("shared_names", out())}
    assert found == {
        "shared matrix[2][4]",
        "shared vectors[3]+0x4",
        "shared box+0xa",
        "shared scalar",
        "shared parts[0][1]",
        "shared halves[1][0]",
    }


def test_the_room_between_variables_does_not_count_as_shared_memory(kernels: Kernels) -> None:
    elf = Elf.of(kernels.module)
    declared = 3 * 5 * 4 + 4 * 16 + 12 + 4 + 7 * 2 * 4 + 2 * 2 * 2
    assert declared <= elf.shared_bytes() <= declared + 6 * 16
    starts = [(v.value, v.value + v.size) for v in elf.shared_variables()]
    for (_, end), (start, _) in pairwise(starts):
        assert start - end >= redzone(4)


@pytest.mark.parametrize(
    ("size", "room"), [(1, 1024), (1024, 1024), (1025, 2048), (5000, 5120), (40_000, 16_384)]
)
def test_behind_a_variable_is_as_much_room_as_it_is_large_within_bounds(size: int, room: int) -> None:
    assert redzone(size) == room


def test_without_debugging_information_a_place_is_its_functions_name(
    kernels: Kernels, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "--strip-debug", "-o", stripped, kernels.module], check=True)
    whole, bare = DebugInfo(Elf.of(kernels.module)), DebugInfo(Elf.of(stripped))
    function = next(f for f in Elf.of(stripped).functions() if "called" in f.name)
    assert whole.places.place(function.value + 8)[0] == FILE
    assert bare.places.place(function.value + 8) == (f"<{function.name}>", 0)
    assert bare.places.place(1) == ("?", 0)
    names = {variable.name for variable in bare.shared_variables}
    assert {"matrix", "vectors", "box", "scalar", "parts", "halves"} <= names


def test_an_element_is_told_by_its_coordinates() -> None:
    matrix = Variable("m", 0, 24, (2, 3), 4)
    assert [matrix.element(at) for at in (0, 4, 20, 24, -4, 21)] == [
        "m[0][0]", "m[0][1]", "m[1][2]", "m[2][0]", "m[-1][2]", "m[1][2]+0x1",
    ]  # fmt: skip
    assert Variable("s", 0, 8).element(0) == "s"
    assert Variable("s", 0, 8).element(4) == "s+0x4"


def test_a_place_reads_like_a_compilers_message() -> None:
    assert str(Place("a.cu", 3)) == "a.cu:3"
    assert str(Place("a.cu", 3, (1, 2, 3), (0, 0, 4))) == "a.cu:3 by thread (1, 2, 3) of block (0, 0, 4)"


def test_a_file_that_is_no_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_bytes(b"not one")
    with pytest.raises(ValueError, match=r"text\.so is not a module"):
        Elf.of(tmp_path / "text.so")
