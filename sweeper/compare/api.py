"""Two results against each other, row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweeper.compare.differences import differences
from sweeper.compare.ratio import Ratio, adjusted, geometric_mean, ratio, verdict
from sweeper.compare.row import Row, best_rows, rows_of
from sweeper.compare.settings import Settings, kept_on
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.results import Results, read_results
from sweeper.statistics import RatioInterval, Verdict

__all__ = ["Change", "Compared", "Comparison", "Unlike", "compare", "compare_rows"]

# Of a claim to either side, and of one to one side.
_LEVEL, _ONE_SIDED = 0.05, 0.025


@dataclass(frozen=True, slots=True)
class Compared:
    """A row that both have, with one state of the cache: its `ratio` is the time in B ÷ the time in A.

    `chance` is the p-value of no difference, adjusted for all rows. `too_slow`: it is surely slower than the
    threshold, for all rows at once.
    """

    a: Row
    b: Row
    cache: str
    ratio: Ratio
    interval: RatioInterval
    chance: float
    verdict: Verdict
    too_slow: bool = False

    @property
    def a_ms(self) -> float:
        return self.a.times[self.cache].ms

    @property
    def b_ms(self) -> float:
        return self.b.times[self.cache].ms

    @property
    def changed(self) -> bool:
        """Whether another configuration stands for it: the best is another one."""
        return self.a.point != self.b.point or self.a.kernel != self.b.kernel


@dataclass(frozen=True, slots=True)
class Change:
    """A row that ended otherwise. `worse`: it was valid and is no longer."""

    a: Row
    b: Row

    @property
    def worse(self) -> bool:
        return self.a.ok

    @property
    def mended(self) -> bool:
        return self.b.ok


@dataclass(frozen=True, slots=True)
class Unlike:
    """A row that both have and that does not compare: `why` says what stands against what."""

    a: Row
    b: Row
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What stands where. `failed` counts rows that failed alike, `again` the rows on either side that a later
    row of the same configuration replaces. `mean` is the geometric mean of the ratios, None of none."""

    a: str
    b: str
    settings: Settings
    rows: tuple[Compared, ...]
    changes: tuple[Change, ...]
    only_a: tuple[Row, ...]
    only_b: tuple[Row, ...]
    unlike: tuple[Unlike, ...]
    failed: int
    again: tuple[int, int]
    mean: RatioInterval | None
    differences: tuple[str, ...] = field(default=())

    def counts(self) -> dict[Verdict, int]:
        """How many rows have each verdict."""
        counted = Counter(row.verdict for row in self.rows)
        return {one: counted[one] for one in Verdict}

    @property
    def too_slow(self) -> list[Compared]:
        return [row for row in self.rows if row.too_slow]

    @property
    def worse(self) -> list[Change]:
        return [change for change in self.changes if change.worse]


def compare(
    a: Path | str | Sequence[Results], b: Path | str | Sequence[Results], settings: Settings | None = None
) -> Comparison:
    """B against A: `a` and `b` are results folders or tables, or results that were read already.

    Raises StorageError for what cannot be read, ConfigError where a side mixes devices that the other has not,
    NoValidConfiguration where they have no row in common.
    """
    chosen = settings or Settings()
    sides = [read_results([side]) if isinstance(side, str | Path) else list(side) for side in (a, b)]
    columns = _columns(chosen)
    rows = []
    for side, name in zip(sides, ("a", "b"), strict=True):
        rows.append(_kept([(one, rows_of(one, columns)) for one in side], name, chosen))
    match = _with_device(rows[0], rows[1], chosen.match)
    if chosen.best:
        rows = [[(one, best_rows(one, some, match)) for one, some in side] for side in rows]
        match = tuple(name for name in match if name != "params")
    flat = [[row for _, some in side for row in some] for side in rows]
    return compare_rows(
        flat[0],
        flat[1],
        chosen,
        match,
        names=(_name(sides[0]), _name(sides[1])),
        told=tuple(differences(sides[0], sides[1], *flat)),
    )


def _name(side: Sequence[Results]) -> str:
    return ", ".join(one.name for one in side[:3]) + (" …" if len(side) > 3 else "")


def _columns(chosen: Settings) -> list[str]:
    return list(dict.fromkeys((*chosen.match, *(one.column for one in chosen.only), "device")))


_Side = list[tuple[Results, list[Row]]]


def _kept(side: _Side, name: str, chosen: Settings) -> _Side:
    wanted = kept_on(name, chosen.only)
    kept: _Side = []
    for results, rows in side:
        left = [
            row
            for row in rows
            if all(
                row.cells.get(column, "") in values or (column == "shape" and _sizes(row) in values)
                for column, values in wanted.items()
            )
        ]
        kept.append((results, left))
    if not any(rows for _, rows in kept):
        asked = " ".join(f"{column}={'|'.join(sorted(values))}" for column, values in wanted.items())
        raise NoValidConfiguration(
            f"{name.upper()} has no row{f' with {asked}' if asked else ''}: nothing can be compared"
        )
    return kept


def _sizes(row: Row) -> str:
    return "x".join(str(size) for size in row.dims.values())


def _with_device(a: _Side, b: _Side, match: tuple[str, ...]) -> tuple[str, ...]:
    """`match`, and the device where both have rows of the same several. Raises ConfigError where they cannot tell."""
    devices = [list(dict.fromkeys(row.device for _, rows in side for row in rows)) for side in (a, b)]
    if max(map(len, devices)) <= 1 or "device" in match:
        return match
    if set(devices[0]) == set(devices[1]):
        return (*match, "device")
    several = [(name, found) for name, found in zip("AB", devices, strict=True) if len(found) > 1]
    name, found = several[0]
    raise ConfigError(
        f"{name} has rows of {len(found)} devices ({', '.join(found)}), and the other side not the same ones",
        hint=f"say which is meant: --only '{name.lower()}.device={found[0]}'",
    )


def compare_rows(
    a: Sequence[Row],
    b: Sequence[Row],
    settings: Settings,
    match: Sequence[str],
    *,
    names: tuple[str, str] = ("A", "B"),
    told: Iterable[str] = (),
) -> Comparison:
    """The rows of two results that agree in `match`, against each other.

    Raises NoValidConfiguration where none does, ConfigError where `match` does not tell rows of one side apart.
    """
    (of_a, again_a), (of_b, again_b) = (
        _by_key(rows, match, name) for rows, name in ((a, names[0]), (b, names[1]))
    )
    pairs: list[tuple[Row, Row, str]] = []
    changes, unlike, failed = [], [], 0
    for key in (key for key in of_a if key in of_b):
        one, other = of_a[key], of_b[key]
        if not (one.row.ok and other.row.ok):
            if one.row.status == other.row.status:
                failed += 1
            else:
                changes.append(Change(one.row, other.row))
            continue
        common = [cache for cache in one.timed if cache in other.timed]
        pairs += [(one.timed[cache], other.timed[cache], cache) for cache in common]
        if not common:
            of, to = (" and ".join(filter(None, held.timed)) or "no time" for held in (one, other))
            unlike.append(Unlike(one.row, other.row, f"{of} against {to}"))
    unmatched_a, unmatched_b = (
        [of[key].row for key in of if key not in to] for of, to in ((of_a, of_b), (of_b, of_a))
    )
    only_a, only_b, apart = _other_sources(unmatched_a, unmatched_b, match)
    if not (pairs or changes or failed or unlike or apart):
        raise NoValidConfiguration(
            f"no row of {names[1]} is one of {names[0]} by {', '.join(match)}",
            hint="--best --match dtype,shape,cache compares the best of each shape, whatever kernel it is of",
        )
    rows = _judged(pairs, settings)
    return Comparison(
        *names,
        settings,
        tuple(rows),
        tuple(changes),
        tuple(only_a),
        tuple(only_b),
        (*unlike, *apart),
        failed,
        (again_a, again_b),
        geometric_mean([row.ratio for row in rows], settings.between_runs) if rows else None,
        tuple(told),
    )


_Key = tuple[str, ...]


@dataclass(slots=True)
class _Held:
    """The latest row of a key, and of a valid one the latest with each state of the cache."""

    row: Row
    timed: dict[str, Row] = field(default_factory=dict)


def _by_key(rows: Sequence[Row], match: Sequence[str], side: str) -> tuple[dict[_Key, _Held], int]:
    """What a side has of each key, and how many rows were replaced by later ones."""
    names = [name for name in match if name != "cache"]
    found: dict[_Key, _Held] = {}
    again = 0
    for row in rows:
        key = (row.source, *(row.value(name) for name in names))
        timed = _timed(row, apart="cache" in match)
        held = found.get(key)
        replaced = held is not None and (not (held.row.ok and row.ok) or any(c in held.timed for c in timed))
        if held is None or not (held.row.ok and row.ok):
            found[key] = _Held(row, timed)
        else:
            if replaced:
                _require_alike(held.row, row, match, side)
            held.row = row
            held.timed |= timed
        again += replaced
    return found, again


def _timed(row: Row, *, apart: bool) -> dict[str, Row]:
    """The row under each state of the cache that it has a time with; under none where these are not told apart."""
    if apart:
        return dict.fromkeys(row.times, row)
    return {"": replace(row, cache="", times={"": row.times[row.cache]})} if row.cache in row.times else {}


def _require_alike(earlier: Row, row: Row, match: Sequence[str], side: str) -> None:
    """Raise ConfigError where a row would take the place of another configuration's of the same study."""
    if earlier.point != row.point and "params" not in match and earlier.study == row.study:
        raise ConfigError(
            f"{side}: {', '.join(match)} do not tell {earlier.point} from {row.point} of {row.kernel} {row.shape}",
            hint="add params to --match, or compare the best of each with --best",
        )


def _other_sources(
    a: Sequence[Row], b: Sequence[Row], match: Sequence[str]
) -> tuple[list[Row], list[Row], list[Unlike]]:
    """What is left of `a` and `b` without the rows that both have with times of different sources, and these."""
    names = [name for name in match if name != "cache"]

    def keyed(rows: Sequence[Row]) -> Mapping[_Key, Row]:
        return {tuple(row.value(name) for name in names): row for row in rows}

    of_a, of_b = keyed(a), keyed(b)
    both = [key for key in of_a if key in of_b]
    apart = [Unlike(of_a[key], of_b[key], f"{of_a[key].source} against {of_b[key].source}") for key in both]
    known = set(both)
    left = [[row for row in rows if tuple(row.value(name) for name in names) not in known] for rows in (a, b)]
    return left[0], left[1], apart


def _judged(pairs: Sequence[tuple[Row, Row, str]], settings: Settings) -> list[Compared]:
    ratios = [ratio(a.times[cache], b.times[cache], settings.between_runs) for a, b, cache in pairs]
    # What is exact can be no mistake: it has no share in the chance of one.
    guessed = [i for i, one in enumerate(ratios) if not one.exact]
    chances = [one.chance() for one in ratios]
    for i, chance in zip(guessed, adjusted([chances[i] for i in guessed]), strict=True):
        chances[i] = chance
    slow = _too_slow(ratios, guessed, settings.threshold)
    return [
        Compared(
            a,
            b,
            cache,
            one,
            one.interval(),
            chances[i],
            verdict(one, chances[i], settings.least_effect, _LEVEL),
            i in slow,
        )
        for i, ((a, b, cache), one) in enumerate(zip(pairs, ratios, strict=True))
    ]


def _too_slow(ratios: Sequence[Ratio], guessed: Sequence[int], threshold: float | None) -> set[int]:
    """The places of those that are surely slower than the threshold, at 97.5 % for all of them at once."""
    if threshold is None:
        return set()
    limit = 1 + threshold
    found = {i for i, one in enumerate(ratios) if one.exact and one.ratio > limit}
    one_sided = [
        ratios[i].chance(limit) / 2 if ratios[i].ratio > limit and not math.isnan(ratios[i].error) else 1.0
        for i in guessed
    ]
    return found | {i for i, chance in zip(guessed, adjusted(one_sided), strict=True) if chance <= _ONE_SIDED}
