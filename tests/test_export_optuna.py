"""Results as Optuna's studies: what its own loader, and so its dashboard, finds in the file."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from test_export import FAILED, LIBRARY, folder, predicted, trial

from sweeper.export.command import main
from sweeper.export.optuna_trials import distribution
from sweeper.model import Build, Energy, Timing

ROWS = [
    LIBRARY,
    trial({"tile": 8, "order": "row"}, 0.40, 1),
    trial(
        {"tile": 16, "order": "row"},
        0.30,
        2,
        build=Build("k", "nvcc", Path("x"), "tiled", "nvcc", registers=40),
    ),
    trial(
        {**FAILED.params, "order": "column"}, 0.1, 3, status=FAILED.status, timing=None, reason="7 is wrong"
    ),
]


def export(run: Path, output: Path | str, *more: str) -> int:
    return main([str(run), "--format", "optuna", "--output", str(output), *more])


def load(path: Path, name: str = "s") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("runs") / "run", ROWS)


@pytest.fixture(scope="module")
def made(run: Path) -> Path:
    """The file that is exported from it; making one takes Optuna half a second."""
    path = run.with_name("o.db")
    assert export(run, path) == 0
    return path


@pytest.fixture
def exported(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(made, tmp_path / "o.db"))


def test_every_configuration_is_a_trial_with_its_time_or_its_failure(exported: Path) -> None:
    study = load(exported)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert [t.params["tile"] for t in study.trials] == [8, 16, 32]
    assert [t.number for t in study.trials] == [0, 1, 2]
    assert (study.best_params, study.best_value) == ({"tile": 16, "order": "row"}, pytest.approx(0.30))
    assert study.metric_names == ["time_ms"]
    assert study.trials[0].distributions == {
        "tile": IntDistribution(8, 32, log=True), "order": CategoricalDistribution(["column", "row"]),
    }  # fmt: skip
    best, failed = study.trials[1].user_attrs, study.trials[2].user_attrs
    assert (best["registers"], best["status"], best["samples"], best["trial"]) == (40, "ok", 7, 2)
    assert (failed["status"], failed["reason"]) == ("wrong_result", "7 is wrong")
    assert study.trials[2].value is None
    assert study.user_attrs["libraries_ms"] == {"cublas": 0.5}
    assert (study.user_attrs["kernel"], study.user_attrs["shape"]) == ("tiled", "small")


def test_optunas_own_tools_take_the_study_and_go_on_with_it(exported: Path) -> None:
    study = load(exported)
    assert study.trials_dataframe().shape[0] == 3
    study.optimize(lambda t: t.suggest_int("tile", 8, 32, log=True) * 1.0, n_trials=1)
    assert len(load(exported).trials) == 4


def test_every_study_of_every_folder_has_a_name_of_its_own(run: Path, tmp_path: Path) -> None:
    other = folder(tmp_path / "again", [*ROWS, trial({"width": 4}, 1.0, 1, study="o", kernel="other")])
    assert main([str(run), str(other), "--format", "optuna", "--output", str(tmp_path / "o.db")]) == 0
    names = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'o.db'}")
    assert sorted(names) == ["o", "s", "s (again)"]
    assert (
        main([str(other), "--format", "optuna", "--output", str(tmp_path / "p.db"), "--kernel", "other"]) == 0
    )
    assert optuna.get_all_study_names(f"sqlite:///{tmp_path / 'p.db'}") == ["o"]


def test_energy_is_the_value_where_it_was_the_objective(tmp_path: Path) -> None:
    timing = Timing((0.4,) * 7, "events", "warm", energy=Energy(0.02, 0.01, 0.03, 300.0, "counter"))
    thrifty = trial({"tile": 8}, 0.4, timing=timing, details={"objective": "energy"})
    run = folder(tmp_path / "run", [thrifty])
    assert export(run, tmp_path / "o.db") == 0
    study = load(tmp_path / "o.db")
    assert (study.metric_names, study.best_value) == (["energy_j"], pytest.approx(0.02))


def test_an_export_is_replaced_and_nothing_else_is(
    run: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(run, exported) == 0
    study = load(exported)
    assert len(study.trials) == 3
    study.add_trial(optuna.create_trial(value=1.0))
    before = exported.read_bytes()
    assert export(run, exported) == 2
    assert "holds more than an export" in capsys.readouterr().err
    assert exported.read_bytes() == before


def test_a_database_gets_the_studies_unless_it_has_one_of_the_name(
    run: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{exported}"
    optuna.create_study(study_name="mine", storage=url)
    other = folder(tmp_path / "run", [trial({"width": 4}, 1.0, 1, study="o", kernel="other")])
    assert export(other, url) == 0
    assert sorted(optuna.get_all_study_names(url)) == ["mine", "o", "s"]
    assert main([str(other), str(run), "--format", "optuna", "--output", url]) == 2
    assert "has a study 'o' already" in capsys.readouterr().err
    assert [len(load(exported, name).trials) for name in ("mine", "o", "s")] == [0, 1, 3]


def test_a_database_is_left_as_it_was_where_a_study_cannot_be_written(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeper.export import optuna_study

    other = folder(tmp_path / "run", [trial({"width": 4}, 1.0, 1, study="o", kernel="other")])

    def fail(*_: Any) -> None:
        raise optuna_study.StorageError("the disk is full")

    monkeypatch.setattr(optuna_study, "add_trials", fail)
    assert export(other, f"sqlite:///{exported}") == 4
    assert optuna.get_all_study_names(f"sqlite:///{exported}") == ["s"]
    before = exported.read_bytes()
    assert export(other, exported) == 4
    assert exported.read_bytes() == before


def test_a_database_that_cannot_be_opened_is_one_error_without_its_password(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(run, "nosuch://me:secret@host/db") == 4
    said = capsys.readouterr().err
    assert said.startswith("error: Optuna cannot open nosuch://me:***@host/db")
    assert "secret" not in said


def test_predicted_times_have_to_be_asked_for(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", [predicted({"tile": 8}, 0.1)])
    assert export(run, tmp_path / "o.db") == 1
    assert export(run, tmp_path / "o.db", "--allow-predicted") == 0
    assert load(tmp_path / "o.db").trials[0].user_attrs["time_source"] == "predicted"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([8, 32, 16], IntDistribution(8, 32, log=True)),
        ([1, 2], IntDistribution(1, 2)),
        ([96, 32, 64], IntDistribution(32, 96, step=32)),
        ([0, 1, 5], IntDistribution(0, 5)),
        ([7, 7], IntDistribution(7, 7)),
        ([0.5, 1], FloatDistribution(0.5, 1.0)),
        ([True, False, True], CategoricalDistribution([False, True])),
        (["b", "a", "b"], CategoricalDistribution(["a", "b"])),
        ([1, "a", True], CategoricalDistribution([True, 1, "a"])),
    ],
)
def test_levels_become_the_range_or_the_categories_that_suit(values: list[Any], expected: Any) -> None:
    found = distribution(values)
    assert found == expected
    assert all(found._contains(found.to_internal_repr(value)) for value in values)


def test_a_big_table_is_written_a_table_at_a_time(tmp_path: Path) -> None:
    """Not a trial at a time, which takes Optuna 0.1 s each."""
    rows = [trial({"tile": n}, 1.0 + n, n) for n in range(1, 501)]
    run = folder(tmp_path / "run", [])
    from sweeper.table import frame, write_csv

    (run / "study.db").unlink()
    write_csv(frame(rows), run / "trials.csv")
    assert export(run, tmp_path / "o.db") == 0
    with sqlite3.connect(tmp_path / "o.db") as connection:
        assert connection.execute("SELECT COUNT(*), MAX(number) FROM trials").fetchone() == (500, 499)
    assert load(tmp_path / "o.db").best_params == {"tile": 1}
