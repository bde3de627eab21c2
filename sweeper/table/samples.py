"""Every raw sample of a store as one table: `python -m sweeper.table.samples study.db samples.csv`.

A row a sample, in the order they were taken: `study`, `trial`, `role`, `kernel`, `shape`, `params` and `cache`
say of which configuration, `sample` counts from 1, `time_ms` is in milliseconds a launch. Samples that were
discarded are in no store.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.errors import StorageError, SweeperError
from sweeper.model import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["run", "samples_frame"]

_TYPES = {
    **dict.fromkeys(("study", "role", "kernel", "shape", "params", "cache"), "string"),
    **dict.fromkeys(("trial", "sample"), "Int64"),
    "time_ms": "Float64",
}
_ORDER = ("study", "trial", "role", "kernel", "shape", "params", "cache", "sample", "time_ms")


def samples_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """The samples of `trials`, those of the cache state that ranks first."""
    import pandas as pd

    rows = [
        (
            trial.study,
            trial.number,
            trial.role.value,
            trial.kernel,
            trial.shape,
            params,
            cache,
            place,
            time_ms,
        )
        for trial in trials
        for params in [json.dumps(dict(trial.params), ensure_ascii=False)]
        for timing in [trial.timing, trial.timing.beside if trial.timing else None]
        if timing is not None
        for cache in [timing.cache]
        for place, time_ms in enumerate(timing.samples_ms, 1)
    ]
    return pd.DataFrame(rows, columns=list(_ORDER)).astype({name: _TYPES[name] for name in _ORDER})


def run(args: Sequence[str]) -> int:
    """Write the samples of the store `args[0]` to `args[1]`; the exit code."""
    from sweeper.store.stored import read_store
    from sweeper.table.table import write_csv

    if len(args) != 2:
        sys.stderr.write("usage: python -m sweeper.table.samples study.db samples.csv\n")
        return 2
    try:
        if not Path(args[0]).is_file():
            raise StorageError(f"there is no store {args[0]}", hint="give the study.db of a results folder")
        table = samples_frame(read_store(Path(args[0])).trials)
        write_csv(table, Path(args[1]))
    except SweeperError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{len(table)} samples in {args[1]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
