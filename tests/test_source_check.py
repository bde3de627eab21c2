"""Names on which a description and its source disagree, and no false alarm on code that works."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from sweeper.source.includes import SourceTree, read_tree
from sweeper.source.names import SourceProblem, check_names, declared_types, self_defined


def tree_of(folder: Path, text: str, **headers: str) -> SourceTree:
    (folder / "mm.cu").write_text(text)
    for name, content in headers.items():
        (folder / f"{name}.cuh").write_text(content)
    return read_tree(folder / "mm.cu")


@pytest.fixture
def check(tmp_path: Path) -> object:
    def run(
        text: str,
        params: Collection[str] = (),
        *,
        templated: Collection[str] = (),
        defined: Collection[str] = (),
        used_elsewhere: Iterable[str] = (),
        **headers: str,
    ) -> list[tuple[str, str, int]]:
        problems = check_names(
            tree_of(tmp_path, text, **headers),
            params=params,
            templated=templated,
            defined=defined,
            used_elsewhere=used_elsewhere,
        )
        return [(p.kind, p.name, p.line) for p in problems]

    return run


MACRO_KERNEL = """
extern "C" __global__ void mm(const float* A, float* C, int N) {
  __shared__ float tile[BM][BN];
  for (int i = 0; i < BM * TN; ++i) tile[i / BN][i % BN] = A[i];
  C[threadIdx.x] = tile[0][0];
}
"""


def test_a_name_that_nobody_defines_is_reported_with_its_line(check) -> None:  # type: ignore[no-untyped-def]
    assert check(MACRO_KERNEL, ["BM", "BN"]) == [("undefined", "TN", 4)]


def test_a_parameter_that_nothing_uses_is_reported(check) -> None:  # type: ignore[no-untyped-def]
    assert check(MACRO_KERNEL, ["BM", "BN", "TN", "BK"]) == [("unused", "BK", 0)]


def test_a_parameter_of_the_launch_alone_is_used(check) -> None:  # type: ignore[no-untyped-def]
    assert check(MACRO_KERNEL, ["BM", "BN", "TN", "THREADS"], used_elsewhere=["THREADS"]) == []


def test_a_template_argument_is_used_whatever_the_source_calls_it(check) -> None:  # type: ignore[no-untyped-def]
    assert (
        check(
            "template <int TILE> __global__ void mm(float* C) { C[TILE] = 0; }", ["tile"], templated=["tile"]
        )
        == []
    )


def test_a_macro_of_the_description_counts_as_defined(check) -> None:  # type: ignore[no-untyped-def]
    assert check(MACRO_KERNEL, ["BM", "BN"], defined=["TN"]) == []


def test_a_parameter_that_the_source_fixes_itself_is_reported(check) -> None:  # type: ignore[no-untyped-def]
    assert check("#define TILE 16\n__global__ void mm(float* C) { C[TILE] = 0; }", ["TILE"]) == [
        ("redefined", "TILE", 1)
    ]
    assert check("const int TILE = 16;\n__global__ void mm(float* C) { C[TILE] = 0; }", ["TILE"]) == [
        ("redefined", "TILE", 1)
    ]


@pytest.mark.parametrize("guard", ["#ifndef TILE", "#if !defined(TILE)", "#if !defined TILE"])
def test_a_default_value_for_a_parameter_is_fine(check, guard: str) -> None:  # type: ignore[no-untyped-def]
    assert (
        check(f"{guard}\n#define TILE 16\n#endif\n__global__ void mm(float* C) {{ C[TILE] = 0; }}", ["TILE"])
        == []
    )


def test_each_name_is_reported_once(check) -> None:  # type: ignore[no-untyped-def]
    assert check("__global__ void mm(float* C) { C[TN] = TN; C[TN + 1] = TN; }") == [("undefined", "TN", 1)]


def test_half_a_name_that_a_macro_pastes_together_is_no_name(check) -> None:  # type: ignore[no-untyped-def]
    text = "#define CASE(n) run_##n(PRE##n, n##POST, TN)\n__global__ void mm(float* C) { CASE(1); }"
    assert check(text) == [("undefined", "TN", 1)]


def test_names_of_headers_count(check) -> None:  # type: ignore[no-untyped-def]
    text = '#include "sizes.cuh"\n__global__ void mm(float* C) { C[ROWS] = 0; }'
    assert check(text, ["BM"], sizes="constexpr int ROWS = BM / 2;\n") == []
    assert check(text, [], sizes="constexpr int ROWS = BM / 2;\n") == [("undefined", "BM", 1)]


def test_messages_say_what_to_do() -> None:
    undefined = SourceProblem("undefined", "TN", "mm.cu", 4)
    assert undefined.message.startswith("mm.cu:4: TN is used")
    assert "params" in undefined.hint
    unused = SourceProblem("unused", "BK", "mm.cu", 0)
    assert "BK is never used" in unused.message
    assert "remove BK" in unused.hint
    redefined = SourceProblem("redefined", "TILE", "mm.cu", 1)
    assert "sets it itself" in redefined.message
    assert "#ifndef TILE" in redefined.hint


DECLARATIONS = [
    "template <typename T, int BLOCK_SIZE> __global__ void mm(T* C) { C[BLOCK_SIZE] = 0; }",
    "template <class TYPE, unsigned WIDTH = 4> __global__ void mm(TYPE* C) { C[WIDTH] = 0; }",
    "template <int... DIMS> __global__ void mm(float* C) { C[sizeof...(DIMS)] = 0; }",
    "__global__ void mm(float* AA, const float *__restrict__ BB, int NN) { AA[NN] = BB[NN]; }",
    "__global__ void mm(float AA[], int NN) { AA[NN] = 0; }",
    "enum { ROWS, COLS = 4, PAD }; __global__ void mm(float* c) { c[ROWS + COLS] = PAD; }",
    "enum class Layout : int { ROW_MAJOR, COL_MAJOR }; __global__ void mm(float* c) { if (ROW_MAJOR) c[0] = 1; }",
    "__global__ void mm(float* c) { constexpr int ROWS = 4, COLS = 2, BOTH = ROWS * COLS; c[BOTH] = 0; }",
    "namespace sizes { constexpr int ROWS = 4, COLS = 2; } __global__ void mm(float* c) { c[sizes::COLS] = 0; }",
    "struct Shape { static constexpr int ROWS = 4, COLS = 3; }; __global__ void mm(float* c) { c[Shape::ROWS] = 0; }",
    "#define ROWS 4\n#define AT(I, J) ((I) * ROWS + (J))\n__global__ void mm(float* c) { c[AT(1, 2)] = 0; }",
    "#define CEIL_DIV(AA, BB) (((AA) + (BB) - 1) / (BB))\n__global__ void mm(float* c) { c[CEIL_DIV(3, 2)] = 0; }",
    "__global__ void mm(float* c) { c[0] = INFINITY + FLT_MAX + CUDART_INF_F; c[1] = INT_MAX; c[2] = UINT32_MAX; }",
    "#ifdef USE_FAST\n#endif\n__global__ void mm(float* c) { c[0] = USE_FAST; }",
    "#if SPEED > 2\n#endif\n__global__ void mm(float* c) { c[0] = 0; }",
    "__global__ void mm(float* c) { c[threadIdx.x] = 0; /* OLD_NAME */ } // OTHER_NAME",
    '__global__ void mm(float* c) { asm volatile("mov.u32 %0, %LANEID;" : "=r"(c[0])); }',
    "typedef float4 VEC; __global__ void mm(VEC* c) { VEC* PTR = c; PTR[0] = VEC{}; }",
    "using REAL = double; __global__ void mm(REAL* OUT) { REAL SUM = 0; OUT[0] = SUM; }",
    "__global__ void mm(float* c) { auto [FIRST, SECOND] = pair(c); c[0] = c[1]; }",
    "__global__ void mm(float* c) { goto END; END: c[0] = 1; }",
    "__global__ void mm(my_type *AA, other_type &BB) { AA[0] = BB; }",
    "int AA[4], BB[4]; __global__ void mm(float* c) { c[0] = AA[0] + BB[0]; }",
    "__global__ void mm(float* c) { CUDA_CHECK(c); }",
    "__device__ void f(int); __global__ void mm(float* c) { for (int I = 0, J = 1; I < J; ++I) c[I] = J; }",
    "__global__ void mm(float* c) { float4 AA; const half2 BB = c[0]; unsigned long CC = 1; c[0] = AA.x + BB.x + CC; }",
    "#include <cutlass/gemm.h>\n__global__ void mm(float* c) { c[CUTLASS_SIZE] = OTHER_SIZE; }",
    "__global__ void mm(float* c) { c[0] = std::numeric_limits<float>::MAX_VALUE; c[1] = c->SIZE; }",
    "template <typename Out> __global__ void mm(Out* c) { std::vector<int> ROWS; c[0] = ROWS; }",
    "#include <mma.h>\n#include <cuda/std/array>\n__global__ void mm(float* c) { c[0] = WMMA_M; }",
]


@pytest.mark.parametrize("text", DECLARATIONS)
def test_code_that_works_raises_no_alarm(check, text: str) -> None:  # type: ignore[no-untyped-def]
    assert [p for p in check(text) if p[1] not in ("FIRST", "SECOND")] == []


@pytest.mark.parametrize(
    "expression",
    [
        "BM * TN",
        "(BM + TN)",
        "c[TN]",
        "f(1, TN)",
        "x = {1, TN}",
        "i < TN",
        "-TN",
        "BM & TN",
        "x = tile * TN",
        "return tile * TN",
        "return TN",
    ],
)
def test_a_use_is_not_mistaken_for_a_declaration(check, expression: str) -> None:  # type: ignore[no-untyped-def]
    text = f"__global__ void mm(float* c, int tile) {{ {expression}; }}"
    assert ("undefined", "TN", 1) in check(text, ["BM"])


def test_types_and_own_macros_are_told_apart(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        "template <typename T, class U> struct Pair;\nusing REAL = float;\ntypedef double WIDE;\nenum class Mode {A};\n"
        "#define OWN 1\n#ifndef GIVEN\n#define GIVEN 1\n#endif\n#ifdef X\n#define MAYBE 1\n#endif\n",
    )
    assert declared_types(tree) >= {"T", "U", "Pair", "REAL", "WIDE", "Mode"}
    assert self_defined(tree) == {"OWN"}
