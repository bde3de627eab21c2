"""The top of the page: what the results hold, the verdicts, and the best of each kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeper.report.contents import Contents, Found
from sweeper.report.markup import table, tag, text
from sweeper.report.verdict import value
from sweeper.report.winner import Winner
from sweeper.report.wording import (
    configuration,
    count,
    energy,
    library,
    percent,
    rate,
    span,
    time,
)

__all__ = ["best_table", "headline", "summary"]

_OPEN = 6
_NUM = "num"


def headline(contents: Contents) -> str:
    """What the results hold, in a line of facts."""
    found = contents.found
    studies = [study for one in found for study in one.problem.studies]
    tried, valid = sum(len(study.rows) for study in studies), sum(study.valid for study in studies)
    kernels = {study.kernel for study in studies}
    sources = list(dict.fromkeys(one.problem.source for one in found if one.problem.source))
    started = min(
        (str(run["started"])[:10] for r in contents.results for run in r.runs if run.get("started")),
        default="",
    )
    facts = [
        f"{count(tried, 'configuration')}, {valid:,} valid",
        count(len(kernels), "kernel"),
        count(len(found), "problem"),
        *dict.fromkeys(one.problem.device for one in found if one.problem.device),
        " and ".join(sources),
        started,
    ]
    return "".join(tag("span", text(fact)) for fact in facts if fact)


def summary(contents: Contents) -> str:
    """The verdicts, and the figures of the one problem where there is only one."""
    sentences = contents.sentences
    if len(sentences) == 1:
        return tag("p", text(sentences[0]), class_="lead") + _key_figures(contents.found[0])
    verdicts = tag("ul", "".join(tag("li", text(one)) for one in sentences), class_="verdicts")
    if len(sentences) > _OPEN:
        verdicts = tag("details", tag("summary", f"All {len(sentences)} verdicts") + verdicts)
    return tag("p", text(contents.lead), class_="lead") + verdicts


def _key_figures(found: Found) -> str:
    best, problem = found.best, found.problem
    if best is None:
        return ""
    timed, _, unit = time(value(best) if best.study.objective != "energy" else best.time_ms).partition(" ")
    of_library = "" if best.library is None else f"of {library(best.library.name)}'s speed"
    figures = [
        (timed, unit, "predicted time a launch" if problem.predicted else "time a launch, median"),
        (rate(best.gflops), "GFLOP/s", "rate"),
        (percent(best.percent_of_library), "%", of_library),
        (percent(best.percent_of_roofline), "%", "of the roofline"),
    ]
    if best.energy_j is not None:
        joules, _, joule = energy(best.energy_j).partition(" ")
        figures.insert(1, (joules, joule, "energy a launch"))
    items = [
        tag("div", tag("dt", text(what)) + tag("dd", text(number) + tag("small", text(unit))))
        for number, unit, what in figures
        if number and what
    ]
    return tag("dl", "".join(items), class_="key")


def best_table(contents: Contents) -> str:
    """The best of each kernel at each problem, with the library of each problem below."""
    several = len(contents.found) > 1
    winners = [one for found in contents.found for one in found.winners]
    has_library = any(one.percent_of_library is not None for one in winners)
    has_roof = any(one.percent_of_roofline is not None for one in winners)
    has_rate = any(one.gflops for one in winners)
    has_energy = any(one.energy_j is not None for one in winners)
    columns = [
        ("kernel", "", True),
        ("time", _NUM, True),
        ("95 % interval", _NUM, True),
        ("energy", _NUM, has_energy),
        ("GFLOP/s", _NUM, has_rate),
        ("% of library", "num bar", has_library),
        ("% of roofline", _NUM, has_roof),
        ("how sure", "", True),
        ("configuration", "tight", True),
    ]
    most = max((one.percent_of_library or 0 for one in winners), default=0)
    rows = []
    width = sum(shown for _, _, shown in columns)
    for found, title in zip(contents.found, contents.titles, strict=True):
        if several:
            rows.append(tag("tr", tag("th", text(title), colspan=width, scope="rowgroup"), class_="group"))
        for one in found.winners:
            cells = _best_cells(found, one, max(most, 100.0))
            kept = "".join(
                tag("td", cell, class_=kind)
                for cell, (_, kind, shown) in zip(cells, columns, strict=True)
                if shown
            )
            rows.append(tag("tr", kept, class_="best" if one is found.best else ""))
        rows += _library_rows(found, [shown for _, _, shown in columns])
    head = [(name, kind) for name, kind, shown in columns if shown]
    timed = "predicted" if all(one.problem.predicted for one in contents.found) else "medians of a launch"
    caption = f"The best configuration of each kernel; the best of all is marked. Times are {timed}."
    return tag(
        "div",
        table(head, rows, caption=caption),
        class_="scroll" + (" tall" if len(rows) > 24 else ""),
        tabindex=0,
    )


def _best_cells(found: Found, one: Winner, most: float) -> list[str]:
    shown = value(one) if one.study.objective != "energy" else one.time_ms
    low, high = one.low_ms, one.high_ms
    share = one.percent_of_library
    meter = ""
    if share is not None:
        at = 100 * 100 / most
        meter = (
            f'<span class="meter" aria-hidden="true"><i style="width:{100 * share / most:.1f}%"></i>'
            f'<b style="left:{at:.1f}%"></b></span>'
        )
    return [
        tag("span", text(one.study.kernel), class_="name"),
        text(time(shown)),
        text(span(low, high)) if low is not None and high is not None else "–",
        text(energy(one.energy_j)) if one.energy_j is not None else "",
        text(rate(one.gflops)),
        text(percent(share)) + meter,
        text(percent(one.percent_of_roofline)),
        _badge(found, one),
        text(configuration(one.params)),
    ]


def _badge(found: Found, one: Winner) -> str:
    if found.problem.predicted:
        return tag("span", "predicted", class_="badge warn")
    if one.is_confirmed:
        verdict = one.confirmed["vs_library"]
        than = {"faster": " than library", "slower": " than library", "same": " as library"}.get(verdict, "")
        told = f", {verdict}{than}" if verdict else ""
        return tag("span", text(f"confirmed{told}"), class_="badge sure")
    if found.problem.source == "replayed":
        return tag("span", "replayed", class_="badge")
    return tag("span", "unconfirmed" if one.low_ms is not None else "few samples", class_="badge")


def _library_rows(found: Found, shown: Sequence[bool]) -> list[str]:
    rows = []
    flops = found.problem.flops
    for _, row in found.problem.libraries.drop_duplicates("kernel").iterrows():
        ms = float(row["time_ms"])
        low, high = row["time_low_ms"], row["time_high_ms"]
        known = (
            isinstance(low, float) and isinstance(high, float) and math.isfinite(low) and math.isfinite(high)
        )
        roof = found.ceilings.roofline_ms
        cells = [
            text(library(str(row["kernel"]))),
            text(time(ms)),
            text(span(low, high)) if known else "–",
            "",
            rate(flops / (ms * 1e6)) if flops else "",
            percent(100 * found.library.time_ms / ms) if found.library else "",
            percent(100 * roof / ms) if roof else "",
            tag("span", "library", class_="badge"),
            "",
        ]
        kinds = ["", _NUM, _NUM, _NUM, _NUM, "num bar", _NUM, "", ""]
        kept = [
            tag("td", cell, class_=kind) for cell, kind, show in zip(cells, kinds, shown, strict=True) if show
        ]
        rows.append(tag("tr", "".join(kept), class_="library"))
    return rows
