"""Replaying a recorded table: the recorded answer to every configuration, and whose it is."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.backend.replay import ReplayTable  # noqa: E402
from sweeper.errors import ConfigError, StorageError, TrialFailed  # noqa: E402
from sweeper.model import Point, Role, Stage, Status, TimeSource, Timing, Trial  # noqa: E402
from sweeper.store import Store  # noqa: E402
from sweeper.table import frame, write_csv  # noqa: E402

DIMS = {"M": 1000, "N": 1000, "K": 1000}
TRIALS = [
    trial(0, role=Role.BASELINE, kernel="cublas", params={"library": "cublas"}),
    trial(1, params={"tile": 16, "layout": "row"}),
    trial(2, params={"tile": 8, "layout": "row"}, timing=Timing((4.0,), "graph×32", "warm")),
    trial(
        3,
        params={"tile": 32, "layout": "column"},
        status=Status.WRONG_RESULT,
        stage=Stage.VERIFY,
        reason="7 of 64 elements wrong",
        timing=None,
        time_source=None,
    ),
]


@pytest.fixture(params=["csv", "db"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def recorded(folder: Path, form: str, trials: list[Trial] = TRIALS) -> Path:
    """The trials as a file of either form."""
    if form == "csv":
        write_csv(frame(trials), folder / "trials.csv")
        return folder / "trials.csv"
    with Store(folder / "study.db") as store:
        for row in trials:
            store.add(row)
    return folder / "study.db"


def test_a_configuration_gets_its_recorded_status_time_and_reason(tmp_path: Path, form: str) -> None:
    table = ReplayTable(recorded(tmp_path, form))
    assert table.lookup({"tile": 16, "layout": "row"}) == (Status.OK, 2.0, "")
    assert table.lookup({"layout": "row", "tile": 8}) == (Status.OK, 4.0, "")
    failed = table.lookup({"tile": 32, "layout": "column"})
    assert failed == (Status.WRONG_RESULT, None, "7 of 64 elements wrong")


def test_a_configuration_that_was_not_recorded_is_infeasible(tmp_path: Path, form: str) -> None:
    path = recorded(tmp_path, form)
    answer = ReplayTable(path).lookup({"tile": 64, "layout": "row"})
    assert answer == (Status.INFEASIBLE, None, f"{path.name} has no such configuration")


def test_the_levels_are_those_of_the_recorded_configurations(tmp_path: Path, form: str) -> None:
    assert ReplayTable(recorded(tmp_path, form)).levels == {
        "tile": (8, 16, 32),
        "layout": ("column", "row"),
    }


def test_an_outcome_says_whose_it_is_and_that_nothing_was_checked(tmp_path: Path, form: str) -> None:
    table = ReplayTable(recorded(tmp_path, form))
    outcome = table.outcome(Point.of({"tile": 8, "layout": "row"}))
    assert outcome.timing is not None
    assert (outcome.timing.samples_ms, outcome.timing.method, outcome.timing.cache) == (
        (4.0,),
        "graph×32",
        "warm",
    )
    assert "measured on NVIDIA H200" in outcome.timing.note
    assert outcome.check.checked == 0
    assert table.time_source is TimeSource.REPLAYED
    assert (table.identity.name, table.identity.uuid) == ("NVIDIA H200", "GPU-1")


def test_a_store_replays_every_sample(tmp_path: Path) -> None:
    outcome = ReplayTable(recorded(tmp_path, "db")).outcome(TRIALS[1].point)
    assert outcome.timing is not None
    assert outcome.timing.samples_ms == (2.0, 2.5, 1.5)


def test_a_failure_is_replayed_as_the_same_failure(tmp_path: Path, form: str) -> None:
    table = ReplayTable(recorded(tmp_path, form))
    with pytest.raises(TrialFailed, match="7 of 64") as caught:
        table.outcome(TRIALS[3].point)
    assert (caught.value.status, caught.value.stage) == (Status.WRONG_RESULT, Stage.VERIFY)
    with pytest.raises(TrialFailed) as caught:
        table.outcome(Point.of({"tile": 1}))
    assert (caught.value.status, caught.value.stage) == (Status.INFEASIBLE, Stage.SPACE)


def test_a_library_is_replayed_by_its_name(tmp_path: Path, form: str) -> None:
    table = ReplayTable(recorded(tmp_path, form))
    timing = table.baseline("cublas").timing
    assert timing is not None
    with pytest.raises(TrialFailed, match="no baseline cublaslt"):
        table.baseline("cublaslt")


def test_a_predicted_table_is_replayed_and_says_so(tmp_path: Path, form: str) -> None:
    rows = [trial(1, time_source=TimeSource.PREDICTED, timing=None, predicted_ms=3.0)]
    timing = ReplayTable(recorded(tmp_path, form, rows)).outcome(rows[0].point).timing
    assert timing is not None
    assert timing.samples_ms == (3.0,)
    assert "predicted on NVIDIA H200" in timing.note


def test_a_valid_row_without_a_usable_time_is_unstable(tmp_path: Path, form: str) -> None:
    rows = [trial(1, timing=Timing((0.0,), "events", "cold"))]
    table = ReplayTable(recorded(tmp_path, form, rows))
    assert table.lookup(rows[0].params).time_ms is None
    with pytest.raises(TrialFailed, match="has no time"):
        table.outcome(rows[0].point)


def test_of_several_problems_one_is_selected(tmp_path: Path, form: str) -> None:
    small = {"M": 64, "N": 64, "K": 64}
    rows = [*TRIALS, trial(1, study="small", dims=small, timing=Timing((0.5,), "events", "cold"))]
    table = ReplayTable(recorded(tmp_path, form, rows))
    assert table.levels == {}
    table.select("tiled", "float32", small)
    assert table.lookup({"tile": 8, "vector": 4}).time_ms == 0.5
    table.select("tiled", "float32", dict(reversed(DIMS.items())))
    assert table.lookup({"tile": 16, "layout": "row"}).time_ms == 2.0


def test_a_problem_that_was_not_recorded_is_refused_with_what_was(tmp_path: Path, form: str) -> None:
    table = ReplayTable(recorded(tmp_path, form))
    with pytest.raises(ConfigError, match="no trials of tild") as caught:
        table.select("tild", "float32", DIMS)
    assert "did you mean 'tiled'" in str(caught.value)
    assert "it has tiled (float32) at K=1000 M=1000 N=1000" in str(caught.value)
    with pytest.raises(ConfigError, match="M=1"):
        table.select("tiled", "float32", {**DIMS, "M": 1})


def test_trials_of_two_devices_are_refused(tmp_path: Path, form: str) -> None:
    rows = [trial(1), trial(2, device="NVIDIA A100")]
    with pytest.raises(ConfigError, match="mixes trials of 2 devices: NVIDIA H200 GPU-1, NVIDIA A100"):
        ReplayTable(recorded(tmp_path, form, rows))


def test_a_configuration_recorded_twice_is_replayed_from_its_latest_trial(tmp_path: Path, form: str) -> None:
    rows = [trial(1), trial(2, params=trial(1).params, timing=Timing((7.0,), "events", "cold"))]
    assert ReplayTable(recorded(tmp_path, form, rows)).lookup(trial(1).params).time_ms == 7.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"MWG,NWG,time_ms\n16,16,1.5\n", "no column role"),
        (b"", "no column role"),
        (b"\xff\xfe\n", "utf-8"),
        (b"SQLite format 3\x00 but no more", "not a recorded table"),
    ],
)
def test_a_foreign_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(StorageError, match=message):
        ReplayTable(tmp_path / "table")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    for statement in ("CREATE TABLE songs (x)", "CREATE TABLE trials (id); INSERT INTO trials VALUES (1)"):
        path = tmp_path / f"{len(statement)}.db"
        connection = sqlite3.connect(path)
        connection.executescript(statement)
        connection.close()
        with pytest.raises(StorageError, match="not a recorded table"):
            ReplayTable(path)


@pytest.mark.parametrize(("old", "new"), [(",ok,", ",splendid,"), (",2.0,", ",fast,"), ('""tile""', "tile")])
def test_a_table_changed_by_hand_is_refused_with_the_line(tmp_path: Path, old: str, new: str) -> None:
    path = recorded(tmp_path, "csv")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(StorageError, match=r"line [23]"):
        ReplayTable(path)


def test_a_missing_and_an_empty_table_are_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        ReplayTable(tmp_path / "nothing.csv")
    with pytest.raises(StorageError, match="holds no trials"):
        ReplayTable(recorded(tmp_path, form, []))


def test_a_table_cut_off_is_replayed_without_its_last_line(tmp_path: Path) -> None:
    path = recorded(tmp_path, "csv")
    os.truncate(path, path.stat().st_size - 5)
    with pytest.warns(UserWarning, match="cut off"):
        table = ReplayTable(path)
    assert table.levels["tile"] == (8, 16)


def test_replaying_leaves_the_recorded_folder_as_it_was(tmp_path: Path, form: str) -> None:
    path = recorded(tmp_path, form)
    before: Any = sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())
    ReplayTable(path)
    assert sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir()) == before
