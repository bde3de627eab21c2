"""A table as plain cells, on the screen and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Grid", "markdown", "rich_table"]

_MARKDOWN_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Grid:
    """`left` are the places of the columns that hold text; `below` gives the lines after the table for a width
    in characters, of which those from `chart` on are drawn with equal characters."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: tuple[int, ...]
    notes: Sequence[str] = ()
    chart: Callable[[int], list[str]] | None = None

    def below(self, width: int) -> list[str]:
        """The chart, as wide as `width`, and the notes."""
        return [*(self.chart(width) if self.chart else []), *self.notes]


def rich_table(grid: Grid) -> Table:
    """`grid` for the terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(grid.head):
        table.add_column(name, justify="left" if place in grid.left else "right")
    for row in grid.rows:
        table.add_row(*row)
    return table


def markdown(grid: Grid) -> str:
    """The grid as a section with a table of pipes."""
    rule = ["---" if place in grid.left else "---:" for place in range(len(grid.head))]
    lines = [_line(cells) for cells in (grid.head, rule, *grid.rows)]
    chart = ["```text", *grid.chart(_MARKDOWN_WIDTH), "```", ""] if grid.chart else []
    notes = [text for note in grid.notes for text in (note, "")]
    return "\n".join([f"## {grid.title}", "", *lines, "", *chart, *notes])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
