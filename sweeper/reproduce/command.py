"""`python -m sweeper.reproduce`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.cli.export import export_folder
from sweeper.cli.terminal import console
from sweeper.commands import Parser, ended, warn
from sweeper.compare import BETWEEN_RUNS
from sweeper.compare.settings import Filter, fraction, parse_only
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.reproduce.agreement import Agreement, Outcome, judge
from sweeper.reproduce.choose import ALL, BEST, choose
from sweeper.reproduce.report import summary, text, write
from sweeper.reproduce.run import Pair, Reproduction
from sweeper.reproduce.work import Options, Work, work_of
from sweeper.results import read_results
from sweeper.store import Store

__all__ = ["main"]

_STORE = "study.db"
_EPILOG = """\
RESULTS are folders of runs, folders of these, or a study.db; a trials.csv needs the run.json beside
it. Measured rows need a GPU; predicted ones are proved right and predicted again, replayed ones
looked up again. Times of confirmed rows are those of their turns. docs/reproduce.md says what a
verdict means.

exit codes
  0 all agree, 1 some do not, 2 usage or no provenance, 3 no GPU or compiler, 4 a folder cannot be
  read or written, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    return ended(lambda: _run(_parser().parse_args(given), given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.reproduce",
        description="Measures the rows of a published result again, and says which of them agree.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", type=Path, nargs="+", metavar="RESULTS", help="what was published")
    add(
        "--rows",
        type=_rows,
        default=BEST,
        metavar="best|all|N",
        help="the best of every kernel and shape, all valid rows, or the N best (default best)",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="only rows with that value, as kernel=tiled; may be repeated",
    )
    add(
        "--results-dir",
        type=Path,
        metavar="DIR",
        help="where the new rows go (default results/runs/<time>-reproduce-<name>)",
    )
    add(
        "--backend",
        choices=("cuda", "emulator", "replay"),
        default="",
        help="instead of the one that made the times; only one whose times compare",
    )
    add("--device", type=_index, default=0, metavar="I", help="GPU, in PCI order (default 0)")
    add("--allow-shared", action="store_true", help="use a GPU that other processes are on")
    add("--table", type=Path, metavar="PATH", help="the table to replay from (default: the recorded path)")
    add(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where your own kernels are",
    )
    add("--least-effect", default="1%", metavar="SHARE", help="what differs by less agrees (default 1%%)")
    add(
        "--between-runs",
        default=f"{100 * BETWEEN_RUNS:g}%",
        metavar="SHARE",
        help="how far the medians of two runs of one program scatter, a standard deviation"
        f" (default {100 * BETWEEN_RUNS:g}%%)",
    )
    return parser


def _rows(said: str) -> str | int:
    if said in (BEST, ALL):
        return said
    if not said.isdecimal() or int(said) < 1:
        raise argparse.ArgumentTypeError(f"{said!r} is neither best, all nor a whole number of at least 1")
    return int(said)


def _index(said: str) -> int:
    if not said.isdecimal():
        raise argparse.ArgumentTypeError(f"{said!r} is not the number of a GPU")
    return int(said)


@dataclass
class _Kept:
    """The new rows' folder, and its store once there is something to store."""

    folder: Path
    store: Store | None = None

    def open(self) -> Store:
        if self.store is None:
            self.store = Store(self.folder / _STORE)
        return self.store


def _run(options: argparse.Namespace, given: Sequence[str]) -> int:
    least_effect = fraction(options.least_effect, "--least-effect")
    between_runs = fraction(options.between_runs, "--between-runs", zero=True)
    works = _works(options, [parse_only(said) for said in options.only])
    kept = _Kept(_folder(options.results_dir, options.results))
    out = console()
    reproduction = Reproduction(kept.open, out, warn, ["python", "-m", "sweeper.reproduce", *given])
    pairs: list[Pair] = []
    try:
        pairs.extend(reproduction.run(works))
    finally:
        # What was measured before an interrupt or a fault is kept.
        outcomes = judge(pairs, least_effect, between_runs)
        if kept.store is not None:
            _export(kept, kept.store, outcomes)
    print(text(outcomes))  # noqa: T201
    print(f"\n{summary(outcomes)}")  # noqa: T201
    print(f"results: {kept.folder}")  # noqa: T201
    agree = all(one.agreement is Agreement.AGREES for one in outcomes)
    return 0 if agree else NoValidConfiguration.exit_code


def _works(options: argparse.Namespace, only: Sequence[Filter]) -> list[Work]:
    """What is to be done. Everything wrong with any of it is found before anything is measured."""
    chosen, failed = choose(read_results(options.results), options.rows, only)
    if failed and options.rows == ALL:
        warn(f"{failed} rows that were not valid are left out")
    how = Options(
        options.backend,
        options.device,
        options.allow_shared,
        options.table,
        tuple(folder.absolute() for folder in options.config_dir),
    )
    return [work_of(published, how) for published in chosen]


def _folder(given: Path | None, results: Sequence[Path]) -> Path:
    """Where the new rows go: a folder that has none yet. Raises ConfigError."""
    if given is not None:
        folder = given.expanduser().absolute()
    else:
        name = re.sub(r"[^A-Za-z0-9_.]+", "+", results[0].absolute().name)[:40]
        seconds = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds)) + f"-{int(seconds % 1 * 1e6):06d}"
        folder = Path.cwd() / "results" / "runs" / f"{stamp}-reproduce-{name}"
    if (folder / _STORE).exists() or (folder / "trials.csv").exists():
        raise ConfigError(
            f"--results-dir {folder} holds results already: new rows do not go among others",
            hint="name a folder that is new",
        )
    return folder


def _export(kept: _Kept, store: Store, outcomes: Sequence[Outcome]) -> None:
    try:
        export_folder(store, kept.folder)
        write(outcomes, kept.folder)
    finally:
        store.close()
