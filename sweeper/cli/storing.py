"""The store of a command: the file in its results folder, or the server that many commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeper.store import Store

__all__ = ["STORE_FILE", "open_store", "studies_in"]

STORE_FILE = "study.db"


def open_store(kind: str, folder: Path) -> Store:
    """The store of `kind` for the results folder `folder`: `sqlite` lies in it, `postgresql` is elsewhere.

    Raises ConfigError where no server is named, SetupError and StorageError.
    """
    from sweeper.store import Store, server_url

    return Store(server_url() if kind == "postgresql" else folder / STORE_FILE)


def studies_in(facts: Mapping[str, Any]) -> set[str]:
    """The studies that a job with these facts worked on."""
    own = [facts, *(shape["facts"] for shape in facts.get("studies") or ())]
    return {str(one["study"]) for one in own if one.get("study")}
