"""Inputs generated in a thread of their own while something else is waited for, a device being opened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

__all__ = ["InputsAhead"]

Inputs = dict[str, npt.NDArray[Any]]


class _Problem(Protocol):
    @property
    def key(self) -> str: ...

    def inputs(self) -> Inputs: ...


class InputsAhead:
    """Begins at once to generate the inputs of the problem that `make` gives, for the one who asks first.

    A problem that has these as its `ahead` takes them, if they are its own. What goes wrong meanwhile is
    nobody's affair: whoever generates them later meets it again.
    """

    def __init__(self, make: Callable[[], _Problem]) -> None:
        self._key = ""
        self._inputs: Inputs | None = None
        self._thread = threading.Thread(target=self._generate, args=(make,), name="inputs", daemon=True)
        self._thread.start()

    def take(self, key: str) -> Inputs | None:
        """The inputs of the problem of that key, once; None where they are another's, or taken."""
        self._thread.join()
        inputs, self._inputs = self._inputs, None
        return inputs if key == self._key else None

    def _generate(self, make: Callable[[], _Problem]) -> None:
        try:
            problem = make()
            self._key, self._inputs = problem.key, problem.inputs()
        except Exception:
            self._inputs = None
