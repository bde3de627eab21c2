"""An analysis from a table of trials to its findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sweeper.errors import ConfigError
from sweeper.expressions import Value
from sweeper.importance.configurations import Configurations, Floats, Indices, configurations, groups
from sweeper.importance.decomposition import alone_effects
from sweeper.importance.estimate import EXACT, FOREST, Shares, by_forest, exact, logarithms, resampled_top
from sweeper.importance.levels import levels_of
from sweeper.importance.model import Importance, Pair, Parameter, Share, Winner
from sweeper.importance.neighbours import Feasible, neighbours, robustness
from sweeper.importance.ped_anova import best_tenth
from sweeper.importance.recorded import declared_whole
from sweeper.importance.region import of_space, of_trials, together
from sweeper.model import Confirmed, Point
from sweeper.results import Results
from sweeper.space import Space
from sweeper.table.standings import winners_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["analyse", "analyse_groups", "analyse_results"]

_SEED = 0
_MOST_LEVELS = 32
_LEAST_TRIALS = 10
_ROUGH = 0.7
_DEPENDENT = 0.02


def analyse(
    trials: pd.DataFrame,
    study: str | None = None,
    *,
    confirmed: Iterable[Confirmed] = (),
    whole: bool | None = None,
    space: Space | None = None,
) -> Importance:
    """Why the best of `trials` is the best; of one study where `study` names it.

    `trials` has the columns of trials.csv. `confirmed`: what was timed in turns, whose winner is then the one
    explained. `whole`: whether every feasible configuration is in the table; None takes it for whole where `space`
    says so, or where every combination of the levels in it was tried. `space` is the feasible space, where known:
    levels, shares and neighbours are then those of it. Equal tables give equal findings.

    Raises ConfigError where there is no such study, no candidate, or several groups (kernel, class, shape, device,
    source of time, objective), which `analyse_groups` takes one by one.
    """
    if study is not None:
        own = trials[(trials["study"] == study).to_numpy(dtype=bool, na_value=False)]
        if own.empty:
            known = ", ".join(map(str, trials["study"].dropna().unique()[:5]))
            raise ConfigError(f"no study {study!r} is in the table; it has {known or 'none'}")
        trials = own
    found = list(groups(trials.reset_index(drop=True)))
    if len(found) != 1:
        named = "; ".join(" ".join(filter(None, labels.values())) for labels, _ in found[:5])
        raise ConfigError(
            f"the table has {len(found)} groups of configurations: {named or 'no candidate is in it'}",
            hint="name a study, or take its groups one by one" if found else None,
        )
    ((labels, rows),) = found
    return _analysed(labels, rows, tuple(confirmed), whole, space)


def analyse_groups(
    trials: pd.DataFrame, *, confirmed: Iterable[Confirmed] = (), whole: bool | None = None
) -> list[Importance]:
    """`analyse` of each kernel, class, shape, device, objective and source of time in `trials`, in table order."""
    finals = tuple(confirmed)
    return [
        _analysed(labels, rows, finals, whole, None) for labels, rows in groups(trials.reset_index(drop=True))
    ]


def analyse_results(
    results: Results, study: str | None = None, *, whole: bool | None = None
) -> list[Importance]:
    """`analyse_groups` of what was read, or of one study in it, with its confirmations.

    A compact recording says itself whether it is whole, where `whole` is None. Empty where there is no candidate.
    """
    if whole is None and declared_whole(results.path):
        whole = True
    trials = results.trials
    if study is not None:
        trials = trials[(trials["study"] == study).to_numpy(dtype=bool, na_value=False)]
    return analyse_groups(trials, confirmed=results.finals, whole=whole)


@dataclass(frozen=True)
class _Varied:
    """The parameters that vary, with their levels put together where they are many."""

    places: tuple[int, ...]
    codes: Indices
    counts: tuple[int, ...]
    ordered: tuple[bool, ...]
    put_together: tuple[str, ...]


def _analysed(
    labels: Mapping[str, str],
    rows: pd.DataFrame,
    finals: tuple[Confirmed, ...],
    whole: bool | None,
    space: Space | None,
) -> Importance:
    found = configurations(
        rows, dict(zip(space.names, space.levels, strict=True)) if space is not None else {}
    )
    if space is not None and set(found.names) != set(space.names):
        raise ConfigError(
            f"the space has the parameters {', '.join(space.names)}, the table {', '.join(found.names)}"
        )
    varied = _varied(found)
    whole = _is_whole(found, whole, space)
    row, won = _winner_row(found, finals)
    rng = np.random.default_rng(_SEED)
    logs = logarithms(found.values)
    shares, how = _shares(found, varied, logs, whole, space, rng)
    top = _top(found, varied, whole, rng)
    validity = _validity(found, varied, whole)
    parameters = [
        Parameter(
            name=found.names[place],
            ordered=found.ordered[place],
            alone=shares.alone[at] if shares else None,
            total=shares.total[at] if shares else None,
            top=top[at] if top else None,
            validity=validity[at] if validity else None,
            levels=levels_of(found, place, row),
        )
        for at, place in enumerate(varied.places)
    ]
    names = [parameter.name for parameter in parameters]
    pairs = [Pair(names[j], names[k], share) for (j, k), share in shares.pairs.items()] if shares else []
    around = (
        neighbours(
            found, row, _feasible(whole, space), lambda j, code: _guess(found, varied, shares, row, j, code)
        )
        if row is not None
        else ()
    )
    studies = dict.fromkeys(found.study)
    return Importance(
        study=", ".join(studies),
        **{name: labels[name] for name in ("kernel", "dtype", "shape", "device", "time_source")},
        objective=labels["objective"] or "time",
        unit="J" if labels["objective"] == "energy" else "ms",
        tried=len(found),
        valid=int(found.valid.sum()),
        failed=found.failures(),
        whole=whole,
        evaluator=(EXACT if whole else FOREST) if shares else "",
        how=how,
        fit=shares.fit if shares else None,
        winner=_winner(found, row, won) if row is not None else None,
        parameters=tuple(sorted(parameters, key=_weight, reverse=True)),
        pairs=tuple(sorted(pairs, key=lambda pair: -pair.share.value)),
        constant={
            name: found.levels[place][found.codes[0, place]]
            for place, name in enumerate(found.names)
            if place not in varied.places
        },
        neighbours=around,
        robustness=robustness(around),
        notes=_notes(found, varied, shares, parameters),
    )


def _varied(found: Configurations) -> _Varied:
    """Parameters with several levels among the configurations; more than 32 ordered levels go into 32 parts."""
    places = [place for place, column in enumerate(found.codes.T) if len(np.unique(column)) > 1]
    many = [found.ordered[place] and found.counts[place] > _MOST_LEVELS for place in places]
    columns = [_parts(found, place, found.codes[:, place]) for place in places]
    return _Varied(
        places=tuple(places),
        codes=np.array(columns, dtype=np.int64).reshape(len(places), len(found)).T,
        counts=tuple(
            _MOST_LEVELS if is_many else found.counts[place]
            for place, is_many in zip(places, many, strict=True)
        ),
        ordered=tuple(found.ordered[place] for place in places),
        put_together=tuple(
            found.names[place] for place, is_many in zip(places, many, strict=True) if is_many
        ),
    )


def _parts(found: Configurations, place: int, codes: Indices) -> Indices:
    count = found.counts[place]
    return codes * _MOST_LEVELS // count if found.ordered[place] and count > _MOST_LEVELS else codes


def _is_whole(found: Configurations, said: bool | None, space: Space | None) -> bool:
    if said is not None:
        return said
    if space is not None:
        tried = (space.row(Point(tuple(found.params(row).items()))) for row in range(len(found)))
        return len({row for row in tried if row is not None}) == len(space)
    return len(found) > 0 and len(found) == math.prod(found.counts)


def _shares(
    found: Configurations,
    varied: _Varied,
    logs: Floats,
    whole: bool,
    space: Space | None,
    rng: np.random.Generator,
) -> tuple[Shares | None, str]:
    """The shares and how they were had, or why there are none."""
    if not varied.places:
        return None, "no parameter was varied"
    if not found.valid.any():
        return None, "every configuration failed"
    if np.ptp(logs) == 0:
        return None, "all configurations take the same time"
    if whole:
        shares = exact(varied.codes, varied.counts, logs)
        product = math.prod(found.counts) == len(found)
        every = "combinations of the levels tried" if product else "feasible configurations"
        return shares, f"exact over all {len(found)} {every}"
    if len(found) < _LEAST_TRIALS:
        return None, f"{len(found)} configurations are too few for a model ({_LEAST_TRIALS} at least)"
    if space is not None:
        region = of_space(space, rng).seen_as(_tables(found, varied, space))
        over = f"the {len(space)} feasible configurations"
    else:
        region = of_trials(varied.codes, varied.counts, rng)
        by = "three by three" if together(varied.codes) == 3 else "two by two"
        over = f"combinations whose levels were tried together {by}"
    shares = by_forest(varied.codes, varied.counts, varied.ordered, logs, region, rng)
    return shares, f"a regression forest on {len(found)} configurations, over {over}"


def _tables(found: Configurations, varied: _Varied, space: Space) -> list[tuple[int, Indices]]:
    """For each parameter that varies its place in `space`, and our code for each of its levels there."""
    tables = []
    for place in varied.places:
        own = space.names.index(found.names[place])
        codes = np.array([found.levels[place].index(level) for level in space.levels[own]])
        tables.append((own, _parts(found, place, codes)))
    return tables


def _top(found: Configurations, varied: _Varied, whole: bool, rng: np.random.Generator) -> list[Share] | None:
    if len(found) < _LEAST_TRIALS:
        return None
    return resampled_top(varied.codes, varied.counts, found.values, rng, sampled=not whole)


def _validity(found: Configurations, varied: _Varied, whole: bool) -> list[Share] | None:
    valid = found.valid
    if not varied.places or valid.all() or not valid.any():
        return None
    column = valid.astype(float)[:, None]
    return [
        Share(float(value))
        for value in alone_effects(varied.codes, varied.counts, column, sampled=not whole)[:, 0]
    ]


def _winner_row(found: Configurations, finals: Sequence[Confirmed]) -> tuple[int | None, bool]:
    """The best configuration, or the one that won its study's confirmation; None where all failed."""
    if not found.valid.any():
        return None, False
    row = int(np.nanargmin(found.values))
    standing = winners_of(finals).get(found.study[row])
    if standing is None:
        return row, False
    won = dict(standing.confirmed.params)
    for other in np.flatnonzero(found.valid).tolist():
        if found.study[other] == found.study[row] and found.params(other) == won:
            return other, True
    return row, False


def _winner(found: Configurations, row: int, confirmed: bool) -> Winner:
    low, high = float(found.low[row]), float(found.high[row])
    return Winner(
        study=found.study[row],
        trial=found.trial[row],
        params=found.params(row),
        value=float(found.values[row]),
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        confirmed=confirmed,
    )


def _feasible(whole: bool, space: Space | None) -> Feasible:
    """Whether a configuration that was not tried can be."""

    def judge(params: Mapping[str, Value]) -> bool | None:
        if space is not None:
            return space.row(Point(tuple(params.items()))) is not None
        return False if whole else None

    return judge


def _guess(
    found: Configurations, varied: _Varied, shares: Shares | None, winner: int, parameter: int, code: int
) -> float | None:
    """The slowdown that the model expects, of its own expectation of the winner."""
    if shares is None or shares.predict is None or parameter not in varied.places:
        return None
    at = varied.places.index(parameter)
    points = np.repeat(varied.codes[[winner]], 2, axis=0)
    points[1, at] = int(_parts(found, parameter, np.array([code]))[0])
    own, other = shares.predict(points)
    return float(np.exp(other - own))


def _weight(parameter: Parameter) -> tuple[float, float]:
    """The middle between what it explains alone and with all others; then what PED-ANOVA says."""
    alone, total = (share.value if share else 0.0 for share in (parameter.alone, parameter.total))
    return (alone + total) / 2, parameter.top.value if parameter.top else 0.0


def _notes(
    found: Configurations, varied: _Varied, shares: Shares | None, parameters: Sequence[Parameter]
) -> tuple[str, ...]:
    notes = []
    failed = int((~found.valid).sum())
    if shares and failed:
        counts = "1 failed configuration counts" if failed == 1 else f"{failed} failed configurations count"
        notes.append(f"{counts} as slow as the slowest valid one")
    if shares and shares.fit is not None and shares.fit < _ROUGH:
        notes.append(
            f"the model predicts less than {_ROUGH:.0%} of what it has not seen: its shares are rough"
        )
    if any(p.alone and p.total and p.alone.value > p.total.value + _DEPENDENT for p in parameters):
        notes.append(
            "parameters depend on each other here: what one explains, others explain in part as well"
        )
    if any(parameter.top for parameter in parameters):
        notes.append(f"PED-ANOVA compares the best {len(best_tenth(found.values))} with all")
    if varied.put_together:
        notes.append(f"levels put together in {_MOST_LEVELS} parts: {', '.join(varied.put_together)}")
    studies = len(dict.fromkeys(found.study))
    if studies > 1:
        notes.append(f"{studies} studies are taken together")
    return tuple(notes)
