"""A search's linear algebra keeps to one thread, whoever else computes on the machine."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from sweeper.search import gaussian_process, make
from sweeper.search.one_thread import on_one_thread


def threads() -> list[int]:
    """Of each linear algebra library that is loaded."""
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_a_function_runs_on_one_thread_and_the_rest_of_the_process_does_not() -> None:
    assert np.ones((2, 2)) @ np.ones(2) is not None
    before = threads()
    assert on_one_thread(threads)() == [1] * len(before)
    assert threads() == before


def test_threads_are_given_back_where_it_fails() -> None:
    @on_one_thread
    def fail() -> None:
        raise ValueError("no")

    before = threads()
    with pytest.raises(ValueError, match="no"):
        fail()
    assert threads() == before


@pytest.mark.parametrize("strategy", ["guided", "bayes"])
def test_models_are_fitted_on_one_thread(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from contract.search_contract import bowl, register_tiled

    seen: list[int] = []
    factorise = np.linalg.cholesky

    def watched(*args: object, **kwargs: object) -> object:
        seen.extend(threads())
        return factorise(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(gaussian_process.np.linalg, "cholesky", watched)
    space = register_tiled()
    search = make(strategy, space)
    for _ in range(40):
        (row,) = search.ask()
        search.tell(row, bowl(space, row))
    assert seen
    assert set(seen) == {1}
