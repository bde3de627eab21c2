"""The bottom of the page: confirmations, failures, and where the results come from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from sweeper.report.contents import Contents
from sweeper.report.failures import endings_of, status_totals
from sweeper.report.markup import table, tag, text
from sweeper.report.origin import facts_of, reproduction
from sweeper.report.wording import configuration, count, digits, time
from sweeper.table.standings import Standing, standings

__all__ = ["confirmations", "failures", "provenance"]

_NUM = "num"
_COLOURS = ("cat0", "cat1", "cat5", "cat3", "cat6", "cat7")


def failures(contents: Contents) -> str:
    """How configurations ended, and the reasons of those that failed."""
    problems = [one.problem for one in contents.found]
    totals = status_totals(problems)
    whole = sum(totals.values()) or 1
    # The first colour is that of ok, whether any is or not.
    later = _COLOURS if "ok" in totals else _COLOURS[1:]
    bar = "".join(
        tag("span", style=f"flex:{n};background:var(--{later[min(place, len(later) - 1)]})")
        for place, n in enumerate(totals.values())
    )
    told = ", ".join(f"{n:,} {name}" for name, n in totals.items())
    start = tag("p", text(f"{told}, of {count(whole, 'configuration')}."), class_="note")
    start += tag("div", bar, class_="statusbar", role="img", aria_label=f"statuses: {told}")
    endings = endings_of(problems)
    if not endings:
        return start + tag("p", "No configuration failed.", class_="note")
    rows = [
        tag(
            "tr",
            tag("td", text(one.status), class_="name")
            + tag("td", text(f"{one.count:,}"), class_=_NUM)
            + tag("td", text(f"{100 * one.count / whole:.1f} %"), class_=_NUM)
            + tag("td", text(one.stage))
            + tag("td", text(one.reason))
            + tag("td", text(", ".join(one.kernels[:4]) + (" …" if len(one.kernels) > 4 else "")))
            + tag("td", text(one.example), class_="tight"),
        )
        for one in endings[:60]
    ]
    head = [
        ("status", ""),
        ("count", _NUM),
        ("share", _NUM),
        ("stage", ""),
        ("reason", ""),
        ("kernels", ""),
        ("for example", "tight"),
    ]
    return start + tag(
        "div",
        table(head, rows, caption="Why configurations failed; reasons that differ in numbers only are one."),
        class_="scroll",
        tabindex=0,
    )


def confirmations(contents: Contents) -> str:
    """Who was timed again in turns, and the verdict on each; empty where nobody was."""
    parts = []
    for one, label in zip(contents.found, contents.titles, strict=True):
        for study in one.problem.studies:
            if study.finals:
                title = f"{study.kernel}: {label}"
                parts.append(_confirmation(title, standings(study.finals)))
    return "".join(parts)


def _confirmation(title: str, found: Iterable[Standing]) -> str:
    rows = []
    for one in sorted(
        found, key=lambda s: (not s.is_winner, statistics.median(s.confirmed.blocks_ms or (math.inf,)))
    ):
        entry, to = one.confirmed, one.to_winner
        label = configuration(dict(entry.params)) if entry.role.value == "candidate" else entry.kernel
        role = (
            "winner"
            if one.is_winner
            else "default"
            if entry.is_default
            else "library"
            if entry.role.value == "baseline"
            else "finalist"
        )
        if one.is_winner and entry.is_default:
            role = "winner, default"
        ratio = "" if to is None or one.is_winner else digits(to.ratio.ratio, 4)
        ends = (
            ""
            if to is None or one.is_winner or math.isnan(to.ratio.low)
            else f"{to.ratio.low:.4f} to {to.ratio.high:.4f}"
        )
        verdict = "" if to is None or one.is_winner else to.verdict.value
        cells = [
            (role, ""),
            (label, "tight"),
            (time(statistics.median(entry.blocks_ms)) if entry.blocks_ms else "–", _NUM),
            (str(len(entry.blocks_ms)), _NUM),
            (ratio, _NUM),
            (ends, _NUM),
            (verdict, ""),
            (entry.reason or entry.note, ""),
        ]
        rows.append(
            tag(
                "tr",
                "".join(tag("td", text(cell), class_=kind) for cell, kind in cells),
                class_="best" if one.is_winner else "",
            )
        )
    head = [
        ("role", ""),
        ("configuration", "tight"),
        ("median", _NUM),
        ("blocks", _NUM),
        ("time / winner's", _NUM),
        ("95 % interval", _NUM),
        ("verdict", ""),
        ("note", ""),
    ]
    return tag("div", table(head, rows, caption=title), class_="scroll", tabindex=0)


def provenance(contents: Contents) -> str:
    """Where every result comes from, and how to measure it again."""
    parts = []
    for result in contents.results:
        facts = "".join(tag("dt", text(name)) + tag("dd", text(what)) for name, what in facts_of(result))
        head = tag("h3", text(result.name)) if len(contents.results) > 1 else ""
        parts.append(head + tag("dl", facts, class_="origin"))
    again = tag("pre", tag("code", text("\n".join(reproduction(contents.results)))))
    how = "This measures the rows again and says which agree within their intervals, and where anything differs:"
    return "".join(parts) + tag("h3", "To reproduce") + tag("p", how, class_="note") + again
