"""A kernel's declaration read from its source, and compared with its description."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.source.entry import block_problem, check_arguments
from sweeper.source.includes import SourceTree, read_tree
from sweeper.source.signature import EntrySignature, find_entry, kernel_names, may_declare


@pytest.fixture
def tree(tmp_path: Path) -> object:
    def make(text: str) -> SourceTree:
        (tmp_path / "mm.cu").write_text(text)
        return read_tree(tmp_path / "mm.cu")

    return make


def entry(tree, text: str, name: str = "mm") -> EntrySignature:  # type: ignore[no-untyped-def]
    found = find_entry(tree(text), name)
    assert found is not None
    return found


BODY = "(const float* __restrict__ A, float *C, int n) {}"
TEXTBOOK = [
    f"__global__ void mm{BODY}",
    f'extern "C" __global__ void mm{BODY}',
    f'extern "C" {{ __global__ void mm{BODY} }}',
    f"void __global__ mm{BODY}",
    f"static __global__ void mm{BODY}",
    f"__global__ void __launch_bounds__(256, 2) mm{BODY}",
    f"__global__ __launch_bounds__(256)\nvoid\nmm\n{BODY}",
    f"__launch_bounds__(256) __global__ void mm{BODY}",
    f"__global__ __attribute__((noinline)) void mm{BODY}",
    f"namespace a {{ namespace {{ __global__ void mm{BODY} }} }}",
    f"template <typename T> __device__ T id(T x) {{ return x; }}\n__global__ void mm{BODY}",
    f"__global__ void mm(const float* A, float* C, int n);\n__global__ void mm{BODY}",
    f"__global__ void other(int x) {{}}\n\n__global__ void __cluster_dims__(2, 1, 1) mm{BODY}",
    f"__global__ void mm{BODY}\nvoid host() {{ mm<<<1, 2>>>(a, c, 3); }}",
]


@pytest.mark.parametrize("text", TEXTBOOK)
def test_textbook_declarations_are_read(tree, text: str) -> None:  # type: ignore[no-untyped-def]
    params = entry(tree, text).params
    assert [(p.name, p.is_pointer, p.is_const, p.ctype) for p in params] == [
        ("A", True, True, "float"),
        ("C", True, False, "float"),
        ("n", False, False, "int"),
    ]


def test_template_parameters_are_read_with_kinds_and_defaults(tree) -> None:  # type: ignore[no-untyped-def]
    text = """
    template <typename T, int BLOCK, bool EDGE = (1 < 2), class Op = P<T, 2>,
              template <class> class C, int... REST>
    __global__ void __launch_bounds__(BLOCK * BLOCK) mm(const T* __restrict__ A, Op op) {}"""
    found = entry(tree, text)
    assert [(p.kind, p.name, p.has_default, p.is_pack) for p in found.template] == [
        ("type", "T", False, False),
        ("value", "BLOCK", False, False),
        ("value", "EDGE", True, False),
        ("type", "Op", True, False),
        ("template", "C", False, False),
        ("value", "REST", False, True),
    ]
    assert [(p.name, p.is_pointer, p.ctype) for p in found.params] == [("A", True, None), ("op", False, None)]
    assert found.launch_bounds == (("BLOCK", "*", "BLOCK"),)


def test_unnamed_template_parameters_have_no_name(tree) -> None:  # type: ignore[no-untyped-def]
    found = entry(tree, "template <typename, int> __global__ void mm(float* c) {}")
    assert [(p.kind, p.name) for p in found.template] == [("type", ""), ("value", "")]


@pytest.mark.parametrize(
    ("declared", "ctype", "pointer"),
    [
        ("unsigned n", "unsigned int", False),
        ("const unsigned int n", "unsigned int", False),
        ("std::size_t n", "unsigned long long", False),
        ("size_t n = 4", "unsigned long long", False),
        ("long long n", "long long", False),
        ("half x", "__half", False),
        ("const __nv_bfloat16* __restrict__ x", "__nv_bfloat16", True),
        ("float const *x", "float", True),
        ("double x[]", "double", True),
        ("const int8_t *x", "signed char", True),
        ("unsigned int", "unsigned int", False),
        ("int", "int", False),
        ("const __grid_constant__ CUtensorMap map", None, False),
        ("Output<T>* C", None, True),
    ],
)
def test_argument_types_are_brought_to_one_spelling(
    tree, declared: str, ctype: str | None, pointer: bool
) -> None:  # type: ignore[no-untyped-def]
    (param,) = entry(tree, f"template <typename T> __global__ void mm({declared}) {{}}").params
    assert (param.ctype, param.is_pointer) == (ctype, pointer)


def test_a_kernel_without_arguments_has_none(tree) -> None:  # type: ignore[no-untyped-def]
    assert entry(tree, "__global__ void mm(void) {}").params == ()
    assert entry(tree, "__global__ void mm() {}").params == ()


def test_every_kernel_is_listed_once(tree) -> None:  # type: ignore[no-untyped-def]
    text = (
        "__global__ void a(int);\n__global__ void a(int) {}\n__device__ void d() {}\n__global__ void b() {}"
    )
    assert kernel_names(tree(text)) == ("a", "b")


def test_what_is_not_there_or_ambiguous_is_not_guessed(tree) -> None:  # type: ignore[no-untyped-def]
    assert find_entry(tree("__device__ void mm() {}"), "mm") is None
    assert find_entry(tree("__global__ void mm(float* a) {}\n__global__ void mm(double* a) {}"), "mm") is None
    branches = "#ifdef A\n__global__ void mm(float* a) {}\n#else\n__global__ void mm(int n) {}\n#endif\n"
    assert find_entry(tree(branches), "mm") is None


def test_launch_bounds_may_stand_on_another_declaration(tree) -> None:  # type: ignore[no-untyped-def]
    text = "__global__ void __launch_bounds__(64) mm(int n);\n__global__ void mm(int n) {}"
    assert entry(tree, text).launch_bounds == (("64",),)


def test_a_qualified_entry_is_found_by_its_last_name(tree) -> None:  # type: ignore[no-untyped-def]
    assert entry(tree, "namespace a { __global__ void mm(int n) {} }", "a::mm").name == "mm"


def test_a_kernel_that_a_macro_makes_may_be_there(tree) -> None:  # type: ignore[no-untyped-def]
    made = tree("#define KERNEL(name) __global__ void name(float* c) {}\nKERNEL(mm)\n")
    assert may_declare(made, "mm")
    assert not may_declare(made, "gemm")
    assert not may_declare(tree("#define N 1\nvoid mm() {}"), "mm")
    assert may_declare(tree("__global__ void mm() {}"), "ns::mm")


SIMPLE = "template <typename T, int TILE> __global__ void mm(const T* A, float* C, int n, float alpha) {}"
MATCHING = [("A", True, "double"), ("C", True, "float"), ("n", False, "int"), ("alpha", False, "float")]


def test_arguments_that_agree_raise_nothing(tree) -> None:  # type: ignore[no-untyped-def]
    assert check_arguments(entry(tree, SIMPLE), MATCHING, 2) == ()


@pytest.mark.parametrize(
    ("arguments", "template_args", "part"),
    [
        (MATCHING[:3], 2, "takes 4 arguments (A, C, n, alpha), the description gives 3"),
        (
            [MATCHING[0], MATCHING[2], MATCHING[1], MATCHING[3]],
            2,
            "argument 2 (C) is an array, the description gives a scalar n",
        ),
        (
            [*MATCHING[:3], ("alpha", False, "double")],
            2,
            "argument 4 (alpha) is float, the description's alpha is double",
        ),
        ([MATCHING[0], ("C", True, "__half"), *MATCHING[2:]], 2, "argument 2 (C) is float"),
        (
            [*MATCHING[:3], ("alpha", True, "float")],
            2,
            "argument 4 (alpha) is a scalar, the description gives an array",
        ),
        (MATCHING, 1, "has 2 template parameters, the description gives 1"),
        (MATCHING, 0, "is a template (T, TILE), the description has no `template`"),
    ],
)
def test_arguments_that_differ_are_named(tree, arguments, template_args: int, part: str) -> None:  # type: ignore[no-untyped-def]
    problems = check_arguments(entry(tree, SIMPLE), arguments, template_args)
    assert any(part in problem for problem in problems)
    assert all(problem.startswith("mm.cu:1: mm") for problem in problems)


def test_defaults_and_packs_leave_room_for_template_arguments(tree) -> None:  # type: ignore[no-untyped-def]
    text = "template <typename T, int A = 1, int... REST> __global__ void mm(T* c) {}"
    assert [check_arguments(entry(tree, text), [("c", True, "float")], n) for n in (1, 2, 5)] == [(), (), ()]
    (problem,) = check_arguments(entry(tree, "__global__ void mm(float* c) {}"), [("c", True, "float")], 2)
    assert "is not a template" in problem


BOUNDED = "template <int BM, int TM> __global__ void __launch_bounds__((BM / TM) * (BM / TM)) mm(float* c) {}"


def test_a_block_that_contradicts_the_sources_bound_is_named(tree) -> None:  # type: ignore[no-untyped-def]
    files = tree(BOUNDED)
    found = find_entry(files, "mm")
    assert found is not None
    assert block_problem(found, 256, {"BM": 64, "TM": 4}, files) is None
    assert "= 256" in str(block_problem(found, 64, {"BM": 64, "TM": 4}, files))
    assert block_problem(found, 64, {"BM": 64}, files) is None, "unknown names are not guessed"


def test_a_bare_bound_is_only_a_limit(tree) -> None:  # type: ignore[no-untyped-def]
    files = tree("#define LIMIT 256\n__global__ void __launch_bounds__(LIMIT) mm(float* c) {}")
    found = find_entry(files, "mm")
    assert found is not None
    assert block_problem(found, 128, {}, files) is None
    assert "512 threads" in str(block_problem(found, 512, {}, files))


def test_a_kernel_without_bounds_takes_any_block(tree) -> None:  # type: ignore[no-untyped-def]
    files = tree("__global__ void mm(float* c) {}")
    found = find_entry(files, "mm")
    assert found is not None
    assert block_problem(found, 1024, {}, files) is None
