"""From a description and a source to compiled configurations: what is asked of both, and what is kept."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest
from bench_rig import matrices, sizes
from command_rig import PRODUCT_CU, TILED_CU, PretendedGpu, kernel_in, python, rows, sweep

import sweeper

SCALE_CU = """#include "common.cuh"
extern "C" __global__ void scale(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i];
}
"""


def scale_in(folder: Path, header: str = "", factor: Any = 1, **changes: Any) -> list[str]:
    """y = factor·x; the source takes FACTOR from common.cuh, which holds `header`, or from a parameter."""
    (folder / "common.cuh").write_text(header)
    (folder / "scale.py").write_text(f"def reference(x, n):\n    return {factor} * x\n")
    node = {
        "entry": "scale",
        "dims": {"N": 1000},
        "params": {"block": [64]},
        "launch": {"block": ["block"], "grid": ["ceil(N / block)"]},
        "args": [
            {"name": "x", "shape": ["N"]},
            {"name": "y", "shape": ["N"], "direction": "out"},
            {"name": "n", "scalar": "int32", "value": "N"},
        ],
        "reference": {"python": "scale.py"},
    }
    return kernel_in(folder, source=SCALE_CU, **{**node, **changes})


def status_of(folder: Path) -> str:
    return rows(folder)[-1]["status"]


def test_a_changed_header_is_compiled_in(here: Path) -> None:
    """The second run must show the constant's new value, not the first run's module or row."""
    # inducer/pyopencl#18; GPUOpen-LibrariesAndSDKs/HIPRT#9
    assert sweep(*scale_in(here, "#define FACTOR 1\n"), "results_dir=out") == 0
    assert sweep(*scale_in(here, "#define FACTOR 2\n"), "results_dir=out") == 1
    assert status_of(here / "out") == "wrong_result", "the header says 2, the reference 1"
    assert sweep(*scale_in(here, "#define FACTOR 2\n", 2), "results_dir=out") == 0
    assert status_of(here / "out") == "ok"


def test_a_corrected_reference_function_is_asked_again(here: Path) -> None:
    """What an earlier run found wrong against another reference is no answer."""
    assert sweep(*scale_in(here, "#define FACTOR 2\n", 3), "results_dir=out") == 1
    assert sweep(*scale_in(here, "#define FACTOR 2\n", 2), "results_dir=out") == 0
    assert [row["status"] for row in rows(here / "out")] == ["wrong_result", "ok"]


def test_other_options_are_other_results(here: Path) -> None:
    options = ["-DFACTOR=1", "-O2"]
    header = "#ifndef FACTOR\n#define FACTOR 1\n#endif\n"
    assert sweep(*scale_in(here, header), "results_dir=out") == 0
    assert sweep(*scale_in(here, header, options=options), "results_dir=out") == 0
    assert [row["options"] for row in rows(here / "out")] == ["", " ".join(options)]


def test_a_parameter_that_was_added_later_makes_another_configuration(here: Path, gpu: PretendedGpu) -> None:
    """Two configurations that differ in it are built and measured each, and neither is the old one."""
    # microsoft/T-MAC#66
    source = PRODUCT_CU.replace("float sum = 0;", "float sum = 0 * WIDTH;")
    old = source.replace("// fake", "#ifndef WIDTH\n#define WIDTH 1\n#endif\n// fake")
    params = {"block": [16]}
    assert gpu.sweep(*kernel_in(here, source=old, params=params), "results_dir=out") == 0
    kernel = kernel_in(here, source=old, params={**params, "WIDTH": [1, 2]})
    assert gpu.sweep(*kernel, "search=grid", "results_dir=out") == 0
    assert gpu.measured[0] == {"block": 16}
    assert sorted(point["WIDTH"] for point in gpu.measured[1:]) == [1, 2]
    assert gpu.compiled == 3


def test_a_configuration_that_does_not_compile_is_a_row_and_the_rest_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # NVIDIA/cccl#11196; ROCm/composable_kernel#1641
    source = PRODUCT_CU.replace("float sum", 'static_assert(BK >= 4, "BK is at least 4"); float sum')
    params = {"block": [16], "BK": [2, 4, 8]}
    kernel = kernel_in(here, source=source, params=params)
    assert sweep(*kernel, "search=grid", "shape=40x50x60", "results_dir=out") == 0
    first, *others = rows(here / "out")
    assert (first["param_BK"], first["status"], first["stage"]) == ("2", "build_error", "build")
    assert first["reason"] == "mine.cu:5: static assertion failed: BK is at least 4"
    assert [row["status"] for row in others] == ["ok", "ok"]
    out = capsys.readouterr().out
    log = re.search(r"all that the compiler said of the first build error: (\S+)", out)
    assert log is not None
    assert "BK is at least 4" in Path(log[1]).read_text()
    kernel = kernel_in(here, source=source, params=params, constraints=["BK >= 4"])
    assert sweep(*kernel, "search=grid", "shape=40x50x60", "results_dir=pruned") == 0
    assert [row["param_BK"] for row in rows(here / "pruned")] == ["4", "8"], "a constraint saves the compile"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"entry": "matmul"}, ["mine.cu has no kernel 'matmul'", "kernels found: product, other"]),
        ({"entry": "prodct"}, ["did you mean 'product'?"]),
        ({"template": None}, ["product is a template (TILE), the description has no `template`"]),
        ({"template": ["TILE", "TILE"]}, ["product has 1 template parameters, the description gives 2"]),
        ({"entry": "other"}, ["other is not a template, the description gives 1 template arguments"]),
    ],
)
def test_an_entry_that_the_source_does_not_have_is_told_with_what_it_has(
    here: Path, changes: dict[str, Any], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # cupy/cupy#3185; nlesc-recruit/cudawrappers#281
    source = TILED_CU.replace('extern "C"', "template <int TILE>") + "__global__ void other() {}\n"
    node = {
        "params": {"TILE": [16]},
        "template": ["TILE"],
        "launch": {"block": ["TILE", "TILE"], "grid": ["ceil(N / TILE)", "ceil(M / TILE)"]},
    }
    assert sweep(*kernel_in(here, source=source, **node), "--dry-run") == 0
    assert sweep(*kernel_in(here, source=source, **{**node, **changes}), "--dry-run") == 2
    err = capsys.readouterr().err
    assert all(text in err for text in says)


def test_names_on_which_source_and_description_differ_are_all_told_before_any_compile(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # KernelTuner/kernel_tuner#75
    source = PRODUCT_CU.replace("float sum = 0;", "float part[TN]; float sum = part[0] = 0;")
    kernel = kernel_in(here, source=source, params={"block": [16], "BK": [8], "TM": [4]})
    assert sweep(*kernel, "results_dir=out") == 2
    err = capsys.readouterr().err
    assert "mine.cu:5: TN is used, but neither the source nor the description defines it" in err
    assert "parameter BK is never used" in err
    assert "parameter TM is never used" in err
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("needs", "have", "says"),
    [
        ("8.0", "t4", "needs cc >= 8.0, have 7.5"),
        ("9.0a", "a100", "needs cc >= 9.0, have 8.0"),
        ("9.0a", "b200", "needs cc 9.0 exactly (sm_90a), have 10.0"),
    ],
)
def test_a_kernel_that_this_device_is_too_old_for_says_so_in_one_row(
    here: Path, needs: str, have: str, says: str
) -> None:
    # mit-han-lab/llm-awq#89
    kernel = kernel_in(here, params={"block": [8, 16, 32]}, requires={"min_cc": needs})
    assert sweep(*kernel, f"backend.target={have}", "shape=tiny", "results_dir=out") == 1
    (row,) = rows(here / "out")
    assert (row["status"], row["stage"], row["reason"]) == ("infeasible", "space", says)


def test_a_fraction_reaches_the_source_with_a_point_whatever_the_locale(here: Path) -> None:
    # clMathLibraries/clFFT#120; jcuda/jcuda#4
    kernel = scale_in(here, factor=0.5, params={"block": [64], "FACTOR": [0.5]})
    locale = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}
    done = python("-m", "sweeper", "backend=emulator", *kernel, "results_dir=out", **locale)
    assert done.returncode == 0, done.stderr
    (row,) = rows(here / "out")
    assert (row["param_FACTOR"], row["status"]) == ("0.5", "ok")


def test_nothing_asks_the_locale_how_a_number_is_written() -> None:
    for path in Path(sweeper.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert "locale" not in [name.name for name in node.names], path
            if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
                spec = "".join(v.value for v in node.format_spec.values if isinstance(v, ast.Constant))
                assert not spec.endswith("n"), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("options", "warns", "kept"),
    [
        (["-G"], "-G compiles device code without optimisation", "-G"),
        (["--device-debug"], "-G compiles device code without optimisation", "--device-debug"),
        (["-Xptxas -O0"], "-Xptxas lowers the optimisation", "-Xptxas=-O0"),
        (["-Xptxas", "-O1"], "-Xptxas lowers the optimisation", "-Xptxas=-O1"),
        (["-lineinfo"], "", "-lineinfo"),
    ],
)
def test_options_stand_in_every_row_and_those_that_spoil_times_are_warned_of(
    here: Path,
    gpu: PretendedGpu,
    options: list[str],
    warns: str,
    kept: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Liu-xiandong/How_to_optimize_in_GPU#11
    kernel = kernel_in(here, options=options, params={"block": [8, 16]})
    assert gpu.sweep(*kernel, "results_dir=out") == 0
    assert all(kept in row["options"].split() for row in rows(here / "out"))
    out = capsys.readouterr().out
    assert out.count("warning: ") == (1 if warns else 0)
    assert warns in out


def test_an_option_that_is_not_allowed_is_refused_before_anything_is_begun(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(*kernel_in(here, options=["-o", "/tmp/elsewhere"]), "results_dir=out") == 2
    assert "compiler option '-o' is not allowed" in capsys.readouterr().err
    assert not (here / "out").exists()


def test_a_cache_that_cannot_be_written_is_said_once_and_done_without(
    here: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two jobs, two configurations each: one warning, and everything is built and measured."""
    # shoaibkamil/asp#26
    root = here / "cache"
    if os.getuid() == 0:
        # Root may write anywhere: a file in the folder's place stands for the missing right.
        root.write_text("")
    else:
        root.mkdir(mode=0o555)
    monkeypatch.setenv("SWEEPER_CACHE", str(root))
    kernel = kernel_in(here, params={"block": [8, 16]})
    assert gpu.sweep("-m", *kernel, "shape=16x16x16,17x17x17", "results_dir=out") == 0
    assert caplog.text.count("no build cache") == 1
    assert [row["status"] for row in rows(here / "out")] == ["ok"] * 4


def test_arguments_are_those_of_the_description_in_their_order(here: Path) -> None:
    """A description that leaves one out, or has them in another order, is told before any compile."""
    kernel = kernel_in(here, args=[*matrices(), *sizes("M", "N")])
    assert sweep(*kernel, "results_dir=out") == 2
    a, b, c = matrices()
    assert sweep(*kernel_in(here, args=[*sizes(*"MNK"), a, b, c]), "results_dir=out") == 2
