"""One configuration's source: what reaches the compiler, and what its digest covers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import programs
import pytest
from specs import gemm_spec

from sweeper.build.options import normalize_options, option_warnings
from sweeper.build.source import (
    TranslationUnit,
    cuda_text,
    render_define,
    render_template_argument,
    translation_unit,
)
from sweeper.errors import ConfigError, ExpressionError, KernelError
from sweeper.expressions import Value, parse
from sweeper.model import Point

TEMPLATE_CU = "template <typename T, int tile>\n__global__ void matmul(const T* A) {}\n"
MACRO_CU = "__global__ void matmul(const T* A) { __shared__ T a[tile]; }\n"


def unit_of(
    folder: Path, text: str, params: dict[str, Value] | None = None, **changes: Any
) -> TranslationUnit:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiled.cu").write_text(text)
    chosen: dict[str, Value] = {"tile": 16} if params is None else params
    levels = {name: (value,) for name, value in chosen.items()}
    spec = gemm_spec(params=levels, source=folder / "tiled.cu", **changes)
    return translation_unit(spec, Point.of(chosen))


def test_a_template_kernel_gets_its_arguments_in_order(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, TEMPLATE_CU)
    assert unit.template_args == ("float", "16")
    assert unit.signature == "matmul<float, 16>"
    assert unit.defines == ()
    assert unit.text.startswith('#line 1 "tiled.cu"\ntemplate')


@pytest.mark.parametrize(
    ("dtype", "ctype"),
    [("float64", "double"), ("float16", "__half"), ("bfloat16", "__nv_bfloat16"), ("int8", "signed char")],
)
def test_t_is_the_precision_class_in_cxx(tmp_path: Path, dtype: str, ctype: str) -> None:
    assert unit_of(tmp_path, TEMPLATE_CU, dtype=dtype).template_args[0] == ctype


def test_a_plain_kernel_gets_its_parameters_and_t_as_macros(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, MACRO_CU, template=False)
    assert unit.signature == "matmul"
    assert unit.defines == (("tile", "16"), ("T", "float"))


def test_only_parameters_that_the_source_uses_become_macros(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, MACRO_CU, {"tile": 16, "split": 2}, template=False)
    assert dict(unit.defines) == {"tile": "16", "T": "float"}


def test_a_parameter_used_only_in_a_header_becomes_a_macro(tmp_path: Path) -> None:
    (tmp_path / "sizes.cuh").write_text("constexpr int kTile = tile;\n")
    unit = unit_of(tmp_path, '#include "sizes.cuh"\n__global__ void matmul(float* A) {}\n', template=False)
    assert dict(unit.defines) == {"tile": "16"}


@pytest.mark.parametrize(
    "text",
    [
        "template <typename T> __device__ T twice(T x) { return x + x; }\n__global__ void matmul(float* A) {}",
        "using T = float;\n__global__ void matmul(T* A) {}",
        "typedef float T;\n__global__ void matmul(T* A) {}",
        "#define T float\n__global__ void matmul(T* A) {}",
    ],
)
def test_t_is_left_alone_where_the_source_declares_it(tmp_path: Path, text: str) -> None:
    assert "T" not in dict(unit_of(tmp_path, text, {}, template=False).defines)


def test_t_is_given_where_the_source_has_only_a_default_for_it(tmp_path: Path) -> None:
    text = "#ifndef T\n#define T float\n#endif\n__global__ void matmul(T* A) {}"
    assert dict(unit_of(tmp_path, text, {}, template=False, dtype="float64").defines)["T"] == "double"


def test_the_descriptions_own_macros_are_computed(tmp_path: Path) -> None:
    defines = {
        "ROWS": parse("tile / 2"),
        "BYTES": parse("elem_bytes"),
        "REAL": parse("T"),
        "tile": parse("tile * 2"),
    }
    unit = unit_of(tmp_path, MACRO_CU, template=False, defines=defines)
    assert dict(unit.defines) == {"tile": "32", "T": "float", "ROWS": "8", "BYTES": "4", "REAL": "float"}


def test_a_computed_macro_that_is_not_whole_stays_a_fraction(tmp_path: Path) -> None:
    unit = unit_of(
        tmp_path,
        MACRO_CU,
        {"tile": 5, "alpha": 2.0},
        template=False,
        defines={"H": parse("tile / 2"), "F": parse("alpha / 2")},
    )
    assert dict(unit.defines)["H"] == "2.5"
    assert dict(unit.defines)["F"] == "1.0"


def test_a_template_argument_may_be_computed(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, TEMPLATE_CU, {"bm": 128, "tm": 8}, template=True)
    assert unit.signature == "matmul<float, 128, 8>"


def test_a_fraction_is_no_template_argument(tmp_path: Path) -> None:
    (tmp_path / "tiled.cu").write_text(TEMPLATE_CU)
    spec = gemm_spec(params={"bm": (5,)}, source=tmp_path / "tiled.cu")
    spec = type(spec)(
        **{f: getattr(spec, f) for f in spec.__dataclass_fields__} | {"template": ("T", parse("bm / 2"))}
    )
    with pytest.raises(ConfigError, match=r"template argument 2 = bm / 2 = 2\.5 is not a whole number"):
        translation_unit(spec, Point.of({"bm": 5}))


def test_a_macro_over_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match="nowhere"):
        unit_of(tmp_path, MACRO_CU, template=False, defines={"X": parse("nowhere + 1")})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (16, "16"), (-3, "(-3)"), (True, "1"), (False, "0"), (0.5, "0.5"), (1e-7, "1e-07"), (-0.5, "(-0.5)"),
        (16.0, "16.0"), ("ROW_MAJOR", "ROW_MAJOR"), (2**63, "9223372036854775808ull"),
    ],
)  # fmt: skip
def test_macros_are_spelled_as_cxx_spells_them(value: Value, text: str) -> None:
    assert render_define(value, what="x") == text


@pytest.mark.parametrize(
    ("value", "text"), [(16.0, "16"), (True, "true"), (False, "false"), (-3, "-3"), ("ROW", "ROW")]
)
def test_template_arguments_are_spelled_as_cxx_spells_them(value: Value, text: str) -> None:
    assert render_template_argument(value, what="x") == text


HOSTILE_VALUES: list[Value] = [
    "1; system(0)", "a b", "$(id)", "`id`", "../x", "", "1", "x\n#include </etc/passwd>", "é",
    float("inf"), float("nan"), 2**64, -(2**63),
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE_VALUES)
def test_values_that_are_no_plain_cxx_are_refused(hostile: Value) -> None:
    with pytest.raises(ConfigError):
        render_define(hostile, what="x")


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="no C\\+\\+ spelling"):
        render_define(None, what="x")  # type: ignore[arg-type]


def test_a_decimal_comma_locale_changes_nothing() -> None:
    available = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()
    comma = next((name for name in available if name.lower().startswith(("de_", "fr_", "nl_"))), None)
    program = (
        "import locale\n"
        "from sweeper.build.source import render_define\n"
        f"locale.setlocale(locale.LC_ALL, {comma or 'C'!r})\n"
        "print(render_define(0.5, what='alpha'))"
    )
    assert programs.output(program).strip() == "0.5"


def test_the_digest_covers_everything_a_compile_depends_on(tmp_path: Path) -> None:
    base = unit_of(tmp_path, MACRO_CU, template=False)
    others = [
        unit_of(tmp_path, MACRO_CU, {"tile": 32}, template=False),
        unit_of(tmp_path, MACRO_CU, template=False, dtype="float64"),
        unit_of(tmp_path, MACRO_CU, template=False, options=("-use_fast_math",)),
        unit_of(tmp_path, MACRO_CU, template=False, defines={"EXTRA": parse(1)}),
        unit_of(tmp_path, MACRO_CU, template=False, entry="other"),
        unit_of(tmp_path, MACRO_CU + "\n", template=False),
    ]
    assert len({u.digest for u in (base, *others)}) == 1 + len(others)


def test_the_digest_follows_a_changed_header(tmp_path: Path) -> None:
    text = '#include "common.cuh"\n' + TEMPLATE_CU
    (tmp_path / "common.cuh").write_text("constexpr int kPad = 1;\n")
    before = unit_of(tmp_path, text)
    (tmp_path / "common.cuh").write_text("constexpr int kPad = 2;\n")
    assert unit_of(tmp_path, text).digest != before.digest


def test_the_same_files_in_two_folders_have_one_digest(tmp_path: Path) -> None:
    first, second = unit_of(tmp_path / "one", TEMPLATE_CU), unit_of(tmp_path / "two" / "deep", TEMPLATE_CU)
    assert first.digest == second.digest
    assert first.include_dirs != second.include_dirs


def test_two_points_that_compile_alike_share_a_digest(tmp_path: Path) -> None:
    (tmp_path / "tiled.cu").write_text(MACRO_CU)
    spec = gemm_spec(params={"tile": (16,), "blocks": (1, 2)}, template=False, source=tmp_path / "tiled.cu")
    units = [translation_unit(spec, Point.of({"tile": 16, "blocks": b})) for b in (1, 2)]
    assert units[0].digest == units[1].digest


def test_a_missing_header_is_an_error_before_any_compile(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"tiled\.cu:1"):
        unit_of(tmp_path, '#include "gone.cuh"\n' + TEMPLATE_CU)


def test_an_instantiation_is_forced_for_templates_only(tmp_path: Path) -> None:
    assert "&matmul<float, 16>" in cuda_text(unit_of(tmp_path, TEMPLATE_CU))
    plain = unit_of(tmp_path, MACRO_CU, template=False)
    assert cuda_text(plain) == plain.text


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (["-use_fast_math"], ("-use_fast_math",)),
        (["--maxrregcount=64"], ("--maxrregcount=64",)),
        (["-maxrregcount", "64"], ("-maxrregcount=64",)),
        (["-maxrregcount 64"], ("-maxrregcount=64",)),
        (["-Xptxas", "-O1"], ("-Xptxas=-O1",)),
        (["--ptxas-options=-O3"], ("-Xptxas=-O3",)),
        (["-std=c++20", "-O3", "-lineinfo"], ("-std=c++20", "-O3", "-lineinfo")),
        (["--fmad=false", "-prec-div=true", "-ftz=true"], ("--fmad=false", "-prec-div=true", "-ftz=true")),
        (["-D", "WIDE", "-DN=4", "-UOLD"], ("-DWIDE", "-DN=4", "-UOLD")),
    ],
)
def test_known_options_are_brought_to_one_form(given: list[str], normal: tuple[str, ...]) -> None:
    assert normalize_options(given) == normal


HOSTILE_OPTIONS = [
    "-o /etc/passwd", "-ccbin=/tmp/evil", "--compiler-options=-fplugin=x.so", "-Xcompiler -B/tmp", "-I/etc",
    "-include x.h", "@file", "-run", "--keep-dir=/x", "-arch=sm_90", "-gencode=x", "-D", "-DX=`id`", "-DX=a;b",
    "; rm", "-maxrregcount", "x.cu", "-G\x00",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE_OPTIONS)
def test_other_options_are_refused_with_the_list_of_allowed_ones(hostile: str) -> None:
    with pytest.raises(ConfigError) as caught:
        normalize_options([hostile])
    assert "-use_fast_math" in str(caught.value.hint)


def test_debug_code_comes_with_a_warning() -> None:
    assert "-G" in option_warnings(normalize_options(["-G"]))[0]
    assert "-Xptxas" in option_warnings(normalize_options(["-Xptxas", "-O0"]))[0]
    assert option_warnings(normalize_options(["-lineinfo", "-O3"])) == ()


def test_options_reach_the_unit_normalised(tmp_path: Path) -> None:
    assert unit_of(tmp_path, TEMPLATE_CU, options=("-maxrregcount 64",)).options == ("-maxrregcount=64",)


def test_a_file_name_is_quoted_in_the_line_directive(tmp_path: Path) -> None:
    (tmp_path / 'a"b.cu').write_text(MACRO_CU)
    spec = gemm_spec(params={}, template=False, source=tmp_path / 'a"b.cu')
    assert translation_unit(spec, Point(())).text.startswith('#line 1 "a\\"b.cu"\n')
