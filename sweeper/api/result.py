"""What a search from Python has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.api.wording import as_html, sentence
from sweeper.errors import StorageError
from sweeper.model import Confirmed, Point

if TYPE_CHECKING:
    import pandas as pd

    from sweeper.backend.cuda.callable_kernel import CallableKernel
    from sweeper.store import Store

__all__ = ["TuneResult", "result_of"]


@dataclass(frozen=True, slots=True)
class TuneResult:
    """One study of a results folder: every configuration that was tried, failed ones too.

    Printed, it says in a sentence what was found and how sure that is.
    """

    results_dir: Path
    """The folder with `study.db`, `trials.csv`, `best.csv` and `run.json`."""
    study: str
    """The study's name in the folder's tables."""
    table: pd.DataFrame = field(repr=False, compare=False)
    """A row a configuration, and a library's where one ran: the columns of trials.csv (docs/results.md)."""
    finals: tuple[Confirmed, ...] = field(repr=False, compare=False, default=())
    notes: tuple[str, ...] = ()
    """What the search had to say, such as why no GPU was used."""
    kernel_node: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)
    """The kernel's description, as composed."""
    kernel_path: Path | None = field(repr=False, compare=False, default=None)
    """Where the description is, or might have been: its source is looked for beside it."""

    @property
    def best(self) -> pd.Series[Any]:
        """The winner's row: the columns of best.csv. Where finalists were timed in turns it is the one that won.

        Raises NoValidConfiguration, with the reasons counted, where no configuration was valid.
        """
        from sweeper.table import best_per_shape
        from sweeper.table.ranking import best

        best(self.table)
        found: pd.Series[Any] = best_per_shape(self.table, self.finals).iloc[0]
        return found

    @property
    def params(self) -> dict[str, Any]:
        """The winner's parameters. Raises NoValidConfiguration."""
        import json

        return Point.of(json.loads(self.best["params"])).params

    @property
    def confirmed(self) -> pd.DataFrame:
        """The finalists as timed in turns: the columns of confirmed.csv; empty where nothing was measured."""
        from sweeper.table.confirmed import confirmed_frame

        return confirmed_frame(self.finals)

    def load(self, device: int = 0) -> CallableKernel:
        """The winner, compiled, to be called on arrays on a GPU: see `sweeper.load_kernel`."""
        from sweeper.api.loading import load_kernel

        return load_kernel(self, device=device)

    def report(self, output: Path | str | None = None, *, figures: bool = True) -> Path:
        """Write the report of the whole results folder, to itself or to `output`; the path of report.html.

        `figures` are PNG files beside it. Raises SetupError where a package for it is missing, StorageError.
        """
        from sweeper.report.api import write_report

        folder = None if output is None else Path(output)
        return write_report([self.results_dir], folder, figures=figures).page

    def __str__(self) -> str:
        return sentence(self.table, self.finals)

    def _repr_html_(self) -> str:
        return as_html(self.table, self.finals)


def result_of(
    store: Store,
    folder: Path,
    study: str,
    *,
    kernel_node: Mapping[str, Any],
    kernel_path: Path,
    notes: tuple[str, ...] = (),
) -> TuneResult:
    """The result of `study`, which `store` has. Raises StorageError."""
    from sweeper.table import frame

    trials = store.trials(study)
    if not trials:
        raise StorageError(f"{folder} has no trial of {study}")
    return TuneResult(
        results_dir=folder,
        study=study,
        table=frame(trials),
        finals=tuple(store.confirmed(study)),
        notes=notes,
        kernel_node=kernel_node,
        kernel_path=kernel_path,
    )
