"""`python -m sweeper.doctor`: one line for everything that was looked at."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sweeper.cli.terminal import console
from sweeper.doctor.examination import Examination, examine
from sweeper.doctor.finding import State
from sweeper.errors import INTERRUPTED, SetupError

__all__ = ["main"]

_MARKS = {State.OK: "ok", State.NOTE: "note", State.ABSENT: "-", State.BROKEN: "BROKEN"}


def main(argv: Sequence[str] | None = None) -> int:
    """Look, say what was found, and return 0, or 3 where a search could not run here."""
    given = _parser().parse_args(argv)
    try:
        found = examine(given.results_dir)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    if given.json:
        record = {"able": found.able, "findings": [asdict(one) for one in found.findings]}
        sys.stdout.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    else:
        _show(found)
    return 0 if found.able else SetupError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sweeper.doctor",
        description="What of this machine a search can use, with the mend for what it cannot. Changes nothing.",
        epilog="exit codes: 0 a search can run here, 3 it cannot",
        allow_abbrev=False,
    )
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def _show(found: Examination) -> None:
    out = console()
    width = max(len(one.what) for one in found.findings)
    for one in found.findings:
        out.print(f"{_MARKS[one.state]:6} {one.what:{width}}  {one.text}", highlight=False, soft_wrap=True)
        if one.mend and one.state is not State.OK:
            out.print(f"{'':6} {'':{width}}  → {one.mend}", highlight=False, soft_wrap=True)
    out.print("a search can run here" if found.able else "a search cannot run here: see what is BROKEN")
