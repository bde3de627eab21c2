"""Ask/tell strategies over a space, by name; each is imported only when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweeper.errors import ConfigError, did_you_mean
from sweeper.search.base import Strategy
from sweeper.space import Space

__all__ = ["REGISTRY", "Strategy", "make"]

Factory = Callable[[Space, int, Mapping[str, Any]], Strategy]


def _grid(space: Space, seed: int, options: Mapping[str, Any]) -> Strategy:
    from sweeper.search.grid import Grid

    return Grid(space, seed, options)


def _random(space: Space, seed: int, options: Mapping[str, Any]) -> Strategy:
    from sweeper.search.random import Random

    return Random(space, seed, options)


def _bayes(space: Space, seed: int, options: Mapping[str, Any]) -> Strategy:
    from sweeper.search.bayes import Bayes

    return Bayes(space, seed, options)


def _optuna(sampler: str) -> Factory:
    def factory(space: Space, seed: int, options: Mapping[str, Any]) -> Strategy:
        from sweeper.search.optuna_sampler import OptunaSearch

        return OptunaSearch(space, seed, options, sampler=sampler)

    return factory


# A new strategy is one file and one line here, and passes tests/contract/search_contract.py.
REGISTRY: dict[str, Factory] = {
    "grid": _grid,
    "random": _random,
    "bayes": _bayes,
    "tpe": _optuna("tpe"),
    "tpe_univariate": _optuna("tpe_univariate"),
    "gp": _optuna("gp"),
    "cmaes": _optuna("cmaes"),
    "nsgaii": _optuna("nsgaii"),
    "qmc": _optuna("qmc"),
}


def make(name: str, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> Strategy:
    """The strategy called `name` over `space`.

    Raises ConfigError for an unknown name or a wrong option, SetupError where a package is missing.
    """
    if name not in REGISTRY:
        raise ConfigError(
            f"search.name = {name!r} is unknown{did_you_mean(str(name), REGISTRY)}",
            hint=f"use one of {', '.join(REGISTRY)}",
        )
    return REGISTRY[name](space, seed, options or {})
