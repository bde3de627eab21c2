"""The store of a run: one SQLite file (write-ahead log, every commit synced to the disk), or a PostgreSQL
database for several hosts.

What `add` has returned survives a crash of the process, the machine and the power;
several processes may add at once. CSV tables are exports of a store.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from sweeper.errors import StorageError
from sweeper.model import Confirmed, Point, Role, Trial
from sweeper.record import decode, encode
from sweeper.sqlite_file import MOUNTS, cut_off, prepare_folder, unfinished_write
from sweeper.store import schema
from sweeper.store.attempts import begun_in_vain, forget_begun, note_begun
from sweeper.store.engine import address, sqlite_engine, transaction
from sweeper.store.errors import AlreadyStored, Place, corrupt
from sweeper.store.lease import Heartbeat, claim, release, show_alive, touch
from sweeper.store.recovery import replace_damaged
from sweeper.store.server import PATIENCE_S, Patience, place_of, server_engine
from sweeper.wire import WireError, from_wire, to_wire

__all__ = ["Store"]

T = TypeVar("T")


class Store:
    """The store at `where`: the path of a SQLite file, made if it is missing, or a database URL.

    `busy_s` bounds the wait for another process's write; `pragmas` are further SQLite settings and
    `mounts` the table of mounted file systems. A server that is lost later is waited for `patience_s`.
    `notes` says what was found amiss on opening and put right. `label` is the store's name in messages.
    Raises StorageError where the store cannot be opened; a damaged one is never deleted.
    """

    def __init__(
        self,
        where: Path | str,
        *,
        busy_s: float = 30.0,
        pragmas: Mapping[str, int | str] | None = None,
        mounts: Path = MOUNTS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.path, url = address(where)
        self.notes: list[str] = []
        self._claimed: list[str] = []
        self._heartbeat = Heartbeat(self._beat)
        self._patience = Patience(patience_s if self.path is None else 0, lost=self._drop_connections)
        if self.path is not None:
            self._place = Place(str(self.path))
            prepare_folder(self.path.parent, mounts=mounts)
            self._engine = sqlite_engine(self.path, busy_s=busy_s, pragmas=pragmas or {})
            self._open_file(self.path)
        else:
            self._place = place_of(url)
            self._engine = server_engine(url)
            schema.prepare(self._engine, self._place, check=False)
        self.label = self._place.label

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back claimed studies and close all connections; a store may be closed twice."""
        self._heartbeat.stop()
        with contextlib.suppress(StorageError):
            while self._claimed:
                self.release(self._claimed[-1])
        self._engine.dispose()

    def add(self, trial: Trial, begun: Sequence[Mapping[str, Any]] = ()) -> Trial:
        """Store a finished trial; it is on the disk when this returns, and so is that those of `begun` are under way.

        Raises StorageError where it cannot be written, where the study has this number already, and where the study
        was claimed and has been taken over by another process meanwhile.
        """
        key = trial.point.key
        row = {"params_key": key, **encode(trial), "row_end": schema.ROW_END}

        def add(connection: sa.Connection, again: bool) -> None:
            if trial.study in self._claimed:
                touch(connection, trial.study, self.label)
            if not (again and _has(connection, row)):
                connection.execute(sa.insert(schema.trials), row)
            forget_begun(connection, trial.context, key)
            note_begun(connection, trial.context, begun)

        try:
            self._write(add)
        except AlreadyStored:
            raise StorageError(
                f"{self.label} holds trial {trial.number} of study {trial.study} already",
                hint="another process works on this study, or a number was given twice",
            ) from None
        return trial

    def add_all(self, trials: Sequence[Trial]) -> None:
        """Store finished trials of another store in one write: all of them are on the disk when this returns, or none.

        Raises StorageError as `add` does.
        """
        if not trials:
            return
        rows = [{"params_key": t.point.key, **encode(t), "row_end": schema.ROW_END} for t in trials]

        def add(connection: sa.Connection, again: bool) -> None:
            if not (again and _has(connection, rows[-1])):
                connection.execute(sa.insert(schema.trials), rows)

        try:
            self._write(add)
        except AlreadyStored:
            raise StorageError(
                f"{self.label} holds some of these trials already",
                hint="another process works on these studies, or a number was given twice",
            ) from None

    def find(self, context: str, params: Mapping[str, Any], role: Role = Role.CANDIDATE) -> Trial | None:
        """The latest trial of this configuration in this context, whatever its status."""
        t = schema.trials.c
        query = (
            sa.select(schema.trials)
            .where(t.context == context, t.params_key == Point.of(params).key, t.role == role.value)
            .order_by(t.id.desc())
            .limit(1)
        )
        return next(iter(self._read(query)), None)

    def trials(self, study: str | None = None) -> list[Trial]:
        """All trials (of `study`), in the order they were stored."""
        query = sa.select(schema.trials).order_by(schema.trials.c.id)
        return self._read(query if study is None else query.where(schema.trials.c.study == study))

    def trials_like(self, context: str) -> list[Trial]:
        """All trials of `context`, whatever their study is called, in the order they were stored."""
        query = sa.select(schema.trials).order_by(schema.trials.c.id)
        return self._read(query.where(schema.trials.c.context == context))

    def studies(self) -> list[str]:
        """The names of all studies that have a trial, in the order of their first."""
        t = schema.trials.c
        query = sa.select(t.study).group_by(t.study).order_by(sa.func.min(t.id))
        return [str(name) for name in self._scalars(query)]

    def add_confirmed(self, confirmed: Sequence[Confirmed]) -> None:
        """Store all of one confirmation; what was stored of it before is replaced."""
        rows = [
            {
                "confirmation": one.confirmation,
                "study": one.study,
                "params_key": one.key[1],
                "blocks_ms": json.dumps(one.blocks_ms),
                "record": json.dumps(to_wire(one)),
            }
            for one in confirmed
        ]
        c = schema.confirmations.c

        def replace(connection: sa.Connection, _: bool) -> None:
            for name in {one.confirmation for one in confirmed}:
                connection.execute(sa.delete(schema.confirmations).where(c.confirmation == name))
            if rows:
                connection.execute(sa.insert(schema.confirmations), rows)

        self._write(replace)

    def confirmed(self, study: str | None = None) -> list[Confirmed]:
        """What was timed in turns (for `study`), in the order it was stored."""
        c = schema.confirmations.c
        query = sa.select(c.record).order_by(c.id)
        records = self._scalars(query if study is None else query.where(c.study == study))
        try:
            return [from_wire(Confirmed, json.loads(record)) for record in records]
        except (WireError, ValueError, TypeError) as error:
            raise corrupt(self.label, f"a row is no confirmation: {error}") from error

    def add_run(self, record: Mapping[str, Any]) -> None:
        """Store a run's provenance under `record["id"]`; one of the same id is replaced."""
        row = {"id": record["id"], "started": record["started"], "record": json.dumps(record, sort_keys=True)}

        def replace(connection: sa.Connection, _: bool) -> None:
            connection.execute(sa.delete(schema.runs).where(schema.runs.c.id == row["id"]))
            connection.execute(sa.insert(schema.runs), row)

        self._write(replace)

    def runs(self, study: str | None = None) -> list[dict[str, Any]]:
        """The provenance of every run (of `study`), oldest first."""
        query = sa.select(schema.runs.c.record).order_by(schema.runs.c.started, schema.runs.c.id)
        if study is not None:
            query = query.where(schema.runs.c.record.contains(json.dumps(study), autoescape=True))
        records = [json.loads(record) for record in self._scalars(query)]
        return [record for record in records if study in (None, record.get("study"))]

    def begin(self, context: str, begun: Sequence[Mapping[str, Any]]) -> None:
        """Note that these configurations are about to run.

        One that takes the machine down leaves no trial; `begun_in_vain` is how the next run knows.
        """
        self._write(lambda connection, _: note_begun(connection, context, begun))

    def begun_in_vain(self, context: str) -> dict[str, int]:
        """How many times the machine went down with a configuration of `context` begun and not finished, by its key.

        A process that was killed does not count: whoever killed it, the configuration did not.
        """
        return self._look(lambda connection: begun_in_vain(connection, context))

    def claim(self, study: str) -> None:
        """Work on `study` alone until `release` or `close`.

        Raises StorageError that names the process which has it; a claim whose process is gone is taken over.
        """
        self._write(lambda connection, _: claim(connection, study, self.label))
        self._claimed.append(study)
        self._heartbeat.start()

    def release(self, study: str) -> None:
        """Let others work on `study`."""
        self._claimed.remove(study)
        self._write(lambda connection, _: release(connection, study))

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` gives, in one transaction: all that it writes is stored, or nothing. It may be called twice."""
        return self._write(lambda connection, _: work(connection))

    def _beat(self) -> None:
        names = list(self._claimed)
        if names:
            with transaction(self._engine, self._place) as connection:
                show_alive(connection, names)

    def _drop_connections(self) -> None:
        self._engine.dispose()

    def _write(self, work: Callable[[sa.Connection, bool], T]) -> T:
        """What `work` gives, all of it stored; it hears whether it was tried before, and then may be stored already."""

        def once(again: bool) -> T:
            with transaction(self._engine, self._place) as connection:
                return work(connection, again)

        return self._patience(once)

    def _look(self, work: Callable[[sa.Connection], T]) -> T:
        def once(_: bool) -> T:
            with self._place.guard(), self._engine.connect() as connection:
                return work(connection)

        return self._patience(once)

    def _scalars(self, query: sa.Select[Any]) -> Sequence[Any]:
        return self._look(lambda connection: connection.scalars(query).all())

    def _read(self, query: sa.Select[Any]) -> list[Trial]:
        rows = self._look(lambda connection: connection.execute(query).mappings().all())
        try:
            return [decode(dict(row)) for row in rows]
        except (WireError, ValueError, TypeError) as error:
            raise corrupt(self.label, f"a row is no trial: {error}") from error

    def _open_file(self, path: Path) -> None:
        existed = path.exists() and path.stat().st_size > 0
        if existed and unfinished_write(path):
            self.notes.append(f"{path}: the last write was cut off; a trial not acknowledged by then is lost")
        if existed and cut_off(path):
            count, kept = replace_damaged(path)
            self.notes.append(
                f"{path}: the end of the file was cut off; {count} trials were recovered,"
                f" and the damaged file is kept as {kept.name}"
            )
        try:
            schema.prepare(self._engine, self._place, check=existed)
        except BaseException:
            self._engine.dispose()
            raise


def _has(connection: sa.Connection, row: Mapping[str, Any]) -> bool:
    """Whether the very row is stored: the answer to a write may have been lost, and the write not."""
    t = schema.trials.c
    same = sa.and_(*(t[name].is_not_distinct_from(value) for name, value in row.items()))
    return connection.scalar(sa.select(t.id).where(same).limit(1)) is not None
