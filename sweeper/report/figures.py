"""The page's main figures as PNG files, for places that show no HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sweeper.atomic import atomic_write
from sweeper.report.contents import Contents, Found
from sweeper.report.problem_figures import clocks, kernels, roofline
from sweeper.report.study_figures import importance, levels, pair, progress, samples
from sweeper.report.wording import problem_title

__all__ = ["Drawn", "draw_all"]

_MOST_PROBLEMS = 6


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure that was written: its file's name, its title, and which problem it is of."""

    file: str
    title: str
    problem: int


_KINDS: tuple[tuple[str, Callable[[Found], tuple[str, bytes] | None]], ...] = (
    ("kernels", kernels),
    ("roofline", roofline),
    ("progress", progress),
    ("levels", levels),
    ("pair", pair),
    ("importance", importance),
    ("samples", samples),
    ("clocks", clocks),
)


def draw_all(contents: Contents, folder: Path) -> list[Drawn]:
    """Draw the figures of the first problems into `folder`, each of the best kernel there, and say which."""
    return list(_drawn(contents, folder))


def _drawn(contents: Contents, folder: Path) -> Iterator[Drawn]:
    several = len(contents.found) > 1
    for place, found in enumerate(contents.found[:_MOST_PROBLEMS]):
        if found.best is None:
            continue
        for name, draw in _KINDS:
            made = draw(found)
            if made is None:
                continue
            title, data = made
            prefix = f"{place + 1:02d}-{_plain(problem_title(found.problem))}-" if several else ""
            atomic_write(folder / f"{prefix}{name}.png", data)
            yield Drawn(f"{prefix}{name}.png", title, place)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("³", "")).strip("-")[:40].strip("-")
