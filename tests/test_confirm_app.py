"""The command line with a pretended GPU: what a confirmed search leaves in its folder and says at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_rig import PretendedGpu, kernel_in, rows, runs, sweep

from sweeper.store import Store
from sweeper.table.confirmed import CONFIRMED

BLOCKS = [8, 16, 24, 32]
FASTEST = {"block": 32}


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedGpu:
    """Its kernels are the faster the larger `block` is; the default is 8, the slowest."""
    return PretendedGpu(tmp_path / "gpu", monkeypatch, name="h200")


def searched(gpu: PretendedGpu, folder: Path, *more: object) -> Path:
    """The results folder of a search over all four configurations."""
    out = folder / "out"
    kernel = kernel_in(folder / "mine", params={"block": BLOCKS})
    command = [*kernel, "shape=64x64x64", "search=grid", f"results_dir={out}", *more]
    assert gpu.sweep(*command) == 0
    return out


def test_the_confirmed_winner_is_the_best_with_its_verdict_against_the_default(
    gpu: PretendedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = searched(gpu, tmp_path)
    (best,) = rows(out, "best.csv")
    assert json.loads(best["params"]) == FASTEST
    assert best["confirmed_blocks"] == "12"
    assert best["vs_default"] == "faster"
    assert float(best["vs_default_ratio"]) == pytest.approx(8 / 32, rel=0.01)
    assert float(best["vs_default_low"]) < 8 / 32 < float(best["vs_default_high"])
    said = capsys.readouterr().out
    assert "best 31." in said
    assert "with block=32, confirmed in 12 blocks: 300 % faster than the default" in said


def test_confirmed_csv_has_a_row_for_everyone(gpu: PretendedGpu, tmp_path: Path) -> None:
    out = searched(gpu, tmp_path, "measure.confirm=2")
    table = rows(out, "confirmed.csv")
    assert [json.loads(row["params"])["block"] for row in table] == [32, 24, 8]
    assert [row["role"] for row in table] == ["candidate", "candidate", "default"]
    assert [row["winner"] for row in table] == ["true", "false", "false"]
    assert [row["verdict"] for row in table] == ["same", "slower", "slower"]
    assert [row["vs_default"] for row in table] == ["faster", "faster", ""]
    assert {len(json.loads(row["blocks_ms"])) for row in table} == {12}
    assert list(table[0])[: len(CONFIRMED)] == [column.name for column in CONFIRMED]
    (run,) = runs(out)
    assert {row["confirmation"] for row in table} == {run["confirmation"]}


def test_a_finalist_that_fails_does_not_lose_the_rest(
    gpu: PretendedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRETENDED_FAILURES", json.dumps([FASTEST]))
    out = searched(gpu, tmp_path)
    failed = next(row for row in rows(out, "confirmed.csv") if json.loads(row["params"]) == FASTEST)
    assert (failed["reason"], failed["blocks"], failed["verdict"]) == ("3 of 4 elements are wrong", "0", "")
    (best,) = rows(out, "best.csv")
    assert json.loads(best["params"]) == {"block": 24}
    said = capsys.readouterr().out
    assert "with block=24, confirmed" in said
    assert "not confirmed: block=32: 3 of 4 elements are wrong" in said


def test_the_same_command_again_confirms_nothing_again(gpu: PretendedGpu, tmp_path: Path) -> None:
    first = (searched(gpu, tmp_path) / "confirmed.csv").read_bytes()
    again = searched(gpu, tmp_path)
    assert (again / "confirmed.csv").read_bytes() == first
    assert len(runs(again)) == 2
    afresh = searched(gpu, tmp_path, "resume=false")
    assert len(rows(afresh, "confirmed.csv")) == 8


def test_how_finalists_are_compared_is_no_condition_of_a_trial(gpu: PretendedGpu, tmp_path: Path) -> None:
    searched(gpu, tmp_path)
    measured = len(gpu.measured)
    out = searched(
        gpu, tmp_path, "measure.confirm_blocks=9", "measure.least_effect=0.02", "measure.confirm=3"
    )
    assert len(gpu.measured) == measured, "every trial is reused"
    with Store(out / "study.db") as store:
        assert len(store.studies()) == 1
        assert [len(one.blocks_ms) for one in store.confirmed()] == [12] * 4 + [9] * 4


def test_a_default_that_wins_without_having_been_asked_is_measured_like_any_other(
    gpu: PretendedGpu, tmp_path: Path
) -> None:
    """The search may ask one configuration of four; the default is the fastest, and not that one."""
    kernel = kernel_in(tmp_path / "mine", params={"block": BLOCKS}, default={"block": 32})
    out = tmp_path / "out"
    command = [*kernel, "shape=64x64x64", "search=random", "search.budget=1", "search.seed=1"]
    assert gpu.sweep(*command, f"results_dir={out}") == 0
    trials = [json.loads(row["params"])["block"] for row in rows(out)]
    assert trials[0] != 32
    assert trials[1:] == [32]
    assert "confirmation" in rows(out)[1]["note"]
    (best,) = rows(out, "best.csv")
    assert json.loads(best["params"]) == FASTEST
    assert best["vs_default"] == ""


@pytest.mark.parametrize("quiet", ["measure=quick", "measure.confirm=0", "kernel.params.block=16"])
def test_nothing_is_confirmed_where_nothing_is_asked_for_or_there_is_nobody_to_compare_with(
    gpu: PretendedGpu, tmp_path: Path, quiet: str
) -> None:
    out = searched(gpu, tmp_path, quiet)
    assert not (out / "confirmed.csv").exists()
    assert rows(out, "best.csv")[0]["confirmed_ms"] == ""


def test_predicted_times_are_not_confirmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_in(tmp_path / "mine", params={"block": [8, 16]})
    assert sweep(*kernel, "shape=32x32x32", f"results_dir={tmp_path / 'out'}") == 0
    assert not (tmp_path / "out" / "confirmed.csv").exists()
    assert "confirm" not in capsys.readouterr().out


def test_an_interrupt_keeps_the_blocks_that_were_taken(
    gpu: PretendedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeper.evaluate import LiveEvaluator

    confirm = LiveEvaluator.confirm
    calls: list[int] = []

    def interrupted(self: LiveEvaluator, *given: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return confirm(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveEvaluator, "confirm", interrupted)
    kernel = kernel_in(tmp_path / "mine", params={"block": BLOCKS})
    command = [*kernel, "shape=64x64x64", "search=grid", f"results_dir={tmp_path / 'out'}"]
    assert gpu.sweep(*command) == 130
    table = rows(tmp_path / "out", "confirmed.csv")
    assert [row["blocks"] for row in table] == ["8"] * 4
    assert len(rows(tmp_path / "out")) == 4
    monkeypatch.undo()


def test_several_jobs_confirm_each_its_own(
    gpu: PretendedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = searched(gpu, tmp_path, "-m", "search.seed=0", "shape=64x64x64,32x32x32")
    table = rows(out, "confirmed.csv")
    assert {row["shape"] for row in table} == {"64x64x64", "32x32x32"}
    assert len({row["confirmation"] for row in table}) == 2
    assert [row["vs_default"] for row in rows(out, "best.csv")] == ["faster", "faster"]
