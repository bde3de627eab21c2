"""The files of a results folder, exports of its store: trials.csv, best.csv, confirmed.csv, pareto.csv and run.json."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.model import Confirmed, Trial
from sweeper.provenance import write_json
from sweeper.store import Store
from sweeper.table import frame, write_csv
from sweeper.table.confirmed import confirmed_frame
from sweeper.table.pareto import pareto
from sweeper.table.ranking import best_per_shape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Share", "export_folder"]


@dataclass(frozen=True, slots=True)
class Share:
    """What a command's folder shows of a store that others use too: `studies` whole, whoever measured them.

    With `studies` None that is everything in it. `runs` are the command's own, one that got no further than its
    configuration included.
    """

    store: Store
    studies: Collection[str] | None = None
    own_runs: tuple[dict[str, Any], ...] = ()

    def trials(self) -> list[Trial]:
        if self.studies is None:
            return self.store.trials()
        return [trial for name in sorted(self.studies) for trial in self.store.trials(name)]

    def confirmed(self) -> list[Confirmed]:
        if self.studies is None:
            return self.store.confirmed()
        return [one for name in sorted(self.studies) for one in self.store.confirmed(name)]

    def runs(self) -> list[dict[str, Any]]:
        if self.studies is None:
            return self.store.runs()
        found = [run for name in sorted(self.studies) for run in self.store.runs(name)]
        by_id = {run["id"]: run for run in (*self.own_runs, *found)}
        return sorted(by_id.values(), key=lambda run: (run["started"], run["id"]))


def export_folder(store: Store | Share, folder: Path) -> pd.DataFrame:
    """Write the tables and the provenance of everything in `store` into `folder`, each file whole or not at all.

    Gives the table of trials. Raises StorageError where a file cannot be written; the one that was there stays.
    """
    share = store if isinstance(store, Share) else Share(store)
    table, confirmed = frame(share.trials()), share.confirmed()
    write_csv(table, folder / "trials.csv")
    write_csv(best_per_shape(table, confirmed), folder / "best.csv")
    if confirmed:
        write_csv(confirmed_frame(confirmed), folder / "confirmed.csv")
    front = pareto(table)
    if len(front):
        write_csv(front, folder / "pareto.csv")
    write_json({"runs": share.runs()}, folder / "run.json")
    return table
