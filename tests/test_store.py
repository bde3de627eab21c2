"""The store: its contract on SQLite, and every fault it must survive. PostgreSQL: test_postgresql.py."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import StoreContract, trial  # noqa: E402

from sweeper.errors import ConfigError, SetupError, StorageError  # noqa: E402
from sweeper.model import Role, Status  # noqa: E402
from sweeper.sqlite_file import network_file_system  # noqa: E402
from sweeper.store import EarlierStore, Store, other_stores  # noqa: E402
from sweeper.store.recovery import main, recover  # noqa: E402


class TestSqlite(StoreContract):
    def open(self, folder: Path) -> Store:
        return Store(folder / "study.db")


def filled(path: Path, count: int = 5) -> Path:
    """A store of `count` trials, closed."""
    with Store(path) as store:
        for number in range(1, count + 1):
            store.add(trial(number))
    return path


def numbers(path: Path) -> list[int]:
    with Store(path) as store:
        return [t.number for t in store.trials()]


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


# Where a store may be


def test_missing_folders_are_made(tmp_path: Path) -> None:
    assert numbers(filled(tmp_path / "a" / "b" / "study.db")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["a b", "per%20cent", "what?", "hash#", "quote'", "ümlaut"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = filled(tmp_path / name / "study.db", 1)
    assert numbers(path) == [1]
    assert len(EarlierStore(path, "c0ffee")) == 1


def test_a_sqlite_url_names_a_file(tmp_path: Path) -> None:
    filled(tmp_path / "study.db", 1)
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        assert len(store.trials()) == 1


def test_a_read_only_folder_is_refused_at_once_with_its_name() -> None:
    # The kernel's own file system lets nobody make a folder, not even the administrator.
    with pytest.raises(StorageError, match="/sys/sweeper cannot be made") as caught:
        Store(Path("/sys/sweeper/study.db"))
    assert caught.value.exit_code == 4
    assert "results_dir" in str(caught.value)


def test_a_folder_without_write_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="is read-only"):
        Store(tmp_path / "study.db")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StorageError, match="results"):
        Store(tmp_path / "results" / "study.db")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.db").mkdir()
    with pytest.raises(StorageError, match=r"study\.db"):
        Store(tmp_path / "study.db")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre"])
def test_a_network_file_system_is_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n")
    with pytest.raises(StorageError, match=f"network file system \\({kind}\\)") as caught:
        Store(tmp_path / "runs" / "study.db", mounts=mounts)
    assert not (tmp_path / "runs").exists()
    assert "PostgreSQL" in str(caught.value)


def test_the_innermost_and_latest_mount_decides(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    spaced = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        f"server:/ {tmp_path} nfs rw 0 0\nx {spaced} nfs4 rw 0 0\n/dev/sdb {spaced} xfs rw 0 0\nodd\n"
    )
    assert network_file_system(tmp_path / "c", mounts=mounts) == "nfs"
    assert network_file_system(tmp_path / "a b" / "c", mounts=mounts) is None
    assert network_file_system(tmp_path, mounts=tmp_path / "missing") is None


# What a store does not take


def test_a_store_of_the_second_version_is_opened_and_keeps_its_trials(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with Store(path) as store:
        store.add(trial(1))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DROP TABLE attempts; CREATE TABLE attempts (context TEXT, params_key TEXT, count INTEGER NOT NULL,"
            " PRIMARY KEY (context, params_key)); UPDATE meta SET value = '2' WHERE name = 'schema'"
        )
    with Store(path) as store:
        assert [t.number for t in store.trials()] == [1]
        store.begin("c0ffee", [{"tile": 8}])


def test_a_newer_schema_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    path = filled(tmp_path / "study.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="newer version of sweeper") as caught:
        Store(path)
    assert "upgrade" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE songs (x)", "CREATE TABLE meta (x)", "CREATE TABLE meta (name, value)"]
)
def test_a_database_of_something_else_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "study.db"
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    with pytest.raises(StorageError, match="something else"):
        Store(path)


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_text("my notes\n" * 1000)
    with pytest.raises(StorageError, match="damaged"):
        Store(path)
    assert path.read_text().startswith("my notes")


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "study.db").touch()
    assert numbers(filled(tmp_path / "study.db", 2)) == [1, 2]


def test_details_that_are_no_plain_values_are_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with Store(tmp_path / "study.db") as store:
        with pytest.raises(Exception, match="cannot be sent"):
            store.add(trial(details={"object": object()}))
        assert store.trials() == []


def test_a_row_that_is_no_trial_is_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "study.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET status = 'splendid' WHERE id = 2")
    connection.close()
    with Store(path) as store, pytest.raises(StorageError, match="splendid"):
        store.trials()


# Locks


@contextmanager
def locked(path: Path) -> Iterator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def test_a_locked_store_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "study.db"), busy_s=0.1) as store:
        with locked(tmp_path / "study.db"), pytest.raises(StorageError, match="locked by another process"):
            store.add(trial(6))
        store.add(trial(6))
        assert len(store.trials()) == 6


def test_a_locked_store_can_still_be_opened_and_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "study.db")
    with Store(path), locked(path), Store(path, busy_s=0.1) as second:
        assert len(second.trials()) == 5


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_new_store_that_another_process_holds_is_reported(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "study.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"BEGIN {kind}")
    began = time.monotonic()
    with pytest.raises(StorageError, match="locked"):
        Store(path, busy_s=0.1)
    assert time.monotonic() - began < 10
    connection.close()


def test_a_new_store_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    end = threading.Timer(0.2, connection.close)
    end.start()
    with Store(path, busy_s=20.0) as store:
        store.add(trial(1))
    end.join()


ADD_FIFTY = """
    import sys
    from pathlib import Path
    from contract.store_contract import trial
    from sweeper.store import Store
    with Store(Path(sys.argv[1])) as store:
        for number in range(1, 51):
            store.add(trial(number, study=sys.argv[2]))
"""


def test_eight_processes_add_fifty_trials_each_without_loss(tmp_path: Path) -> None:
    children = [run_python(ADD_FIFTY, tmp_path / "study.db", f"s{n}") for n in range(8)]
    errors = [child.communicate(timeout=120)[1] for child in children]
    assert errors == [""] * 8
    with Store(tmp_path / "study.db") as store:
        assert sorted(store.studies()) == [f"s{n}" for n in range(8)]
        for study in store.studies():
            assert [t.number for t in store.trials(study)] == list(range(1, 51))


# Claims

HOLD = """
    import sys
    from pathlib import Path
    from sweeper.store import Store
    store = Store(Path(sys.argv[1]))
    store.claim("s")
    print("claimed", flush=True)
    sys.stdin.read()
"""


def test_a_second_sweep_on_a_study_is_told_who_has_it_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    child = run_python(HOLD, path)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "claimed\n"
        with Store(path) as store:
            with pytest.raises(StorageError, match=f"is open in process {child.pid} on .* since 20"):
                store.claim("s")
            store.claim("another")
    finally:
        child.kill()
        child.wait()
    with Store(path) as store:
        store.claim("s")


def altered_claim(path: Path, **columns: Any) -> None:
    with Store(path) as store:
        store.claim("s")
        connection = sqlite3.connect(path)
        for name, value in columns.items():
            connection.execute(f"UPDATE studies SET {name} = ?", (value,))  # noqa: S608 - the tests' own
        connection.commit()
        connection.close()


def test_a_process_number_that_was_given_away_again_does_not_hold_a_claim(tmp_path: Path) -> None:
    altered_claim(tmp_path / "study.db", owner=f"{os.uname().nodename}:{os.getpid()}:1")
    with Store(tmp_path / "study.db") as store:
        store.claim("s")


def test_a_claim_of_another_machine_holds_until_it_is_old(tmp_path: Path) -> None:
    altered_claim(tmp_path / "study.db", owner="elsewhere:1:1", host="elsewhere", seen=time.time())
    with Store(tmp_path / "study.db") as store, pytest.raises(StorageError, match="on elsewhere"):
        store.claim("s")
    altered = sqlite3.connect(tmp_path / "study.db")
    altered.execute("UPDATE studies SET seen = ?", (time.time() - 48 * 3600,))
    altered.commit()
    altered.close()
    with Store(tmp_path / "study.db") as store:
        store.claim("s")


def test_storing_trials_keeps_a_claim_alive_on_other_machines(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with Store(path) as store:
        store.claim("s")
        connection = sqlite3.connect(path)
        connection.execute("UPDATE studies SET seen = 0, host = 'elsewhere'")
        connection.commit()
        store.add(trial(1, study="s"))
        assert connection.execute("SELECT seen FROM studies").fetchone()[0] > time.time() - 60
        connection.close()


def test_a_process_of_another_user_holds_its_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    child = run_python(HOLD, tmp_path / "study.db")
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "claimed\n"
        monkeypatch.setattr(os, "kill", refuse)
        with Store(tmp_path / "study.db") as store, pytest.raises(StorageError, match="is open in process"):
            store.claim("s")
    finally:
        monkeypatch.undo()
        child.kill()
        child.wait()


def test_a_claim_of_a_process_that_was_never_there_is_taken_over(tmp_path: Path) -> None:
    altered_claim(tmp_path / "study.db", owner="x:1:1", pid=2**22 + 1)
    with Store(tmp_path / "study.db") as store:
        store.claim("s")


# Crashes, torn files and full disks

ADD_FOR_EVER = """
    import itertools, sys
    from pathlib import Path
    from contract.store_contract import trial
    from sweeper.store import Store
    store = Store(Path(sys.argv[1]))
    for number in itertools.count(1):
        store.add(trial(number))
        print(number, flush=True)
"""


@pytest.mark.parametrize("moment", range(5))
def test_a_killed_process_loses_no_acknowledged_trial(tmp_path: Path, moment: int) -> None:
    child = run_python(ADD_FOR_EVER, tmp_path / "study.db")
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(3 + 7 * moment)]
    child.kill()
    acknowledged += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.wait()
    found = numbers(tmp_path / "study.db")
    assert found[: len(acknowledged)] == acknowledged
    assert found == list(range(1, len(found) + 1))


def crashed_copy(folder: Path, count: int = 6) -> Path:
    """What a crash of the machine leaves: the files of a store that was not closed."""
    with Store(folder / "live" / "study.db") as store:
        for number in range(1, count + 1):
            store.add(trial(number))
        return shutil.copytree(folder / "live", folder / "crashed") / "study.db"


@pytest.mark.parametrize("cut", [1, 17, 100, 4000, 9000])
def test_a_log_cut_off_at_its_end_opens_and_loses_at_most_the_tail(tmp_path: Path, cut: int) -> None:
    path = crashed_copy(tmp_path)
    log = path.with_name("study.db-wal")
    os.truncate(log, log.stat().st_size - cut)
    with Store(path) as store:
        found = [t.number for t in store.trials()]
        assert found == list(range(1, len(found) + 1))
        assert 3 <= len(found) < 6
        assert "cut off" in store.notes[0]
        store.add(trial(99))


@pytest.mark.parametrize("left", [1, 31, 32])
def test_a_log_of_which_hardly_anything_is_left_opens(tmp_path: Path, left: int) -> None:
    path = crashed_copy(tmp_path, 1)
    os.truncate(path.with_name("study.db-wal"), left)
    with Store(path) as store:
        store.add(trial(2))


@pytest.mark.parametrize("cut", [1, 1000, 40_000])
def test_a_shared_memory_file_cut_off_is_made_again(tmp_path: Path, cut: int) -> None:
    path = crashed_copy(tmp_path)
    shared = path.with_name("study.db-shm")
    os.truncate(shared, max(0, shared.stat().st_size - cut))
    assert numbers(path) == [1, 2, 3, 4, 5, 6]


def test_a_log_that_was_begun_anew_after_a_checkpoint_is_whole(tmp_path: Path) -> None:
    with Store(tmp_path / "live" / "study.db", pragmas={"wal_autocheckpoint": 20}) as store:
        for number in range(1, 16):
            store.add(trial(number))
        path = shutil.copytree(tmp_path / "live", tmp_path / "crashed") / "study.db"
    with Store(path) as store:
        assert store.notes == []
        assert len(store.trials()) == 15


def test_a_whole_store_has_no_notes(tmp_path: Path) -> None:
    path = crashed_copy(tmp_path)
    with Store(path) as store:
        assert store.notes == []
    with Store(path) as store:
        assert store.notes == []


@pytest.mark.parametrize("cut", [1, 5000, 20_000])
def test_a_database_cut_off_at_its_end_is_recovered_and_the_damaged_file_kept(
    tmp_path: Path, cut: int
) -> None:
    path = filled(tmp_path / "study.db", 60)
    os.truncate(path, path.stat().st_size - cut)
    damaged = path.read_bytes()
    with Store(path) as store:
        found = [t.number for t in store.trials()]
        assert len(found) > 30
        assert found == sorted(found)
        assert f"{len(found)} trials were recovered" in store.notes[-1]
        store.add(trial(99))
    assert (tmp_path / "study.damaged-1.db").read_bytes() == damaged
    assert numbers(path) == [*found, 99]


def test_a_damaged_page_is_refused_and_the_command_in_the_error_recovers_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled(tmp_path / "study.db", 200)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    damaged = path.read_bytes()
    with pytest.raises(StorageError, match="damaged") as caught:
        Store(path)
    assert f"python -m sweeper.store.recovery {path}" in str(caught.value)
    assert path.read_bytes() == damaged
    assert main([str(path)]) == 0
    new = tmp_path / "study.recovered.db"
    assert f"are in {new}" in capsys.readouterr().out
    assert path.read_bytes() == damaged
    found = numbers(new)
    assert 150 < len(found) < 200
    assert {1, 200} <= set(found)


def test_a_recovery_overwrites_nothing_and_says_when_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.db").write_bytes(b"SQLite format 3\x00" + b"\x00" * 5000)
    assert main([str(tmp_path / "study.db")]) == 4
    assert "nothing of" in capsys.readouterr().err
    (tmp_path / "study.recovered.db").touch()
    with pytest.raises(StorageError, match="exists already"):
        recover(tmp_path / "study.db", tmp_path / "study.recovered.db")
    assert main([]) == 2


def test_rows_that_are_not_whole_are_left_behind_by_a_recovery(tmp_path: Path) -> None:
    path = filled(tmp_path / "study.db")
    runs = [{"id": name, "started": name} for name in "ab"]
    with Store(path) as store:
        for run in runs:
            store.add_run(run)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET timing = 'nonsense' WHERE id = 2")
        connection.execute("UPDATE trials SET row_end = '' WHERE id = 3")
        connection.execute("UPDATE runs SET record = '{' WHERE id = 'a'")
    connection.close()
    assert recover(path, tmp_path / "new.db") == 3
    with Store(tmp_path / "new.db") as store:
        assert [t.number for t in store.trials()] == [1, 4, 5]
        assert store.runs() == runs[1:]


def add_until_refused(store: Store) -> None:
    for number in range(1, 1000):
        store.add(trial(number))


def test_a_full_disk_is_an_error_and_earlier_trials_stay_readable(tmp_path: Path) -> None:
    with Store(tmp_path / "study.db", pragmas={"max_page_count": 40}) as store:
        with pytest.raises(StorageError, match="disk is full") as caught:
            add_until_refused(store)
        assert caught.value.exit_code == 4
        stored = [t.number for t in store.trials()]
        assert stored == list(range(1, len(stored) + 1))
        assert len(stored) > 5
    assert numbers(tmp_path / "study.db") == stored


def test_a_limit_on_file_sizes_is_an_error_and_earlier_trials_stay_readable(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store(tmp_path / "study.db") as store:
        store.add(trial(1))
        size = (tmp_path / "study.db-wal").stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2000, before[1]))
            with pytest.raises(StorageError, match="cannot be read or written"):
                store.add(trial(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert [t.number for t in store.trials()] == [1]
        store.add(trial(2))


def test_a_commit_is_synced_to_the_disk(tmp_path: Path) -> None:
    with Store(tmp_path / "study.db") as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


# Earlier runs


def test_trials_of_earlier_runs_are_found_the_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        path = tmp_path / name / "study.db"
        with Store(path) as store:
            store.add(trial(1, device=name))
            store.add(trial(2, device=name, context="another"))
        stamp = 1_700_000_000 - age
        os.utime(path, (stamp, stamp))
    found = other_stores(tmp_path, "c0ffee")
    assert [store.path.parent.name for store in found] == ["new", "old"]
    first = found[0].find("c0ffee", trial(1).params)
    assert first is not None
    assert first.device == "new"
    assert found[0].find("c0ffee", {"tile": 0}) is None
    assert found[0].find("another", trial(2).params) is None
    assert found[0].find("c0ffee", trial(1).params, Role.BASELINE) is None


def test_reading_an_earlier_run_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path / "a" / "study.db")
    before = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(other_stores(tmp_path, "c0ffee")) == 1
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == before == ["study.db"]


def test_a_run_that_is_under_way_can_be_read(tmp_path: Path) -> None:
    with Store(tmp_path / "a" / "study.db") as store:
        store.add(trial(1))
        assert len(other_stores(tmp_path, "c0ffee")) == 1
        store.add(trial(2))


def test_the_runs_own_store_and_unreadable_ones_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path / "good" / "study.db")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "study.db").write_text("no database")
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling" / "study.db").symlink_to(tmp_path / "nowhere")
    with Store(tmp_path / "own" / "study.db") as own, caplog.at_level(logging.DEBUG):
        own.add(trial(1))
        found = other_stores(tmp_path, "c0ffee", besides=own)
    assert [store.path.parent.name for store in found] == ["good"]
    assert "bad/study.db is not used" in caplog.text


def test_a_row_of_an_earlier_run_that_is_no_trial_is_not_reused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a" / "study.db", 1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET status = 'splendid'")
    connection.close()
    assert other_stores(tmp_path, "c0ffee")[0].find("c0ffee", trial(1).params) is None


def test_at_most_so_many_earlier_runs_are_looked_at(tmp_path: Path) -> None:
    for name in "abc":
        filled(tmp_path / name / "study.db", 1)
    assert len(other_stores(tmp_path, "c0ffee", limit=2)) == 2
    assert other_stores(tmp_path / "missing", "c0ffee") == []


def test_a_failed_configuration_of_an_earlier_run_is_found_as_such(tmp_path: Path) -> None:
    with Store(tmp_path / "a" / "study.db") as store:
        store.add(trial(1, status=Status.WRONG_RESULT, timing=None, time_source=None))
    found = other_stores(tmp_path, "c0ffee")[0].find("c0ffee", trial(1).params)
    assert found is not None
    assert found.status is Status.WRONG_RESULT


# Secrets and servers


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("nosuch://u:hunter2@h/db", ConfigError),
        ("postgresql://u:hunter2@h:port/db", ConfigError),
        ("sqlite://", ConfigError),
        ("postgresql+nosuch://u:hunter2@h/db", ConfigError),
        ("postgresql+pg8000://u:hunter2@localhost:1/db", (SetupError, StorageError)),
        ("postgresql+psycopg://u:hunter2@localhost:1/db", (SetupError, StorageError)),
    ],
)
def test_an_unusable_url_is_refused_without_showing_its_password(url: str, error: Any) -> None:
    with pytest.raises(error) as caught:
        Store(url)
    shown = str(caught.value)
    assert "hunter2" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_drivers_message_is_shown_without_the_password(tmp_path: Path) -> None:
    from sweeper.store.errors import Place

    place = Place("postgresql://h/db", secrets=("hunter2",))
    with pytest.raises(StorageError, match=r"no access for u:\*\*\*"), place.guard():
        raise sqlite3.OperationalError("no access for u:hunter2")


def test_the_store_is_not_imported_with_the_package() -> None:
    code = "import sys, sweeper; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
