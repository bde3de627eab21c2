"""All that a store holds as the values it was written from: what reports, comparisons and tables begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from sweeper.errors import StorageError, SweeperError
from sweeper.model import Confirmed, Trial
from sweeper.record import decode
from sweeper.store.reading import Reading

__all__ = ["Stored", "read_store"]


class Stored(NamedTuple):
    """A store's trials and confirmations in the order they were stored, and the records of its runs."""

    trials: list[Trial]
    confirmed: list[Confirmed]
    runs: list[dict[str, Any]]


def read_store(path: Path) -> Stored:
    """What the `study.db` at `path` holds, of this or any earlier version; nothing is repaired or brought up to date.

    Raises StorageError where it is no such file or is damaged.
    """
    try:
        with Reading(path) as store:
            rows = sorted((row for _, own in store.studies() for row in own), key=lambda row: int(row["id"]))
            return Stored([decode(row) for row in rows], store.confirmed(), store.runs())
    except (KeyError, ValueError, TypeError, SweeperError) as error:
        raise StorageError(
            f"{path} is no store of results: {error}",
            hint=f"if it was damaged, `python -m sweeper.store.recovery {path.name}` copies what can be read",
        ) from error
