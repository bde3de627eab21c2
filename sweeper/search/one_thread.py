"""Linear algebra on one thread: a search's matrices are so small that several would mostly wait for each other.

On a busy machine that is dear. With two processors under load, refitting `guided` after 25 to 60 configurations took
30 to 190 ms on all threads and 15 to 50 ms on one; compilers side by side are such a load.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["on_one_thread"]

P = ParamSpec("P")
R = TypeVar("R")


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with NumPy's BLAS and LAPACK held to one thread while it runs, for the whole process."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@functools.cache
def _controller() -> ThreadpoolController:
    """The libraries that are loaded, NumPy's among them, found once: that takes milliseconds."""
    return ThreadpoolController()
