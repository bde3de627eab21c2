"""Composition by Hydra in somebody else's program, which may use Hydra itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["own_hydra"]

_LOCK = threading.RLock()


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """Hydra as if nobody had used it yet; afterwards all of it is as it was.

    One thread at a time: what Hydra knows is the whole process's.
    """
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.singleton import Singleton
    from hydra.core.utils import JobRuntime
    from hydra.version import VersionBase

    known = Singleton._instances
    with _LOCK:
        held = {kind: known.pop(kind, None) for kind in (GlobalHydra, JobRuntime, VersionBase)}
        try:
            yield
        finally:
            for kind, one in held.items():
                known.pop(kind, None)
                if one is not None:
                    known[kind] = one
