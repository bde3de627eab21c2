"""Published results measured again: what agrees, what is said beforehand, where the new rows go."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_rig import PretendedGpu, kernel_in, rows, runs, sweep
from hypothesis import given
from hypothesis import strategies as st

from sweeper.cli.app import main as sweeper
from sweeper.compare import Row
from sweeper.compare.ratio import of_samples
from sweeper.errors import NoValidConfiguration
from sweeper.reproduce import BEST, WIDEST, Agreement, choose, judge
from sweeper.reproduce.command import main
from sweeper.reproduce.report import COLUMNS
from sweeper.results import read_results
from sweeper.store import Store

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "results" / "h200" / "tile-sweep"
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


def agreements(folder: Path) -> list[str]:
    return [row["agreement"] for row in rows(folder, "reproduced.csv")]


def edited(folder: Path, name: str, change: Mapping[str, Any], *, where: Mapping[str, str]) -> None:
    """Change cells of a table; a change is text, or a factor."""
    table = rows(folder, name)
    for row in table:
        if all(row[column] == value for column, value in where.items()):
            for column, value in change.items():
                row[column] = repr(float(row[column]) * value) if isinstance(value, float) else value
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def as_tables(published: Path, folder: Path) -> Path:
    """`published` as people pass it on: trials.csv and run.json, without the store."""
    folder.mkdir()
    for name in ("trials.csv", "run.json"):
        shutil.copy(published / name, folder / name)
    return folder


# Predicted results: proved right and predicted again


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel at two shapes, by the emulator."""
    folder = tmp_path_factory.mktemp("predicted") / "published"
    command = ["-m", "kernel=tiled", "shape=tiny,16x16x16", "search=grid"]
    assert sweep(*command, f"results_dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def again(published: Path) -> Path:
    """All of its rows reproduced."""
    folder = published.parent / "again"
    assert main([str(published), "--rows", "all", "--results-dir", str(folder)]) == 0
    return folder


def test_predictions_and_proofs_are_the_same_to_the_last_digit(published: Path, again: Path) -> None:
    assert agreements(again) == ["agrees"] * 6
    for row in rows(again, "reproduced.csv"):
        assert row["now_ms"] == row["then_ms"]
        assert row["now_max_error"] == row["then_max_error"] != ""
    told = {(row["shape"], row["params"]): row["time_ms"] for row in rows(published)}
    assert {(row["shape"], row["params"]): row["time_ms"] for row in rows(again)} == told


def test_the_new_rows_are_rows_like_all_others_of_the_same_study(published: Path, again: Path) -> None:
    assert {row["study"] for row in rows(again)} == {row["study"] for row in rows(published)}
    assert {row["context"] for row in rows(again)} == {row["context"] for row in rows(published)}
    assert {path.name for path in again.iterdir()} == {
        "best.csv",
        "reproduced.csv",
        "run.json",
        "study.db",
        "trials.csv",
    }


def test_their_provenance_names_what_they_reproduce(published: Path, again: Path) -> None:
    then = {run["study"]: run["id"] for run in runs(published)}
    for run in runs(again):
        told = run["reproduces"]
        assert told["results"] == "published"
        assert told["study"] == run["study"]
        assert told["run"] == then[run["study"]]
        assert told["trials"] == [1, 2, 3]
        assert run["command"][:3] == ["python", "-m", "sweeper.reproduce"]


def test_a_reproduction_can_be_reproduced(again: Path, tmp_path: Path) -> None:
    only = ["--only", "shape=tiny"]
    assert main([str(again), *only, "--results-dir", str(tmp_path / "new")]) == 0
    assert agreements(tmp_path / "new") == ["agrees"]


def test_nothing_is_said_to_differ_where_nothing_does(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(published), "--only", "shape=tiny", "--results-dir", str(tmp_path / "new")]) == 0
    captured = capsys.readouterr()
    assert not captured.err
    assert captured.out.splitlines()[-2:] == [
        "1 row: 1 AGREES; predicted and replayed times are compared exactly",
        f"results: {tmp_path / 'new'}",
    ]


def test_a_table_with_its_provenance_is_enough_and_a_time_that_is_not_the_predicted_one_does_not_agree(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = as_tables(published, tmp_path / "table")
    edited(table, "trials.csv", {"time_ms": 0.999}, where={"shape": "tiny", "param_tile": "16"})
    only = ["--only", "shape=tiny", "--rows", "all", "--results-dir", str(tmp_path / "new")]
    assert main([str(table), *only]) == 1
    assert agreements(tmp_path / "new") == ["agrees", "slower", "agrees"]
    assert re.search(r"^SLOWER  tiled tiny tile=16 ", capsys.readouterr().out, re.MULTILINE)


def test_the_first_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
    first, second = (shlex.split(line, comments=True)[3:] for line in block.splitlines())
    assert sweeper(first) == 0
    capsys.readouterr()
    assert main(second) == 0
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = capsys.readouterr().out
    assert said.splitlines()[:-1] == shown.splitlines()[:-1]


def test_another_source_is_told_beforehand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_in(tmp_path / "mine", params={"block": [8, 16]})
    command = [*kernel, "shape=16x16x16", "search=grid", f"results_dir={tmp_path / 'out'}"]
    assert sweep(*command) == 0
    source = tmp_path / "mine" / "mine.cu"
    source.write_text(source.read_text() + "// another line\n")
    asked = [str(tmp_path / "out"), "--config-dir", str(tmp_path / "mine")]
    capsys.readouterr()
    assert main([*asked, "--results-dir", str(tmp_path / "new")]) == 0
    assert "not as recorded: mine: another source than recorded" in capsys.readouterr().err


def test_a_kernel_that_is_gone_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_in(tmp_path / "mine")
    assert sweep(*kernel, "shape=16x16x16", f"results_dir={tmp_path / 'out'}") == 0
    capsys.readouterr()
    assert main([str(tmp_path / "out"), "--results-dir", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: mine cannot be reproduced: ")
    assert "--config-dir" in said
    assert not (tmp_path / "new").exists()


# Replayed results: looked up in their table again


def test_a_replay_is_looked_up_in_its_table_again(tmp_path: Path) -> None:
    table, out = RECORDED / "trials.csv", tmp_path / "out"
    command = ["kernel=tiled", "shape=small", f"backend.path={table}", f"results_dir={out}"]
    assert sweeper(["backend=replay", *command]) == 0
    assert main([str(out), "--rows", "all", "--results-dir", str(tmp_path / "new")]) == 0
    assert agreements(tmp_path / "new") == ["agrees"] * 3
    assert main([str(out), "--table", str(tmp_path / "gone.csv"), "--results-dir", str(tmp_path / "x")]) == 4
    assert not (tmp_path / "x").exists()


# Measured results


def test_measured_rows_are_not_reproduced_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sweeper.errors import SetupError

    def no_gpu(*_: object) -> object:
        raise SetupError("there is no GPU here")

    monkeypatch.setattr("sweeper.reproduce.run.make_evaluator", no_gpu)
    assert main([str(RECORDED), "--results-dir", str(tmp_path / "new")]) == 3
    assert "error: there is no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--backend", "emulator"], "these times are measured, and emulator gives predicted ones"),
        (["--rows", "0"], "neither best, all nor a whole number"),
        (["--only", "kernle=tiled"], "did you mean 'kernel'?"),
        (["--least-effect", "1"], "is not a share below 1"),
        (["--results-dir", str(RECORDED)], "holds results already"),
        (["--config-dir", "nowhere"], "no such folder"),
    ],
)
def test_what_cannot_be_done_is_one_error(
    asked: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(RECORDED), *asked]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_table_without_provenance_cannot_be_reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(RECORDED / "trials.csv", tmp_path / "trials.csv")
    assert main([str(tmp_path)]) == 2
    assert "it has no run.json" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing")]) == 4


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PretendedGpu]:
    with pytest.MonkeyPatch.context() as patch:
        yield PretendedGpu(tmp_path_factory.mktemp("gpu"), patch, name="h200")


@pytest.fixture
def gpu(pretended: PretendedGpu) -> PretendedGpu:
    """The GPU that everything was published on, whatever it was made into before."""
    pretended.become("h200")
    return pretended


@pytest.fixture(scope="module")
def measured(pretended: PretendedGpu, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a search over four configurations that was confirmed, and where its kernel is."""
    pretended.become("h200")
    folder = tmp_path_factory.mktemp("measured")
    kernel = kernel_in(folder / "mine", params={"block": [8, 16, 24, 32]})
    protocol = ["measure.cache=warm", "seed=7", "measure.max_samples=20"]
    out = folder / "out"
    assert pretended.sweep(*kernel, "shape=64x64x64", "search=grid", f"results_dir={out}", *protocol) == 0
    return out, ["--config-dir", str(folder / "mine")]


def test_measured_rows_are_measured_again_by_their_own_protocol(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, where = measured
    before = len(gpu.measured)
    new = tmp_path / "new"
    assert main([str(out), *where, "--rows", "all", "--results-dir", str(new)]) == 0
    assert agreements(new) == ["agrees"] * 4
    assert gpu.measured[before:] == [{"block": block} for block in (8, 16, 24, 32)]
    assert {(row["cache"], row["seed"], row["time_source"]) for row in rows(new)} == {
        ("warm", "7", "measured")
    }
    with Store(out / "study.db") as then, Store(new / "study.db") as now:
        assert now.studies() == then.studies()
        assert len(then.trials()) == 4, "what was published is as it was"


def test_the_best_are_compared_with_their_times_in_turns(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, where = measured
    new = tmp_path / "new"
    assert main([str(out), *where, "--results-dir", str(new)]) == 0
    (row,) = rows(new, "reproduced.csv")
    assert json.loads(row["params"]) == {"block": 32}
    assert row["confirmed"] == "true"
    assert float(row["then_ms"]) == pytest.approx(1 / 32, rel=0.01)
    assert row["then_ms"] != row["now_ms"]


def test_as_many_of_the_best_as_were_asked_for(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, where = measured
    assert main([str(out), *where, "--rows", "2", "--results-dir", str(tmp_path / "new")]) == 0
    assert sorted(json.loads(row["params"])["block"] for row in rows(tmp_path / "new")) == [24, 32]


def test_another_gpu_and_driver_are_told_before_anything_is_measured(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, where = measured
    gpu.become("a100", driver="590.2")
    capsys.readouterr()
    assert main([str(out), *where, "--results-dir", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "not as recorded: another driver (580.1 → 590.2)" in said
    assert any(line.startswith("not as recorded: another device (NVIDIA H200 → NVIDIA A100") for line in said)
    assert any(line.startswith("not as recorded: another compiler (") for line in said) is False


def test_a_row_that_was_published_too_fast_is_slower_and_the_command_says_so(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, where = measured
    table = as_tables(out, tmp_path / "table")
    faster = dict.fromkeys(("time_ms", "time_low_ms", "time_high_ms"), 0.9)
    edited(table, "trials.csv", faster, where={"param_block": "16"})
    assert main([str(table), *where, "--rows", "all", "--results-dir", str(tmp_path / "new")]) == 1
    assert agreements(tmp_path / "new") == ["agrees", "slower", "agrees", "agrees"]


def test_what_cannot_run_here_has_failed_with_its_reason(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """A block of 64 by 64 threads, which no GPU has, passed on by somebody."""
    out, where = measured
    table = as_tables(out, tmp_path / "table")
    edited(table, "trials.csv", {"params": '{"block": 64}'}, where={"param_block": "16"})
    assert main([str(table), *where, "--rows", "all", "--results-dir", str(tmp_path / "new")]) == 1
    told = {json.loads(row["params"])["block"]: row for row in rows(tmp_path / "new", "reproduced.csv")}
    assert told[64]["agreement"] == "failed"
    assert told[64]["reason"].startswith("infeasible: ")
    assert {told[block]["agreement"] for block in (8, 24, 32)} == {"agrees"}


def test_a_library_that_is_not_here_has_failed_and_the_rest_goes_on(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del gpu
    assert main([str(RECORDED), "--only", "shape=small", "--results-dir", str(tmp_path / "new")]) == 1
    told = {row["kernel"]: row for row in rows(tmp_path / "new", "reproduced.csv")}
    assert told["cublas"]["agreement"] == "failed"
    assert told["cublas"]["reason"] == "infeasible: cublas was not found: install it"
    # What pretends to be nvcc compiles another kernel, whatever it is given.
    assert told["tiled"]["reason"].startswith("build_error: ")
    said = capsys.readouterr().err
    assert "tiled: another source than recorded (4df805cc" in said
    assert "tiled: its description has changed with its source; it is taken as it is now" in said


def test_what_was_measured_before_an_interrupt_is_kept(
    gpu: PretendedGpu, measured: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, where = measured
    from sweeper.cli.recorder import Recorder

    add = Recorder.add

    def add_and_be_interrupted(recorder: Recorder, trial: Any) -> Any:
        add(recorder, trial)
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "add", add_and_be_interrupted)
    new = tmp_path / "new"
    assert main([str(out), *where, "--rows", "all", "--results-dir", str(new)]) == 130
    assert len(rows(new)) == 1
    assert [run["error"] for run in runs(new)] == ["interrupted"]


# Which rows, and what is said of them


def test_the_best_rows_are_those_of_every_kernel_and_shape_with_the_libraries_beside_them() -> None:
    found, failed = choose(read_results([RECORDED]), BEST)
    told = [(one.first.shape, [(row.kernel, dict(row.params)) for row in one.rows]) for one in found]
    assert told == [
        ("small", [("cublas", {"library": "cublas"}), ("tiled", {"tile": 32})]),
        ("odd", [("cublas", {"library": "cublas"}), ("tiled", {"tile": 16})]),
    ]
    assert failed == 0
    with pytest.raises(NoValidConfiguration, match="no valid row"):
        choose([], BEST)


def row(samples: Sequence[float]) -> Row:
    times = {"cold": of_samples(samples)}
    return Row("s", 1, "candidate", "k", "float32", "small", {}, {}, "ok", "", "measured", "",
               cache="cold", times=times)  # fmt: skip


def agreement(then: Sequence[float], now: Sequence[float], **more: float) -> Agreement:
    (outcome,) = judge([(row(then), row(now))], **more)
    return outcome.agreement


@given(st.lists(st.floats(0.995, 1.005), min_size=6, max_size=40), st.floats(1e-3, 1e3))
def test_agreement_is_within_the_intervals(samples: list[float], ms: float) -> None:
    then = [ms * one for one in samples]
    assert agreement(then, then) is Agreement.AGREES
    assert agreement(then, [1.004 * one for one in then]) is Agreement.AGREES
    assert agreement(then, [1.1 * one for one in then]) is Agreement.SLOWER
    assert agreement([1.1 * one for one in then], then) is Agreement.FASTER


def test_a_wide_interval_agrees_with_nothing() -> None:
    scattered = [1.0, 1.3, 0.8, 1.1, 0.9, 1.25, 0.75, 1.0]
    assert agreement(scattered, scattered) is Agreement.UNSURE
    assert agreement([1.0, 1.0], [1.0, 1.0]) is Agreement.UNSURE
    (sure,) = judge([(row([1.0] * 20), row([1.0] * 20))])
    assert sure.ratio is not None
    assert sure.ratio.interval().high < 1 + WIDEST


def test_many_rows_agree_at_once() -> None:
    """One row of a hundred is off by what chance alone brings about in one of a hundred."""
    off = [1.02] * 12
    alone, *_ = judge([(row([1.0] * 12), row(off))], between_runs=0.0035)
    among, *_ = judge(
        [(row([1.0] * 12), row(off))] + [(row([1.0] * 12), row([1.0] * 12))] * 99, between_runs=0.0035
    )
    assert (alone.agreement, among.agreement) == (Agreement.SLOWER, Agreement.AGREES)
    assert not math.isnan(among.ratio.error if among.ratio else math.nan)


# The documentation


def test_the_page_has_every_column() -> None:
    found = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
    assert [one for one in found if one[0] in {name for name, _, _ in COLUMNS}] == list(COLUMNS)
    for one in Agreement:
        assert f"| {one.value.upper()} |" in PAGE
    assert f"{WIDEST:.0%}".replace("%", " %") in PAGE
