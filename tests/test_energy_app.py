"""The command line with energy for an objective, on a pretended GPU and where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_rig import PretendedGpu, kernel_in, rows, sweep

from sweeper.store import Store

BLOCKS = [8, 16, 24, 32]
# Of the pretended GPU: 32 is the fastest, 16 takes least, 8 is beaten in both.
FASTEST, THRIFTIEST = 32, 16


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedGpu:
    return PretendedGpu(tmp_path / "gpu", monkeypatch, name="h200")


def searched(gpu: PretendedGpu, folder: Path, *more: object, code: int = 0) -> Path:
    out = folder / "out"
    kernel = kernel_in(folder / "mine", params={"block": BLOCKS})
    command = [*kernel, "shape=64x64x64", "search=grid", f"results_dir={out}", *more]
    assert gpu.sweep(*command) == code
    return out


def test_the_thriftiest_is_the_best_where_energy_is_the_objective(
    gpu: PretendedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = searched(gpu, tmp_path, "measure.objective=energy")
    (best,) = rows(out, "best.csv")
    assert json.loads(best["params"]) == {"block": THRIFTIEST}
    assert best["objective"] == "energy"
    assert float(best["energy_j"]) == pytest.approx((200 + 16**2) / 16 / 1e3)
    said = capsys.readouterr().out
    assert "best 28.5 mJ with block=16" in said
    assert "not confirmed: finalists are compared by their times, and the objective is energy" in said
    assert "GFLOP/s/W" in said
    assert not (out / "confirmed.csv").exists()


def test_both_give_the_front_on_the_screen_and_in_the_folder(
    gpu: PretendedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = searched(gpu, tmp_path, "measure.objective=both")
    front = rows(out, "pareto.csv")
    assert [json.loads(row["params"])["block"] for row in front] == [FASTEST, 24, THRIFTIEST]
    assert [float(row["time_percent"]) for row in front] == pytest.approx([0, 100 / 3, 100])
    assert float(front[0]["energy_percent"]) == pytest.approx(100 * (38.25 / 28.5 - 1))
    said = capsys.readouterr().out
    assert "3 that no other beats in both time and energy, of 4" in said
    (best,) = rows(out, "best.csv")
    assert json.loads(best["params"]) == {"block": FASTEST}


@pytest.mark.parametrize("search", ["nsgaii", "tpe"])
def test_a_sampler_searches_for_both(gpu: PretendedGpu, tmp_path: Path, search: str) -> None:
    out = searched(gpu, tmp_path, "measure.objective=both", f"search={search}")
    assert len(rows(out)) == 4
    assert len(rows(out, "pareto.csv")) == 3


def test_time_alone_has_no_energies_and_no_front(gpu: PretendedGpu, tmp_path: Path) -> None:
    out = searched(gpu, tmp_path)
    assert not (out / "pareto.csv").exists()
    assert {row["energy_j"] + row["energy_source"] + row["objective"] for row in rows(out)} == {""}


def test_times_of_a_run_without_energies_do_not_answer_for_one_with_them(
    gpu: PretendedGpu, tmp_path: Path
) -> None:
    searched(gpu, tmp_path, "measure.confirm=0")
    out = searched(gpu, tmp_path, "measure.objective=energy", "measure.confirm=0")
    assert len(gpu.measured) == 8
    searched(gpu, tmp_path, "measure.objective=energy", "measure.confirm=0")
    assert len(gpu.measured) == 8
    with Store(out / "study.db") as store:
        assert sum(trial.energy is not None for trial in store.trials()) == 4


def test_recorded_energies_can_be_replayed(gpu: PretendedGpu, tmp_path: Path) -> None:
    out = searched(gpu, tmp_path, "measure.objective=both", "measure.confirm=0")
    kernel = kernel_in(tmp_path / "mine", params={"block": BLOCKS})
    for table in ("trials.csv", "study.db"):
        again = tmp_path / f"again-{table}"
        command = [*kernel, "shape=64x64x64", "search=grid", "measure.objective=energy", "resume=false"]
        assert sweep(*command, f"backend.path={out / table}", f"results_dir={again}", backend="replay") == 0
        (best,) = rows(again, "best.csv")
        assert json.loads(best["params"]) == {"block": THRIFTIEST}
        assert best["time_source"] == "replayed"


def test_a_table_without_energies_cannot_answer(
    gpu: PretendedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = searched(gpu, tmp_path, "measure.confirm=0")
    kernel = kernel_in(tmp_path / "mine", params={"block": BLOCKS})
    command = [*kernel, "shape=64x64x64", "measure.objective=energy", f"backend.path={out / 'trials.csv'}"]
    assert sweep(*command, f"results_dir={tmp_path / 'again'}", backend="replay") == 2
    assert "holds no energies" in capsys.readouterr().err


def test_the_emulator_cannot_serve_energy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_in(tmp_path / "mine", params={"block": BLOCKS})
    command = [*kernel, "measure.objective=both", f"results_dir={tmp_path / 'out'}"]
    assert sweep(*command) == 2
    said = capsys.readouterr().err
    assert "measure.objective = both needs a GPU to measure: the emulator has no power supply" in said
    assert "write measure.objective=time" in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["measure.objective=enrgy"], "did you mean 'energy'"),
        (
            ["measure.objective=energy", "measure.energy_seconds=0"],
            "measure.energy_seconds = 0.0: 0.05 to 30",
        ),
        (
            ["measure.objective=both", "search=bayes"],
            "use one of tpe, tpe_univariate, nsgaii, qmc, grid, random",
        ),
        (["measure.objective=both", "++search.objective=gflops"], "gflops ranks by time"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_runs(
    given: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(*given, "kernel=tiled", f"results_dir={tmp_path / 'out'}") == 2
    assert says in capsys.readouterr().err


def test_the_energy_of_a_whole_trip_is_no_launchs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernel=whole_trip", "measure.objective=energy", f"results_dir={tmp_path / 'out'}"]
    assert sweep(*command, backend="auto") == 2
    assert "timed from host to host" in capsys.readouterr().err
