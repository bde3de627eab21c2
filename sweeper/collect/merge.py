"""One store's rows taken into another: each key once, the right one of several, and nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from sweeper.collect.conflicts import Conflict, within_context
from sweeper.collect.judging import content, key_of, order
from sweeper.errors import SweeperError
from sweeper.model import Confirmed, Role, canonical_json
from sweeper.record import decode
from sweeper.store.lease import refuse_taken
from sweeper.store.reading import Reading
from sweeper.store.schema import ROW_END, confirmations, runs, superseded, trials
from sweeper.wire import to_wire

__all__ = ["Counts", "Taken", "take", "tidy"]

Row = dict[str, Any]
Key = tuple[str, str, str, str]


@dataclass(slots=True)
class Counts:
    """What became of the rows read: `added`, put in the place of worse ones (`replaced`), there already (`known`),
    worse than what is there (`left_out`), or no whole trials (`damaged`).
    """

    read: int = 0
    added: int = 0
    replaced: int = 0
    known: int = 0
    left_out: int = 0
    damaged: int = 0
    confirmations: int = 0
    runs: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Taken:
    """What one store gave."""

    counts: Counts = field(default_factory=Counts)
    conflicts: list[Conflict] = field(default_factory=list)


def take(connection: sa.Connection, source: Reading, wanted: Callable[[str], bool], label: str) -> Taken:
    """Take the `wanted` studies of `source` into the store behind `connection`, within the caller's transaction.

    Raises StorageError where a process works on a study that would change; `label` is the store's name.
    """
    taken = Taken()
    for study, rows in source.studies():
        if wanted(study):
            _Study(connection, study, label, taken).take(rows)
    _take_confirmed(connection, [c for c in source.confirmed() if wanted(c.study)], taken.counts)
    _take_runs(
        connection, [r for r in source.runs() if "study" not in r or wanted(str(r["study"]))], taken.counts
    )
    return taken


def tidy(connection: sa.Connection, label: str) -> int:
    """Leave one right row of each key that the store itself has several of; gives how many were set aside."""
    key = [trials.c[name] for name in ("study", "context", "role", "params_key")]
    several = sa.select(trials.c.study).group_by(*key).having(sa.func.count() > 1).distinct()
    return sum(
        _Study(connection, study, label, Taken()).tidy() for study in connection.scalars(several).all()
    )


class _Study:
    """A study of the store that is collected into."""

    def __init__(self, connection: sa.Connection, name: str, label: str, taken: Taken) -> None:
        self._connection = connection
        self._name = name
        self._label = label
        self._taken = taken
        self._changed = False
        query = sa.select(trials).where(trials.c.study == name).order_by(trials.c.id)
        self._rows = [dict(row) for row in connection.execute(query).mappings()]
        numbers = [int(row["number"]) for row in self._rows]
        self._next = max([0, *numbers]) + 1
        self._next_library = min([1, *numbers]) - 1

    def tidy(self) -> int:
        best: dict[Key, Row] = {}
        for row in self._rows:
            known = best.get(key_of(row))
            best[key_of(row)] = row if known is None else min(known, row, key=order)
        stays = {row["id"] for row in best.values()}
        worse = [row for row in self._rows if row["id"] not in stays]
        for row in worse:
            self._set_aside(row)
            self._connection.execute(sa.delete(trials).where(trials.c.id == row["id"]))
        return len(worse)

    def take(self, rows: Iterable[Row]) -> None:
        counts, kept = self._taken.counts, {key_of(row): row for row in self._rows}
        new: dict[Key, Row] = {}
        for row in rows:
            counts.read += 1
            key = key_of(row)
            known = kept.get(key)
            if known is not None and content(known) == content(row):
                counts.known += 1
            elif not _whole(row):
                counts.damaged += 1
            elif known is None:
                counts.added += 1
                kept[key] = new[key] = {**row, "id": None, "number": self._number(row)}
            else:
                self._judge(known, row, kept, new)
        if new:
            self._alone()
            self._connection.execute(sa.insert(trials), [_without_id(row) for row in new.values()])

    def _judge(self, known: Row, row: Row, kept: dict[Key, Row], new: dict[Key, Row]) -> None:
        """Let the right one of two rows of one key stay, and note what they disagree about."""
        conflict = within_context(*sorted((known, row), key=order))
        if conflict is not None:
            self._taken.conflicts.append(conflict)
        if order(known) <= order(row):
            self._taken.counts.left_out += 1
            return
        self._taken.counts.replaced += 1
        key, better = key_of(row), {**row, "id": known["id"], "number": known["number"]}
        kept[key] = better
        if key in new:
            new[key] = better
            return
        self._set_aside(known)
        changed = sa.update(trials).where(trials.c.id == known["id"]).values(_without_id(better))
        self._connection.execute(changed)

    def _set_aside(self, row: Row) -> None:
        """It was this store's own: whatever is better, it was measured."""
        self._alone()
        self._connection.execute(sa.insert(superseded), _without_id(row))

    def _number(self, row: Row) -> int:
        if row["role"] == Role.BASELINE.value:
            number, self._next_library = self._next_library, self._next_library - 1
        else:
            number, self._next = self._next, self._next + 1
        return number

    def _alone(self) -> None:
        if not self._changed:
            refuse_taken(self._connection, self._name, self._label)
            self._changed = True


def _without_id(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "id"}


def _whole(row: Row) -> bool:
    try:
        decode(row)
    except (SweeperError, ValueError, TypeError, KeyError):
        return False
    return bool(row["row_end"] == ROW_END)


def _take_confirmed(connection: sa.Connection, found: Iterable[Confirmed], counts: Counts) -> None:
    """The confirmations that are not there, or of which more is here."""
    groups: dict[str, list[Confirmed]] = {}
    for one in found:
        groups.setdefault(one.confirmation, []).append(one)
    c = confirmations.c
    for name, rows in groups.items():
        records = [json.dumps(to_wire(one)) for one in rows]
        known = list(connection.scalars(sa.select(c.record).where(c.confirmation == name).order_by(c.id)))
        if known and _fuller(known) >= _fuller(records):
            continue
        connection.execute(sa.delete(confirmations).where(c.confirmation == name))
        values = [
            {
                "confirmation": name,
                "study": one.study,
                "params_key": one.key[1],
                "blocks_ms": json.dumps(one.blocks_ms),
                "record": record,
            }
            for one, record in zip(rows, records, strict=True)
        ]
        connection.execute(sa.insert(confirmations), values)
        counts.confirmations += not known


def _fuller(records: list[str]) -> tuple[int, int, str]:
    """Of two states of one confirmation, the one that has more of this."""
    times = sum(len(json.loads(record)["blocks_ms"]) for record in records)
    return len(records), times, "\n".join(sorted(records))


def _take_runs(connection: sa.Connection, found: Iterable[Mapping[str, Any]], counts: Counts) -> None:
    """The runs that are not there, or that ended later than what is there says."""
    c = runs.c
    for run in found:
        known = connection.scalar(sa.select(c.record).where(c.id == run["id"]))
        if known is not None and _later(json.loads(known)) >= _later(run):
            continue
        connection.execute(sa.delete(runs).where(c.id == run["id"]))
        record = json.dumps(run, sort_keys=True)
        connection.execute(sa.insert(runs), {"id": run["id"], "started": run["started"], "record": record})
        counts.runs += known is None


def _later(run: Mapping[str, Any]) -> tuple[str, str]:
    return str(run.get("ended", "")), canonical_json(run)
