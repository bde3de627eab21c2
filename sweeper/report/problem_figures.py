"""Figures of a whole problem: its kernels side by side, below the device's ceilings, and what the device did meanwhile.

One function a figure: a title and a PNG, None where there is nothing to show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sweeper.report.contents import Found
from sweeper.report.drawn import Made, best_of, time_scale
from sweeper.report.study import floats
from sweeper.report.style import ACCENT, ACCENT_SOFT, CATEGORIES, INK, MARKERS, axes, figure, log_ticks, save
from sweeper.report.winner import rates
from sweeper.report.wording import configuration, library, problem_title, time

__all__ = ["clocks", "kernels", "roofline"]


def kernels(found: Found) -> Made:
    """The best of each kernel, or the best configurations of the only one."""
    best, problem = best_of(found), found.problem
    rows = [(one.study.kernel, one.study, one.place) for one in found.winners]
    if len(rows) == 1:
        study, order = best.study, best.study.order
        places = [best.place, *(i for i in order if i != best.place)][:12]
        rows = [(configuration(str(study.rows["params"].iloc[i])), study, i) for i in places]
    per = [rates(problem, study)[i] for _, study, i in rows]
    by_rate = all(math.isfinite(rate) for rate in per)
    times = [float(study.rows["time_ms"].iloc[i]) for _, study, i in rows]
    factor, unit = time_scale(min(times))
    values = per if by_rate else [ms / factor for ms in times]
    alone = len(found.winners) == 1
    what = f"Best configurations: {best.study.kernel}, " if alone else "Best of each kernel: "
    title = f"{what}{problem_title(problem)}"
    made, place = figure(1.1 + 0.3 * len(rows), title)
    colours = [ACCENT if study is best.study and i == best.place else ACCENT_SOFT for _, study, i in rows]
    place.barh(range(len(rows)), values, color=colours, height=0.62)
    for row, (value, ms) in enumerate(zip(values, times, strict=True)):
        told = f" {value:,.0f} · {time(ms)}" if by_rate else f" {time(ms)}"
        place.text(value, row, told, va="center", fontsize=8, color=INK)
    lines: list[tuple[float, str, str]] = []
    if found.library is not None:
        ms = found.library.time_ms
        at = problem.flops / (ms * 1e6) if by_rate and problem.flops else ms / factor
        lines.append((at, library(found.library.name), "--"))
    roof = found.ceilings.roof_gflops(problem.flops)
    if by_rate and roof and roof < 12 * max(values):
        lines.append((roof, "roofline", ":"))
    for at, name, dash in lines:
        place.axvline(at, color=INK, linewidth=1, linestyle=dash)
        place.text(at, -0.75, name, ha="center", va="bottom", fontsize=8, color=INK)
    predicted = "predicted " if problem.predicted else ""
    axes(place, f"{predicted}rate (GFLOP/s)" if by_rate else f"{predicted}time a launch ({unit})", "")
    place.set_yticks(range(len(rows)), [name[:48] for name, _, _ in rows], color=INK)
    place.set_ylim(len(rows) - 0.4, -0.8)
    place.set_xlim(0, max([*values, *(at for at, _, _ in lines)]) * 1.18)
    place.grid(visible=False, axis="y")
    return title, save(made)


def roofline(found: Found) -> Made:
    """Every configuration and the library below the device's ceilings."""
    problem, ceilings = found.problem, found.ceilings
    if not problem.flops or not problem.bytes:
        return None
    at = problem.flops / problem.bytes
    title = f"Roofline: {problem_title(problem)}"
    made, place = figure(4.2, title)
    left, right, least, most = at / 8, at * 8, math.inf, 0.0
    names = list(dict.fromkeys(study.kernel for study in problem.studies))
    width = min(0.045 * (len(names) - 1), 0.34)
    for k, name in enumerate(names):
        values = np.concatenate([rates(problem, s) for s in problem.studies if s.kernel == name])
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        least, most = min(least, float(values.min())), max(most, float(values.max()))
        x = at * 10 ** (width * (k / max(len(names) - 1, 1) - 0.5))
        place.plot(
            np.full(len(values), x), values, MARKERS[(k + k // 8) % 8], markersize=4.5, color=CATEGORIES[k % 8],
            alpha=0.7, markeredgewidth=0, label=name, linestyle="none",
        )  # fmt: skip
    if not most:
        return None
    for _, row in problem.libraries.drop_duplicates("kernel").iterrows():
        rate = problem.flops / (float(row["time_ms"]) * 1e6)
        most = max(most, rate)
        ends = [at * 10 ** (-width / 2 - 0.06), at * 10 ** (width / 2 + 0.06)]
        place.plot(ends, [rate, rate], color=INK, linewidth=1.6, label=library(str(row["kernel"])))
    if ceilings.peak_gflops and ceilings.bandwidth_gbs:
        ridge = ceilings.peak_gflops / ceilings.bandwidth_gbs
        left, right = min(at, ridge) / 4, max(at, ridge) * 4
        roof = [left * ceilings.bandwidth_gbs, ceilings.peak_gflops, ceilings.peak_gflops]
        place.plot([left, ridge, right], roof, color=INK, linewidth=1.4)
        least, most = min(least, roof[0]), max(most, roof[1])
        told = f"compute: {ceilings.peak_gflops:,.0f} GFLOP/s in {problem.dtype}"
        place.text(right, roof[1] * 1.06, told, ha="right", va="bottom", fontsize=8, color=INK)
        told = f"memory: {ceilings.bandwidth_gbs:,.0f} GB/s"
        middle = math.sqrt(left * ridge)
        place.text(
            middle * 1.15,
            middle * ceilings.bandwidth_gbs,
            told,
            ha="left",
            va="top",
            fontsize=8,
            color=INK,
        )
    place.set_xscale("log")
    place.set_yscale("log")
    place.set_xlim(left, right)
    place.set_ylim(least / 1.5, most * 2)
    log_ticks(place.xaxis, left, right)
    log_ticks(place.yaxis, least / 1.5, most * 2)
    rate_title = "predicted rate (GFLOP/s)" if problem.predicted else "rate (GFLOP/s)"
    axes(place, "arithmetic intensity by compulsory traffic (FLOP/B)", rate_title)
    made.legend(loc="outside right upper", fontsize=8, frameon=False, labelcolor=INK)
    return title, save(made)


def clocks(found: Found) -> Made:
    """SM clock, power and temperature beside each configuration of the problem, study by study."""
    named = (
        ("sm_clock_mhz", "SM clock (MHz)"),
        ("power_w", "power (W)"),
        ("temperature_c", "temperature (°C)"),
    )
    rows = [study.rows for study in found.problem.studies]
    read = [(title, np.concatenate([floats(part, name) for part in rows])) for name, title in named]
    read = [(title, values) for title, values in read if np.isfinite(values).any()]
    if not read:
        return None
    title = f"Clock, power and temperature: {problem_title(found.problem)}"
    made, grid = figure(0.7 + 1.25 * len(read), title, nrows=len(read), squeeze=False, sharex=True)
    for k, (place, (name, values)) in enumerate(zip(grid.flat, read, strict=True)):
        place.plot(
            np.arange(1, len(values) + 1),
            values,
            "o",
            markersize=2.6,
            color=CATEGORIES[k],
            alpha=0.75,
            markeredgewidth=0,
        )
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        # Noise of a part in a thousand is no event.
        room = max(0.08 * (high - low), 0.02 * high)
        place.set_ylim(low - room, high + room)
        axes(place, "configurations, in the order of the table" if k == len(read) - 1 else "", name)
        _boundaries(place, rows)
    return title, save(made)


def _boundaries(place: Any, rows: Sequence[Any]) -> None:
    if 1 < len(rows) <= 40:
        for at in np.cumsum([len(part) for part in rows])[:-1]:
            place.axvline(at + 0.5, color="#dfe3e7", linewidth=0.8, zorder=0)
