"""References written in Python: a function of a file, called with float64 arrays and the scalars."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.errors import KernelError
from sweeper.problem.arguments import ResolvedArray

__all__ = ["PythonReference"]

Floats = npt.NDArray[np.float64]


class PythonReference:
    """The function `name` of the file `path`, imported under a name that no other module has.

    It may take any of the kernel's input arrays (float64 copies) and scalars (as the kernel gets them),
    by argument name, and returns one array, or a dict by output name. The file is code that runs in
    this process. Raises KernelError naming file and function for whatever goes wrong in it.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.place = f"reference {name} of {path}"
        function = getattr(self._import(path), name, None)
        if not callable(function):
            raise KernelError(f"{self.place}: the file has no such function")
        self._function: Callable[..., Any] = function

    def __call__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        scalars: Mapping[str, float | int],
        outputs: Sequence[ResolvedArray],
    ) -> dict[str, Floats]:
        """What every output should hold, in float64, checked for shape and completeness."""
        given = {name: data.astype(np.float64) for name, data in arrays.items()} | dict(scalars)
        result = self._guarded(self._function, **self._accepted(given))
        if not isinstance(result, Mapping):
            if len(outputs) != 1:
                names = ", ".join(a.name for a in outputs)
                raise KernelError(
                    f"{self.place}: must return a dict with the keys {names}, as there are several"
                )
            result = {outputs[0].name: result}
        return {a.name: self._output(a, result) for a in outputs}

    def magnitudes(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        scalars: Mapping[str, float | int],
        outputs: Sequence[ResolvedArray],
    ) -> dict[str, Floats]:
        """The function of |arrays| and |scalars|: what is summed, free of cancellation.

        For a multilinear function with positive coefficients (a convolution, an axpy, a product) this is the
        sum of the terms' magnitudes, which the error of a sum scales with. Where the function is
        anything else, or fails there, it is at worst no help: those elements are 0.
        """
        try:
            results = self(
                {name: np.abs(data.astype(np.float64)) for name, data in arrays.items()},
                {name: abs(value) for name, value in scalars.items()},
                outputs,
            )
        except KernelError:
            return {a.name: np.zeros(a.shape) for a in outputs}
        return {n: np.nan_to_num(np.abs(r), nan=0.0, posinf=0.0) for n, r in results.items()}

    def _import(self, path: Path) -> ModuleType:
        name = "sweeper_reference_" + hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
        loader = _UncachedLoader(name, str(path))
        spec = importlib.util.spec_from_loader(name, loader)
        if not path.is_file() or spec is None:
            raise KernelError(f"{self.place}: no such file", hint="its path is relative to the kernel's YAML")
        module = importlib.util.module_from_spec(spec)
        # A dataclass in the file looks its own module up here.
        sys.modules[name] = module
        self._guarded(loader.exec_module, module)
        return module

    def _accepted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `given` that the function names; all of them if it takes any keyword."""
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (TypeError, ValueError):
            return dict(given)
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return dict(given)
        for p in parameters:
            optional = p.default is not inspect.Parameter.empty or p.kind is inspect.Parameter.VAR_POSITIONAL
            if not optional and p.name not in given:
                raise KernelError(
                    f"{self.place}: takes {p.name!r}, which is no input of the kernel",
                    hint="inputs: " + ", ".join(given),
                )
        return {p.name: given[p.name] for p in parameters if p.name in given}

    def _guarded(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        try:
            # The check of the result is ours, with the element's index; NumPy's warning has none.
            with np.errstate(all="ignore"):
                return function(*args, **named)
        except (Exception, SystemExit) as error:
            raise KernelError(f"{self.place}: {type(error).__name__}: {error}") from error

    def _output(self, array: ResolvedArray, result: Mapping[str, Any]) -> Floats:
        if array.name not in result:
            raise KernelError(
                f"{self.place}: returned no {array.name!r}, only {', '.join(map(repr, result))}"
            )
        returned = self._guarded(np.asarray, result[array.name])
        if returned.dtype.kind not in "biuf":
            raise KernelError(f"{self.place}: {array.name} is of type {returned.dtype}, not of real numbers")
        if returned.shape != array.shape and not returned.size == array.size == 1:
            raise KernelError(
                f"{self.place}: {array.name} has shape {returned.shape}, expected {array.shape}"
            )
        values: Floats = returned.astype(np.float64).reshape(array.shape)
        return values


class _UncachedLoader(importlib.machinery.SourceFileLoader):
    """Reads the source each time: a byte-code cache trusts time stamps, and would write beside the file."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"{path}: not to be cached")
