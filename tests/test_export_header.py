"""The exported header: it compiles as C99, C++11 and CUDA, and answers what the Python reader answers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_export import A100, H200, chosen, cube, folder, trial

from sweeper.errors import ConfigError
from sweeper.export import Chosen, Export, export_of, header
from sweeper.export.chosen import Price, Provenance
from sweeper.export.identifiers import Names, comment, identifier, literal, quoted
from sweeper.export.json_table import record
from sweeper.export.lookup import find

C99 = ["gcc", "-std=c99", "-x", "c"]
CXX11 = ["g++", "-std=c++11", "-x", "c++"]
COMPILERS = [
    pytest.param(
        compiler,
        id=compiler[0],
        marks=pytest.mark.skipif(not shutil.which(compiler[0]), reason="no compiler"),
    )
    for compiler in (C99, CXX11)
]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wundef"]

GEMM = (
    chosen("tiled", 512, 0.3, ratio=2.0, time_low_ms=0.29, time_high_ms=0.31),
    chosen("tiled", 4096, 15.0, params={"tile": 32}, timed="measured"),
    chosen("tiled", 4096, 16.0, params={"tile": 8}, layout="nt", timed="predicted", best=False),
    chosen("tiled", 4096, 30.0, dtype="float64", params={"tile": 8}),
    chosen("tiled", 300, 0.5, device=A100),
    chosen("tma-pipeline", 4096, 2.5, params={"bm": 128, "stages": 4}),
)
GEMM = tuple(replace(row, best=row.kernel != "tiled" or row.sizes != "4096x4096x4096" or row.dtype != "float32")
             for row in GEMM)  # fmt: skip


def run(compiler: Sequence[str], text: str, program: str, folder: Path) -> str:
    """What `program` prints that was compiled with the header, without a warning."""
    (folder / "best.h").write_text(text, encoding="utf-8")
    (folder / "main.c").write_text(f'#include "best.h"\n#include <stdio.h>\n{program}', encoding="utf-8")
    command = [*compiler, *STRICT, "-o", "main", "main.c"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stderr
    return subprocess.run([folder / "main"], capture_output=True, text=True, check=True, timeout=60).stdout


def text_of(value: str | None) -> str:
    return "NULL" if value is None else quoted(value)


QUESTIONS: list[tuple[str, tuple[str | None, str | None, str | None], tuple[int, int, int]]] = [
    (kernel, names, sizes)
    for kernel in ("tiled", "tma-pipeline")
    for names in (
        (H200, "float32", None), (H200, "float32", "nn"), (H200, "float32", "nt"), (A100, "float32", "nn"),
        (H200, "float64", None), (H200, None, None), (None, "float32", None), ("Tesla", "float32", None),
    )
    for sizes in ((512, 512, 512), (511, 512, 513), (4096, 4096, 1), (1, 1, 1), (2**40, 3, 2**62), (0, 0, 0),
                  (1448, 1448, 1448), (1449, 1448, 1448))
]  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_answers_what_the_reader_answers(compiler: list[str], tmp_path: Path) -> None:
    """By kernel, for every way to name a device, a class and a layout, and for shapes near, far and in between."""
    rows = [record(row) for row in sorted(GEMM, key=Chosen.order)]
    expected, lines = [], []
    for kernel, names, sizes in QUESTIONS:
        c = f"sweeper_{kernel.replace('-', '_')}"
        given = ", ".join((*map(text_of, names), *(f"INT64_C({size})" for size in sizes), "&exact"))
        lines.append(
            f"{{const struct {c}_row *row = {c}_lookup({given});"
            ' printf("%.17g %d\\n", row ? row->time_ms : 0.0, exact);}'
        )
        try:
            device, dtype, layout = names
            asked = dict(zip("MNK", sizes, strict=True))
            answer = find(rows, asked, kernel, dtype, layout, device)
            expected.append((answer.row["time_ms"], int(answer.exact)))
        except LookupError:
            expected.append((0.0, 0))
    program = "int main(void) {\n  int exact;\n" + "\n".join(lines) + "\n  return 0;\n}\n"
    out = run(compiler, header(Export(sorted(GEMM, key=Chosen.order))), program, tmp_path)
    found = [(float(ms), int(exact)) for ms, exact in map(str.split, out.splitlines())]
    assert found == expected
    assert {exact for _, exact in expected} == {0, 1}
    assert len({ms for ms, _ in expected}) >= 6


@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_names_the_best_kernel_of_a_shape(compiler: list[str], tmp_path: Path) -> None:
    program = f"""int main(void) {{
      int exact;
      const struct sweeper_best *best = sweeper_best_lookup({quoted(H200)}, "float32", 0, 4000, 4096, 4096, &exact);
      printf("%d %d", best->kernel == SWEEPER_TMA_PIPELINE_KERNEL, exact);
      printf(" %d", (int)sweeper_tma_pipeline_rows[best->row].params.stages);
      best = sweeper_best_lookup({quoted(H200)}, "float32", "nn", 512, 512, 512, 0);
      printf(" %d", best->kernel == SWEEPER_TILED_KERNEL);
      printf(" %d\\n", (int)sweeper_tiled_rows[best->row].params.tile);
      return 0;
    }}"""
    assert run(compiler, header(Export(sorted(GEMM, key=Chosen.order))), program, tmp_path) == "1 0 4 1 16\n"


def test_templates_are_instantiated_from_its_list(tmp_path: Path) -> None:
    """The list macro has every configuration once, and a row's number leads back to it."""
    if not shutil.which("g++"):
        pytest.skip("no compiler")
    program = """
      template <int tile> static int kernel() { return tile; }
      static int launch(int configuration) {
        switch (configuration) {
      #define CASE(number, tile) case number: return kernel<tile>();
          SWEEPER_TILED_CONFIGURATIONS(CASE)
        }
        return -1;
      }
      int main() {
        for (int i = 0; i < SWEEPER_TILED_ROWS; ++i)
          std::printf("%d ", launch(sweeper_tiled_rows[i].configuration) == int(sweeper_tiled_rows[i].params.tile));
        std::printf("%d\\n", SWEEPER_TILED_COUNT);
      }
    """
    rows = sorted((row for row in GEMM if row.kernel == "tiled"), key=Chosen.order)
    assert run(CXX11, header(Export(rows)), f"#include <cstdio>\n{program}", tmp_path) == "1 1 1 1 1 3\n"


ODD: dict[str, Any] = {
    "int": 3, "class": 4, "größe": 5, "a-b": 6, "a b": 7, "a_b": 8, "9lives": 9, "_Upper": 10, "linux": 11,
    "ROWS": 12, "count": 13, "long_one": 2**40, "lowest": -(2**63), "beyond": 2**70, "half": 0.5, "wide": True,
    "order": 'row "major"\\ /* ??/ */', "none_": "", "__x__": 1, "×": 2, "NULL": 14, "min": 15,
}  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "kernel", ["my-kernel", "double", "größe", "9", "best", "*/ evil", "", "a__b", "timed"]
)
def test_names_of_any_kind_compile(compiler: list[str], kernel: str, tmp_path: Path) -> None:
    odd = Provenance(device="GPU */ \\", compiler="nvcc /* ??/", commit="ü")
    rows = [
        chosen(kernel, 1, params=ODD, device='A "GPU"\\ ü??/', provenance=odd),
        chosen(kernel, 2, params={**ODD, "order": "column", "half": 1, "beyond": 1}, device='A "GPU"\\ ü??/'),
        chosen("my_kernel", 2, params={"order": "ROW", "int": 1}, device='A "GPU"\\ ü??/'),
        chosen("My_Kernel", 2, params={"order": 1.5}, device='A "GPU"\\ ü??/'),
    ]
    text = header(Export(rows, [Price(kernel, "float32", "nn", 1, 2, 1.0, 1.0)]))
    assert text.isascii()
    (table,) = re.findall(r"^static const struct (\w+)_row \w+_rows\[2\]", text, re.MULTILINE)
    program = f"""int main(void) {{
      int exact;
      const struct {table}_row *row = {table}_lookup(0, 0, 0, 1, 1, 1, &exact);
      printf("%d %d %d ", exact, (int)row->params.int_, (int)row->params.gru00f6u00dfe);
      printf("%d %g %d ", row->params.long_one == INT64_C(1099511627776), row->params.half, (int)row->params.wide);
      printf("%d %d\\n", (int)(row->params.lowest == INT64_MIN), (int)row->params.linux_);
      return 0;
    }}"""
    assert run(compiler, text, program, tmp_path) == "1 3 5 1 0.5 1 1 11\n"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_value_that_is_no_number_is_an_enumerator_with_a_text(compiler: list[str], tmp_path: Path) -> None:
    rows = [
        chosen(size=size, params={"order": order, "tile": 8}) for size, order in ((1, "row"), (2, 'a "b"'))
    ]
    program = """int main(void) {
      const struct sweeper_tiled_row *row = sweeper_tiled_lookup(0, 0, 0, 1, 1, 1, 0);
      printf("%d ", row->params.order == SWEEPER_TILED_ORDER_ROW);
      row = sweeper_tiled_lookup(0, 0, 0, 2, 2, 2, 0);
      printf("%s\\n", sweeper_tiled_order_values_text[row->params.order]);
      return 0;
    }"""
    assert run(compiler, header(Export(rows)), program, tmp_path) == '1 a "b"\n'


@pytest.mark.parametrize("compiler", COMPILERS)
def test_one_row_is_macros_too(compiler: list[str], tmp_path: Path) -> None:
    text = header(Export([chosen(params={"tile": 16, "half": 0.5, "order": "row"})]), prefix="mine")
    program = """
      #if MINE_TILED_TILE != 16
      #error "the preprocessor knows it"
      #endif
      int main(void) { printf("%g %d\\n", MINE_TILED_HALF, MINE_TILED_ORDER == MINE_TILED_ORDER_ROW); return 0; }
    """
    assert run(compiler, text, program, tmp_path) == "0.5 1\n"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_of_other_sizes_or_none_compile(compiler: list[str], tmp_path: Path) -> None:
    rows = [
        chosen("saxpy", params={"block": 64}, dims=(("N", 1 << 20),), layout=""),
        chosen("still", params={}, dims=(), layout=""),
        chosen("wide", params={"a": 1}, dims=(("M", 8), ("N", 8))),
        chosen("wide", params={"a": 2}, dims=(("M", 8), ("N", 8), ("LDA", 16))),
    ]
    program = """int main(void) {
      int exact;
      printf("%d ", (int)sweeper_saxpy_lookup(0, 0, 0, 1000000, &exact)->params.block);
      printf("%d ", sweeper_still_lookup(0, 0, 0, &exact) != NULL && exact);
      printf("%d ", (int)sweeper_wide_lookup(0, 0, 0, 8, 8, 0, &exact)->params.a);
      printf("%d ", (int)sweeper_wide_lookup(0, 0, 0, 8, 8, 17, &exact)->params.a);
      printf("%d\\n", sweeper_best_lookup(0, 0, 0, 0, 8, 0, &exact) == NULL);
      return 0;
    }"""
    assert run(compiler, header(Export(rows)), program, tmp_path) == "64 1 1 2 1\n"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_two_headers_go_into_one_program(compiler: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.h").write_text(header(Export([chosen("other", 8)])), encoding="utf-8")
    program = '#include "other.h"\n#include "best.h"\nint main(void) { puts("fine"); return 0; }'
    assert run(compiler, header(Export([chosen("tiled", 8)])), program, tmp_path) == "fine\n"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_it_compiles_as_host_code_of_cuda(tmp_path: Path) -> None:
    (tmp_path / "best.h").write_text(header(Export(sorted(GEMM, key=Chosen.order))), encoding="utf-8")
    program = """#include "best.h"
      template <int tile> __global__ void tiled(float *c) { c[threadIdx.x] = tile; }
      int launch(float *c) {
        const struct sweeper_tiled_row *row = sweeper_tiled_lookup(NULL, "float32", NULL, 9, 9, 9, NULL);
        switch (row ? row->configuration : -1) {
      #define CASE(number, tile) case number: tiled<tile><<<1, tile>>>(c); return 0;
          SWEEPER_TILED_CONFIGURATIONS(CASE)
        }
        return 1;
      }
    """
    (tmp_path / "main.cu").write_text(program, encoding="utf-8")
    command = [
        "nvcc",
        "-std=c++17",
        "-Werror",
        "all-warnings",
        "-Xcompiler",
        "-Wall,-Wextra,-Werror",
        "-c",
        "main.cu",
    ]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr


def test_its_comment_says_where_the_rows_come_from_and_what_few_cost(tmp_path: Path) -> None:
    rows = [trial({"tile": t}, ms, t, study=str(n), dims=cube(n)) for n, times in ((64, (1, 2)), (512, (8, 4)))
            for t, ms in zip((8, 16), times, strict=True)]  # fmt: skip
    text = header(export_of([folder(tmp_path / "run", rows)], most=1))
    top = text.partition("*/")[0]
    assert "tiled: NVIDIA H200, driver 580.1, source abcd, from run" in top
    assert "1 configuration serves 2 shapes, 41.42 % slower" in top
    assert str(tmp_path) not in text


def test_a_prefix_has_to_be_a_name() -> None:
    for wrong in ("my-lib", "9", "int", "a_", ""):
        with pytest.raises(ConfigError, match="no name in C"):
            header(Export([chosen()]), wrong)


def test_names_literals_and_comments() -> None:
    names = Names()
    assert [names.new(identifier(name)) for name in ("int", "int_", "a-b", "a b", "größe", "9", "_X", "a__b")] == [
        "int_", "int_2", "a_b", "a_b_2", "gru00f6u00dfe", "p9", "p_X", "a_b_3",
    ]  # fmt: skip
    assert [literal(value) for value in (True, 7, 2**31, -(2**63), 2**63, 0.1, float("nan"), "x")] == [
        "1", "7", "INT64_C(2147483648)", "(-INT64_C(9223372036854775807) - 1)", None, "0.1", None, None,
    ]  # fmt: skip
    assert quoted('a"\\?ü\n') == '"a\\042\\134\\077\\303\\274\\012"'
    assert comment("a */ b /* c ??/ ×\nü") == "a * / b / * c ? ?/ x \\xfc"
