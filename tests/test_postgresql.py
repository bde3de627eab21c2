"""The store on a PostgreSQL server: the same contract as a file, and what only a server can do or suffer.

A server is started for these tests; SWEEPER_TEST_POSTGRESQL=URL names one that runs already.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")
pytest.register_assert_rewrite("contract.store_contract")

import sqlalchemy as sa  # noqa: E402
from contract.store_contract import StoreContract, trial  # noqa: E402
from postgresql_server import Place, Server, binaries, server  # noqa: E402

from sweeper.cli.app import main  # noqa: E402
from sweeper.collect import collect  # noqa: E402
from sweeper.errors import ConfigError, StorageError  # noqa: E402
from sweeper.store import Store, server_url  # noqa: E402
from sweeper.store.attempts import note_begun  # noqa: E402
from sweeper.store.errors import Unreachable  # noqa: E402
from sweeper.store.lease import LEASE_S, Heartbeat  # noqa: E402
from sweeper.store.server import Patience  # noqa: E402

EXTERNAL = os.environ.get("SWEEPER_TEST_POSTGRESQL")
STUDY = trial().study
SPACE = Path(__file__).parents[1] / "results" / "h200" / "spaces" / "tiled-2048.csv.gz"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Place]:
    if EXTERNAL:
        yield Place(EXTERNAL)
    elif binaries() is None:
        pytest.skip("there is neither initdb nor SWEEPER_TEST_POSTGRESQL")
    else:
        with server() as made:
            yield made


@pytest.fixture
def database(postgresql: Place) -> str:
    """The name of a new, empty database, for what happens to a whole one."""
    name = f"sweeper_{os.getpid()}_{next(_numbers)}"
    postgresql.database(name)
    return name


@pytest.fixture
def url(postgresql: Place) -> str:
    """Where a new, empty store can be."""
    return postgresql.schema(f"sweeper_{os.getpid()}_{next(_numbers)}")


class TestPostgresql(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgresql: Place) -> None:
        self._postgresql = postgresql

    def open(self, folder: Path) -> Store:
        return Store(self._postgresql.schema(f"t{abs(hash(str(folder)))}_{os.getpid()}"))


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


# Leases

HOLD = """
    import sys, time
    from sweeper.store import Store
    store = Store(sys.argv[1])
    store.claim("s")
    print("claimed", flush=True)
    time.sleep(600)
"""


@contextmanager
def holding(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed the study `s`."""
    child = run_python(HOLD, url)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "claimed\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def test_a_second_driver_on_one_study_is_refused_and_told_who_has_it(url: str) -> None:
    with holding(url) as child, Store(url) as store:
        with pytest.raises(StorageError, match=f"study s .* is open in process {child.pid} on .* since 20"):
            store.claim("s")
        store.claim("another")
        child.kill()
        child.wait()
        store.claim("s")


def altered(url: str, **columns: Any) -> None:
    """Change what the server holds of the study `s`: values, or SQL as `sa.text`."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.update(sa.table("studies", *map(sa.column, columns))).values(columns))


def seconds_ago(seconds: float) -> sa.TextClause:
    return sa.text(f"extract(epoch from clock_timestamp()) - {seconds}")


ELSEWHERE = {"owner": "node7:41:5:boot/pid:[1]", "host": "node7", "pid": 41}


def test_a_driver_of_another_host_has_its_study_until_it_is_silent_for_the_length_of_a_lease(
    url: str,
) -> None:
    with Store(url) as store:
        store.claim("s")
        altered(url, **ELSEWHERE, seen=seconds_ago(LEASE_S - 20))
        with pytest.raises(StorageError, match="process 41 on node7") as caught:
            store.claim("s")
        assert f"silent for {LEASE_S:.0f} s" in str(caught.value)
        altered(url, seen=seconds_ago(LEASE_S + 1))
        store.claim("s")


def test_a_host_of_the_same_name_is_another_host(url: str) -> None:
    """Its process may well have a number that none has here."""
    with Store(url) as store:
        store.claim("s")
        altered(url, owner=f"{os.uname().nodename}:4194305:5:another boot", pid=4194305, seen=seconds_ago(1))
        with pytest.raises(StorageError, match="process 4194305"):
            store.claim("s")


@pytest.mark.parametrize("wrong_by_s", [-86_400, 86_400])
def test_a_lease_goes_by_the_servers_clock(
    url: str, wrong_by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_by_s)
    with Store(url) as store:
        store.claim("s")
        altered(url, **ELSEWHERE)
        with pytest.raises(StorageError, match="node7"):
            store.claim("s")


def test_of_many_that_claim_a_study_at_once_one_gets_it(url: str) -> None:
    with Store(url):
        pass
    code = """
        import sys
        from sweeper.errors import StorageError
        from sweeper.store import Store
        store = Store(sys.argv[1])
        sys.stdin.readline()
        try:
            store.claim("s")
            print("mine", flush=True)
        except StorageError as error:
            print(error.message, flush=True)
        sys.stdin.readline()
    """
    children = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        said = [child.stdout.readline().strip() for child in children if child.stdout is not None]
        assert said.count("mine") == 1
        assert sum("is open in process" in line for line in said) == 2
    finally:
        for child in children:
            child.communicate("\n")


def test_a_driver_shows_that_it_lives_while_it_stores_nothing(url: str) -> None:
    with Store(url) as store:
        store.claim("s")
        altered(url, seen=0)
        store._beat()
        altered(url, host="node7", owner=sa.text("owner || ' of another'"))
        with pytest.raises(StorageError, match="is open"):
            store.claim("s")


def test_a_heartbeat_goes_on_through_failures_until_it_is_stopped() -> None:
    beats, enough = [], threading.Event()

    def beat() -> None:
        beats.append(threading.current_thread())
        if len(beats) == 3:
            enough.set()
        raise StorageError("gone for a moment")

    heartbeat = Heartbeat(beat, every_s=0.001)
    heartbeat.start()
    heartbeat.start()
    assert enough.wait(30)
    heartbeat.stop()
    assert len(set(beats)) == 1
    assert not beats[0].is_alive()


def test_a_driver_whose_study_was_taken_over_stores_nothing_more_of_it(url: str) -> None:
    with Store(url) as store:
        store.claim(STUDY)
        store.add(trial(1))
        altered(url, **ELSEWHERE, since="2030-01-01")
        with pytest.raises(StorageError, match="taken over by process 41 on node7 at 2030-01-01"):
            store.add(trial(2))
        assert [t.number for t in store.trials()] == [1]


# Several drivers

ADD = """
    import sys
    from dataclasses import replace
    from contract.store_contract import trial
    from sweeper.store import Store
    url, study, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Store(url) as store:
        store.claim(study)
        done = len(store.trials(study))
        for number in range(done + 1, count + 1):
            store.add(trial(number, study=study), begun=[trial(number + 1).params])
            print(number, flush=True)
"""


def test_of_drivers_that_write_at_once_one_is_killed_and_started_again(url: str) -> None:
    count = 40
    names = [f"study {i}" for i in range(3)]
    children = [run_python(ADD, url, name, count) for name in names]
    victim = children[0]
    assert victim.stdout is not None
    acknowledged = [int(victim.stdout.readline()) for _ in range(10)]
    victim.kill()
    acknowledged += [int(line) for line in victim.communicate()[0].split("\n")[:-1]]
    children[0] = run_python(ADD, url, names[0], count)
    for child in children:
        _, said = child.communicate(timeout=120)
        assert child.returncode == 0, said
    with Store(url) as store:
        for name in names:
            assert [t.number for t in store.trials(name)] == list(range(1, count + 1))
        assert acknowledged == list(range(1, len(acknowledged) + 1))


def test_two_studies_of_equal_conditions_may_begin_the_same(url: str) -> None:
    """As one shape under two names."""
    with Store(url) as one, Store(url) as two:
        params = {"tile": 99}
        with one._engine.connect() as connection, connection.begin() as under_way:
            note_begun(connection, "c0ffee", [params])
            later = threading.Thread(target=lambda: two.add(trial(1), begun=[params]))
            later.start()
            time.sleep(0.05)
            under_way.commit()
        later.join()
        assert two.trials() == [trial(1)]


# A server that is lost


def test_a_connection_that_was_cut_off_is_made_again(postgresql: Place, database: str) -> None:
    url = postgresql.url(database)
    with Store(url) as store:
        store.claim(STUDY)
        for number in range(1, 4):
            store.add(trial(number))
            postgresql.cut_off(database)
        assert [t.number for t in store.trials()] == [1, 2, 3]
        postgresql.cut_off(database)
        assert store.find("c0ffee", trial(2).params) == trial(2)


def test_a_restart_of_the_server_loses_nothing(postgresql: Place, url: str) -> None:
    if not isinstance(postgresql, Server):
        pytest.skip("the server is not ours to stop")
    with Store(url) as store:
        store.claim(STUDY)
        store.add(trial(1))
        postgresql.stop()
        later = threading.Timer(0.3, postgresql.start)
        later.start()
        try:
            assert store.add(trial(2)) == trial(2)
        finally:
            later.join()
        assert [t.number for t in store.trials()] == [1, 2]


def test_a_server_that_stays_away_is_an_error_that_says_so_once(postgresql: Place, url: str) -> None:
    if not isinstance(postgresql, Server):
        pytest.skip("the server is not ours to stop")
    store = Store(url, patience_s=0.2)
    store.claim("s")
    postgresql.stop()
    try:
        with pytest.raises(StorageError, match="cannot be reached") as caught:
            store.add(trial(1))
        assert caught.value.exit_code == 4
        assert "nothing stored is lost" in str(caught.value)
        store.close()
    finally:
        postgresql.start()
    with Store(url) as after:
        assert after.trials() == []


def test_a_write_whose_answer_was_lost_is_not_done_twice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweeper.store import store as module

    whole, lost = module.transaction, []

    @contextmanager
    def answer_lost(*where: Any) -> Iterator[sa.Connection]:
        with whole(*where) as connection:
            yield connection
        if len(lost) < 1:
            lost.append(1)
            raise Unreachable("gone after the commit")

    with Store(url) as store:
        monkeypatch.setattr(module, "transaction", answer_lost)
        monkeypatch.setattr(store._patience, "_sleep", lambda s: None)
        library = trial(0, role=trial().role.BASELINE)
        for write in (
            lambda: store.add(trial(1)),
            lambda: store.add(library),
            lambda: store.add_all([trial(2), trial(3)]),
        ):
            lost.clear()
            write()
        with pytest.raises(StorageError, match="holds trial 1"):
            store.add(trial(1))
        assert store.trials() == [trial(1), library, trial(2), trial(3)]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)


def test_patience_has_an_end_and_waits_longer_each_time() -> None:
    clock, tries = Clock(), []
    patience = Patience(20, sleep=clock.sleep, clock=lambda: clock.now)

    def never(again: bool) -> None:
        tries.append(again)
        raise Unreachable("gone")

    with pytest.raises(Unreachable):
        patience(never)
    assert clock.now == pytest.approx(20)
    assert clock.waits[:-1] == sorted(clock.waits[:-1])
    assert max(clock.waits) <= 5
    assert tries[0] is False
    assert all(tries[1:])


def test_patience_that_is_spent_comes_back_with_the_server() -> None:
    clock = Clock()
    patience = Patience(10, sleep=clock.sleep, clock=lambda: clock.now)

    def gone(again: bool) -> None:
        raise Unreachable("gone")

    for _ in range(3):
        with pytest.raises(Unreachable):
            patience(gone)
    assert clock.now == pytest.approx(10)
    assert patience(lambda again: again) is False
    with pytest.raises(Unreachable):
        patience(gone)
    assert clock.now == pytest.approx(20)


def test_what_is_no_outage_is_not_tried_again(url: str) -> None:
    tries = []

    def refused(again: bool) -> None:
        tries.append(again)
        raise StorageError("no")

    with pytest.raises(StorageError, match="no"):
        Patience(100)(refused)
    assert tries == [False]


# What a server may refuse


def test_a_server_that_only_reads_is_told_apart(postgresql: Place, database: str) -> None:
    url = postgresql.url(database)
    with Store(url):
        pass
    postgresql.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with Store(url) as store, pytest.raises(StorageError, match="is read-only"):
        store.add(trial())


def test_a_store_of_an_older_version_gets_what_it_lacks(postgresql: Place, database: str) -> None:
    url = postgresql.url(database)
    with Store(url) as store:
        store.add(trial(1))
    postgresql.execute(
        "DROP TABLE superseded; DROP INDEX trials_study; UPDATE meta SET value = '3' WHERE name = 'schema'",
        database,
    )
    with Store(url) as store:
        assert store.trials() == [trial(1)]
    indexes = postgresql.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'trials'", database)
    assert ("trials_study",) in indexes
    postgresql.execute("UPDATE meta SET value = '99'", database)
    with pytest.raises(StorageError, match="newer version"):
        Store(url)


def test_a_commit_is_on_the_servers_disk(postgresql: Place, database: str) -> None:
    url = postgresql.url(database)
    postgresql.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with Store(url) as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


# Its address


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (None, "does not name a PostgreSQL server"),
        ("", "does not name a PostgreSQL server"),
        ("hunter2", "is not an address"),
        ("postgresql://u:hunter2@h:port/db", "is not an address"),
        ("mysql://u:hunter2@h/db", "is an address of mysql"),
        ("sqlite:////tmp/hunter2.db", "is an address of sqlite"),
    ],
)
def test_an_address_that_is_none_is_told_by_the_variables_name(
    address: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWEEPER_STORE_URL", raising=False)
    if address is not None:
        monkeypatch.setenv("SWEEPER_STORE_URL", address)
    with pytest.raises(ConfigError, match=f"SWEEPER_STORE_URL.*{says}") as caught:
        server_url()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://annette:hunter2@127.0.0.1:1/db",
        "postgres://annette:hunter2@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=annette&password=hunter2",
    ],
)
def test_a_server_that_is_not_there_is_named_without_user_and_password(address: str) -> None:
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1/db cannot be reached") as caught:
        Store(address)
    assert "hunter2" not in str(caught.value)
    assert "annette" not in str(caught.value)


# Collecting


def test_what_a_server_holds_is_collected_and_the_server_stays_as_it_is(
    tmp_path: Path, postgresql: Place, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.url(database)
    with Store(url) as store:
        store.claim(STUDY)
        for number in (1, 2):
            store.add(trial(number))
            store.add(trial(number, study="another"))
        store.add_run({"id": "a", "started": "2030", "study": STUDY})
        store.add_run({"id": "b", "started": "2030", "study": "another"})
        # Not even an older version is brought up to date.
        postgresql.execute("DROP TABLE superseded; UPDATE meta SET value = '3'", database)
        postgresql.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        monkeypatch.setenv("THE_STORE", url)
        for _ in range(2):
            assert collect(tmp_path / "all", ["env:THE_STORE"], studies=["gemm-*"]).trials == 2
        with Store(tmp_path / "all" / "study.db") as whole:
            assert whole.trials() == [trial(1), trial(2)]
            assert [run["id"] for run in whole.runs()] == ["a"]
    assert postgresql.execute("SELECT value FROM meta", database) == [("3",)]
    secret = sa.make_url(url)
    assert str(secret.query.get("host") or secret.username) not in (tmp_path / "all" / "run.json").read_text()


def test_a_database_without_a_store_is_nothing_to_collect(
    tmp_path: Path, postgresql: Place, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_STORE", postgresql.url(database))
    with pytest.raises(StorageError, match="is no store of results"):
        collect(tmp_path / "all", ["env:THE_STORE"])


# Commands


def command(folder: Path, *more: str) -> int:
    return main(
        [
            "kernel=tiled", "shape=2048x2048x2048", "search=random", "backend=replay", f"backend.path={SPACE}",
            "store=postgresql", f"results_dir={folder}", *more,
        ]
    )  # fmt: skip


def test_a_commands_folder_shows_its_own_studies_and_the_server_has_all(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEPER_STORE_URL", url)
    assert command(tmp_path / "one", "seed=1") == 0
    assert command(tmp_path / "two", "seed=2") == 0
    capsys.readouterr()
    assert command(tmp_path / "again", "seed=1") == 0
    assert "3 of them reused" in capsys.readouterr().out
    with Store(url) as store:
        assert len(store.trials()) == 6
        assert len(store.runs()) == 3
    tables = {name: (tmp_path / name / "trials.csv").read_text() for name in ("one", "two", "again")}
    assert tables["one"] == tables["again"] != tables["two"]
    assert all(len(text.splitlines()) == 1 + 3 for text in tables.values())
    kept = {name: json.loads((tmp_path / name / "run.json").read_text())["runs"] for name in tables}
    assert {name: len(runs) for name, runs in kept.items()} == {"one": 1, "two": 1, "again": 2}
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"trials.csv", "best.csv", "run.json"}
    secret = sa.make_url(url).query.get("host") or sa.make_url(url).host
    assert str(secret) not in "".join(path.read_text() for path in (tmp_path / "one").iterdir())


def test_a_store_that_cannot_be_had_ends_a_command_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SWEEPER_STORE_URL", raising=False)
    assert command(tmp_path / "none") == 2
    assert "SWEEPER_STORE_URL" in capsys.readouterr().err
    assert command(tmp_path / "none", "store=postgresql://annette:hunter2@h/db") == 2
    told = capsys.readouterr()
    assert "SWEEPER_STORE_URL, not here" in told.err
    assert "hunter2" not in told.err + told.out
    with suppress(FileNotFoundError):
        assert not list((tmp_path / "none").iterdir())
