"""The job that runs nothing: searches held against each other on recorded tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.benchmark import BenchmarkConfig
from sweeper.benchmark.report import table, write_report
from sweeper.benchmark.run import benchmark
from sweeper.errors import NoValidConfiguration

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_benchmark"]


def run_benchmark(config: BenchmarkConfig, folder: Path, out: Console, *, dry: bool = False) -> int:
    """Run it, show each space's table as soon as it is there, and write the report into `folder`.

    `dry` says what would be searched and does nothing. Gives 0, or 1 where no strategy came to an end on any space.
    Raises ConfigError and StorageError.
    """

    def say(text: str) -> None:
        out.print(text, markup=False)

    if dry:
        say(
            f"{config.seeds} seeds of {', '.join(config.strategies)}, {config.evaluations} evaluations each, on"
            f" {', '.join(config.spaces)}"
        )
        return 0
    spaces = []
    for curves in benchmark(config, say):
        if curves:
            spaces.append(curves)
            say(f"\n{table(curves)}")
            # What is there is kept, however the rest ends.
            write_report(folder, spaces, config)
    if spaces:
        say(f"\nresults: {folder}")
    return 0 if spaces else NoValidConfiguration.exit_code
