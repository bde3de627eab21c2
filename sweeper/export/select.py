"""From configurations to an export: the one to take for each kernel and shape, or few that serve many shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from sweeper.device import target
from sweeper.dispatch.choose import CONFIRMED_MARGIN
from sweeper.dtypes import dtype as precision_class
from sweeper.errors import ConfigError, NoValidConfiguration, did_you_mean
from sweeper.export.chosen import TIMED, Chosen, Export, Filters, Price
from sweeper.export.read import read_candidates

__all__ = ["export_of", "selected"]

# More than any slowdown of a configuration that serves a shape.
_SERVED = 1e100
_NOBODY_CLOCKED = ("predicted", "replayed")


def export_of(
    paths: Sequence[Path | str],
    filters: Filters | None = None,
    *,
    allow_predicted: bool = False,
    most: int | None = None,
) -> Export:
    """What the results in `paths` say to take, for each kernel, class, layout, device and shape.

    Predicted and replayed times count only with `allow_predicted`, and only where nothing was measured. With `most`
    at most so many configurations of a kernel, class and layout serve all its shapes. Raises StorageError for
    what cannot be read, ConfigError for a filter that nothing passes, and NoValidConfiguration where nothing may
    rank.
    """
    candidates = selected(read_candidates(paths), filters or Filters())
    clocked = [one for one in candidates if allow_predicted or one.timed not in _NOBODY_CLOCKED]
    if not clocked:
        raise _nothing(paths, candidates)
    rows = _best_of_each(clocked)
    prices: list[Price] = []
    if most is not None:
        rows, prices = _few(clocked, rows, most)
    return Export(tuple(sorted(_with_best(rows), key=Chosen.order)), tuple(prices))


def _nothing(paths: Sequence[Path | str], candidates: Sequence[Chosen]) -> NoValidConfiguration:
    where = ", ".join(Path(path).name for path in paths)
    if not candidates:
        return NoValidConfiguration(
            f"no right configuration with a time in {where}",
            hint="trials.csv says in its columns status and reason why each one failed",
        )
    kinds = " and ".join(sorted({one.timed for one in candidates}))
    return NoValidConfiguration(
        f"no measured configuration in {where}: {len(candidates)} are {kinds}",
        hint="measure on a GPU, or export them, marked as such, with --allow-predicted",
    )


# --- Filters ------------------------------------------------------------------------------------------


def selected(candidates: Sequence[Chosen], filters: Filters) -> list[Chosen]:
    """Those that `filters` mean. Raises ConfigError for a filter that none passes."""
    found = list(candidates)
    if filters.kernel:
        found = _passing(found, "kernel", filters.kernel, lambda one: one.kernel)
    if filters.dtype:
        found = _passing(found, "dtype", precision_class(filters.dtype).name, lambda one: one.dtype)
    if filters.device:
        wanted = _device(filters.device)
        found = _passing(
            found, "device", filters.device, lambda one: one.device, lambda has: _device(has) == wanted
        )
    if filters.shape:
        wanted = filters.shape.lower()
        found = _passing(
            found,
            "shape",
            filters.shape,
            lambda one: one.sizes,
            lambda has: has.lower() == wanted,
            also=lambda one: one.shape.lower() == wanted,
        )
    return found


def _passing(
    candidates: Sequence[Chosen],
    what: str,
    wanted: str,
    value: Callable[[Chosen], str],
    passes: Callable[[str], bool] | None = None,
    also: Callable[[Chosen], bool] = lambda _: False,
) -> list[Chosen]:
    passes = passes or (lambda has: has == wanted)
    found = [one for one in candidates if passes(value(one)) or also(one)]
    if not found and candidates:
        has = list(dict.fromkeys(map(value, candidates)))
        raise ConfigError(
            f"--{what} {wanted}: the results have none{did_you_mean(wanted, has)}",
            hint=f"they have {', '.join(has[:12])}{' …' * (len(has) > 12)}",
        )
    return found


def _device(name: str) -> str:
    """The name that the table of devices has for it, or its own."""
    try:
        return target(name).name
    except ConfigError:
        return name


# --- The best of each ---------------------------------------------------------------------------------


def _preference(one: Chosen) -> tuple[int, bool, float, bool]:
    """Measured before others and cold before warm; then as the dispatcher has it: by time, and what was only
    searched has to be faster than what was confirmed by more than the margin that luck gives.
    """
    source = max(0, TIMED.index(one.timed) - 1)
    margin = 1.0 if one.timed == "confirmed" else CONFIRMED_MARGIN
    return source, one.cache == "warm", one.time_ms * margin, one.timed != "confirmed"


def _best_of_each(candidates: Iterable[Chosen]) -> list[Chosen]:
    """Of every kernel and problem the one to take, among those that their studies name best."""
    best: dict[tuple[str, ...], Chosen] = {}
    for one in candidates:
        key = (one.kernel, *one.problem)
        if one.named and (key not in best or _preference(one) < _preference(best[key])):
            best[key] = one
    return list(best.values())


def _with_best(rows: Sequence[Chosen]) -> list[Chosen]:
    """The rows, of which those of the best kernel of their problem say so."""
    best: dict[tuple[str, ...], Chosen] = {}
    for row in rows:
        if row.problem not in best or _preference(row) < _preference(best[row.problem]):
            best[row.problem] = row
    return [replace(row, best=best[row.problem] is row) for row in rows]


# --- Few that serve many ------------------------------------------------------------------------------


def _few(candidates: Sequence[Chosen], rows: Sequence[Chosen], most: int) -> tuple[list[Chosen], list[Price]]:
    """The rows with at most `most` configurations of every kernel, class and layout, and what that costs."""
    if most < 1:
        raise ConfigError(f"--max-configurations {most}: at least one is needed")

    def group(one: Chosen) -> tuple[str, str, str]:
        return one.kernel, one.dtype, one.layout

    found: list[Chosen] = []
    prices: list[Price] = []
    among: dict[tuple[str, str, str], list[Chosen]] = {}
    for one in candidates:
        among.setdefault(group(one), []).append(one)
    for key, members in groupby(sorted(rows, key=group), key=group):
        served = list(members)
        kept = _served_by_few(among[key], served, most)
        found += kept
        slow = [row.slowdown for row in kept]
        price = math.exp(sum(map(math.log, slow)) / len(slow))
        count = len({row.configuration for row in kept})
        prices.append(Price(*key, count=count, shapes=len(kept), price=price, worst=max(slow)))
    return found, prices


def _served_by_few(candidates: Sequence[Chosen], rows: Sequence[Chosen], most: int) -> list[Chosen]:
    import numpy as np

    from sweeper.portfolio import choose

    if len({row.configuration for row in rows}) <= most:
        return list(rows)
    place = {row.problem: number for number, row in enumerate(rows)}
    known: dict[tuple[str, int], Chosen] = {}
    for one in candidates:
        column = place.get(one.problem)
        # Only times of one kind are compared: a prediction never stands beside a measurement.
        if column is None or _preference(one)[:2] != _preference(rows[column])[:2]:
            continue
        cell = one.configuration, column
        if cell not in known or _preference(one) < _preference(known[cell]):
            known[cell] = one
    names = list(dict.fromkeys(name for name, _ in known))
    times = np.full((len(names), len(rows)), np.nan)
    line = {name: number for number, name in enumerate(names)}
    for (name, column), one in known.items():
        times[line[name], column] = one.time_ms
    for column, row in enumerate(rows):
        # The winner is the simplest of those that tie with it: what ties costs nothing.
        times[:, column] = np.maximum(times[:, column], row.time_ms)
    try:
        choice = choose(times, most)[-1]
    except ConfigError:
        # Those that each shape has for itself do, so there is an answer.
        enough = next(one for one in choose(times, len(rows)) if max(one.slowdowns) < _SERVED)
        raise ConfigError(
            f"--max-configurations {most}: of those measured no {most} cover all {len(rows)} shapes of"
            f" {rows[0].kernel} {rows[0].dtype}; {len(enough.rows)} do",
            hint="allow more, or sweep the same configurations at every shape",
        ) from None
    return [
        _serving(known[names[serving], column], rows[column], slowdown)
        for column, (serving, slowdown) in enumerate(zip(choice.serving, choice.slowdowns, strict=True))
    ]


def _serving(one: Chosen, own: Chosen, slowdown: float) -> Chosen:
    """The configuration in place of the shape's own best; where no library ran beside it, the one beside that."""
    if one.ratio is None and own.ratio is not None:
        ratio = own.ratio * own.time_ms / one.time_ms
        return replace(one, slowdown=slowdown, ratio=ratio, library=own.library, verdict="")
    return replace(one, slowdown=slowdown)
