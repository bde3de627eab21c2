"""The stores that are meant by what was named: files, folders with stores anywhere in them, servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sweeper.errors import ConfigError, StorageError
from sweeper.store import server_url
from sweeper.store.reading import Reading

__all__ = ["Source", "sources_of"]

_STORE = "study.db"
_SERVER = "env:"


class Source:
    """A store to be read: `name` is what to call it, `listed` says that it was found in a folder, not named itself."""

    def __init__(self, name: str, where: Path | str, *, listed: bool = False) -> None:
        self.name = name
        self.listed = listed
        self._where = where

    def open(self) -> Reading:
        """Raises StorageError where it is no store or cannot be read."""
        return Reading(self._where)


def sources_of(named: Iterable[str | Path], into: Path) -> list[Source]:
    """The stores in `named`, each once, without that of `into`.

    `env:NAME` is the server whose address is in the environment variable NAME. Raises ConfigError for an address
    given in the open and for `into` itself, StorageError for what is not there or holds no store.
    """
    found: dict[str, Source] = {}
    for one in named:
        for source in _meant(str(one), into):
            found.setdefault(source.name, source)
    return list(found.values())


def _meant(named: str, into: Path) -> Iterator[Source]:
    if named.startswith(_SERVER):
        variable = named.removeprefix(_SERVER)
        yield Source(named, server_url(variable))
        return
    if "://" in named:
        # Not shown: it may hold a password.
        raise ConfigError(
            "a server is not named by its address, which anybody on this machine could read from the command line",
            hint="export SWEEPER_STORE_URL=ADDRESS, and write env:SWEEPER_STORE_URL",
        )
    path, own = Path(named), (into / _STORE).resolve()
    if not path.exists():
        raise StorageError(f"{path}: no such file or folder", hint="give a results folder or a study.db")
    if path.resolve() in (into.resolve(), own):
        raise ConfigError(f"{path} is what is collected into", hint="name the folders to collect from")
    if path.is_file():
        yield Source(str(path), path)
        return
    stores = [store for store in sorted(path.rglob(_STORE)) if store.is_file()]
    if not stores:
        raise StorageError(
            f"{path} holds no {_STORE}",
            hint="its tables have no raw samples; of a run with store=postgresql the server is the store: env:NAME",
        )
    for store in stores:
        if store.resolve() != own:
            yield Source(str(store), store, listed=True)
