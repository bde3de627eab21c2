"""Ask/tell strategies over a space, by name; each is imported only when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeper.errors import ConfigError, did_you_mean
from sweeper.search.base import Strategy
from sweeper.space import Space

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["REGISTRY", "Strategy", "make", "why_missing", "why_not_several"]

Factory = Callable[[Space, int, Mapping[str, Any], int], Strategy]


def _grid(space: Space, seed: int, options: Mapping[str, Any], objectives: int) -> Strategy:
    from sweeper.search.grid import Grid

    return Grid(space, seed, options, objectives)


def _random(space: Space, seed: int, options: Mapping[str, Any], objectives: int) -> Strategy:
    from sweeper.search.random import Random

    return Random(space, seed, options, objectives)


def _bayes(space: Space, seed: int, options: Mapping[str, Any], objectives: int) -> Strategy:
    from sweeper.search.bayes import Bayes

    return Bayes(space, seed, options, objectives)


def _guided(
    space: Space,
    seed: int,
    options: Mapping[str, Any],
    objectives: int,
    estimates: Sequence[npt.NDArray[np.float64]] = (),
    measured: Sequence[npt.NDArray[np.float64]] = (),
) -> Strategy:
    if objectives > 1:
        # There is no one speed to model: the best that there is for a front goes on.
        return _optuna("tpe")(space, seed, options, objectives)
    from sweeper.search.guided import Guided

    if not measured:
        return Guided(space, seed, options, objectives, estimates=estimates)
    from sweeper.search.base import Number, checked_options
    from sweeper.search.transfer import FIRST, Transfer

    # What was measured elsewhere has the first word, in place of favourites and random points.
    first = checked_options("guided", options, {"startup": Number(FIRST)})["startup"]
    guided = Guided(space, seed, {"startup": 1}, objectives, estimates=[*measured, *estimates])
    return Transfer(guided, space, measured, first)


def _optuna(sampler: str) -> Factory:
    def factory(space: Space, seed: int, options: Mapping[str, Any], objectives: int) -> Strategy:
        from sweeper.search.optuna_sampler import OptunaSearch

        return OptunaSearch(space, seed, options, objectives, sampler=sampler)

    return factory


# A new strategy is one file and one line here, and passes tests/contract/search_contract.py.
REGISTRY: dict[str, Factory] = {
    "grid": _grid,
    "random": _random,
    "guided": _guided,
    "bayes": _bayes,
    "tpe": _optuna("tpe"),
    "tpe_univariate": _optuna("tpe_univariate"),
    "gp": _optuna("gp"),
    "cmaes": _optuna("cmaes"),
    "nsgaii": _optuna("nsgaii"),
    "qmc": _optuna("qmc"),
}

_SEVERAL = ("tpe", "tpe_univariate", "nsgaii", "qmc", "grid", "random", "guided")


def why_not_several(name: str) -> str:
    """Why that search cannot make several values small at once; empty where it can."""
    if name in _SEVERAL:
        return ""
    return f"search={name} makes one value small; use one of {', '.join(_SEVERAL)}"


def make(
    name: str,
    space: Space,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    *,
    objectives: int = 1,
    estimates: Sequence[npt.NDArray[np.float64]] = (),
    measured: Sequence[npt.NDArray[np.float64]] = (),
) -> Strategy:
    """The strategy called `name` over `space`, told of so many values a row.

    `estimates` are times by row of the space, in any unit and NaN where nothing is known, the most trusted first:
    what a search that is guided by such begins with. `measured` are such times from other shapes, precision classes
    or GPUs, the nearest conditions first, which it believes more. The others do without.

    Raises ConfigError for an unknown name, a wrong option or more values than it can serve, SetupError where a
    package is missing.
    """
    if name not in REGISTRY:
        raise ConfigError(
            f"search.name = {name!r} is unknown{did_you_mean(str(name), REGISTRY)}",
            hint=f"use one of {', '.join(REGISTRY)}",
        )
    if objectives > 1 and (why_not := why_not_several(name)):
        raise ConfigError(why_not)
    if name == "guided":
        return _guided(space, seed, options or {}, objectives, estimates, measured)
    return REGISTRY[name](space, seed, options or {}, objectives)


def why_missing(name: str) -> str:
    """Which packages the search called `name` lacks here; empty where it has all."""
    if name in ("grid", "random", "guided", "bayes"):
        return ""
    from sweeper.search.optuna_sampler import SAMPLERS, missing_packages

    missing = missing_packages(SAMPLERS[name].packages)
    return f"it needs {' and '.join(missing)}" if missing else ""
