"""`python -m sweeper.importance`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from sweeper.commands import Parser, ended
from sweeper.errors import ConfigError
from sweeper.importance.analyse import analyse_results
from sweeper.importance.model import Importance
from sweeper.importance.told import told
from sweeper.results import read_results

__all__ = ["main"]

_EPILOG = """\
RESULTS are results folders, folders of these, or tables: study.db, trials.csv, recorded spaces, T4, caches of
Kernel Tuner's. Needs no GPU. docs/importance.md says what each figure means.

exit codes
  0 told, 1 no valid configuration in any of them, 2 usage, 4 RESULTS cannot be read, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.importance",
        description="Why the best configuration is the best: what each parameter and pair explains, and what a"
        " change of one parameter costs.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", type=Path, nargs="+", metavar="RESULTS", help="folders or tables to look at")
    add("--study", default="", metavar="NAME", help="this study alone")
    add(
        "--whole",
        action="store_true",
        default=None,
        help="every feasible configuration is in the tables: shares are exact (compact recordings say it themselves)",
    )
    add("--format", choices=("text", "json"), default="text", help="json: an object with all there is")
    return parser


def _run(options: argparse.Namespace) -> int:
    found = [
        (result.name, one)
        for result in read_results(options.results)
        for one in analyse_results(result, study=options.study or None, whole=options.whole)
    ]
    if not found:
        raise ConfigError(
            f"no study {options.study!r} is in the results"
            if options.study
            else "no configuration is in the results"
        )
    if options.format == "json":
        print(json.dumps({"analyses": [_record(name, one) for name, one in found]}, ensure_ascii=False))  # noqa: T201
    else:
        print("\n\n\n".join(told(one) for _, one in found))  # noqa: T201
    return 0 if any(one.winner is not None for _, one in found) else 1


def _record(name: str, found: Importance) -> dict[str, object]:
    return {"results": name, **found.record()}
