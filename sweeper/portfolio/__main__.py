"""`python -m sweeper.portfolio TABLE [TABLE…] [--most K] [--weights W,W,…]`: the few that serve many shapes.

Tables are those that `backend=replay` reads: a `study.db` or `trials.csv`, or a recorded space. For each number of
configurations the command prints which ones serve the problems best, which of them each problem takes, and the
price: how much slower than with a configuration of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sweeper.errors import ConfigError, SweeperError
from sweeper.portfolio import choose, times_of

__all__ = ["main"]


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sweeper.portfolio",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=4, help="the most configurations that are thought of (4)")
    parser.add_argument("--weights", help="how much each problem counts, in the order of the tables; equal")
    chosen = parser.parse_args(given)
    try:
        _show(chosen.tables, chosen.most, _weights(chosen.weights))
    except SweeperError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _weights(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--weights {text}: not a list of numbers", hint="write --weights 1,2,0.5"
        ) from None


def _show(paths: Sequence[Path], most: int, weights: Sequence[float] | None) -> None:
    times = times_of(paths)
    for choice in choose(times.times_ms, most, weights):
        count = len(choice.rows)
        lines = [
            f"{count} configuration{'s' * (count > 1)}: {100 * (choice.price - 1):.2f} % slower than each its own"
        ]
        for row in choice.rows:
            served = [
                f"{problem} (+{100 * (slow - 1):.1f} %)"
                for problem, serving, slow in zip(
                    times.problems, choice.serving, choice.slowdowns, strict=True
                )
                if serving == row
            ]
            lines.append(f"  {times.points[row]}: {', '.join(served) or 'none'}")
        print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    raise SystemExit(main())
