"""A search that begins with the kernel's default goes on as its strategy would have."""

from __future__ import annotations

import pytest
from specs import gemm_spec

from sweeper.search import REGISTRY, make
from sweeper.search.default_first import DefaultFirst
from sweeper.space import Space, build_space

DEFAULT = 5


@pytest.fixture
def space() -> Space:
    spec = gemm_spec(params={"tile": [2, 4, 8, 16, 32], "unroll": [1, 2, 4]})
    return build_space(spec.params, (), {}, {})


def everything(strategy: DefaultFirst, ahead: int = 3) -> list[int]:
    """All rows in asked order, each told before the next few are asked."""
    found: list[int] = []
    while rows := strategy.ask(ahead):
        for row in rows:
            strategy.tell(row, float(row + 1))
        found += rows
    return found


@pytest.mark.parametrize("name", ["grid", "random", "tpe", "bayes"])
@pytest.mark.parametrize("ahead", [1, 4])
def test_every_row_is_asked_once_and_the_default_before_all_others(
    space: Space, name: str, ahead: int
) -> None:
    assert name in REGISTRY
    asked = everything(DefaultFirst(make(name, space), DEFAULT), ahead)
    assert asked[0] == DEFAULT
    assert sorted(asked) == list(range(len(space)))


@pytest.mark.parametrize("name", ["grid", "random"])
def test_the_others_come_in_the_order_that_they_have_without_it(space: Space, name: str) -> None:
    alone = make(name, space).ask(len(space))
    asked = DefaultFirst(make(name, space), DEFAULT).ask(len(space))
    assert asked == [DEFAULT, *(row for row in alone if row != DEFAULT)]


def test_a_default_that_is_asked_alone_is_no_more_than_was_wanted(space: Space) -> None:
    strategy = DefaultFirst(make("grid", space), DEFAULT)
    assert strategy.ask(0) == []
    assert strategy.ask(1) == [DEFAULT]
    assert len(strategy.ask(3)) == 3


def test_a_failed_default_is_told_like_any_other(space: Space) -> None:
    strategy = DefaultFirst(make("tpe", space), DEFAULT)
    strategy.tell(strategy.ask(1)[0], None)
    assert DEFAULT not in everything(strategy)
