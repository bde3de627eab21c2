"""`python -m sweeper.compare`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sweeper.commands import Parser, ended, warn
from sweeper.compare.api import Comparison, compare
from sweeper.compare.ratio import BETWEEN_RUNS
from sweeper.compare.report import FORMATS, render
from sweeper.compare.settings import MATCH, Settings, checked_match, fraction, parse_only
from sweeper.errors import NoValidConfiguration

__all__ = ["main"]

_SHOWN = 40
_EPILOG = """\
A and B are folders of runs, folders of these, or tables: study.db, trials.csv, recorded tables of
other tuners. A ratio is the time in B over that in A. Needs no GPU. docs/compare.md says what a
verdict means.

exit codes
  0 compared, 1 slower than --fail-on-slower, a status got worse with --fail-on-failure, or no row in
  common, 2 usage, 4 a result cannot be read, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.compare",
        description="Two results row by row, B against A: FASTER, SLOWER, SAME or UNSURE, and how sure that is.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("a", type=Path, metavar="A", help="what is compared with")
    add("b", type=Path, metavar="B", help="what is judged")
    add(
        "--best",
        action="store_true",
        help="only the best of each kernel and shape, whichever configuration it is",
    )
    add(
        "--match",
        metavar="COLUMNS",
        default=",".join(MATCH),
        help=f"what rows are matched by (default {','.join(MATCH)})",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="only these rows; a.COLUMN=VALUE of one side; may be repeated",
    )
    add(
        "--least-effect", default="1%", metavar="SHARE", help="what differs by less is the same (default 1%%)"
    )
    add(
        "--between-runs",
        default=f"{100 * BETWEEN_RUNS:g}%",
        metavar="SHARE",
        help="how far the medians of two runs of one program scatter, a standard deviation"
        f" (default {100 * BETWEEN_RUNS:g}%%)",
    )
    add(
        "--fail-on-slower",
        metavar="SHARE",
        help="end with 1 where a row is surely slower by more than this, as 2%%",
    )
    add(
        "--fail-on-failure", action="store_true", help="end with 1 where a row was valid in A and failed in B"
    )
    add("--format", choices=FORMATS, default="text", help="default text; csv and json have every row")
    add("--top", type=_count, default=_SHOWN, metavar="N", help=f"rows to show (default {_SHOWN}; 0: none)")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    settings = Settings(
        match=checked_match([name.strip() for name in options.match.split(",") if name.strip()]),
        only=tuple(parse_only(text) for text in options.only),
        best=options.best,
        least_effect=fraction(options.least_effect, "--least-effect"),
        between_runs=fraction(options.between_runs, "--between-runs", zero=True),
        threshold=None
        if options.fail_on_slower is None
        else fraction(options.fail_on_slower, "--fail-on-slower", zero=True),
    )
    comparison = compare(options.a, options.b, settings)
    print(render(comparison, options.format, options.top))  # noqa: T201
    return _code(comparison, fail_on_failure=options.fail_on_failure)


def _code(comparison: Comparison, *, fail_on_failure: bool) -> int:
    failures = len(comparison.worse) if fail_on_failure else 0
    if failures:
        warn(f"failed: {failures} valid in A and not in B")
    if comparison.too_slow:
        warn(f"failed: {len(comparison.too_slow)} slower than --fail-on-slower allows")
    return NoValidConfiguration.exit_code if failures or comparison.too_slow else 0
