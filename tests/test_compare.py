"""Two results against each other: what is claimed of a row, what is not, and what a command ends with."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.compare import (
    BETWEEN_RUNS,
    MATCH,
    Compared,
    Comparison,
    Estimate,
    Filter,
    Row,
    Settings,
    compare,
    compare_rows,
)
from sweeper.compare.command import main
from sweeper.compare.ratio import adjusted, geometric_mean, of_interval, of_samples, ratio, verdict
from sweeper.compare.report import COLUMNS, FORMATS, render
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.model import Confirmed, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.results import Results
from sweeper.statistics import Verdict
from sweeper.table import frame, write_csv

ROOT = Path(__file__).parents[1]
H200 = ROOT / "results" / "h200"
STEADY = (1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001, 0.999, 1.0, 1.0)


def trial(
    params: Mapping[str, Any], samples: Sequence[float] = STEADY, ms: float = 1.0, **more: Any
) -> Trial:
    """A valid configuration of a kernel that took `ms` times `samples`."""
    values: dict[str, Any] = {
        "study": "tiled-float32-small-0",
        "number": 1,
        "context": "0",
        "kernel": "tiled",
        "dtype": "float32",
        "shape": "small",
        "dims": {"M": 512, "N": 512, "K": 512},
        "status": Status.OK,
        "stage": Stage.DONE,
        "time_source": TimeSource.MEASURED,
        "timing": Timing(tuple(ms * s for s in samples), "events", "cold"),
        "backend": "cuda",
        "device": "NVIDIA H200",
    }
    return Trial(params=dict(params), **{**values, **more})


def failed(params: Mapping[str, Any], status: Status = Status.WRONG_RESULT, **more: Any) -> Trial:
    return trial(
        params,
        status=status,
        stage=Stage.VERIFY,
        timing=None,
        time_source=None,
        **{"reason": "3 elements are wrong", **more},
    )


def predicted(params: Mapping[str, Any], ms: float, **more: Any) -> Trial:
    return trial(
        params, timing=None, time_source=TimeSource.PREDICTED, predicted_ms=ms, backend="emulator", **more
    )


def results(*trials: Trial, name: str = "some", finals: Sequence[Confirmed] = (), **run: Any) -> Results:
    numbered = [_numbered(one, place) for place, one in enumerate(trials, 1)]
    timings = {(t.study, t.number): t.timing.samples_ms for t in numbered if t.timing is not None}
    return Results(Path(name), name, frame(numbered), tuple(finals), (run,) if run else (), timings)


def _numbered(one: Trial, place: int) -> Trial:
    return replace(one, number=place if one.role is Role.CANDIDATE else -place)


def verdicts(comparison: Comparison) -> list[str]:
    return [row.verdict.value for row in comparison.rows]


def against(a: Trial | Results, b: Trial | Results, **more: Any) -> Comparison:
    of, to = ([one] if isinstance(one, Results) else [results(one)] for one in (a, b))
    return compare(of, to, Settings(**more))


def timed(samples: Sequence[float], ms: float = 1.0) -> Row:
    """A row as a table would give it, made without one."""
    times = {"cold": of_samples([ms * sample for sample in samples])}
    return Row("s", 1, "candidate", "tiled", "float32", "small", {"M": 1}, {"t": 1}, "ok", "", "measured", "",
               cache="cold", times=times)  # fmt: skip


def row_of(a: Row, b: Row) -> Compared:
    (row,) = compare_rows([a], [b], Settings(), MATCH).rows
    return row


# What a row may be called


noise = st.lists(st.floats(0.9, 1.1), min_size=1, max_size=40)


@given(noise)
def test_a_result_is_neither_faster_nor_slower_than_itself(samples: list[float]) -> None:
    row = row_of(timed(samples), timed(samples))
    assert row.verdict in (Verdict.SAME, Verdict.UNSURE)
    assert row.ratio.ratio == 1


@given(noise, noise, st.floats(0.5, 2))
def test_the_other_way_round_everything_is_the_other_way_round(
    a: list[float], b: list[float], factor: float
) -> None:
    turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    one, other = row_of(timed(a), timed(b, factor)), row_of(timed(b, factor), timed(a))
    assert other.verdict is turned.get(one.verdict, one.verdict)
    assert other.ratio.ratio == pytest.approx(1 / one.ratio.ratio)
    assert other.interval.low == pytest.approx(1 / one.interval.high, nan_ok=True)
    assert other.chance == pytest.approx(one.chance)


@given(st.lists(st.floats(0.997, 1.003), min_size=6, max_size=40), st.floats(1e-4, 1e3))
def test_ten_per_cent_more_is_slower_and_less_is_faster(samples: list[float], ms: float) -> None:
    assert row_of(timed(samples, ms), timed(samples, 1.1 * ms)).verdict is Verdict.SLOWER
    assert row_of(timed(samples, ms), timed(samples, ms / 1.1)).verdict is Verdict.FASTER


def test_a_difference_that_nobody_would_act_on_is_none() -> None:
    a, b = trial({"tile": 8}, [1.0] * 20), trial({"tile": 8}, [1.003] * 20)
    assert verdicts(against(a, b)) == ["same"]
    assert verdicts(against(a, b, least_effect=0.001, between_runs=0.0)) == ["slower"]


def test_samples_that_agree_do_not_speak_for_another_run() -> None:
    """Each run's samples are equal to the last digit, and the two runs 0.4 % apart: that is what runs do."""
    a, b = trial({"tile": 8}, [1.0] * 50), trial({"tile": 8}, [1.004] * 50)
    (row,) = against(a, b, least_effect=0.001).rows
    assert row.verdict is Verdict.UNSURE
    assert row.interval.low < 1 < row.interval.high


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_samples_tell_nothing(count: int) -> None:
    (row,) = against(trial({"tile": 8}, [1.0] * count), trial({"tile": 8}, [2.0] * count)).rows
    assert row.verdict is Verdict.UNSURE
    assert math.isnan(row.interval.low)


@pytest.mark.parametrize("samples", [4, 10, 30])
@pytest.mark.parametrize("run_sd", [0.0, BETWEEN_RUNS])
def test_how_often_it_errs(samples: int, run_sd: float) -> None:
    """Of 40 comparisons of 25 equal rows few claim any difference, and of 1000 intervals few leave out 1."""
    rng = np.random.default_rng(7)
    rows, families, missed = 25, 40, 0
    false_alarms = 0
    for _ in range(families):
        ratios = []
        for _ in range(rows):
            runs = [
                np.exp(rng.normal(0, run_sd) + 0.005 * rng.standard_t(4, samples)).tolist() for _ in range(2)
            ]
            ratios.append(ratio(of_samples(runs[0]), of_samples(runs[1]), run_sd))
        chances = adjusted([one.chance() for one in ratios])
        said = [verdict(one, chance, 0.001) for one, chance in zip(ratios, chances, strict=True)]
        false_alarms += any(one in (Verdict.FASTER, Verdict.SLOWER) for one in said)
        missed += sum(one.chance() <= 0.05 for one in ratios)
    assert false_alarms <= 0.05 * families + 3 * math.sqrt(0.05 * families)
    assert missed <= 0.065 * rows * families


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_what_holds_for_all_rows_is_never_easier_than_for_one(chances: list[float]) -> None:
    found = adjusted(chances)
    assert all(own <= both <= 1 for own, both in zip(chances, found, strict=True))
    assert min(found) == pytest.approx(min(1.0, len(chances) * min(chances)))
    assert [found[i] for i in np.argsort(chances)] == sorted(found)


def test_a_row_that_is_sure_alone_may_not_be_among_many() -> None:
    slow = [trial({"tile": t}, STEADY, 1.007 if t == 0 else 1.0) for t in range(40)]
    plain = [trial({"tile": t}) for t in range(40)]
    alone, among = (against(results(*plain[:n]), results(*slow[:n]), least_effect=0.001) for n in (1, 40))
    assert alone.rows[0].verdict is Verdict.SLOWER
    assert among.rows[0].verdict is Verdict.UNSURE
    assert among.rows[0].interval == alone.rows[0].interval


def test_a_table_without_samples_is_taken_by_its_intervals_and_conservatively() -> None:
    of_raw = of_samples(STEADY)
    of_table = of_interval(1.0, 0.998, 1.002, 10)
    assert of_table.error >= of_raw.error
    lopsided = of_interval(1.0, 0.99, 1.0, 10)
    assert lopsided.error == pytest.approx(of_interval(1.0, 0.99, 1.01, 10).error, rel=0.01)
    assert math.isnan(of_interval(1.0, math.nan, math.nan, 10).error)


def test_samples_that_depend_on_each_other_count_for_less() -> None:
    steps = np.repeat(np.exp(np.random.default_rng(3).normal(0, 0.01, 10)), 10)
    shuffled = np.random.default_rng(4).permutation(steps)
    assert of_samples(steps.tolist()).worth < of_samples(shuffled.tolist()).worth / 2
    assert of_samples(steps.tolist()).error > of_samples(shuffled.tolist()).error


def test_the_mean_of_many_rows_is_no_surer_than_the_run_they_are_of() -> None:
    rows = [ratio(Estimate(1.0, 0.002, 30), Estimate(1.02, 0.002, 30)) for _ in range(400)]
    mean = geometric_mean(rows)
    assert mean.ratio == pytest.approx(1.02)
    assert mean.high / mean.ratio - 1 == pytest.approx(1.96 * math.sqrt(2) * BETWEEN_RUNS, rel=0.05)
    with pytest.raises(ValueError, match="no ratio"):
        geometric_mean([])


# Which rows are compared


def test_rows_are_matched_by_what_they_are_and_not_by_what_they_are_called() -> None:
    """Another study, another number, a shape by another name, parameters in another order."""
    a = trial({"bm": 1, "bn": 2})
    b = trial({"bn": 2, "bm": 1}, shape="512x512x512", study="other", context="1", device="NVIDIA A100")
    assert verdicts(against(a, b)) == ["same"]


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "naive"},
        {"dtype": "float16"},
        {"dims": {"M": 512, "N": 512, "K": 513}},
        {"shape": "small-nt"},
        {"role": Role.BASELINE},
    ],
)
def test_what_is_something_else_is_not_compared(change: dict[str, Any]) -> None:
    with pytest.raises(NoValidConfiguration, match="no row of"):
        against(trial({"tile": 8}), trial({"tile": 8}, **change))


def test_what_only_one_has_is_told() -> None:
    comparison = against(
        results(trial({"tile": 8}), trial({"tile": 16})), results(trial({"tile": 8}), trial({"tile": 32}))
    )
    assert [row.params for row in comparison.only_a] == [{"tile": 16}]
    assert [row.params for row in comparison.only_b] == [{"tile": 32}]
    assert "1 only in A; 1 only in B" in render(comparison, "text")


def test_a_prediction_is_never_compared_with_a_measurement() -> None:
    comparison = against(
        results(trial({"tile": 8}), trial({"tile": 16})),
        results(trial({"tile": 16}), predicted({"tile": 8}, 1.0)),
    )
    assert len(comparison.rows) == 1
    assert [one.why for one in comparison.unlike] == ["measured against predicted"]
    assert "UNLIKE  tiled small tile=8: measured against predicted" in render(comparison, "text")


def test_predictions_are_compared_exactly() -> None:
    tiles = (8, 16, 32)
    a = results(*(predicted({"tile": t}, 1.0) for t in tiles))
    b = results(*(predicted({"tile": t}, ms) for t, ms in zip(tiles, (1.0, 1.02, 0.9), strict=True)))
    comparison = against(a, b)
    assert verdicts(comparison) == ["same", "slower", "faster"]
    assert "exact" in render(comparison, "text")


def test_each_state_of_the_cache_is_compared_with_its_own() -> None:
    warm = Timing(STEADY, "events", "warm")
    both = Timing(tuple(2 * s for s in STEADY), "events", "cold", beside=warm)
    comparison = against(trial({"tile": 8}, timing=both), trial({"tile": 8}, timing=warm))
    assert [(row.cache, row.verdict) for row in comparison.rows] == [("warm", Verdict.SAME)]
    cold_then_warm = results(trial({"tile": 8}), trial({"tile": 8}, timing=warm))
    assert [row.cache for row in against(cold_then_warm, cold_then_warm, best=True).rows] == ["cold", "warm"]
    assert [row.cache for row in against(cold_then_warm, trial({"tile": 8})).rows] == ["cold"]
    unlike = against(trial({"tile": 8}), trial({"tile": 8}, timing=warm)).unlike
    assert [one.why for one in unlike] == ["cold against warm"]


def test_of_a_configuration_that_was_measured_twice_the_latest_row_counts() -> None:
    comparison = against(results(trial({"tile": 8}, ms=2.0), trial({"tile": 8})), trial({"tile": 8}))
    assert verdicts(comparison) == ["same"]
    assert comparison.again == (1, 0)


def test_another_kernel_is_compared_where_kernels_are_no_part_of_the_match() -> None:
    naive = results(trial({"x": 1}, ms=4.0, kernel="naive"), trial({"x": 2}, ms=3.0, kernel="naive"))
    tiled = results(trial({"tile": 8}, ms=2.0), trial({"tile": 16}))
    comparison = against(naive, tiled, best=True, match=("dtype", "shape", "role", "cache"))
    (row,) = comparison.rows
    assert (row.a.params, row.b.params, row.verdict) == ({"x": 2}, {"tile": 16}, Verdict.FASTER)
    assert "→ tiled tile=16" in render(comparison, "text")
    with pytest.raises(ConfigError, match="do not tell x=1 from x=2"):
        against(naive, tiled, match=("dtype", "shape", "role"))


def test_devices_tell_rows_apart_only_where_both_have_the_same_ones() -> None:
    two = [trial({"tile": 8}), trial({"tile": 8}, ms=2.0, device="NVIDIA A100")]
    assert verdicts(against(results(*two), results(*two))) == ["same", "same"]
    with pytest.raises(ConfigError, match="A has rows of 2 devices") as error:
        against(results(*two), two[1])
    assert "a.device=NVIDIA H200" in str(error.value)
    only = (Filter("a", "device", "NVIDIA H200"),)
    assert verdicts(against(results(*two), two[1], only=only)) == ["slower"]


# The best of each


def test_the_best_is_compared_even_where_it_is_another_configuration() -> None:
    a = results(trial({"tile": 8}), trial({"tile": 16}, ms=1.5))
    b = results(trial({"tile": 8}, ms=2.0), trial({"tile": 16}, ms=1.5))
    (row,) = against(a, b, best=True).rows
    assert (row.a.params, row.b.params) == ({"tile": 8}, {"tile": 16})
    assert row.changed
    assert row.ratio.ratio == pytest.approx(1.5)


def test_a_best_one_that_was_confirmed_in_turns_counts_by_these() -> None:
    """The search liked 16 for a lucky time; in turns 8 won, at another time."""
    shared = Confirmed("c", "", "tiled-float32-small-0", "tiled", "float32", "small", {}, cache="cold")
    blocks = tuple(1.2 * s for s in STEADY)
    finals = [
        replace(shared, params={"tile": 8}, blocks_ms=blocks),
        replace(shared, params={"tile": 16}, blocks_ms=tuple(2 * b for b in blocks)),
    ]
    searched = results(trial({"tile": 8}), trial({"tile": 16}, ms=0.9), finals=finals)
    (row,) = against(searched, trial({"tile": 8}, ms=1.2), best=True).rows
    assert row.a.params == {"tile": 8}
    assert row.a.confirmed
    assert row.a_ms == pytest.approx(1.2)
    assert row.verdict is Verdict.SAME


def test_a_kernel_with_nothing_valid_left_got_worse() -> None:
    comparison = against(
        results(trial({"tile": 8}), failed({"tile": 16})),
        results(failed({"tile": 8}), failed({"tile": 16})),
        best=True,
    )
    assert [(change.a.status, change.b.status) for change in comparison.worse] == [("ok", "wrong_result")]


# How rows ended


def test_statuses_that_changed_are_told_worse_ones_first() -> None:
    a = results(trial({"t": 1}), failed({"t": 2}), failed({"t": 3}), failed({"t": 4}))
    b = results(failed({"t": 1}), trial({"t": 2}), failed({"t": 3}), failed({"t": 4}, Status.CRASH))
    comparison = against(a, b)
    assert [(change.worse, change.mended) for change in comparison.changes] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert comparison.failed == 1
    said = render(comparison, "text")
    assert "WORSE   tiled small t=1: ok → wrong_result (3 elements are wrong)" in said
    assert said.index("WORSE") < said.index("MENDED")
    assert "1 valid in A, failed in B; 1 failed in A, valid in B; 1 failed otherwise; 1 failed alike" in said


# What else differs


def test_what_was_not_the_same_is_said_above_the_table() -> None:
    a = results(
        trial({"tile": 8}, kernel_digest="aaaaaaaaaaaa", driver="580.1", device_uuid="GPU-1"),
        config={"measure": {"max_samples": 100, "confirm": 4}},
        packages={"numpy": "2.0"},
        git={"commit": "1" * 40, "dirty": False},
    )
    b = results(
        trial({"tile": 8}, kernel_digest="bbbbbbbbbbbb", driver="590.2", device="NVIDIA A100"),
        config={"measure": {"max_samples": 15, "confirm": 0}},
        packages={"numpy": "2.1"},
        git={"commit": "2" * 40, "dirty": True},
    )
    assert list(against(a, b).differences) == [
        "device: NVIDIA H200 → NVIDIA A100",
        "driver: 580.1 → 590.2",
        "source: tiled aaaaaaaa → bbbbbbbb",
        "protocol: max_samples 100 → 15",
        "commit: 111111111111 → 222222222222 with changes",
        "packages: numpy 2.0 → 2.1",
    ]
    assert not against(a, a).differences


# The command


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tables of four configurations: as they were, with one slower by 3 %, and with one that fails."""
    folder = tmp_path_factory.mktemp("tables")
    tiles = (8, 16, 24, 32)
    made = {
        "before": [trial({"tile": t}) for t in tiles],
        "slower": [trial({"tile": t}, ms=1.03 if t == 16 else 1.0) for t in tiles],
        "broken": [failed({"tile": t}) if t == 16 else trial({"tile": t}) for t in tiles],
        "other": [trial({"tile": 8}, kernel="naive")],
    }
    for name, trials in made.items():
        write_csv(results(*trials).trials, folder / f"{name}.csv")
    return {name: str(folder / f"{name}.csv") for name in made}


@pytest.mark.parametrize(
    ("b", "asked", "code"),
    [
        ("before", ["--fail-on-slower", "2%", "--fail-on-failure"], 0),
        ("slower", [], 0),
        ("slower", ["--fail-on-slower", "2%"], 1),
        ("slower", ["--fail-on-slower", "0.02"], 1),
        ("slower", ["--fail-on-slower", "5%"], 0),
        ("slower", ["--fail-on-failure"], 0),
        ("broken", [], 0),
        ("broken", ["--fail-on-failure"], 1),
        ("broken", ["--fail-on-slower", "2%"], 0),
        ("other", [], 1),
        ("before", ["--fail-on-slower", "2"], 2),
        ("before", ["--fail-on-slower", "slow"], 2),
        ("before", ["--match", "kernle"], 2),
        ("before", ["--only", "kernel"], 2),
        ("before", ["--only", "kernel=naive"], 1),
        ("before", ["--format", "xml"], 2),
        ("before", ["--top", "many"], 2),
    ],
)
def test_exit_codes(
    b: str, asked: list[str], code: int, tables: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([tables["before"], tables[b], *asked]) == code
    captured = capsys.readouterr()
    assert bool(captured.err) == bool(code)
    assert "Traceback" not in captured.err


def test_what_cannot_be_read_is_a_storage_error(
    tables: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([tables["before"], str(tmp_path / "nothing")]) == 4
    assert "no such file or folder" in capsys.readouterr().err


def test_every_format_tells_every_row(tables: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for form in FORMATS:
        assert main([tables["before"], tables["slower"], "--format", form, "--fail-on-slower", "2%"]) == 1
        said[form] = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(said["csv"])))
    assert [row["verdict"] for row in rows] == ["same", "slower", "same", "same"]
    assert [row["too_slow"] for row in rows] == ["false", "true", "false", "false"]
    assert list(rows[0]) == [name for name, _, _ in COLUMNS]
    told = json.loads(said["json"])
    assert told["counts"] == {"faster": 0, "slower": 1, "same": 3, "unsure": 0}
    assert [float(row["ratio"]) for row in rows] == [row["ratio"] for row in told["rows"]]
    assert "| SLOWER | tiled small tile=16 | 1 ms | 1.03 ms | 1.030 |" in said["md"]
    assert re.search(r"^SLOWER  tiled small tile=16 .* 1\.030", said["text"], re.MULTILINE)
    assert "1 row is surely more than 2 % slower" in said["text"]


def test_the_text_fits_a_hundred_columns_however_long_its_names_are() -> None:
    long = {f"parameter_{i}": 128 for i in range(12)}
    name, shape = "a_kernel_with_quite_a_name" * 2, "4096x4096x4096-lda4104-ldb4104-ldc4104-nt"
    a = results(trial(long, kernel=name, shape=shape), trial({"t": 1}), driver="580." * 20)
    b = results(
        trial({**long, "parameter_0": 64}, kernel=name, shape=shape), failed({"t": 1}, reason="because " * 40)
    )
    said = render(against(a, b, best=True), "text")
    assert max(map(len, said.splitlines())) <= 100
    assert "parameter_11=128" in said


def test_as_many_rows_are_shown_as_were_asked_for(
    tables: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([tables["before"], tables["slower"], "--top", "1"]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"^(?:SAME|SLOWER) ", said, re.MULTILINE)) == 1
    assert "… 3 more rows" in said


# The documentation

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^python -m sweeper\.compare ([^#\n]*)", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", DOCUMENTED)
def test_the_commands_of_the_page_run(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_the_table_of_the_page_is_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert main(shlex.split(DOCUMENTED[0])) == 0
    assert capsys.readouterr().out == shown


def test_the_program_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "compare.md", "exec"), {})  # noqa: S102 - the page's own program
    assert "tiled tile=32" in capsys.readouterr().out


def test_the_page_has_every_column_and_the_codes_numbers() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
    assert [row for row in rows if row[0] in {name for name, _, _ in COLUMNS}] == list(COLUMNS)
    assert f"{100 * BETWEEN_RUNS:g} %" in PAGE
    assert f"`--match {','.join(MATCH)}`" in PAGE


@settings(max_examples=20)
@given(st.floats(0.001, 0.99))
def test_a_share_is_said_in_either_way(share: float) -> None:
    from sweeper.compare.settings import fraction

    assert fraction(f"{share!r}", "--x") == share
    assert fraction(f"{100 * share!r}%", "--x") == pytest.approx(share)
