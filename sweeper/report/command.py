"""`python -m sweeper.report`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sweeper.commands import Parser, ended
from sweeper.report.api import write_report

__all__ = ["main"]

_EPILOG = """\
RESULTS are folders of runs, folders of these, or tables: study.db, trials.csv, and recorded spaces.
Written are report.html (one file, readable offline), report.md and figures/*.png; measured files are only read.
Needs plotly and matplotlib (pip install matplotlib plotly) and no GPU. docs/report.md says what is in it.

exit codes
  0 written, 1 nothing to report, 2 usage, 3 a package is missing, 4 results cannot be read or the report written,
  130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.report",
        description="Write a report of results: what is best, how sure that is, and why.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", type=Path, nargs="+", metavar="RESULTS", help="folders or tables to report on")
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: the results folder, if it is one; else here)",
    )
    add("--title", default="", metavar="TEXT", help="the report's title (default: made from what it holds)")
    add("--no-figures", action="store_true", help="no PNG files; matplotlib is then not needed")
    return parser


def _run(options: argparse.Namespace) -> int:
    written = write_report(
        options.results, options.output, title=options.title, figures=not options.no_figures
    )
    for line in written.verdicts:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"report: {written.page}\n")
    return 0
