"""`python -m sweeper.collect`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeper.collect.api import Collected, collect
from sweeper.collect.conflicts import KINDS, Conflict
from sweeper.commands import Parser, ended, warn
from sweeper.errors import NoValidConfiguration, StorageError
from sweeper.model import Point, Role, Status
from sweeper.table.row import time_ms

__all__ = ["main"]

_SHOWN = 5
_EPILOG = """\
FROM is a results folder, a folder with such folders anywhere in it, a study.db, or env:NAME: the
PostgreSQL server whose address is in the environment variable NAME. FROM is only read. Done again,
only what is new is added. Needs no GPU. docs/clusters.md says which of two rows stays.

exit codes
  0 collected, 1 conflicts with --fail-on-conflict, 2 usage, 4 something cannot be read or written,
  130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.collect",
        description="Results from many folders, stores and servers in one folder, and what of them does not agree.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("into", type=Path, metavar="INTO", help="the results folder to collect into, made if it is missing")
    add("sources", nargs="+", metavar="FROM", help="where to collect from")
    add(
        "--study",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only studies of such names, as 'wgmma-*'; may be repeated",
    )
    add("--fail-on-conflict", action="store_true", help="end with 1 where there are conflicts")
    add("--format", choices=("text", "json"), default="text", help="default text")
    add("--top", type=_count, default=_SHOWN, metavar="N", help=f"conflicts to show (default {_SHOWN})")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    collected = collect(options.into, options.sources, studies=options.study)
    if options.format == "json":
        print(json.dumps(collected.record(options.top), indent=2, ensure_ascii=False))  # noqa: T201
    else:
        print("\n".join(_lines(collected, options.top)))  # noqa: T201
    for name, reason in collected.unreadable.items():
        warn(f"not collected: {name}: {reason}")
    if collected.unreadable:
        return StorageError.exit_code
    if options.fail_on_conflict and collected.conflicts:
        warn(f"failed: {_plural(len(collected.conflicts), 'conflict')}")
        return NoValidConfiguration.exit_code
    return 0


def _lines(collected: Collected, top: int) -> Iterator[str]:
    counts = collected.counts
    told = {
        "added": counts.added,
        "in place of worse ones": counts.replaced,
        "there already": counts.known,
        "worse than what is there": counts.left_out,
        "damaged": counts.damaged,
    }
    parts = ", ".join(f"{number} {what}" for what, number in told.items() if number)
    yield f"{_plural(counts.read, 'trial')} of {_plural(collected.stores, 'store')}: {parts or 'none'}"
    if collected.set_aside:
        yield f"{_plural(collected.set_aside, 'trial')} of {collected.into} itself set aside for better ones"
    yield f"{collected.into} holds {_plural(collected.trials, 'trial')}"
    if not collected.conflicts:
        return
    yield f"conflicts: {_plural(len(collected.conflicts), 'configuration')} measured"
    for kind, number in collected.kinds.items():
        yield f"  {number:>6} {KINDS[kind]}"
    for conflict in collected.conflicts[:top]:
        yield from _told(conflict)
    if len(collected.conflicts) > top:
        yield f"  {len(collected.conflicts) - top} more"


def _told(conflict: Conflict) -> Iterator[str]:
    first = conflict.trials[0]
    point = "" if first.role is Role.BASELINE else f" {Point.of(dict(first.params))}"
    yield f"  {first.kernel} ({first.dtype}) at {first.shape}{point}: {', '.join(conflict.kinds)}"
    for trial in conflict.trials:
        value = time_ms(trial)
        result = f"{value:.4g} ms" if trial.status is Status.OK and value is not None else trial.status.value
        where = [trial.device, trial.device_uuid if "gpu" in conflict.kinds else ""]
        where += [f"driver {trial.driver or 'unknown'}" if "driver" in conflict.kinds else ""]
        where += [f"source {trial.kernel_digest[:8] or 'unknown'}" if "source" in conflict.kinds else ""]
        where += [str(trial.time_source) if "time_source" in conflict.kinds else ""]
        compiler = trial.build.compiler if trial.build else ""
        where += [compiler if "compiler" in conflict.kinds else ""]
        yield f"    {result}: {', '.join(filter(None, where))}"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
