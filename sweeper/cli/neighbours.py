"""What the command has measured of a kernel at other sizes, for a search that begins with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.cli.estimates import from_times
from sweeper.errors import StorageError
from sweeper.model import Role, Status, Trial
from sweeper.space import Space
from sweeper.store import Store
from sweeper.store.stored import read_store
from sweeper.table.row import time_ms
from sweeper.tune import Study

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["neighbours"]

_LEAST_KNOWN = 8


def neighbours(
    study: Study, space: Space, store: Store, beside: Sequence[Path] = ()
) -> list[tuple[Mapping[str, int], npt.NDArray[np.float64]]]:
    """The sizes at which `study`'s kernel was measured under its conditions, and times by row of `space`.

    They are looked for in `store`, and in the files `beside` it as far as they can be read. Only rows of the same
    source, precision class, backend and kind of device count, and a problem of which little is known does not.
    """
    problems: dict[tuple[tuple[str, int], ...], list[Trial]] = {}
    for trial in _trials(study, store, beside):
        if _alike(study, trial) and dict(trial.dims) != dict(study.dims):
            problems.setdefault(tuple(sorted(trial.dims.items())), []).append(trial)
    found: list[tuple[Mapping[str, int], npt.NDArray[np.float64]]] = []
    for sizes, trials in problems.items():
        if sum(trial.status is Status.OK for trial in trials) >= _LEAST_KNOWN:
            estimate = from_times(space, _times(trials))
            if estimate is not None:
                found.append((dict(sizes), estimate))
    return found


def _trials(study: Study, store: Store, beside: Sequence[Path]) -> Iterator[Trial]:
    begins = f"{study.spec.name}-{study.spec.dtype.name}-"
    for name in store.studies():
        if name.startswith(begins):
            yield from store.trials(name)
    for path in beside:
        # Another job may be about to make it.
        with contextlib.suppress(StorageError):
            yield from read_store(path).trials


def _alike(study: Study, trial: Trial) -> bool:
    world = study.evaluator
    here = (study.spec.name, study.spec.digest, study.spec.dtype.name, world.backend, world.identity.name)
    there = (trial.kernel, trial.kernel_digest, trial.dtype, trial.backend, trial.device)
    return trial.role is Role.CANDIDATE and here == there


def _times(trials: Iterable[Trial]) -> Iterator[tuple[Mapping[str, int | float | bool | str], float | None]]:
    for trial in trials:
        yield trial.params, time_ms(trial) if trial.status is Status.OK else None
