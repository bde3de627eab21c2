"""Optuna's samplers, by name, over the feasible points of a space.

A sampler proposes a level index for every parameter; the proposal moves to the nearest feasible point
not seen yet, and the study is told that point, not the one proposed. So nothing infeasible or repeated
comes out, and what the sampler learns is what was measured. Parameters are ordinal integers: levels
have an order, and indices of it did better than categories.

The study lives in memory only: Optuna's own storages cost up to 300 ms a trial.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from sweeper.errors import SetupError
from sweeper.search.base import Choice, Number, SpaceStrategy, checked_options
from sweeper.search.random import Shuffle
from sweeper.space import Space

__all__ = ["SAMPLERS", "OptunaSearch", "Sampler", "missing_packages"]


@dataclass(frozen=True, slots=True)
class Sampler:
    """One of Optuna's samplers: how to make it, its options and the packages it needs.

    `ranks_pruned` says that it keeps a pruned trial as worse than every finished one; the others
    forget pruned trials and are told the worst time so far instead.
    """

    make: Callable[[int, Mapping[str, Any]], BaseSampler]
    options: Mapping[str, Number | Choice] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    ranks_pruned: bool = False


def _tpe(multivariate: bool) -> Callable[[int, Mapping[str, Any]], BaseSampler]:
    def make(seed: int, options: Mapping[str, Any]) -> BaseSampler:
        return optuna.samplers.TPESampler(
            seed=seed,
            multivariate=multivariate,
            constant_liar=True,
            group=False,
            n_startup_trials=options["startup"],
            n_ei_candidates=options["candidates"],
        )

    return make


def _gp(seed: int, options: Mapping[str, Any]) -> BaseSampler:
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=options["startup"])


def _cmaes(seed: int, options: Mapping[str, Any]) -> BaseSampler:
    # The margin keeps a step of at least one level alive in every integer coordinate.
    return optuna.samplers.CmaEsSampler(
        seed=seed, n_startup_trials=options["startup"], with_margin=True, warn_independent_sampling=False
    )


def _nsgaii(seed: int, options: Mapping[str, Any]) -> BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=options["startup"])


def _qmc(seed: int, options: Mapping[str, Any]) -> BaseSampler:
    return optuna.samplers.QMCSampler(
        seed=seed, qmc_type=options["sequence"], scramble=True, warn_independent_sampling=False
    )


_TPE_OPTIONS = {"startup": Number(10), "candidates": Number(24)}
SAMPLERS: dict[str, Sampler] = {
    "tpe": Sampler(_tpe(True), _TPE_OPTIONS, ranks_pruned=True),
    "tpe_univariate": Sampler(_tpe(False), _TPE_OPTIONS, ranks_pruned=True),
    "gp": Sampler(_gp, {"startup": Number(10)}, ("torch", "scipy")),
    "cmaes": Sampler(_cmaes, {"startup": Number(10)}, ("cmaes",)),
    "nsgaii": Sampler(_nsgaii, {"startup": Number(20, least=2)}),
    "qmc": Sampler(_qmc, {"sequence": Choice(("sobol", "halton"))}, ("scipy",)),
}


class OptunaSearch(SpaceStrategy):
    """A search by the sampler called `sampler` in `SAMPLERS`.

    The first `startup` configurations are uniform over the feasible points (Optuna's own are uniform
    over the product of all levels, and crowd at the border of what is feasible).

    A failed configuration counts as worse than every finished one, of several objectives in each of them.
    Until one has finished there is nothing to compare with: failures then stay open, which a sampler keeps
    away from.
    Raises ConfigError for a wrong option, SetupError where the sampler needs a package that is missing.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
        *,
        sampler: str = "tpe",
    ) -> None:
        self._sampler = SAMPLERS[sampler]
        super().__init__(
            space, seed, checked_options(sampler, options or {}, self._sampler.options), objectives
        )
        _require(sampler, self._sampler.packages)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage = InMemoryStorage()
        self._study = optuna.create_study(storage=self._storage, directions=["minimize"] * objectives)
        self._study_id = self._storage.get_study_id_from_name(self._study.study_name)
        self._distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(levels) - 1)
            for name, levels in zip(space.names, space.levels, strict=True)
            if len(levels) > 1
        }
        self._columns = [space.names.index(name) for name in self._distributions]
        self._startup = Shuffle(len(space), np.random.default_rng(seed))
        self._numbers: dict[int, int] = {}
        self._open_failures: list[int] = []
        self._worst: tuple[float, ...] | None = None
        self._told = 0
        self._started = False

    def _propose(self) -> int:
        if not self._started:
            self._start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._distributions)
        row = self._snapped(trial.params)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)
        for name, index in self._params(row).items():
            self._storage.set_trial_param(trial_id, name, index, self._distributions[name])
        self._numbers[row] = trial.number
        return row

    def _start(self) -> None:
        """Give the study its sampler; one that starts from stored trials does not repeat its first picks."""
        seed = int(np.random.SeedSequence([self._seed, self._told]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.sampler = self._sampler.make(seed, self._options)
        self._started = True

    def _snapped(self, params: Mapping[str, Any]) -> int:
        if self._told - len(self._open_failures) < self._options.get("startup", 0):
            return self._startup.draw_unless(self._taken)
        wanted = np.zeros(len(self._space.names), dtype=np.int64)
        wanted[self._columns] = [params[name] for name in self._distributions]
        row = self._space.nearest_feasible(wanted, exclude=self._taken)
        if row is None:
            raise AssertionError("asked only while a row is left")
        return row

    def _params(self, row: int) -> dict[str, int]:
        point = self._space.indices[row]
        return {
            name: int(point[column]) for name, column in zip(self._distributions, self._columns, strict=True)
        }

    def _observe(self, row: int, values: tuple[float, ...] | None, *, asked: bool) -> None:
        self._told += 1
        number = self._numbers.pop(row) if asked else self._added(row)
        if values is None:
            self._fail(number)
            return
        self._worst = tuple(map(max, values, self._worst or values))
        self._study.tell(number, values)
        while self._open_failures:
            self._fail(self._open_failures.pop(0))

    def _added(self, row: int) -> int:
        """The number of a new open trial at a row that the sampler did not propose."""
        trial = create_trial(
            state=TrialState.RUNNING, params=self._params(row), distributions=self._distributions
        )
        return self._storage.get_trial_number_from_id(
            self._storage.create_new_trial(self._study_id, template_trial=trial)
        )

    def _fail(self, number: int) -> None:
        if self._worst is None:
            self._open_failures.append(number)
        elif self._sampler.ranks_pruned and self._objectives == 1:
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, self._worst)


def missing_packages(packages: tuple[str, ...]) -> list[str]:
    """Those of `packages` that are not installed."""
    return [package for package in packages if importlib.util.find_spec(package) is None]


def _require(sampler: str, packages: tuple[str, ...]) -> None:
    missing = missing_packages(packages)
    if missing:
        raise SetupError(
            f"search.name = {sampler} needs the package{'s' * (len(missing) > 1)} {' and '.join(missing)}",
            hint=f"pip install {' '.join(missing)}, or use search=tpe, which needs nothing more",
        )
