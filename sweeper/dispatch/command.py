"""`python -m sweeper.dispatch`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from sweeper.commands import Parser, ended
from sweeper.dispatch.api import Answer, Dispatcher

__all__ = ["main"]

_EPILOG = """\
RESULTS are folders of runs, folders of these, or tables: study.db, trials.csv, and those of bench/bench_shapes.py.
Needs no GPU. docs/dispatch.md says how the answer is found.

exit codes
  0 answered, 1 nothing that can run, 2 usage, 4 RESULTS cannot be read, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.dispatch",
        description="Which kernel and configuration to take for a shape: recorded there, or nearest to it.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", type=Path, nargs="+", metavar="RESULTS", help="folders or tables to answer from")
    add("--shape", action="append", required=True, metavar="MxNxK", help="sizes; may be repeated")
    add("--dtype", default="float32", metavar="CLASS", help="precision class (default float32)")
    add("--layout", default="", metavar="LAYOUT", help="a letter an operand, n or t (default nn)")
    add("--device", default="", metavar="NAME", help="the GPU, such as h200 (default: that of the tables)")
    add(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where your own kernels are",
    )
    add("--json", action="store_true", help="print a JSON object for every shape, a line each")
    return parser


def _run(options: argparse.Namespace) -> int:
    dispatcher = Dispatcher(options.results, options.config_dir)
    for shape in options.shape:
        answer = dispatcher.best(shape, options.dtype, options.layout, options.device)
        print(json.dumps(answer.record()) if options.json else _told(answer))  # noqa: T201
    return 0


def _told(answer: Answer) -> str:
    """The command that runs it, and what is known of it."""
    sizes = "x".join(map(str, answer.dims.values()))
    params = " ".join(f"{name}={value}" for name, value in answer.params.items())
    at = "here" if answer.tuned else "there"
    lines = [
        f"{sizes} {answer.dtype} {answer.layout} on {answer.device}",
        f"  {answer.kernel} {params}",
        f"  {answer.how}",
        f"  {answer.time_ms:.4g} ms {at}{_interval(answer)}{_ratio(answer)}",
    ]
    if answer.predicted_ms is not None:
        lines.append(f"  about {answer.predicted_ms:.4g} ms expected here: not measured")
    return "\n".join([*lines, f"  from {answer.table}"])


def _interval(answer: Answer) -> str:
    if answer.time_low_ms is None or answer.time_high_ms is None:
        return ""
    return f" ({answer.time_low_ms:.4g} to {answer.time_high_ms:.4g})"


def _ratio(answer: Answer) -> str:
    if answer.ratio is None:
        return ", no library beside it"
    return f", {answer.ratio:.3f} × {answer.library or 'the better library'}"
