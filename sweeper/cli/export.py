"""The files of a results folder, exports of its store: trials.csv, best.csv, confirmed.csv, pareto.csv and run.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.provenance import write_json
from sweeper.store import Store
from sweeper.table import frame, write_csv
from sweeper.table.confirmed import confirmed_frame
from sweeper.table.pareto import pareto
from sweeper.table.ranking import best_per_shape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["export_folder"]


def export_folder(store: Store, folder: Path) -> pd.DataFrame:
    """Write the tables and the provenance of everything in `store` into `folder`, each file whole or not at all.

    Gives the table of trials. Raises StorageError where a file cannot be written; the one that was there stays.
    """
    table, confirmed = frame(store.trials()), store.confirmed()
    write_csv(table, folder / "trials.csv")
    write_csv(best_per_shape(table, confirmed), folder / "best.csv")
    if confirmed:
        write_csv(confirmed_frame(confirmed), folder / "confirmed.csv")
    front = pareto(table)
    if len(front):
        write_csv(front, folder / "pareto.csv")
    write_json({"runs": store.runs()}, folder / "run.json")
    return table
