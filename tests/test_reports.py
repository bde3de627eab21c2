"""Reports of a whole command: the course of rungs and the price of mistakes, from recorded rows to what is read."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.store_contract")

from command_rig import PretendedGpu, kernel_in, rows, runs, sweep  # noqa: E402
from contract.store_contract import trial  # noqa: E402
from fake_ncu import fake_ncu  # noqa: E402

import sweeper  # noqa: E402
from sweeper.cli import course_text, pitfalls_text  # noqa: E402
from sweeper.cli.app import main  # noqa: E402
from sweeper.cli.grid import Grid, markdown  # noqa: E402
from sweeper.errors import StorageError  # noqa: E402
from sweeper.lessons import Pitfall, why_no_report  # noqa: E402
from sweeper.lessons.course import Course, courses, rung_number  # noqa: E402
from sweeper.lessons.pitfalls import Price, prices, read_counters  # noqa: E402
from sweeper.model import Role, Stage, Status, TimeSource, Timing, Trial  # noqa: E402
from sweeper.table import frame  # noqa: E402

SOURCES = {"naive": "01_naive.cu", "tiled": "02_tiled.cu", "late": "10_late.cu", "mine": "mine.cu"}


def timed(kernel: str, ms: float, number: int = 1, **changes: Any) -> Trial:
    """A measured row; every kernel is a study of its own, as it is in a multirun."""
    values = {"study": kernel, "kernel": kernel, "flops": 10**9, **changes}
    return trial(number, timing=Timing((ms,) * 3, "events", "cold"), **values)


def failed(kernel: str, reason: str, **changes: Any) -> Trial:
    values = {"study": kernel, "kernel": kernel, "status": Status.INFEASIBLE, "stage": Stage.SPACE, **changes}
    return trial(1, reason=reason, timing=None, time_source=None, check=None, **values)


def library(ms: float, **changes: Any) -> Trial:
    return timed("cublas", ms, 0, **{"role": Role.BASELINE, "params": {}, "study": "naive", **changes})


def predicted(kernel: str, ms: float, **changes: Any) -> Trial:
    values = {"time_source": TimeSource.PREDICTED, "predicted_ms": ms, **changes}
    return trial(1, study=kernel, kernel=kernel, flops=10**9, timing=None, **values)


def course(*trials: Trial) -> Course:
    (only,) = courses(frame(trials), (), SOURCES)
    return only


# The course


@pytest.mark.parametrize(
    ("source", "number"), [("04_register_tile.cu", 4), ("10_gemv.cu", 10), ("mine.cu", None), ("4.cu", None)]
)
def test_a_rungs_number_begins_its_source_files_name(source: str, number: int | None) -> None:
    assert rung_number(source) == number


def test_rungs_stand_in_the_order_of_their_numbers_and_those_without_one_come_last() -> None:
    rungs = course(timed("mine", 1.0), timed("late", 1.0), timed("tiled", 1.0), timed("naive", 1.0)).rungs
    assert [(rung.number, rung.kernel) for rung in rungs] == [
        (1, "naive"),
        (2, "tiled"),
        (10, "late"),
        (None, "mine"),
    ]


def test_each_rung_is_its_best_configuration_and_gains_over_the_one_before() -> None:
    rungs = course(timed("naive", 8.0), timed("tiled", 5.0), timed("tiled", 2.0, 2), timed("late", 4.0)).rungs
    assert [rung.time_ms for rung in rungs] == [8.0, 2.0, 4.0]
    assert [rung.gain for rung in rungs] == [None, 4.0, 0.5]
    assert rungs[1].gflops == 500.0


def test_all_rungs_are_held_against_one_library_whichever_rung_it_was_measured_beside() -> None:
    """The fastest that any study has: a study's own would compare each rung with another's luck."""
    found = course(timed("naive", 8.0), library(2.0), timed("tiled", 4.0), library(1.0, study="tiled"))
    assert (found.library, found.library_ms, found.library_gflops) == ("cublas", 1.0, 1000.0)
    assert [rung.percent_of_library for rung in found.rungs] == [12.5, 25.0]


def test_a_kernel_without_a_valid_configuration_is_no_rung_and_has_its_reason() -> None:
    found = course(timed("naive", 8.0), failed("late", "needs cc >= 9.0, have 8.0"), timed("tiled", 4.0))
    assert [rung.kernel for rung in found.rungs] == ["naive", "tiled"]
    (absent,) = found.absent
    assert (absent.number, absent.kernel, absent.reason) == (10, "late", "needs cc >= 9.0, have 8.0")


def test_every_shape_and_class_is_a_course_of_its_own() -> None:
    found = courses(
        frame(
            [
                timed("naive", 8.0),
                timed("naive", 1.0, shape="odd", study="odd"),
                timed("tiled", 4.0),
                timed("naive", 2.0, dtype="float64", study="64"),
            ]
        ),
        (),
        SOURCES,
    )
    assert [(one.shape, one.dtype, len(one.rungs)) for one in found] == [
        ("large", "float32", 2),
        ("odd", "float32", 1),
        ("large", "float64", 1),
    ]


# The course in words


def cells(found: Course) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
    made = course_text.grid(found)
    return made.head, made.rows


def test_the_table_has_a_row_a_rung_and_one_for_the_library() -> None:
    head, lines = cells(course(timed("naive", 8.0), timed("tiled", 2.0), library(1.6)))
    assert head == ("rung", "kernel", "best configuration", "time", "GFLOP/s", "% lib", "gain")
    assert lines[0] == ("1", "naive", "tile=8 vector=4", "8 ms", "125", "20.0", "")
    assert lines[1] == ("2", "tiled", "tile=8 vector=4", "2 ms", "500", "80.0", "4.00×")
    assert lines[2] == ("", "cublas", "", "1.6 ms", "625", "100.0", "")


def test_a_rung_that_is_slower_than_the_one_before_says_so() -> None:
    _, lines = cells(course(timed("naive", 1.0), timed("tiled", 2.0)))
    assert lines[1][-1] == "0.50×"


def test_predicted_times_are_called_so_in_the_table_and_below_it() -> None:
    made = course_text.grid(course(predicted("naive", 8.0)))
    assert "predicted" in made.head
    assert "time" not in made.head
    assert any("nothing was timed" in note for note in made.notes)


def test_what_could_not_run_stands_below_with_its_reason() -> None:
    made = course_text.grid(course(timed("naive", 8.0), failed("late", "needs cc >= 9.0, have 8.0")))
    assert "not here: late (rung 10): needs cc >= 9.0, have 8.0" in made.notes


@pytest.mark.parametrize("width", [40, 80, 132])
def test_bars_are_as_long_as_their_rates_and_the_longest_fills_the_width(width: int) -> None:
    head, naive, tiled = course_text.bars(course(timed("naive", 8.0), timed("tiled", 4.0)), width)
    assert head.strip() == "GFLOP/s"
    assert abs(naive.count("█") * 2 - tiled.count("█")) <= 1
    assert width - 3 <= len(tiled) <= width
    assert naive.startswith(" 1 naive 125 ")


def test_the_library_is_marked_at_its_rate_on_every_shorter_bar() -> None:
    lines = course_text.bars(course(timed("naive", 8.0), timed("tiled", 1.0), library(2.0)), 80)
    _, naive, tiled, cublas = lines
    mark = naive.index("│")
    start = naive.index("█")
    assert abs((mark - start) - tiled.count("█") / 2) <= 1
    assert "│" not in tiled
    assert cublas.strip().startswith("cublas")
    assert abs(cublas.rindex("█") + 1 - mark) <= 1


def test_a_very_slow_rung_still_has_a_bar_and_a_narrow_terminal_still_has_room() -> None:
    lines = course_text.bars(course(timed("naive", 1e5), timed("tiled", 1.0)), 20)
    assert "▏" in lines[1]
    assert lines[2].count("█") == 10


def test_a_problem_without_a_flop_count_has_no_rates_and_no_chart() -> None:
    made = course_text.grid(course(timed("naive", 8.0, flops=None), timed("tiled", 4.0, flops=None)))
    assert "GFLOP/s" not in made.head
    assert made.chart is None


def test_markdown_has_the_table_the_chart_and_the_notes() -> None:
    made = Grid("t", ("a", "b"), [("x|y", "1")], left=(0,), notes=["note"], chart=lambda width: ["█" * 3])
    assert markdown(made).splitlines() == [
        *("## t", "", "| a | b |", "| --- | ---: |", r"| x\|y | 1 |", ""),
        *("```text", "███", "```", "", "note"),
    ]


# The price of mistakes

CONFLICTS = Pitfall("conflicts", "tiled", {"pad": 0}, {"pad": 1}, "bank_conflict_percent", "", "look here")
WASTE = Pitfall("waste", "tiled", {"pad": 0}, {"pad": 1}, "stall_barrier", "registers")


def pair(spoiled_ms: float = 6.0, sound_ms: float = 2.0) -> list[Trial]:
    return [
        timed("tiled", spoiled_ms, 1, params={"tile": 8, "pad": 0}),
        timed("tiled", sound_ms, 2, params={"tile": 8, "pad": 1}),
    ]


def profiled(folder: Path, **columns: Sequence[str]) -> Path:
    """A `profile.csv` of the two configurations of `pair`, spoiled first."""
    path = folder / "profile.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["kernel", "dtype", "shape", "params", *columns])
        for place in (0, 1):
            params = json.dumps({"pad": place, "tile": 8})
            writer.writerow(["tiled", "float32", "large", params, *(v[place] for v in columns.values())])
    return path


def priced(trials: Sequence[Trial], pitfall: Pitfall = CONFLICTS, profile: Path | None = None) -> Price:
    (only,) = prices(frame(trials), [pitfall], read_counters(profile) if profile else {})
    return only


def test_the_price_is_the_spoiled_time_over_the_sound_one() -> None:
    found = priced(pair(6.0, 2.0))
    assert (found.spoiled.time_ms, found.sound.time_ms, found.ratio) == (6.0, 2.0, 3.0)


def test_the_counter_of_each_side_is_that_of_its_configuration(tmp_path: Path) -> None:
    found = priced(pair(), profile=profiled(tmp_path, bank_conflict_percent=["87.5", "0.0"]))
    assert (found.spoiled.counter, found.sound.counter) == (87.5, 0.0)


def test_a_stall_is_looked_up_among_the_reasons_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    found = priced(pair(), WASTE, profiled(tmp_path, stalls=['{"barrier": 40.5}', '{"wait": 3.0}']))
    assert (found.spoiled.counter, found.sound.counter) == (40.5, 0.0)


def test_without_a_profile_the_tables_own_figure_stands_in_or_a_dash() -> None:
    (row,) = pitfalls_text.grid([priced(pair())]).rows
    assert row == ("conflicts", "6 ms", "2 ms", "3.00×", "bank_conflict_percent", "–", "–")
    (row,) = pitfalls_text.grid([priced(pair(), WASTE)]).rows
    registers = [f"{t.build.registers}" for t in pair() if t.build]
    assert row[-3:] == ("registers", *registers)


def test_a_side_that_failed_has_no_price_and_its_reason_is_told() -> None:
    broken = failed("tiled", "3 of 4 elements are wrong", params={"tile": 8, "pad": 0})
    found = priced([broken, pair()[1]])
    assert found.ratio is None
    made = pitfalls_text.grid([found], ["counters: ncu is not installed here"])
    assert made.rows[0][1:4] == ("–", "2 ms", "–")
    assert "conflicts, spoiled: 3 of 4 elements are wrong" in made.notes
    assert "conflicts: look here" in made.notes
    assert made.notes[-1] == "counters: ncu is not installed here"


def test_a_side_that_was_never_asked_is_told_too() -> None:
    assert priced(pair()[1:]).spoiled.reason == "not run"


def test_a_pitfall_of_a_kernel_that_did_not_run_is_left_out() -> None:
    assert not prices(frame([timed("naive", 1.0)]), [CONFLICTS], {})


def test_a_file_that_is_no_table_of_profiles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match="no table of profiles"):
        read_counters(tmp_path / "profile.csv")


# The keys


def test_a_report_that_does_not_exist_names_the_nearest() -> None:
    (problem,) = why_no_report("corse", ())
    assert "report = 'corse' is none of course, pitfalls" in problem
    assert "did you mean 'course'" in problem


def test_pitfalls_without_pairs_and_pairs_without_a_difference_are_refused() -> None:
    assert "names none" in why_no_report("pitfalls", ())[0]
    assert "no mistake and no sound" in why_no_report(None, [Pitfall("", "tiled", {"pad": 0})])[0]
    assert "same configuration" in why_no_report(None, [Pitfall("m", "tiled", {"pad": 0}, {"pad": 0})])[0]
    assert not why_no_report("pitfalls", [CONFLICTS])


def test_a_wrong_report_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("kernel=tiled", "shape=tiny", "report=curse", f"results_dir={tmp_path}/out") == 2
    assert "did you mean 'course'" in capsys.readouterr().err


# Commands


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


FEW = ("experiment=ladder", "kernel=tiled,naive,tma_pipeline", "shape=tiny", "search.budget=2")


@pytest.mark.parametrize("flags", [(), ("-m",)])
def test_the_ladder_is_a_multirun_with_and_without_m(
    elsewhere: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(*flags, *FEW, "results_dir=out") == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("course at tiny (M=64 N=64 K=64)"))
    assert lines[start + 2].split()[:2] == ["1", "naive"]
    assert lines[start + 3].split()[:2] == ["2", "tiled"]
    assert "not here: tma_pipeline (rung 8): needs tensor maps (TMA)" in said
    assert "5 configurations in 3 jobs: 4 ok, 1 infeasible" in said
    assert len(runs(Path("out"))) == 3
    text = Path("out/course.md").read_text(encoding="utf-8")
    assert "| 1 | naive |" in text
    assert " 2 tiled" in text


def test_a_folder_is_named_after_the_experiment_that_is_a_multirun(elsewhere: Path) -> None:
    assert sweep("experiment=ladder", "kernel=naive", "+shape=tiny", "search.budget=1") == 0
    (folder,) = Path("results/runs").iterdir()
    assert folder.name.endswith("-ladder-naive-tiny")
    assert {r["kernel"] for r in rows(folder)} == {"naive"}


def test_a_course_of_nothing_that_can_run_ends_with_1_and_writes_no_table(elsewhere: Path) -> None:
    assert sweep("experiment=ladder", "kernel=tma_pipeline", "+shape=tiny", "results_dir=out") == 1
    assert not Path("out/course.md").exists()


def test_without_a_report_a_kernel_that_cannot_run_still_ends_with_1(elsewhere: Path) -> None:
    command = ("-m", "kernel=naive,tma_pipeline", "shape=tiny", "search=random", "search.budget=1")
    assert sweep(*command, "results_dir=out") == 1


def test_a_wrong_result_in_a_course_ends_with_1(elsewhere: Path) -> None:
    """Only what cannot run here is no failure."""
    wrong = kernel_in(elsewhere / "own", source=WRONG_CU)
    assert sweep(*wrong, "report=course", "shape=tiny", "results_dir=out") == 1


WRONG_CU = """
extern "C" __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < M && j < N) C[i * N + j] = A[i * K] + B[j];
}
"""


def test_fail_fast_goes_on_past_a_rung_that_cannot_run(elsewhere: Path) -> None:
    command = (
        "experiment=ladder",
        "kernel=tma_pipeline,naive",
        "+shape=tiny",
        "search.budget=1",
        "fail_fast=true",
    )
    assert sweep(*command, "results_dir=out") == 0
    assert {r["kernel"] for r in rows(Path("out")) if r["status"] == "ok"} == {"naive"}


def test_the_course_begins_every_search_with_the_kernels_default(elsewhere: Path) -> None:
    command = ("experiment=ladder", "kernel=naive,register_tile", "+shape=tiny", "search.budget=2")
    assert sweep(*command, "results_dir=out") == 0
    first = {r["kernel"]: json.loads(r["params"]) for r in rows(Path("out")) if r["trial"] == "1"}
    assert first["naive"] == {"block_x": 16, "block_y": 16}
    assert first["register_tile"] == {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4}


def test_a_report_of_one_search_stands_below_its_table(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("kernel=tiled", "shape=tiny", "search=grid", "report=course", "results_dir=out")
    assert sweep(*command) == 0
    said = capsys.readouterr().out
    assert said.index("rank") < said.index("course at tiny")


def test_a_report_leaves_out_what_earlier_commands_put_into_the_folder(elsewhere: Path) -> None:
    assert sweep("kernel=naive", "shape=tiny", "search=random", "search.budget=1", "results_dir=out") == 0
    assert sweep("kernel=tiled", "shape=tiny", "search=grid", "report=course", "results_dir=out") == 0
    text = Path("out/course.md").read_text(encoding="utf-8")
    assert "tiled" in text
    assert "naive" not in text


def test_the_pitfalls_are_all_proved_right_and_priced(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backend=emulator", "experiment=pitfalls", "+shape=tiny", "results_dir=out"]) == 0
    found = rows(Path("out"))
    assert {r["status"] for r in found} == {"ok"}
    said = capsys.readouterr().out
    assert f"{len(found)} configurations in {len({r['kernel'] for r in found})} jobs" in said
    table = [
        line for line in Path("out/pitfalls.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    assert len(table) == 2 + len({r["kernel"] for r in found})
    assert "a mistake without a price is one that it does not see" in said
    priced_at = {cells[1]: cells[4] for cells in ([c.strip() for c in line.split("|")] for line in table)}
    assert priced_at["threads along rows"].endswith("×")
    assert priced_at["divergent lanes"] == "–"


@pytest.fixture
def gpu(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedGpu:
    return PretendedGpu(elsewhere, monkeypatch, name="h200")


def profiler_of(gpu: PretendedGpu, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """An ncu on PATH that answers so, for a profiler in a process of its own that has the pretended GPU too."""
    ncu = fake_ncu(folder / "ncu", {"*": answer})
    monkeypatch.setenv("PATH", f"{ncu.parent}:{gpu.nvcc.parent}:/usr/bin:/bin")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        "from sweeper.worker.pool import DeviceWorker\n"
        "DeviceWorker.__init__.__kwdefaults__['module'] = 'fake_gpu_worker'\n"
    )
    package = Path(sweeper.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'site'}:{Path(__file__).parent}:{package}")


PAIR = (
    "pitfalls=[{mistake: small block, kernel: mine, spoiled: {block: 8}, sound: {block: 16}, counter: ipc}]"
)


def test_counters_are_measured_where_the_profiler_is(
    gpu: PretendedGpu, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler_of(gpu, elsewhere, monkeypatch, "tiled")
    command = ("shape=tiny", "search=grid", "report=pitfalls", PAIR, "results_dir=out")
    mine = kernel_in(elsewhere / "own", params={"block": [8, 16]})
    assert gpu.sweep(*mine, *command) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert Path("out/profile.csv").is_file(), said
    line = next(line for line in said.splitlines() if line.startswith("small block"))
    assert "ipc" in line
    assert "–" not in line


def test_without_a_profiler_the_report_says_why_there_are_no_counters(
    gpu: PretendedGpu, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler_of(gpu, elsewhere, monkeypatch, "permission")
    command = ("shape=tiny", "search=grid", "report=pitfalls", PAIR, "results_dir=out")
    mine = kernel_in(elsewhere / "own", params={"block": [8, 16]})
    assert gpu.sweep(*mine, *command) == 0
    assert "counters: this user may not read the GPU's performance counters" in capsys.readouterr().out
