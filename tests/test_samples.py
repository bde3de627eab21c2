"""The columns of what was sampled, and every raw sample as a table of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")
pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.model import Role, Timing  # noqa: E402
from sweeper.store import Store  # noqa: E402
from sweeper.table import COLUMNS, frame  # noqa: E402
from sweeper.table.samples import run, samples_frame  # noqa: E402

COLD = Timing(
    (1.0, 1.2, 1.1, 1.3, 1.05, 1.15),
    "events",
    "cold",
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    power_w=412.5,
    temperature_c=55.0,
    stopped_by="max_samples",
    discarded=2,
    locked="base",
    beside=Timing((0.5, 0.7, 0.6), "events", "warm", note="stopped at max_samples: no interval"),
)


def cells(timing: Timing | None) -> dict[str, object]:
    (row,) = frame([trial(1, timing=timing)]).to_dict("records")
    return row


def test_cold_and_warm_have_columns_of_their_own_and_the_first_one_ranks() -> None:
    row = cells(COLD)
    assert (row["time_ms"], row["cache"]) == (1.125, "cold")
    assert (row["cold_ms"], row["cold_low_ms"], row["cold_high_ms"]) == (1.125, 1.0, 1.3)
    assert row["warm_ms"] == 0.6
    assert pd.isna(row["warm_low_ms"])
    assert "warm: stopped at max_samples" in str(row["note"])


def test_what_was_not_measured_is_blank_whatever_was() -> None:
    row = cells(Timing((1.0,) * 6, "events", "warm"))
    assert (row["time_ms"], row["warm_ms"]) == (1.0, 1.0)
    assert pd.isna(row["cold_ms"])
    none = cells(None)
    names = {column.name for column in COLUMNS}
    for name in ("cold_ms", "warm_high_ms", "power_w", "discarded_samples", "effective_samples"):
        assert name in names
        assert pd.isna(none[name])


def test_how_the_samples_were_taken_is_in_the_row() -> None:
    row = cells(COLD)
    assert (row["stopped_by"], row["discarded_samples"], row["locked_clock"]) == ("max_samples", 2, "base")
    assert (row["memory_clock_mhz"], row["power_w"], row["temperature_c"]) == (3201.0, 412.5, 55.0)
    assert row["effective_samples"] == 6.0


def test_samples_that_depend_on_each_other_are_worth_less_and_the_interval_says_so() -> None:
    steps = tuple(1.0 + 0.01 * (i // 10 % 2) for i in range(60))
    shuffled = tuple(steps[(7 * i) % 60] for i in range(60))
    one, other = (cells(Timing(samples, "events", "cold")) for samples in (steps, shuffled))
    assert one["effective_samples"] < other["effective_samples"] <= 60


def test_every_raw_sample_has_a_row_in_the_order_they_were_taken() -> None:
    table = samples_frame([trial(1, timing=COLD), trial(2, timing=None)])
    assert list(table.columns) == [
        *("study", "trial", "role", "kernel", "shape", "params", "cache", "sample", "time_ms")
    ]
    assert table["time_ms"].tolist() == [*COLD.samples_ms, 0.5, 0.7, 0.6]
    assert table["cache"].tolist() == ["cold"] * 6 + ["warm"] * 3
    assert table["sample"].tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert set(table["role"]) == {Role.CANDIDATE.value}
    assert json.loads(table["params"][0]) == dict(trial(1).params)


def test_the_samples_of_a_store_are_written_as_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "study.db") as store:
        store.add(trial(1, timing=COLD))
    assert run([str(tmp_path / "study.db"), str(tmp_path / "samples.csv")]) == 0
    assert pd.read_csv(tmp_path / "samples.csv")["time_ms"].tolist() == [*COLD.samples_ms, 0.5, 0.7, 0.6]
    assert "9 samples" in capsys.readouterr().out


def test_a_store_that_is_not_there_is_an_error_and_none_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path / "no.db"), str(tmp_path / "samples.csv")]) == 4
    assert "there is no store" in capsys.readouterr().err
    assert not (tmp_path / "no.db").exists()
    assert run([]) == 2


def test_both_timings_come_back_from_the_store(tmp_path: Path) -> None:
    with Store(tmp_path / "study.db") as store:
        store.add(trial(1, timing=COLD))
        (found,) = store.trials()
    assert found.timing == COLD
