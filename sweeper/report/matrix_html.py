"""Shape by variant as a coloured table."""

from __future__ import annotations

import math

from sweeper.report.contents import Contents
from sweeper.report.markup import table, tag, text
from sweeper.report.matrix import Cell, matrix_of
from sweeper.report.verdict import value
from sweeper.report.wording import configuration, energy, library, percent, time

__all__ = ["matrix"]

_NUM = "num"


def matrix(contents: Contents) -> str:
    """Problem by kernel, coloured; empty where there is only one problem or one kernel to compare."""
    found = matrix_of([one.problem for one in contents.found], [one.winners for one in contents.found])
    if len(found.cells) < 2:
        return ""
    head = [("problem", ""), *((kernel, _NUM) for kernel in found.kernels)]
    if found.of_library:
        head.append(("library", _NUM))
    rows = []
    for one, cells, title in zip(contents.found, found.cells, contents.titles, strict=True):
        row = tag("th", text(title), scope="row") + "".join(
            _cell(cell, of_library=found.of_library) for cell in cells
        )
        if found.of_library:
            row += tag(
                "td",
                text(f"{library(one.library.name)} {time(one.library.time_ms)}" if one.library else "–"),
                class_="cell",
            )
        rows.append(tag("tr", row))
    what = "of the library's speed" if found.of_library else "of the fastest kernel's speed"
    caption = f"The best of each kernel in percent {what}; the best of a row is framed. Point at a cell for its time."
    if found.of_library and any(one.library is None for one in contents.found):
        caption += " A row without a library has times."
    key = (
        tag(
            "p",
            _swatch("below", "slower") + _swatch("above", "faster"),
            class_="key-line",
            aria_hidden="true",
        )
        if found.of_library
        else ""
    )
    body = table(head, rows, caption=caption, class_="matrix upright" if len(found.kernels) > 8 else "matrix")
    return tag("div", body, class_="scroll" + (" tall" if len(rows) > 18 else ""), tabindex=0) + key


def _cell(cell: Cell | None, *, of_library: bool) -> str:
    if cell is None:
        return tag("td", "–", class_="cell")
    share = cell.percent
    best = cell.winner
    amount = energy(value(best)) if best.study.objective == "energy" else time(value(best))
    title = f"{amount} with {configuration(best.params)}"
    style = "" if share is None else f"background:{_heat(share, of_library=of_library)}"
    return tag(
        "td",
        text(percent(share) or time(best.time_ms)),
        class_="cell top" if cell.best else "cell",
        style=style,
        title=title,
    )


def _swatch(side: str, word: str) -> str:
    colour = tag("i", class_="swatch", style=f"background:rgba(var(--{side}),.45)")
    return tag("span", f"{colour}{word} than the library")


def _heat(share: float, *, of_library: bool) -> str:
    """A tint by the ratio's logarithm, full at a factor of four; light enough for text to stay readable."""
    if share <= 0:
        return "none"
    if not of_library:
        return f"rgba(var(--above),{0.45 * max(0.0, share / 100) ** 2:.3f})"
    strength = min(abs(math.log(share / 100)) / math.log(4), 1.0)
    return f"rgba(var({'--above' if share >= 100 else '--below'}),{0.06 + 0.39 * strength:.3f})"
