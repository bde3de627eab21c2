"""`collect`: many stores into one results folder, and what of them does not agree."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.cli.export import export_folder
from sweeper.collect.conflicts import Conflict, across_contexts
from sweeper.collect.merge import Counts, take, tidy
from sweeper.collect.sources import Source, sources_of
from sweeper.errors import ConfigError, StorageError
from sweeper.store import Store

__all__ = ["Collected", "collect"]

_STORE = "study.db"


@dataclass(slots=True)
class Collected:
    """What was collected into the folder `into`: how many `trials` it holds now, and what became of those read.

    `set_aside` were of `into` itself and had a better one beside them. `unreadable` are the stores that could not be
    read, and why. `conflicts` are of everything that `into` holds, and of what was read this time.
    """

    into: Path
    stores: int = 0
    trials: int = 0
    counts: Counts = field(default_factory=Counts)
    set_aside: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, int]:
        """How many conflicts there are of each kind; one may be of several."""
        return dict(Counter(kind for conflict in self.conflicts for kind in conflict.kinds).most_common())

    def record(self, top: int) -> dict[str, Any]:
        """As plain JSON values, with the first `top` conflicts."""
        return {
            "into": str(self.into),
            "stores": self.stores,
            "trials": self.trials,
            "rows": {name: getattr(self.counts, name) for name in Counts.__slots__},
            "set_aside": self.set_aside,
            "unreadable": self.unreadable,
            "conflicts": len(self.conflicts),
            "kinds": self.kinds,
            "first": [conflict.record() for conflict in self.conflicts[:top]],
        }


def collect(
    into: Path | str,
    named: Sequence[Path | str],
    *,
    studies: Sequence[str] = (),
    said: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Merge the stores in `named` into the results folder `into`, and write its tables anew.

    `named` are folders, in which every store is taken, files, and `env:NAME` for the server whose address is in the
    environment variable NAME; they are only read. With `studies` only those whose name matches one of these patterns
    are taken. What is in `into` stays; done again it changes nothing. A store that was not itself named and cannot
    be read is passed over and told. `said` hears of each store.

    Raises ConfigError for what cannot be meant, StorageError for what is named and cannot be read, and where `into`
    cannot be written or a run is working on one of its studies.
    """
    into = Path(into)
    # A path has no two slashes in a row.
    if ":/" in str(into) or str(into).startswith("env:"):
        raise ConfigError(
            "what is collected into is a folder", hint="name a folder, and the servers after it"
        )
    if into.is_file():
        raise ConfigError(f"{into} is a file; what is collected into is a folder")
    sources = sources_of(named, into)
    collected = Collected(into, stores=len(sources))

    def wanted(study: str) -> bool:
        return not studies or any(fnmatch.fnmatchcase(study, pattern) for pattern in studies)

    with Store(into / _STORE) as store:
        collected.set_aside = store.write(lambda connection: tidy(connection, store.label))
        for source in sources:
            _take(store, source, wanted, collected)
            said(source.name)
        collected.conflicts += store.write(lambda connection: list(across_contexts(connection)))
        collected.trials = len(export_folder(store, into))
    return collected


def _take(store: Store, source: Source, wanted: Callable[[str], bool], collected: Collected) -> None:
    """All of `source`, or nothing of it."""
    try:
        reading = source.open()
    except StorageError as error:
        if not source.listed:
            raise
        collected.unreadable[source.name] = error.message
        return
    with reading:
        try:
            taken = store.write(lambda connection: take(connection, reading, wanted, store.label))
        except StorageError as error:
            if not (source.listed and error.message.startswith(reading.label)):
                raise
            collected.unreadable[source.name] = error.message
            return
    collected.counts.add(taken.counts)
    collected.conflicts += taken.conflicts
