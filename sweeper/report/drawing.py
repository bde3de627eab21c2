"""One function a figure: what of a problem it shows, as a title and a PNG; None where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sweeper.report.contents import Found
from sweeper.report.finalists import finalists_of
from sweeper.report.levels import Levels
from sweeper.report.study import Floats, Study, floats
from sweeper.report.style import (
    ACCENT,
    ACCENT_SOFT,
    BAD,
    CATEGORIES,
    DIM,
    HEAT,
    INK,
    MARKERS,
    SOFT,
    axes,
    figure,
    level_ticks,
    log_ticks,
    save,
)
from sweeper.report.winner import Winner, rates
from sweeper.report.wording import configuration, digits, library, number, problem_title, time

__all__ = ["clocks", "importance", "kernels", "levels", "pair", "progress", "roofline", "samples"]

Made = tuple[str, bytes] | None

_SCALES = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_WIDE = 4.0
_TILES = (("bm", "bn"), ("tile_m", "tile_n"), ("BM", "BN"), ("block_x", "block_y"))


def _best(found: Found) -> Winner:
    assert found.best is not None  # noqa: S101 - problems without one are not drawn
    return found.best


def _scale(study: Study, value: float) -> tuple[float, str]:
    scales = _JOULES if study.objective == "energy" else _SCALES
    return next((each for each in scales if value >= each[0]), scales[-1])


def _value_title(found: Found, study: Study, unit: str) -> str:
    what = "energy a launch" if study.objective == "energy" else "time a launch"
    return f"{'predicted ' if found.problem.predicted else ''}{what} ({unit})"


def _spread(place: Any, axis: str, low: float, high: float) -> None:
    """A logarithmic axis where values differ much."""
    if low > 0 and high / low > _WIDE:
        getattr(place, f"set_{axis}scale")("log")
        log_ticks(getattr(place, f"{axis}axis"), low, high)


def kernels(found: Found) -> Made:
    """The best of each kernel, or the best configurations of the only one."""
    best, problem = _best(found), found.problem
    rows = [(one.study.kernel, one.study, one.place) for one in found.winners]
    if len(rows) == 1:
        study, order = best.study, best.study.order
        places = [best.place, *(i for i in order if i != best.place)][:12]
        rows = [(configuration(str(study.rows["params"].iloc[i])), study, i) for i in places]
    per = [rates(problem, study)[i] for _, study, i in rows]
    by_rate = all(math.isfinite(rate) for rate in per)
    times = [float(study.rows["time_ms"].iloc[i]) for _, study, i in rows]
    factor, unit = next((each for each in _SCALES if min(times) >= each[0]), _SCALES[-1])
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


def progress(found: Found) -> Made:
    """Evaluations in their order, and the best so far."""
    study = _best(found).study
    factor, unit = _scale(study, float(np.nanmin(study.rank)))
    values = study.rank / factor
    places = np.flatnonzero(np.isfinite(values))
    so_far = np.minimum.accumulate(values[places])
    title = f"Best so far: {study.kernel}, {problem_title(found.problem)}"
    made, place = figure(3.4, title)
    place.plot(
        places + 1,
        values[places],
        "o",
        markersize=3 if len(places) > 100 else 4.5,
        color=DIM,
        alpha=0.8,
        markeredgewidth=0,
        label="evaluation",
    )
    steps = [*(places + 1), len(values)], [*so_far, so_far[-1]]
    place.step(*steps, where="post", color=ACCENT, linewidth=1.8, label="best so far")
    low, high = float(so_far[-1]), float(np.nanmax(values))
    if found.library is not None and study.objective != "energy":
        at = found.library.time_ms / factor
        low, high = min(low, at), max(high, at)
        place.axhline(at, color=INK, linewidth=1, linestyle="--", label=library(found.library.name))
    failed = np.flatnonzero(~np.isfinite(values))
    if len(failed):
        place.plot(
            failed + 1,
            np.full(len(failed), high * 1.03),
            "x",
            markersize=4,
            color=BAD,
            label=f"failed ({len(failed):,})",
        )
    _spread(place, "y", low, high)
    axes(place, "evaluations, in the order asked", _value_title(found, study, unit))
    place.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), labelcolor=INK)
    return title, save(made)


def levels(found: Found) -> Made:
    """A strip a level for every parameter, with the best of each level joined."""
    study = _best(found).study
    if not study.varied:
        return None
    factor, unit = _scale(study, float(np.nanmin(study.rank)))
    values = study.rank / factor
    columns = min(len(study.varied), 3)
    rows = math.ceil(len(study.varied) / columns)
    title = f"Time against each parameter: {study.kernel}, {problem_title(found.problem)}"
    made, grid = figure(0.5 + 2.2 * rows, title, nrows=rows, ncols=columns, squeeze=False, sharey=True)
    scatter = np.random.default_rng(0)
    for place, one in zip(grid.flat, study.varied, strict=False):
        _strip(place, one, values, scatter)
        _spread(place, "y", float(np.nanmin(values)), float(np.nanmax(values)))
        axes(place, one.name, unit)
        place.xaxis.label.set_color(INK)
    for place in grid.flat[len(study.varied) :]:
        place.set_visible(False)
    return title, save(made)


def _strip(place: Any, one: Levels, values: Floats, scatter: np.random.Generator) -> None:
    good = np.flatnonzero(np.isfinite(values) & (one.codes >= 0))
    shown = good if len(good) <= 1500 else scatter.choice(good, 1500, replace=False)
    shift = scatter.uniform(-0.22, 0.22, len(shown))
    place.plot(
        one.codes[shown] + shift,
        values[shown],
        "o",
        markersize=2.2 if len(good) > 100 else 3.6,
        color=DIM,
        alpha=0.5 if len(good) > 100 else 0.8,
        markeredgewidth=0,
    )
    by_level = [values[good[one.codes[good] == level]] for level in range(len(one.values))]
    if len(good) >= 6 * len(one.values):
        for level, part in enumerate(by_level):
            if len(part):
                _box(place, level, part, SOFT)
    best = [(level, part.min()) for level, part in enumerate(by_level) if len(part)]
    place.plot(*zip(*best, strict=True), "o-", color=ACCENT, linewidth=1.4, markersize=4)
    level_ticks(place.xaxis, [number(value) for value in one.values])
    place.set_xlim(-0.6, len(one.values) - 0.4)


def _box(place: Any, at: float, values: Floats, colour: str, *, lying: bool = False) -> None:
    """Median and quartiles, and whiskers to the farthest value within 1.5 times the box (Tukey)."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    sides = [(at - 0.27, low), (at + 0.27, low), (at + 0.27, high), (at - 0.27, high), (at - 0.27, low)]
    strokes = [
        sides,
        [(at - 0.27, middle), (at + 0.27, middle)],
        [(at, low), (at, inside.min())],
        [(at, high), (at, inside.max())],
    ]
    for stroke in strokes:
        across, along = zip(*stroke, strict=True)
        place.plot(*((along, across) if lying else (across, along)), color=colour, linewidth=1)


def pair(found: Found) -> Made:
    """The best of every pair of levels of two parameters: the tile's where it has them, else those of most levels."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Rectangle

    study = _best(found).study
    by_name = {one.name: one for one in study.varied}
    if len(by_name) < 2:
        return None
    names = next((list(each) for each in _TILES if set(each) <= set(by_name)), None)
    names = names or sorted(by_name, key=lambda name: -len(by_name[name].values))[:2]
    across, up = by_name[names[0]], by_name[names[1]]
    factor, unit = _scale(study, float(np.nanmin(study.rank)))
    cells = np.full((len(up.values), len(across.values)), np.nan)
    for i in study.order[::-1]:
        if across.codes[i] >= 0 and up.codes[i] >= 0:
            cells[up.codes[i], across.codes[i]] = study.rank[i] / factor
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    title = f"Best by {across.name} and {up.name}: {study.kernel}, {problem_title(found.problem)}"
    made, place = figure(min(1.6 + 0.42 * len(up.values), 7.0), title)
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    norm = LogNorm(low, high if high > low else low * 1.01)
    image = place.imshow(cells, aspect="auto", origin="lower", cmap=colours, norm=norm)
    best = _best(found).place
    if across.codes[best] >= 0 and up.codes[best] >= 0:
        corner = across.codes[best] - 0.5, up.codes[best] - 0.5
        place.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BAD, linewidth=1.8))
    axes(place, across.name, up.name)
    place.grid(visible=False)
    level_ticks(place.xaxis, [number(value) for value in across.values], 20)
    level_ticks(place.yaxis, [number(value) for value in up.values], 20)
    if cells.size <= 150:
        _label_cells(place, cells, low, high)
    bar = made.colorbar(image, ax=place, shrink=0.9, aspect=30)
    bar.set_label(f"best {_value_title(found, study, unit)}", fontsize=8.5, color=SOFT)
    bar.outline.set_visible(False)
    log_ticks(bar.ax.yaxis, low, high)
    bar.ax.tick_params(labelsize=8, colors=SOFT, length=2)
    return title, save(made)


def _label_cells(place: Any, cells: Any, low: float, high: float) -> None:
    wide = math.log(high / low) if high > low else 1.0
    for (r, c), value in np.ndenumerate(cells):
        told = "×" if math.isnan(value) else digits(float(value), 3)
        dark = not math.isnan(value) and math.log(value / low) / wide < 0.38
        place.text(c, r, told, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)


def importance(found: Found) -> Made:
    """The share of the variance that each parameter explains."""
    best = _best(found)
    insight = next(i for i, one in zip(found.insights, found.by_study, strict=True) if one is best)
    rows = [one for one in insight.parameters if one.alone or one.total] if insight is not None else []
    if not rows:
        return None
    title = f"What matters: {best.study.kernel}, {problem_title(found.problem)}"
    made, place = figure(1.1 + 0.4 * len(rows), title)
    for shift, kind, colour, name in (
        (-0.18, "total", ACCENT_SOFT, "with interactions"),
        (0.18, "alone", ACCENT, "alone"),
    ):
        shares = [getattr(one, kind) for one in rows]
        values = [0.0 if share is None else 100 * max(share.value, 0.0) for share in shares]
        ends = [
            (0.0, 0.0) if share is None or share.low is None or share.high is None
            else (max(100 * (share.value - share.low), 0), max(100 * (share.high - share.value), 0))
            for share in shares
        ]  # fmt: skip
        place.barh(
            [i + shift for i in range(len(rows))], values, height=0.34, color=colour, label=name,
            xerr=list(zip(*ends, strict=True)), error_kw={"ecolor": SOFT, "elinewidth": 0.9, "capsize": 2},
        )  # fmt: skip
    axes(place, "share of the variance of log time (%)", "")
    place.set_yticks(range(len(rows)), [one.name for one in rows], color=INK)
    place.invert_yaxis()
    place.grid(visible=False, axis="y")
    place.legend(fontsize=8, frameon=False, labelcolor=INK)
    return title, save(made)


def samples(found: Found) -> Made:
    """The times behind the best few and the library."""
    best = _best(found)
    kind, common, rows = finalists_of(found.problem, best.study, best.place)
    if not rows:
        return None
    middle = min(float(np.median(row.times_ms)) for row in rows)
    factor, unit = next((each for each in _SCALES if middle >= each[0]), _SCALES[-1])
    what = "blocks of the confirmation" if kind == "blocks" else "samples of the search"
    title = f"Finalists, {what}: {best.study.kernel}, {problem_title(found.problem)}"
    made, place = figure(1.2 + 0.36 * len(rows), title)
    scatter = np.random.default_rng(0)
    for at, row in enumerate(rows):
        colour = INK if row.kind == "library" else BAD if row.winner else ACCENT
        times = np.array(row.times_ms) / factor
        place.plot(
            times,
            at + scatter.uniform(-0.18, 0.18, len(times)),
            "o",
            markersize=3.2,
            color=colour,
            alpha=0.55,
            markeredgewidth=0,
        )
        _box(place, at, times, colour, lying=True)
    low = min(float(np.min(row.times_ms)) for row in rows) / factor
    high = max(float(np.quantile(row.times_ms, 0.95)) for row in rows) / factor
    room = max((high - low) * 0.06, low * 1e-3)
    place.set_xlim(low - room, high + room)
    axes(place, f"time a launch ({unit}){'; all have ' + common if common else ''}", "")
    place.set_yticks(range(len(rows)), [row.label[:52] for row in rows], color=INK)
    place.set_ylim(len(rows) - 0.4, -0.6)
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
