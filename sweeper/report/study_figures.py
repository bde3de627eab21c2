"""Figures of the study with the best configuration: its search, its parameters, its finalists.

One function a figure: a title and a PNG, None where there is nothing to show.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sweeper.report.contents import Found
from sweeper.report.drawn import Made, best_of, box, scale, spread, time_scale, value_title
from sweeper.report.finalists import finalists_of
from sweeper.report.levels import Levels
from sweeper.report.study import Floats
from sweeper.report.style import (
    ACCENT,
    ACCENT_SOFT,
    BAD,
    DIM,
    HEAT,
    INK,
    SOFT,
    axes,
    figure,
    level_ticks,
    log_ticks,
    save,
)
from sweeper.report.wording import digits, library, number, problem_title

__all__ = ["importance", "levels", "pair", "progress", "samples"]

_TILES = (("bm", "bn"), ("tile_m", "tile_n"), ("BM", "BN"), ("block_x", "block_y"))


def progress(found: Found) -> Made:
    """Evaluations in their order, and the best so far."""
    study = best_of(found).study
    factor, unit = scale(study, float(np.nanmin(study.rank)))
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
    spread(place, "y", low, high)
    axes(place, "evaluations, in the order asked", value_title(found, study, unit))
    place.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), labelcolor=INK)
    return title, save(made)


def levels(found: Found) -> Made:
    """A strip a level for every parameter, with the best of each level joined."""
    study = best_of(found).study
    if not study.varied:
        return None
    factor, unit = scale(study, float(np.nanmin(study.rank)))
    values = study.rank / factor
    columns = min(len(study.varied), 3)
    rows = math.ceil(len(study.varied) / columns)
    title = f"Time against each parameter: {study.kernel}, {problem_title(found.problem)}"
    made, grid = figure(0.5 + 2.2 * rows, title, nrows=rows, ncols=columns, squeeze=False, sharey=True)
    scatter = np.random.default_rng(0)
    for place, one in zip(grid.flat, study.varied, strict=False):
        _strip(place, one, values, scatter)
        spread(place, "y", float(np.nanmin(values)), float(np.nanmax(values)))
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
                box(place, level, part, SOFT)
    best = [(level, part.min()) for level, part in enumerate(by_level) if len(part)]
    place.plot(*zip(*best, strict=True), "o-", color=ACCENT, linewidth=1.4, markersize=4)
    level_ticks(place.xaxis, [number(value) for value in one.values])
    place.set_xlim(-0.6, len(one.values) - 0.4)


def pair(found: Found) -> Made:
    """The best of every pair of levels of two parameters: the tile's where it has them, else those of most levels."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Rectangle

    study = best_of(found).study
    by_name = {one.name: one for one in study.varied}
    if len(by_name) < 2:
        return None
    names = next((list(each) for each in _TILES if set(each) <= set(by_name)), None)
    names = names or sorted(by_name, key=lambda name: -len(by_name[name].values))[:2]
    across, up = by_name[names[0]], by_name[names[1]]
    factor, unit = scale(study, float(np.nanmin(study.rank)))
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
    best = best_of(found).place
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
    bar.set_label(f"best {value_title(found, study, unit)}", fontsize=8.5, color=SOFT)
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
    best = best_of(found)
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
    best = best_of(found)
    kind, common, rows = finalists_of(found.problem, best.study, best.place)
    if not rows:
        return None
    middle = min(float(np.median(row.times_ms)) for row in rows)
    factor, unit = time_scale(middle)
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
        box(place, at, times, colour, lying=True)
    low = min(float(np.min(row.times_ms)) for row in rows) / factor
    high = max(float(np.quantile(row.times_ms, 0.95)) for row in rows) / factor
    room = max((high - low) * 0.06, low * 1e-3)
    place.set_xlim(low - room, high + room)
    axes(place, f"time a launch ({unit}){'; all have ' + common if common else ''}", "")
    place.set_yticks(range(len(rows)), [row.label[:52] for row in rows], color=INK)
    place.set_ylim(len(rows) - 0.4, -0.6)
    return title, save(made)
