"""The report that a configuration asks for: on the screen, and as Markdown in the results folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.atomic import atomic_write
from sweeper.cli import course_text, pitfalls_text, roofline_text
from sweeper.cli.grid import Grid, markdown, rich_table
from sweeper.config import Config
from sweeper.errors import NoValidConfiguration
from sweeper.lessons.counted import count
from sweeper.lessons.course import courses
from sweeper.lessons.pitfalls import prices, read_counters
from sweeper.lessons.roofline import roofs
from sweeper.model import Confirmed, Status, TimeSource

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

__all__ = ["report"]

_SIDES = 2


def report(
    config: Config,
    table: pd.DataFrame,
    confirmed: Iterable[Confirmed],
    facts: Sequence[Mapping[str, Any]],
    folder: Path,
    out: Console,
    config_dirs: Sequence[Path] = (),
) -> int:
    """Show the report that `config` names, and write it to `NAME.md` in `folder`; its exit code.

    It is of those trials in `table` that belong to this command's studies, which the jobs' `facts` name. That is
    1 where none of them is valid, and nothing is written. Raises StorageError.
    """
    studies = {fact["study"] for fact in facts if "study" in fact}
    table = table[table["study"].isin(studies)]
    if not (table["status"] == Status.OK.value).any():
        return NoValidConfiguration.exit_code
    if config.report == "pitfalls":
        grids = _pitfalls(config, table, folder, out, config_dirs)
    elif config.report == "roofline":
        grids = [roofline_text.grid(roof) for roof in roofs(table, confirmed, facts)]
    else:
        grids = _course(table, confirmed, facts)
    for grid in grids:
        out.print(grid.title)
        out.print(rich_table(grid))
        for line in grid.below(out.width):
            out.print(line)
    text = "\n".join(markdown(grid) for grid in grids)
    atomic_write(folder / f"{config.report}.md", text.encode())
    return 0


def _course(
    table: pd.DataFrame, confirmed: Iterable[Confirmed], facts: Sequence[Mapping[str, Any]]
) -> list[Grid]:
    kernels = [fact["kernel"] for fact in facts if "kernel" in fact]
    sources = {kernel["name"]: kernel["source"] for kernel in kernels}
    return [course_text.grid(course) for course in courses(table, confirmed, sources)]


def _pitfalls(
    config: Config, table: pd.DataFrame, folder: Path, out: Console, config_dirs: Sequence[Path]
) -> list[Grid]:
    notes = []
    if (table["time_source"] == TimeSource.MEASURED.value).any():
        wanted = {pitfall.kernel for pitfall in config.pitfalls}
        kernels = [kernel for kernel in dict.fromkeys(table["kernel"]) if kernel in wanted]
        with _progress(out) as say:
            why_not = count(
                folder,
                kernels,
                top=_SIDES,
                config_dirs=config_dirs,
                device=_device(config),
                allow_shared=config.backend.allow_shared,
                compiler=config.build.compiler,
                say=say,
            )
        notes = [f"counters: {why_not}"] if why_not else []
    found = prices(table, config.pitfalls, read_counters(folder / "profile.csv"))
    shapes = dict.fromkeys((price.shape, price.dtype, price.device) for price in found)
    return [
        pitfalls_text.grid([p for p in found if (p.shape, p.dtype, p.device) == shape], notes)
        for shape in shapes
    ]


def _device(config: Config) -> int:
    """The GPU to count on: the first of several."""
    devices = config.backend.devices
    return devices[0] if isinstance(devices, tuple) and devices else config.backend.device


@contextlib.contextmanager
def _progress(out: Console) -> Iterator[Callable[[str], object]]:
    """What is being profiled: in place on a terminal, else one line that says that it takes a while."""
    if out.is_terminal:
        with out.status("counting under the profiler") as status:
            yield status.update
    else:
        out.print("counting under the profiler, a process for each configuration")
        yield lambda _: None
