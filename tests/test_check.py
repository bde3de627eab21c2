"""Kernels checked without a GPU: what a right one gets, what a wrong one gets, from Python and from the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sweeper.check import Settings, assert_clean, check_kernel
from sweeper.check.command import main
from sweeper.errors import ConfigError, KernelError, NoValidConfiguration, SetupError
from sweeper.paths import conf_dir

SAXPY = Path(__file__).parents[1] / "docs" / "examples" / "saxpy"
SHIPPED = sorted((conf_dir() / "kernel").glob("*.yaml"))

SOURCE = """
template <int tile>
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[tile][tile], b[tile][tile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += tile) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;
    __syncthreads();
    for (int k = 0; k < tile; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();  // used
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
"""
DESCRIPTION = """
name: mine
source: mine.cu
entry: mine
template: [tile]
params: {tile: [8, 16]}
launch:
  block: [tile, tile]
  grid: [ceil(N / tile), ceil(M / tile)]
args:
  - {name: A, shape: [M, K]}
  - {name: B, shape: [K, N]}
  - {name: C, shape: [M, N], direction: out}
  - {name: M, scalar: int32, value: M}
  - {name: N, scalar: int32, value: N}
  - {name: K, scalar: int32, value: K}
reference: {contraction: "mk,kn->mn"}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the kernel `mine`, right but for `old` replaced by `new`; gives its description's path."""

    def write(old: str = "", new: str = "", description: str = DESCRIPTION) -> Path:
        assert old in SOURCE
        (tmp_path / "mine.cu").write_text(SOURCE.replace(old, new) if old else SOURCE)
        path = tmp_path / "mine.yaml"
        path.write_text(description)
        return path

    return write


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_kernel_is_left_in_peace(path: Path) -> None:
    """A few configurations at the most telling shapes; `python -m sweeper.check kernels=all` runs many more."""
    if "tensor_maps:" in path.read_text(encoding="utf-8"):
        with pytest.raises(NoValidConfiguration, match=r"needs tensor maps .* runs on a GPU only"):
            check_kernel(path)
        return
    report = check_kernel(path, configurations=4, shapes_each=7)
    assert report.clean or not report.checked, str(report)
    assert report.checked or all(outcome.skipped for outcome in report.outcomes)


def test_a_right_kernel_is_clean_at_every_edge_shape(write: Write) -> None:
    report = assert_clean(write())
    assert report.kernel == "mine"
    assert len(report.outcomes) == report.checked == 32
    assert all(outcome.right and outcome.launches == 4 for outcome in report.outcomes)
    text = str(report)
    assert text.startswith("mine (float32), mode check: 2 of 2 configurations (all 2 levels), 32 cases\n")
    assert re.search(r"\n  tile=16: right at 1x1x1 31x33x17 17x17x17 .* 33x65x129\n", text)
    assert re.search(r"\nmine \(float32\): 32 of 32 cases right; 128 launches in [\d.]+ s$", text)


def test_a_missing_barrier_is_told_with_both_sides(write: Write) -> None:
    report = check_kernel(write("    __syncthreads();  // used\n"), shapes=[(8, 8, 8), (20, 20, 20)])
    assert not report.clean
    races = [defect for defect in report.defects if defect.kind == "race_shared"]
    places = {(d.first.file, d.first.line, d.second.line) for d in races if d.first and d.second}
    assert {("mine.cu", 12, 9), ("mine.cu", 12, 10)} <= places
    with pytest.raises(AssertionError) as caught:
        assert_clean(write("    __syncthreads();  // used\n"), shapes=[(8, 8, 8), (20, 20, 20)])
    text = str(caught.value)
    assert "  tile=16: right at 8x8x8\n" in text, "a single step needs no second barrier"
    assert re.search(r"\n  tile=16: wrong \[1\](\[\d\])* at 20x20x20\n", text)
    assert "\n  [1] race_shared in 2 cases; with tile=8 at 20x20x20:\n" in text
    assert re.search(
        r"\n      mine.cu:12 by thread \(\d, \d, 0\) of block \(0, 0, 0\)\n      mine.cu:9 by", text
    )
    assert "(race_shared in 2, wrong_result in 2)" in text


def test_wrong_numbers_alone_are_told_with_an_element(write: Write) -> None:
    report = check_kernel(write("k0 < K", "k0 + tile <= K"), shapes=[{"M": 4, "N": 4, "K": 17}])
    assert {defect.kind for defect in report.defects} == {"wrong_result"}
    assert re.match(
        r"16 of 16 elements are wrong; C\[0, 0\] = \S+, expected \S+ ± \S+$", report.defects[0].message
    )


def test_fast_mode_needs_no_instrumentation(write: Write) -> None:
    right = assert_clean(write(), shapes=[(20, 20, 20)], mode="fast")
    assert all(outcome.launches == 3 for outcome in right.outcomes)
    past_the_end = write("if (row < M && column < N) C", "C")
    report = check_kernel(past_the_end, shapes=[(5, 5, 5)], mode="fast")
    assert {defect.kind for defect in report.defects} == {"out_of_bounds"}


UNORDERED = "if (row < M && column < N) atomicAdd(&C[0], sum);"


def unordered(write: Write) -> Path:
    """One sum over all elements, in whatever order the threads come."""
    description = DESCRIPTION.replace(
        "shape: [M, N], direction: out", "shape: [1], direction: inout, fill: zeros"
    )
    reference = "reference: {python: reference.py}\ntolerance: 100"
    path = write(
        "if (row < M && column < N) C[row * N + column] = sum;",
        UNORDERED,
        description.replace('reference: {contraction: "mk,kn->mn"}', reference),
    )
    (path.parent / "reference.py").write_text("def reference(A, B, C, **_):\n    return C + (A @ B).sum()\n")
    return path


def test_results_that_depend_on_the_order_of_threads_are_told(write: Write) -> None:
    report = check_kernel(unordered(write), shapes=[(40, 40, 20)])
    assert {defect.kind for defect in report.defects} == {"non_deterministic"}
    assert re.fullmatch(
        r"C\[0\] is \S+ with threads and blocks in order and \S+ with them in \w+ order \(1 of 1 elements\);"
        r" each is within its bound",
        report.defects[0].message,
    )


def test_unless_they_are_allowed_to(write: Write) -> None:
    settings = Settings(allow_nondeterministic=True)
    assert check_kernel(unordered(write), shapes=[(40, 40, 20)], settings=settings).clean


def test_a_kernel_that_does_not_compile_is_told_once_with_its_line(write: Write) -> None:
    report = check_kernel(write("float sum = 0;", "float sum = zero;"), shapes=[(8, 8, 8), (9, 9, 9)])
    assert {defect.kind for defect in report.defects} == {"build_error"}
    assert len(report.mistakes) == 1
    assert report.defects[0].message.startswith("mine.cu:7: ")


def test_what_only_a_gpu_has_is_not_held_against_a_kernel_nor_taken_for_right(write: Write) -> None:
    ptx = 'asm volatile("bar.warp.sync 0xffffffff;");\n  float sum = 0;'
    report = check_kernel(write("float sum = 0;", ptx), shapes=[(8, 8, 8)])
    assert not report.defects
    assert not report.clean
    assert report.checked == 0
    assert "not checked (" in str(report)


def test_a_hang_is_told_and_not_waited_for_again(write: Write) -> None:
    never = "while (K > 0 && reinterpret_cast<volatile float*>(C)[0] != 1e30f) { }\n  float sum = 0;"
    settings = Settings(launch_deadline_s=0.5, workers=1)
    report = check_kernel(write("float sum = 0;", never), shapes=[(1, 1, 1)], mode="fast", settings=settings)
    assert {defect.kind for defect in report.defects} == {"timeout"}
    first, second = report.outcomes
    assert (first.launches, second.launches) == (1, 0)
    assert second.skipped == "an earlier launch did not end"


def test_a_plain_kernel_may_be_the_reference() -> None:
    report = assert_clean(SAXPY / "saxpy.yaml", configurations=3, shapes_each=5)
    assert len(report.plan.configurations) == 3


def test_another_precision_is_an_override() -> None:
    path = conf_dir() / "kernel" / "tiled.yaml"
    overrides = ["kernel.dtype=float16", "kernel.params.tile=16"]
    report = assert_clean(path, overrides=overrides, shapes=[(17, 18, 19)])
    assert report.plan.spec.dtype.name == "float16"
    assert [str(point) for point in report.plan.configurations] == ["tile=16"]


def test_what_cannot_be_checked_is_an_error(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        check_kernel(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="mode = 'thorough' is none of check, fast"):
        check_kernel(write(), mode="thorough")
    with pytest.raises(ConfigError, match="has 2 sizes, kernel mine has M, N, K"):
        check_kernel(write(), shapes=[(8, 8)])
    with pytest.raises(ConfigError, match="no size Q"):
        check_kernel(write(), shapes=[{"Q": 8}])
    with pytest.raises(KernelError, match="no kernel 'yours'"):
        check_kernel(write(description=DESCRIPTION.replace("entry: mine", "entry: yours")))
    with pytest.raises(NoValidConfiguration):
        check_kernel(write(description=DESCRIPTION.replace("[8, 16]", "[64]")))


def test_without_a_compiler_there_is_nothing_to_be_had(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SetupError, match="no-such-compiler"):
        check_kernel(write())
    assert main(["kernel=tiled"]) == 3


# The command.


def suite_of(file: Path) -> ElementTree.Element:
    """The one suite of a JUnit file."""
    (suite,) = ElementTree.parse(file).getroot()  # noqa: S314
    return suite


def test_a_clean_kernel_ends_with_0(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write().parent)
    assert main(["kernel=mine", "--config-dir", folder, "shape=9x10x11,tiny"]) == 0
    out = capsys.readouterr().out
    assert "  tile=8: right at 9x10x11 64x64x64\n" in out
    assert out.splitlines()[-1].startswith("mine (float32): 4 of 4 cases right")


def test_a_defect_ends_with_1_and_is_in_the_junit_file(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = str(write("    __syncthreads();  // used\n").parent), tmp_path / "out" / "check.xml"
    command = ["kernel=mine", "--config-dir", folder, "kernel.params.tile=8", "shape=8x8x8,20x20x20"]
    assert main([*command, "--junit", str(file)]) == 1
    assert "[1] race_shared in 1 case; with tile=8 at 20x20x20:" in capsys.readouterr().out
    suite = suite_of(file)
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("sweeper.check.mine", "2", "1")
    right, wrong = suite
    assert (right.get("classname"), right.get("name")) == ("mine.float32", "tile=8 at 8x8x8")
    assert len(right) == 0
    failure = wrong[0]
    assert (failure.tag, failure.get("type")) == ("failure", "race_shared")
    assert "mine.cu:12 by thread" in (failure.text or "")


def test_junit_may_be_an_override_and_has_what_was_not_checked(write: Write, tmp_path: Path) -> None:
    ptx = 'asm volatile("bar.warp.sync 0xffffffff;");\n  float sum = 0;'
    file = tmp_path / "check.xml"
    command = ["kernel=mine", "--config-dir", str(write("float sum = 0;", ptx).parent), f"check.junit={file}"]
    assert main([*command, "shape=8x8x8"]) == 1, "nothing was checked"
    suite = suite_of(file)
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "2")
    assert suite[0][0].tag == "skipped"


def test_a_junit_file_that_cannot_be_written_ends_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernel=tiled", "mode=fast", "check.configurations=1", "check.shapes=1"]
    assert main([*command, "--junit", "/proc/check.xml"]) == 4
    assert "/proc/check.xml cannot be written" in capsys.readouterr().err


def test_several_kernels_and_classes_are_a_report_each(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-m", "kernel=naive,tiled", "kernel.dtype=float32,int8", "mode=fast"]
    assert main([*command, "check.configurations=1", "check.shapes=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["naive (float32)", "naive (int8)", "tiled (float32)", "tiled (int8)"]
    assert [line.partition(":")[0] for line in lines[-4:]] == names


def test_all_kernels_of_a_folder_of_ones_own(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernels=all", "--config-dir", str(write().parent), "mode=fast", "check.shapes=2"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "mine (float32), mode fast: 2 of 2 configurations (all 2 levels), 4 cases" in out
    assert "tiled" not in out


def test_one_description_that_is_wrong_does_not_keep_others_from_being_checked(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write().parent
    (folder / "broken.yaml").write_text(
        DESCRIPTION.replace("name: mine", "name: broken").replace("[K, N]", "[K]")
    )
    (folder / "tiled.yaml").write_text(DESCRIPTION)
    command = ["kernels=all", "--config-dir", str(folder), "mode=fast", "check.shapes=1"]
    assert main(command) == 2
    said = capsys.readouterr()
    assert "mine (float32): 2 of 2 cases right" in said.out
    assert "kernel broken: contraction" in said.err
    assert "tiled.yaml is hidden by the shipped kernel=tiled" in said.err


def test_a_size_of_ones_own_kernel_is_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernel=saxpy", "--config-dir", str(SAXPY), "shape.n=77", "mode=fast"]
    assert main([*command, "check.configurations=2"]) == 0
    assert "right at 77\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mode=slow"], "mode = 'slow' is none of check, fast"),
        (["mode=chek"], "did you mean 'check'?"),
        (["check.shape=3"], "did you mean 'shapes'?"),
        (["check.configurations=none"], "is not a whole number of at least 1"),
        (["check.deadline_s=0"], "is not a number of seconds above 0"),
        (["kernel=tield"], "tiled"),
        (["kernel=tiled", "tlie=8"], "did you mean 'kernel.params.tile'?"),
        (["kernel=tiled", "shape=128"], "shape=128x128x128"),
        (["--junit"], "--junit needs a file"),
        (["--colour"], "--colour is no option of this command"),
        (["--config-dir", "absent"], "no such folder"),
        (["backend.target=h300"], "h200"),
    ],
)  # fmt: skip
def test_a_wrong_command_ends_with_2_and_names_the_right_form(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_shape_that_nothing_can_run_at_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel=sample_block", "shape=31x31x31"]) == 1
    said = capsys.readouterr().err
    assert "no configuration can run at any of the shapes" in said
    assert "N = 31" in said


def test_help_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for key in ("kernel=", "kernels=all", "mode=check", "mode=fast", "--junit", "--config-dir", "exit codes"):
        assert key in out
    for key in ("configurations", "shapes", "workers", "deadline_s", "junit"):
        assert f"check.{key}=" in out
    assert max(len(line) for line in out.splitlines()) <= 120


def test_it_is_a_module_to_be_run() -> None:
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "sweeper.check", "kernel=tiled", "mode=fast", "check.shapes=1"]
    env = {**os.environ, "PYTHONPATH": str(root), "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 cases right" in done.stdout


def test_two_runs_say_the_same(write: Write) -> None:
    path = write("    __syncthreads();  // used\n")
    texts = {
        re.sub(
            r"in [\d.]+ s$", "", str(check_kernel(path, shapes=[(20, 20, 20)], settings=Settings(workers=n)))
        )
        for n in (1, 4)
    }
    assert len(texts) == 1
