"""The report as Markdown: the same verdicts and tables, the figures as pictures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sweeper.report.contents import Contents, Found
from sweeper.report.failures import endings_of, status_totals
from sweeper.report.matrix import matrix_of
from sweeper.report.origin import facts_of, reproduction
from sweeper.report.verdict import value
from sweeper.report.wording import (
    configuration,
    count,
    energy,
    library,
    percent,
    problem_title,
    rate,
    span,
    time,
)
from sweeper.table.standings import standings

if TYPE_CHECKING:
    from sweeper.report.figures import Drawn

__all__ = ["markdown"]

_MOST = 40


def markdown(contents: Contents, drawn: Sequence[Drawn], folder: str) -> str:
    """The whole file; figures are named by their place in `folder`."""
    lines = [f"# {_text(contents.title)}", ""]
    sentences = contents.sentences
    if contents.lead:
        lines += [_text(contents.lead), ""]
    lines += [f"- {_text(one)}" for one in sentences[:_MOST]] if len(sentences) > 1 else [_text(sentences[0])]
    lines += [f"- and {len(sentences) - _MOST} more"] if len(sentences) > _MOST else []
    lines += ["", "## Best of each kernel", "", *_best(contents), ""]
    lines += _matrix(contents)
    lines += _figures(drawn, folder)
    lines += _confirmations(contents.found)
    lines += _failures(contents)
    lines += _origin(contents)
    return "\n".join(lines).rstrip() + "\n"


def _best(contents: Contents) -> list[str]:
    several = len(contents.found) > 1
    head = [
        *(["problem"] if several else []),
        "kernel",
        "time",
        "95 % interval",
        "GFLOP/s",
        "% of library",
        "% of roofline",
        "how sure",
        "configuration",
    ]
    rows = []
    for found, label in zip(contents.found, contents.titles, strict=True):
        title = [_text(label)] if several else []
        for one in found.winners:
            shown = energy(value(one)) if one.study.objective == "energy" else time(value(one))
            known = one.low_ms is not None and one.high_ms is not None
            sure = (
                "predicted"
                if found.problem.predicted
                else "confirmed"
                if one.is_confirmed
                else "unconfirmed"
                if known
                else "few samples"
            )
            ends = span(one.low_ms, one.high_ms) if one.low_ms is not None and one.high_ms is not None else ""
            mark = "**" if one is found.best else ""
            rows.append(
                [
                    *title,
                    f"{mark}{_cell(one.study.kernel)}{mark}",
                    shown,
                    ends,
                    rate(one.gflops),
                    percent(one.percent_of_library),
                    percent(one.percent_of_roofline),
                    sure,
                    f"`{configuration(one.params)}`",
                ]
            )
        if found.library is not None:
            rows.append(
                [
                    *title,
                    library(found.library.name),
                    time(found.library.time_ms),
                    "",
                    "",
                    "100.0",
                    "",
                    "library",
                    "",
                ]
            )
    return _table(head, rows, left={"problem", "kernel", "how sure", "configuration"})


def _matrix(contents: Contents) -> list[str]:
    if len(contents.found) < 2:
        return []
    found = matrix_of([one.problem for one in contents.found], [one.winners for one in contents.found])
    what = "the library's" if found.of_library else "the fastest kernel's"
    rows = []
    for cells, title in zip(found.cells, contents.titles, strict=True):
        shown = [
            "" if cell is None else f"**{percent(cell.percent)}**" if cell.best else percent(cell.percent)
            for cell in cells
        ]
        rows.append([_text(title), *shown])
    text = f"The best of each kernel in percent of {what} speed."
    return [
        "## Shape by variant",
        "",
        text,
        "",
        *_table(["problem", *found.kernels], rows, left={"problem"}),
        "",
    ]


def _figures(drawn: Sequence[Drawn], folder: str) -> list[str]:
    if not drawn:
        return []
    lines = ["## Figures", ""]
    for one in drawn:
        lines += [f"![{_text(one.title)}]({folder}/{one.file})", ""]
    return lines


def _confirmations(found: Iterable[Found]) -> list[str]:
    lines: list[str] = []
    for one in found:
        for study in one.problem.studies:
            rows = [
                [
                    "winner"
                    if s.is_winner
                    else "default"
                    if s.confirmed.is_default
                    else s.confirmed.role.value,
                    f"`{configuration(dict(s.confirmed.params))}`",
                    f"{s.to_winner.ratio.ratio:.4f}" if s.to_winner and not s.is_winner else "",
                    s.to_winner.verdict.value
                    if s.to_winner and not s.is_winner
                    else _cell(s.confirmed.reason),
                ]
                for s in standings(study.finals)
            ]
            if rows:
                title = f"{study.kernel}: {problem_title(one.problem)}"
                lines += [
                    _text(title),
                    "",
                    *_table(
                        ["role", "configuration", "time / winner's", "verdict"],
                        rows,
                        left={"role", "configuration", "verdict"},
                    ),
                    "",
                ]
    return ["## Confirmations", "", *lines] if lines else []


def _failures(contents: Contents) -> list[str]:
    problems = [one.problem for one in contents.found]
    totals = status_totals(problems)
    told = ", ".join(f"{n:,} {name}" for name, n in totals.items())
    lines = ["## Failures", "", f"{told}, of {count(sum(totals.values()), 'configuration')}.", ""]
    rows = [
        [one.status, f"{one.count:,}", one.stage, _cell(one.reason), f"`{one.example}`"]
        for one in endings_of(problems)[:_MOST]
    ]
    if rows:
        lines += [
            *_table(
                ["status", "count", "stage", "reason", "for example"],
                rows,
                left={"status", "stage", "reason", "for example"},
            ),
            "",
        ]
    return lines


def _origin(contents: Contents) -> list[str]:
    lines = ["## Provenance", ""]
    for result in contents.results:
        rows = [
            [name, "<br>".join(_cell(line) for line in what.split("\n"))] for name, what in facts_of(result)
        ]
        lines += [
            *([f"### {_text(result.name)}", ""] if len(contents.results) > 1 else []),
            *_table(["", ""], rows, left={""}),
            "",
        ]
    return [*lines, "To measure it again:", "", "```", *reproduction(contents.results), "```", ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: set[str]) -> list[str]:
    """A table; cells are Markdown already but for bars, which would end them."""
    found = [list(row) for row in rows]
    rule = "|".join("---" if name in left else "--:" for name in head)
    lines = [f"| {' | '.join(_cell(name) for name in head)} |", f"|{rule}|"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in found]


def _text(text: str) -> str:
    """A text whose characters mean nothing to Markdown or HTML."""
    for letter in "\\`*_[]#":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def _cell(text: str) -> str:
    return _text(text)
