"""From entries to the one to take: at the very shape where it was tuned, else from shapes like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeper.dispatch.entry import Entry

__all__ = ["CONFIRMED_MARGIN", "DISTANCE_COST", "Guess", "at_shape", "distance", "guesses"]

CONFIRMED_MARGIN = 1.02
"""A configuration that was only searched goes before a confirmed one where it is faster by more than this factor:
the best of many samples is also the luckiest."""

DISTANCE_COST = 0.30
"""How much slower, relative, a configuration is thought to be for every doubling between the shapes, in any size."""

# Of the configurations measured at a shape those that are worth a look elsewhere: within this factor of its best.
_NEARLY_BEST = 1.10

Judge = Callable[[Entry, Mapping[str, int]], tuple[str | None, float | None]]
"""Why an entry's configuration cannot run at sizes (None: it can), and what the static model says of it there."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What `entry`, measured at another shape, is thought to take at the shape asked for.

    `distance` is between the two shapes, in doublings; `by_model` whether the static model had its say.
    """

    entry: Entry
    time_ms: float
    distance: float
    by_model: bool

    @property
    def score(self) -> float:
        """What guesses are ranked by: the farther, the less it is to be trusted."""
        return self.time_ms * math.pow(1 + DISTANCE_COST, self.distance)


def at_shape(entries: Iterable[Entry], dims: Mapping[str, int]) -> list[Entry]:
    """The entries of just those sizes, the one to take first."""

    def key(entry: Entry) -> tuple[float, bool]:
        return entry.time_ms * (1.0 if entry.confirmed else CONFIRMED_MARGIN), not entry.confirmed

    return sorted((entry for entry in entries if dict(entry.dims) == dict(dims)), key=key)


def distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """The Euclidean distance of the sizes' binary logarithms; infinite for other sizes."""
    if set(a) != set(b):
        return math.inf
    return math.hypot(*(math.log2(a[name] / b[name]) for name in a))


def guesses(entries: Sequence[Entry], dims: Mapping[str, int], judge: Judge) -> list[Guess]:
    """What every configuration that did well somewhere, and can run at `dims`, is thought to take there; the one to
    take first.

    Its measured time is carried over by the static model: t(here) = t(there) · model(here) / model(there), from the
    nearest shape at which it was measured. What the model does not know of a kernel cancels as far as it is alike
    at both shapes. Where it says nothing, the operations 2·M·N·K take its place.
    """
    known: dict[str, Entry] = {}
    for entry in _worth_a_look(entries):
        nearest = known.get(entry.configuration)
        if nearest is None or distance(entry.dims, dims) < distance(nearest.dims, dims):
            known[entry.configuration] = entry
    found = []
    for entry in known.values():
        apart = distance(entry.dims, dims)
        if math.isinf(apart):
            continue
        why_not, here = judge(entry, dims)
        if why_not is not None:
            continue
        _, there = judge(entry, entry.dims)
        by_model = bool(here and there)
        scale = here / there if here and there else math.prod(dims.values()) / math.prod(entry.dims.values())
        found.append(Guess(entry, entry.time_ms * scale, apart, by_model))
    return sorted(found, key=lambda guess: guess.score)


def _worth_a_look(entries: Sequence[Entry]) -> list[Entry]:
    """Of every shape the entries that are nearly its best, and the best of every kernel."""
    best: dict[str, float] = {}
    own: dict[str, float] = {}
    for entry in entries:
        shape = str(sorted(entry.dims.items()))
        best[shape] = min(best.get(shape, math.inf), entry.time_ms)
        kernel = f"{shape} {entry.kernel}"
        own[kernel] = min(own.get(kernel, math.inf), entry.time_ms)
    return [
        entry
        for entry in entries
        if entry.time_ms <= _NEARLY_BEST * best[str(sorted(entry.dims.items()))]
        or entry.time_ms <= own[f"{sorted(entry.dims.items())} {entry.kernel}"]
    ]
