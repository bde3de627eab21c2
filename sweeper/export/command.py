"""`python -m sweeper.export`: the command line, what it writes, and the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sweeper.atomic import atomic_write
from sweeper.commands import Parser, ended, warn
from sweeper.errors import ConfigError
from sweeper.export.chosen import Export, Filters
from sweeper.export.header import header
from sweeper.export.json_table import json_table
from sweeper.export.markdown import markdown
from sweeper.export.module import python_module
from sweeper.export.recorded import WRITERS, recorded_space
from sweeper.export.select import export_of
from sweeper.results import read_results

__all__ = ["FORMATS", "main"]

_TEXTS: dict[str, Callable[[Export], str]] = {
    "json": json_table,
    "python": python_module,
    "table": markdown,
}
FORMATS = ("header", *_TEXTS, "optuna", *WRITERS)

_EPILOG = """\
formats
  header        C99, C++11 and CUDA: a struct and a table per kernel, and a lookup by shape
  json          the dispatch table, with its rule for shapes that are not in it
  python        a module without dependencies: lookup(m, n, k, dtype=…, device=…)
  table         Markdown for people
  optuna        a study of Optuna's for each study, for optuna-dashboard; needs --output FILE or URL
  kernel_tuner  a cache file for Kernel Tuner's simulation mode, of one kernel at one problem
  t4            the same in the T4 format of autotuners

RESULTS are folders of runs, folders of these, study.db, trials.csv, recorded spaces, or tables of shapes.
Needs no GPU. docs/export.md says what is chosen and how a shape finds its row.

exit codes
  0 written, 1 nothing that may rank, 2 usage, 4 RESULTS cannot be read or FILE not be written, 130 interrupted
"""
_KEPT = ("study.db", "trials.csv", "best.csv", "confirmed.csv", "pareto.csv", "run.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.export",
        description="The best configurations, as what a program ships or another tool reads.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", nargs="+", metavar="RESULTS", help="folders or tables to export from")
    add("--format", required=True, choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    add(
        "--output",
        default="",
        metavar="FILE",
        help="write FILE, whole or not at all (default: standard output)",
    )
    add("--kernel", default="", metavar="NAME", help="of this kernel only")
    add("--dtype", default="", metavar="CLASS", help="of this precision class only")
    add("--device", default="", metavar="NAME", help="of this GPU only, such as h200")
    add(
        "--shape",
        default="",
        metavar="SHAPE",
        help="of this shape only: its name, or its sizes as 4096x4096x64",
    )
    add(
        "--max-configurations",
        type=int,
        metavar="K",
        help="at most K configurations a kernel for all its shapes",
    )
    add(
        "--allow-predicted",
        action="store_true",
        help="where nothing was measured, take predicted times, marked so",
    )
    add(
        "--prefix",
        default="sweeper",
        metavar="NAME",
        help="what the header's names begin with (default sweeper)",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    filters = Filters(options.kernel, options.dtype, options.device, options.shape)
    form, output, limit = options.format, options.output, options.max_configurations
    if limit is not None and form not in ("header", *_TEXTS):
        raise ConfigError(f"--max-configurations has no meaning with --format {form}, which has every row")
    if output and "://" not in output:
        _check_output(Path(output), options.results, form)
    if form == "optuna":
        return _optuna(options.results, output, filters, options.allow_predicted)
    if form in WRITERS:
        data = recorded_space(options.results, form, filters, allow_predicted=options.allow_predicted)
    else:
        export = export_of(options.results, filters, allow_predicted=options.allow_predicted, most=limit)
        text = header(export, options.prefix) if form == "header" else _TEXTS[form](export)
        data = text.encode("utf-8", "backslashreplace")
    if output:
        atomic_write(Path(output), data)
    else:
        _print(data)
    return 0


def _optuna(results: Sequence[str], output: str, filters: Filters, allow_predicted: bool) -> int:
    from sweeper.export.optuna_study import write_studies

    if not output:
        raise ConfigError("--format optuna needs --output", hint="name an SQLite file, or a database's URL")
    names = write_studies(read_results(results), output, filters, allow_predicted=allow_predicted)
    warn(f"{len(names)} {'study' if len(names) == 1 else 'studies'}: optuna-dashboard {_url(output)}")
    return 0


def _url(output: str) -> str:
    return "URL" if "://" in output else f"sqlite:///{output}"


def _check_output(path: Path, results: Sequence[str], form: str) -> None:
    """Raise ConfigError where writing `path` would cost something that was measured."""
    if path.is_dir():
        raise ConfigError(f"--output {path} is a folder", hint="name a file in it")
    read = {Path(one).resolve() for one in results}
    store = form != "optuna" and path.is_file() and path.read_bytes()[:16].startswith(b"SQLite format 3")
    if path.resolve() in read or path.name in _KEPT or store:
        raise ConfigError(
            f"--output {path}: that is a file of results, not of an export", hint="name another file"
        )


def _print(data: bytes) -> None:
    try:
        sys.stdout.write(data.decode())
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has read enough, as with `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except UnicodeEncodeError:
        sys.stdout.buffer.write(data)
