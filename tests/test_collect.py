"""Collecting results: each key once, nothing lost, the same whatever comes first, and a word on what disagrees."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.store_contract import trial
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.collect import Collected, collect
from sweeper.collect.command import main
from sweeper.errors import ConfigError, StorageError
from sweeper.model import Build, Confirmed, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.results import read_results
from sweeper.store import Store


def timed(*samples_ms: float) -> Timing:
    return Timing(samples_ms, "events", "cold")


def store(folder: Path, *trials: Trial) -> Path:
    """A results folder whose store holds these trials."""
    with Store(folder / "study.db") as made:
        made.add_all(trials)
    return folder


def held(folder: Path) -> list[Trial]:
    with Store(folder / "study.db") as opened:
        return opened.trials()


def failed(number: int, status: Status, **changes: Any) -> Trial:
    return trial(
        number, status=status, stage=Stage.MEASURE, timing=None, time_source=None, reason="why", **changes
    )


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect stores alone: the tables are always those of the store, and take longest."""
    monkeypatch.setattr("sweeper.collect.api.export_folder", lambda store, folder: store.trials())


FIRST = trial(1)


def again(**changes: Any) -> Trial:
    """The first trial once more, under equal conditions."""
    return replace(FIRST, **changes)


# What is collected


def test_folders_are_collected_into_one_with_its_tables(tmp_path: Path) -> None:
    a = store(tmp_path / "a", trial(1), trial(2))
    b = store(tmp_path / "b", trial(1, params={"tile": 99, "vector": 4}))
    collected = collect(tmp_path / "all", [a, b])
    assert collected.counts.added == collected.trials == 3
    assert [t.number for t in held(tmp_path / "all")] == [1, 2, 3]
    (results,) = read_results([tmp_path / "all"])
    assert list(results.trials["trial"]) == [1, 2, 3]
    assert results.samples()[trial().study, 3] == (2.0, 2.5, 1.5)
    assert {path.name for path in (tmp_path / "all").iterdir()} >= {"trials.csv", "best.csv", "run.json"}


def test_a_folder_stands_for_every_store_in_it(tmp_path: Path) -> None:
    """As those of the jobs that a killed command has left, and of earlier runs side by side."""
    store(tmp_path / "runs" / "one", trial(1))
    store(tmp_path / "runs" / "two" / "jobs" / "tiled-1", trial(2))
    into = tmp_path / "runs" / "all"
    for _ in range(2):
        assert collect(into, [tmp_path / "runs"]).trials == 2


def test_what_comes_later_is_added_and_the_rest_is_known(tmp_path: Path) -> None:
    store(tmp_path / "a", trial(1))
    collect(tmp_path / "all", [tmp_path / "a"])
    store(tmp_path / "a", trial(2))
    counts = collect(tmp_path / "all", [tmp_path / "a"]).counts
    assert (counts.read, counts.known, counts.added) == (2, 1, 1)


def test_libraries_runs_and_confirmations_are_collected(tmp_path: Path) -> None:
    for name, started in (("a", "2030-01-02"), ("b", "2030-01-01")):
        library = trial(0, role=Role.BASELINE, kernel="cublas", params={"library": "cublas" + name})
        folder = store(tmp_path / name, trial(1), library)
        with Store(folder / "study.db") as made:
            made.add_run({"id": name, "started": started, "study": trial().study})
            made.add_confirmed(
                [
                    Confirmed(
                        name,
                        started,
                        trial().study,
                        "tiled",
                        "float32",
                        "large",
                        {"tile": i},
                        blocks_ms=(1.0, 2.0),
                    )
                    for i in (8, 16)
                ]
            )
    for _ in range(2):
        collect(tmp_path / "all", [tmp_path / "a", tmp_path / "b"])
        with Store(tmp_path / "all" / "study.db") as whole:
            assert sorted(t.number for t in whole.trials()) == [-1, 0, 1]
            assert [run["id"] for run in whole.runs()] == ["b", "a"]
            assert [one.confirmation for one in whole.confirmed()] == ["a", "a", "b", "b"]
    assert (tmp_path / "all" / "confirmed.csv").is_file()


def test_of_a_confirmation_cut_short_the_whole_one_is_kept(tmp_path: Path) -> None:
    whole = [
        Confirmed("c", "2030", "s", "tiled", "float32", "tiny", {"tile": i}, blocks_ms=(1.0, 2.0))
        for i in (8, 16)
    ]
    for name, rows in (
        ("a", whole[:1]),
        ("b", whole),
        ("c", [replace(one, blocks_ms=(1.0,)) for one in whole]),
    ):
        with Store(tmp_path / name / "study.db") as made:
            made.add_confirmed(rows)
    collect(tmp_path / "all", [tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    with Store(tmp_path / "all" / "study.db") as made:
        assert made.confirmed() == whole


def test_only_the_studies_asked_for_are_taken(tmp_path: Path) -> None:
    store(tmp_path / "a", trial(1, study="tiled-1"), trial(1, study="wgmma-1"), trial(1, study="wgmma-2"))
    collect(tmp_path / "all", [tmp_path / "a"], studies=["wgmma-*"])
    assert [t.study for t in held(tmp_path / "all")] == ["wgmma-1", "wgmma-2"]


# One key, one row


@pytest.mark.parametrize(
    ("stays", "goes"),
    [
        (again(), failed(1, Status.TIMEOUT)),
        (again(), failed(1, Status.CRASH)),
        (again(), failed(1, Status.OUT_OF_MEMORY)),
        (again(), failed(1, Status.UNSTABLE)),
        (again(), failed(1, Status.BUILD_TIMEOUT)),
        (again(), failed(1, Status.BUILD_ERROR)),
        (again(), failed(1, Status.INFEASIBLE)),
        (failed(1, Status.WRONG_RESULT), again()),
        (failed(1, Status.BUILD_ERROR), failed(1, Status.CRASH)),
        (again(timing=timed(2.1, 2.2, 2.0, 2.3)), again()),
        (again(device_uuid="GPU-1"), again(device_uuid="GPU-2", timing=timed(1, 1, 1, 1, 1))),
    ],
    ids=lambda t: f"{t.status}-{len(t.timing.samples_ms) if t.timing else 0}-{t.device_uuid}",
)
def test_of_two_rows_of_one_key_the_right_one_stays(
    tmp_path: Path, no_tables: None, stays: Trial, goes: Trial
) -> None:
    a, b = store(tmp_path / "a", stays), store(tmp_path / "b", goes)
    collect(tmp_path / "ab", [a, b])
    collect(tmp_path / "ba", [b, a])
    assert held(tmp_path / "ab") == held(tmp_path / "ba") == [stays]
    # By and by, too: the first is in the folder when the second comes.
    for one in (b, a, b):
        collect(tmp_path / "later", [one])
    assert held(tmp_path / "later") == [stays]


def superseded(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "study.db")) as connection:
        return [row[0] for row in connection.execute("SELECT status FROM superseded")]


def test_a_row_that_gives_way_to_a_better_one_keeps_its_number_and_is_set_aside(tmp_path: Path) -> None:
    mine = store(tmp_path / "mine", trial(1), failed(2, Status.TIMEOUT), trial(3))
    better = trial(7, params=trial(2).params)
    store(tmp_path / "b", better)
    assert collect(mine, [tmp_path / "b"]).counts.replaced == 1
    assert held(mine) == [trial(1), replace(better, number=2), trial(3)]
    assert superseded(mine) == ["timeout"]
    assert collect(mine, [tmp_path / "b"]).counts.known == 1
    assert superseded(mine) == ["timeout"]


def test_what_the_folder_itself_has_twice_is_left_once(tmp_path: Path) -> None:
    """As after resume=false."""
    mine = store(tmp_path / "mine", failed(1, Status.CRASH), again(number=2))
    store(tmp_path / "b", trial(3))
    assert collect(mine, [tmp_path / "b"]).set_aside == 1
    assert held(mine) == [again(number=2), trial(3)]
    assert superseded(mine) == ["crash"]


def test_rows_that_are_no_whole_trials_are_counted_and_left_where_they_are(tmp_path: Path) -> None:
    store(tmp_path / "a", trial(1), trial(2), trial(3))
    with closing(sqlite3.connect(tmp_path / "a" / "study.db")) as connection:
        connection.execute("UPDATE trials SET status = 'splendid' WHERE number = 1")
        connection.execute("UPDATE trials SET row_end = '' WHERE number = 2")
        connection.commit()
    collected = collect(tmp_path / "all", [tmp_path / "a"])
    assert (collected.counts.damaged, collected.trials) == (2, 1)


# Laws

statuses = st.sampled_from(
    [Status.OK, Status.OK, Status.OK, Status.TIMEOUT, Status.WRONG_RESULT, Status.BUILD_ERROR]
)


@st.composite
def rows(draw: st.DrawFn) -> list[Trial]:
    """A store's trials: few keys, so that stores have some in common."""
    found = []
    numbers = {"s": 0, "t": 0}
    for _ in range(draw(st.integers(0, 6))):
        study = draw(st.sampled_from("st"))
        numbers[study] += 1
        status = draw(statuses)
        samples = draw(st.lists(st.sampled_from([1.0, 1.5, 9.0]), min_size=1, max_size=3))
        found.append(
            trial(
                numbers[study],
                study=study,
                context=draw(st.sampled_from("xy")),
                params={"tile": draw(st.sampled_from([8, 16, 32]))},
                status=status,
                timing=timed(*samples) if status is Status.OK else None,
                device_uuid=draw(st.sampled_from(["GPU-1", "GPU-2"])),
                seed=draw(st.sampled_from([1, 2])),
            )
        )
    return found


def numberless(folder: Path) -> list[str]:
    return sorted(repr(replace(t, number=0)) for t in held(folder))


def told(collected: Collected) -> list[str]:
    return sorted(json.dumps(conflict.record(), sort_keys=True) for conflict in collected.conflicts)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(stores=st.lists(rows(), min_size=2, max_size=3), seed=st.randoms(use_true_random=False))
def test_collecting_is_idempotent_and_the_order_does_not_matter(
    no_tables: None, stores: list[list[Trial]], seed: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [store(folder / str(i), *trials) for i, trials in enumerate(stores)]
        collect(folder / "all", made)
        first = held(folder / "all")
        assert len({(t.study, t.context, t.role, t.point.key) for t in first}) == len(first)
        assert {(t.study, t.number) for t in first if t.role is Role.CANDIDATE} == {
            (study, n + 1) for study in "st" for n in range(sum(t.study == study for t in first))
        }

        once_more = collect(folder / "all", made)
        assert held(folder / "all") == first
        assert once_more.counts.added == once_more.counts.replaced == 0

        seed.shuffle(made)
        collect(folder / "shuffled", made)
        assert numberless(folder / "shuffled") == numberless(folder / "all")
        assert told(collect(folder / "shuffled", made)) == told(once_more)

        # In two steps, and from what was collected itself.
        collect(folder / "half", made[:1])
        collect(folder / "whole", [folder / "half", *made[1:]])
        assert numberless(folder / "whole") == numberless(folder / "all")


# Sources are only read


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_is_collected_from_stays_as_it_is(tmp_path: Path) -> None:
    store(tmp_path / "from" / "a", trial(1))
    with Store(tmp_path / "live" / "study.db") as live:
        live.add(trial(2))
        killed = shutil.copytree(tmp_path / "live", tmp_path / "from" / "killed")
    (killed / "study.db-shm").unlink()
    before = snapshot(tmp_path / "from")
    assert collect(tmp_path / "all", [tmp_path / "from"]).trials == 2
    assert snapshot(tmp_path / "from") == before


def test_a_run_that_is_under_way_is_collected_as_far_as_it_is(tmp_path: Path) -> None:
    with Store(tmp_path / "a" / "study.db") as live:
        live.claim(trial().study)
        live.add(trial(1))
        assert collect(tmp_path / "all", [tmp_path / "a"]).trials == 1
        live.add(trial(2))
    assert collect(tmp_path / "all", [tmp_path / "a"]).trials == 2


HOLD = """
    import sys, time
    from sweeper.store import Store
    store = Store(sys.argv[1] + "/study.db")
    store.claim(sys.argv[2])
    print("claimed", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held_study(tmp_path: Path) -> Iterator[int]:
    """A run in `tmp_path / "all"` that works on the study of these tests' trials; its process."""
    (tmp_path / "all").mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path / "all"), trial().study],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    yield child.pid
    child.kill()
    child.communicate()


def test_a_study_that_a_run_is_working_on_is_not_collected_into(tmp_path: Path, held_study: int) -> None:
    store(tmp_path / "a", trial(1))
    store(tmp_path / "b", trial(1, study="another"))
    with pytest.raises(StorageError, match=f"open in process {held_study}"):
        collect(tmp_path / "all", [tmp_path / "a"])
    assert collect(tmp_path / "all", [tmp_path / "b"]).trials == 1


# Conflicts


def build(compiler: str) -> Build:
    return Build("k", "nvcc", Path("/x"), "mm", compiler)


@pytest.mark.parametrize(
    ("other", "kinds"),
    [
        (again(context="c2", device="NVIDIA A100", device_uuid="GPU-9", driver="570"), {"device": 1}),
        (again(context="c2", driver="570"), {"driver": 1}),
        (again(context="c2", kernel_digest="other"), {"source": 1}),
        (again(context="c2", build=build("nvcc 12.9")), {"compiler": 1}),
        (again(context="c2", time_source=TimeSource.REPLAYED), {"time_source": 1}),
        (again(context="c2", driver="570", kernel_digest="other"), {"driver": 1, "source": 1}),
        (again(device_uuid="GPU-2"), {"gpu": 1}),
        (again(timing=timed(20.0, 25.0, 15.0)), {"times": 1}),
        (again(timing=timed(*(3 + i / 1000 for i in range(30)))), {"times": 1}),
        (failed(1, Status.WRONG_RESULT), {"status": 1}),
        (failed(1, Status.LAUNCH_ERROR), {"status": 1}),
        # No conflicts: other data, the machine's doing, the same within what is known, another problem or class.
        (again(context="c2", seed=7), {}),
        (failed(1, Status.CRASH), {}),
        (failed(1, Status.TIMEOUT, context="c2", driver="570"), {}),
        (again(timing=timed(2.2, 2.4, 1.9)), {}),
        (again(context="c2", driver="570", dims={"M": 8, "N": 8, "K": 8}), {}),
        (again(context="c2", driver="570", shape="large-nt"), {}),
        (again(context="c2", driver="570", dtype="float64"), {}),
    ],
    ids=str,
)
def test_what_does_not_agree_is_told(
    tmp_path: Path, no_tables: None, other: Trial, kinds: dict[str, int]
) -> None:
    a, b = (
        store(tmp_path / "a", again()),
        store(tmp_path / "b", replace(other, study=other.study + other.context)),
    )
    if other.context == FIRST.context:
        b = store(tmp_path / "c", other)
    for sources in ([a, b], [a, b], [b, a]):
        collected = collect(tmp_path / "all", sources)
        assert collected.kinds == kinds
        assert len(collected.conflicts) == (1 if kinds else 0)


def test_predicted_times_that_differ_at_all_lie_apart(tmp_path: Path) -> None:
    predicted = again(timing=None, time_source=TimeSource.PREDICTED, predicted_ms=1.0)
    a = store(tmp_path / "a", predicted)
    b = store(tmp_path / "b", replace(predicted, predicted_ms=1.001))
    assert collect(tmp_path / "all", [a, b]).kinds == {"times": 1}


# The command line


def run(*arguments: Path | str) -> int:
    return main([str(argument) for argument in arguments])


def conflicting(tmp_path: Path) -> Sequence[Path]:
    a = store(tmp_path / "a", trial(1), trial(2))
    other = [trial(n, context="c2", study="s2", driver="570", timing=timed(3.0)) for n in (1, 2)]
    return tmp_path / "all", a, store(tmp_path / "b", *other)


def test_the_command_says_what_it_did_and_what_disagrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = conflicting(tmp_path)
    assert run(*folders, "--top", "1") == 0
    assert capsys.readouterr().out == (
        f"4 trials of 2 stores: 4 added\n{tmp_path}/all holds 4 trials\n"
        "conflicts: 2 configurations measured\n       2 with another driver\n"
        "  tiled (float32) at large tile=16 vector=4: driver\n"
        "    2 ms: NVIDIA H200, driver unknown\n    3 ms: NVIDIA H200, driver 570\n  1 more\n"
    )
    assert run(*folders, "--fail-on-conflict") == 1
    told = capsys.readouterr()
    assert "4 trials of 2 stores: 4 there already" in told.out
    assert told.err == "failed: 2 conflicts\n"


def test_the_command_says_it_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*conflicting(tmp_path), "--format", "json", "--top", "1") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"]["added"] == record["trials"] == 4
    assert (record["conflicts"], record["kinds"], len(record["first"])) == (2, {"driver": 2}, 1)
    assert [row["driver"] for row in record["first"][0]["rows"]] == ["", "570"]


def test_a_store_in_a_folder_that_cannot_be_read_does_not_keep_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path / "runs" / "a", trial(1))
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "study.db").write_text("no database " * 100)
    with closing(sqlite3.connect(tmp_path / "runs" / "songs.db")) as connection:
        connection.execute("CREATE TABLE songs (x)")
    shutil.move(tmp_path / "runs" / "songs.db", tmp_path / "runs" / "study.db")
    assert run(tmp_path / "all", tmp_path / "runs") == 4
    told = capsys.readouterr()
    assert "all holds 1 trial" in told.out
    assert f"not collected: {tmp_path}/runs/b/study.db" in told.err
    assert f"not collected: {tmp_path}/runs/study.db" in told.err
    with pytest.raises(StorageError, match="no store of results"):
        collect(tmp_path / "all", [tmp_path / "runs" / "study.db"])


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["all", "nowhere"], StorageError, "no such file or folder"),
        (["all", "empty"], StorageError, r"holds no study\.db"),
        (["all", "postgresql://u:hunter2@h/db"], ConfigError, "not named by its address"),
        (["all", "env:NOT_SET_ANYWHERE"], ConfigError, "NOT_SET_ANYWHERE"),
        (["postgresql://u:hunter2@h/db", "a"], ConfigError, "is a folder"),
        (["a", "a"], ConfigError, "is what is collected into"),
        (["a", "a/study.db"], ConfigError, "is what is collected into"),
        (["a/study.db", "a"], ConfigError, "is a file"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: type[Exception], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "a", trial(1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=says) as caught:
        collect(arguments[0], arguments[1:])
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "all" / "trials.csv").exists()
