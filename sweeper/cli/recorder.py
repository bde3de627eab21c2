"""Where a job's trials and confirmations go, and where earlier ones are found."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.errors import StorageError
from sweeper.model import Confirmed, Point, Role, Trial
from sweeper.store import Store, earlier_stores, other_stores
from sweeper.tune import Study

__all__ = ["Recorder"]


class Recorder:
    """The command's store for one study, and the stores of earlier runs to answer from.

    With `resume` what was stored before answers, in `store`, in the files `beside` it, as far as they can be read,
    and in the folders under `runs_root`, if any.
    Trials are numbered from 1 in the order they are stored; a library's from 0 downwards. The study is this
    process's alone until `close`. Raises StorageError that names the process which has it.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        *,
        resume: bool,
        runs_root: Path | None,
        beside: Sequence[Path] = (),
    ) -> None:
        self._store = store
        self._study = study
        store.claim(study.name)
        known = store.trials(study.name)
        self._resume = resume
        # A study that several devices worked on may have a row of each.
        usable = [t for t in (store.trials_like(study.context) if resume else ()) if study.reusable(t)]
        self._own = {(t.role, t.point.key): t for t in usable if t.study == study.name}
        self._renamed = {(t.role, t.point.key): t for t in usable if t.study != study.name}
        elsewhere = runs_root if resume else None
        self._earlier = earlier_stores(beside if resume else (), study.context)
        self._earlier += other_stores(elsewhere, study.context, besides=store) if elsewhere else []
        self.counts: Counter[str] = Counter()
        self._next = max([0, *(t.number for t in known)]) + 1
        self._next_baseline = min([1, *(t.number for t in known)]) - 1
        self._in_vain = store.begun_in_vain(study.context)
        self._under_way: list[Mapping[str, Any]] | None = None

    def close(self) -> None:
        """Let others work on the study."""
        # Where this cannot be written, the claim ends with the process.
        with contextlib.suppress(StorageError):
            self._store.release(self._study.name)

    def begin(self, params: Mapping[str, Any]) -> int:
        """Note that `params` is under way; how often the machine went down while it was.

        Only the first is written at once. Those after it are asked long before they run, and a trial is stored
        meanwhile: one write for both.
        """
        if self._under_way is None:
            self._store.begin(self._study.context, [params])
            self._under_way = []
        else:
            self._under_way.append(params)
        return self._in_vain.get(Point.of(params).key, 0)

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        key = role, Point.of(params).key
        own, renamed = self._own.get(key), self._renamed.get(key)
        earlier = (store.find(self._study.context, params, role) for store in self._earlier)
        found = (trial for trial in itertools.chain([own, renamed], earlier) if trial is not None)
        return next((trial for trial in found if self._study.reusable(trial)), None)

    def add(self, trial: Trial) -> Trial:
        if trial.role is Role.CANDIDATE:
            self.counts[trial.status.value] += 1
        own = self._own.get((trial.role, trial.point.key))
        if own is not None and own == trial:
            return own
        if trial.role is Role.BASELINE:
            number, self._next_baseline = self._next_baseline, self._next_baseline - 1
        else:
            number, self._next = self._next, self._next + 1
        begun, self._under_way = self._under_way or [], []
        named = replace(trial, study=self._study.name, shape=self._study.shape, number=number)
        return self._store.add(named, begun)

    def confirmed(self) -> list[Confirmed]:
        return self._store.confirmed(self._study.name) if self._resume else []

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        self._store.add_confirmed(confirmed)
