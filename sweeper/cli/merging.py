"""The stores of jobs that ran in processes of their own, copied into the command's one store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.cli.scratch import on_a_disk
from sweeper.model import Confirmed, Role, Trial
from sweeper.record import encode
from sweeper.store import Store

__all__ = ["merge"]


def merge(stores: Iterable[Path], into: Store, command: Sequence[str] | None = None) -> None:
    """Add what `stores` hold to `into`, in their order; nothing that it holds already, and nothing is taken away.

    Trials of one study are numbered on. Runs are those of `command`, as it was typed, if given. Done twice it changes
    nothing more. Raises StorageError.
    """
    known = _Numbers(into.trials())
    for path in stores:
        with on_a_disk(path) as file, Store(file) as store:
            into.add_all([named for trial in store.trials() if (named := known.numbered(trial)) is not None])
            _add_confirmed(store, into)
            for run in store.runs():
                into.add_run(run if command is None else {**run, "command": list(command)})


def _add_confirmed(store: Store, into: Store) -> None:
    """The confirmations of `store` that `into` has not, or has less of."""
    known = _by_confirmation(into)
    for name, confirmed in _by_confirmation(store).items():
        if confirmed != known.get(name):
            into.add_confirmed(confirmed)


def _by_confirmation(store: Store) -> dict[str, list[Confirmed]]:
    groups: dict[str, list[Confirmed]] = {}
    for one in store.confirmed():
        groups.setdefault(one.confirmation, []).append(one)
    return groups


class _Numbers:
    """What is stored already, and the next free number of each study: libraries count from 0 downwards."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._seen = {_identity(trial) for trial in trials}
        self._last: dict[tuple[str, bool], int] = {}
        for trial in trials:
            self._note(trial)

    def numbered(self, trial: Trial) -> Trial | None:
        """`trial` with its study's next number; None where the same was stored before."""
        identity = _identity(trial)
        if identity in self._seen:
            return None
        self._seen.add(identity)
        library = trial.role is Role.BASELINE
        last = self._last.get((trial.study, library))
        number = (0 if last is None else last - 1) if library else (1 if last is None else last + 1)
        named = replace(trial, number=number)
        self._note(named)
        return named

    def _note(self, trial: Trial) -> None:
        library = trial.role is Role.BASELINE
        key = trial.study, library
        last = self._last.get(key, trial.number)
        self._last[key] = min(last, trial.number) if library else max(last, trial.number)


def _identity(trial: Trial) -> str:
    """All of a trial but the number that its store gave it."""
    return json.dumps(encode(replace(trial, number=0)))
