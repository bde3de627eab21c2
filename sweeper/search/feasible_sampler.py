"""Our searches as a sampler for anybody's Optuna study.

    sampler = FeasibleSampler.of_points([{"bm": 64, "bn": 128}, {"bm": 128, "bn": 64}], seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=50)      # trial.suggest_categorical("bm", [64, 128]) and so on

Every trial gets a feasible point that no trial had before; a study that has had them all stops. The objective asks
for each parameter by `suggest_int`, `suggest_float` or `suggest_categorical` in a range that holds its levels.
Failed and pruned trials count as failed configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeper.errors import ConfigError
from sweeper.expressions import Value
from sweeper.model import ParamSpec, Point
from sweeper.search import make
from sweeper.space import Space, space_of_points

__all__ = ["FeasibleSampler"]

_ROW = "sweeper:row"


class FeasibleSampler(BaseSampler):
    """Samples the points of `space` by the search called `strategy`.

    One sampler serves one study of one objective. Trials that the study had before are told to the search, as far
    as their parameters are a point of the space. `estimates` are as `search.make` takes them. Raises ConfigError
    as `search.make` does.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        strategy: str = "guided",
        options: Mapping[str, Any] | None = None,
        estimates: Sequence[npt.NDArray[np.float64]] = (),
    ) -> None:
        self._space = space
        self._search = make(strategy, space, seed, options, estimates=estimates)
        self._told: set[int] = set()
        self._rows: set[int] = set()

    @classmethod
    def of_points(cls, points: Iterable[Mapping[str, Value]], **options: Any) -> FeasibleSampler:
        """A sampler of exactly `points`, each of which has the same parameters. Raises ConfigError."""
        listed = [dict(point) for point in points]
        if not listed:
            raise ConfigError("a sampler needs at least one point")
        names = list(listed[0])
        for point in listed:
            if set(point) != set(names):
                raise ConfigError(
                    f"the point {point} has other parameters than the first, which has {', '.join(names)}"
                )
        levels = {n: sorted({p[n] for p in listed}, key=lambda v: (isinstance(v, str), v)) for n in names}
        params = [ParamSpec(name, tuple(levels[name]), levels[name][0]) for name in names]
        unique = dict.fromkeys(Point(tuple((name, point[name]) for name in names)) for point in listed)
        return cls(space_of_points(params, list(unique)), **options)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Empty: what a trial gets does not depend on the distributions that others asked for."""
        del study, trial
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose the trial's point; its parameters are handed out one by one."""
        del search_space
        self._hear(study)
        rows = self._search.ask(1)
        if not rows:
            study.stop()
            raise optuna.TrialPruned("every feasible point was asked")
        self._rows.add(rows[0])
        study._storage.set_trial_system_attr(trial._trial_id, _ROW, rows[0])
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The parameter's value at the trial's point. Raises ConfigError where that is not in the range asked for."""
        attributes = study._storage.get_trial_system_attrs(trial._trial_id)
        params = self._space.point(int(attributes[_ROW])).params
        if param_name not in params:
            raise ConfigError(
                f"the space has no parameter {param_name!r}", hint=f"it has {', '.join(self._space.names)}"
            )
        value = params[param_name]
        try:
            inside = param_distribution._contains(param_distribution.to_internal_repr(value))
        except ValueError:
            inside = False
        if not inside:
            raise ConfigError(
                f"{param_name} = {value} is not in {param_distribution}",
                hint="suggest each parameter in a range that holds all its levels",
            )
        return value

    def _hear(self, study: Study) -> None:
        """Tell the search what has come of earlier trials."""
        if len(study.directions) > 1:
            raise ConfigError("FeasibleSampler makes one value small; the study has several")
        for trial in study.get_trials(deepcopy=False):
            if trial.number in self._told or not trial.state.is_finished():
                continue
            self._told.add(trial.number)
            row = self._row_of(trial)
            if row is None:
                continue
            value = trial.value if trial.state is TrialState.COMPLETE else None
            if value is not None and study.direction is StudyDirection.MAXIMIZE:
                value = -value
            # Points of another sampler's trials may repeat.
            if row in self._rows or not self._search.has_taken(row):
                self._search.tell(row, value)
                self._rows.discard(row)

    def _row_of(self, trial: FrozenTrial) -> int | None:
        row = trial.system_attrs.get(_ROW)
        if row is not None:
            return int(row)
        if set(trial.params) != set(self._space.names):
            return None
        return self._space.row(Point(tuple((name, trial.params[name]) for name in self._space.names)))
