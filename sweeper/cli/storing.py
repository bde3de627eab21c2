"""The store of a command: the file in its results folder, or the server that many commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.sqlite_file import network_file_system

if TYPE_CHECKING:
    from sweeper.store import Store

__all__ = ["STORE_FILE", "open_store", "studies_in"]

STORE_FILE = "study.db"


def open_store(kind: str, folder: Path, *, carried: bool = False) -> Store:
    """The store of `kind` for the results folder `folder`: `sqlite` lies in it, `postgresql` is elsewhere.

    `carried`: one in a network folder is worked on elsewhere and carried back, in place of being refused.
    Raises ConfigError where no server is named, SetupError and StorageError.
    """
    from sweeper.store import Store, server_url

    if carried and kind == "sqlite" and network_file_system(folder) is not None:
        from sweeper.cli.carried import CarriedStore

        return CarriedStore(folder / STORE_FILE)
    return Store(server_url() if kind == "postgresql" else folder / STORE_FILE)


def studies_in(facts: Mapping[str, Any]) -> set[str]:
    """The studies that a job with these facts worked on."""
    own = [facts, *(shape["facts"] for shape in facts.get("studies") or ())]
    return {str(one["study"]) for one in own if one.get("study")}
