"""NVIDIA's libraries beside the kernels: by name, opened when first asked for, each with what it would launch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.cublas import Cublas
from sweeper.backend.cuda.cublas_gemm import Gemm, gemm_of
from sweeper.backend.cuda.cublaslt import Algorithm, CublasLt, LtProduct
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.verification import Launcher
from sweeper.errors import ConfigError, SetupError, TrialFailed, did_you_mean
from sweeper.model import Stage, Status
from sweeper.problem import Problem

__all__ = ["HEURISTICS", "Baselines", "Contender"]

HEURISTICS = 16
"""How many of cuBLASLt's proposals are looked at."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way in which a library computes the problem: how it is launched, and what a reader is told of it."""

    run: Launcher
    note: str
    details: Mapping[str, Any]


class Baselines:
    """The libraries of one open device. One that is missing or does not start is a failure of its row alone."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._cublas: Cublas | None = None
        self._cublaslt: CublasLt | None = None
        self._known: dict[
            str, Callable[[Gemm, Arguments], contextlib.AbstractContextManager[list[Contender]]]
        ]
        self._known = {"cublas": self._plain, "cublaslt": self._proposed}

    @contextlib.contextmanager
    def contenders(self, library: str, problem: Problem, arguments: Arguments) -> Iterator[list[Contender]]:
        """What `library` would launch for `problem`; valid inside the block.

        Raises ConfigError for an unknown library and TrialFailed: `infeasible`, of stage `space` where the
        library is not here, else where it has no such product.
        """
        if library not in self._known:
            raise ConfigError(
                f"unknown baseline library {library!r}{did_you_mean(library, self._known)}",
                hint=f"known: {', '.join(self._known)}",
            )
        gemm = gemm_of(problem)
        with self._known[library](gemm, arguments) as found:
            yield found

    def close(self) -> None:
        """Give the libraries' handles back; the next one that is asked for starts anew."""
        for library in (self._cublas, self._cublaslt):
            if library is not None:
                library.close()
        self._cublas = self._cublaslt = None

    @contextlib.contextmanager
    def _plain(self, gemm: Gemm, arguments: Arguments) -> Iterator[list[Contender]]:
        del arguments
        if self._cublas is None:
            with _a_row_of_its_own():
                self._cublas = Cublas(int(self._device.stream.handle))
        library = self._cublas

        def run(given: Arguments) -> None:
            library.run(gemm, *_pointers(gemm, given))

        yield [Contender(run, f"cuBLAS {library.version}, {gemm.mode}", _common(library, gemm))]

    @contextlib.contextmanager
    def _proposed(self, gemm: Gemm, arguments: Arguments) -> Iterator[list[Contender]]:
        if self._cublaslt is None:
            with _a_row_of_its_own():
                self._cublaslt = CublasLt(int(self._device.stream.handle), self._device.allocate)
        library = self._cublaslt
        pointers = {name: array.pointer for name, array in arguments.arrays.items()}
        with contextlib.ExitStack() as products:
            found = []
            for fast_sums in (False, True) if gemm.mode.fast_sums else (False,):
                product = products.enter_context(library.product(gemm, pointers, fast_sums=fast_sums))
                found += [
                    self._contender(library, product, gemm, algorithm, fast_sums)
                    for algorithm in product.algorithms(HEURISTICS)
                ]
            yield found

    @staticmethod
    def _contender(
        library: CublasLt, product: LtProduct, gemm: Gemm, algorithm: Algorithm, fast_sums: bool
    ) -> Contender:
        def run(given: Arguments) -> None:
            product.run(algorithm, *_pointers(gemm, given))

        details = {
            **_common(library, gemm),
            **({"fast_sums": True} if fast_sums else {}),
            "heuristic": algorithm.place,
            "workspace_bytes": algorithm.workspace_bytes,
            "algorithm": dict(algorithm.config),
        }
        mode = f"{gemm.mode}{', fast accumulation' if fast_sums else ''}"
        note = f"cuBLASLt {library.version}, {mode}, heuristic {algorithm.place}: {algorithm}"
        return Contender(run, note, details)


def _pointers(gemm: Gemm, given: Arguments) -> tuple[int, int, int]:
    a, b, c = (given.arrays[name].pointer for name in (gemm.a, gemm.b, gemm.c))
    return a, b, c


def _common(library: Cublas | CublasLt, gemm: Gemm) -> dict[str, Any]:
    return {"version": library.version, "compute": gemm.mode.name, "math": gemm.mode.math_name}


@contextlib.contextmanager
def _a_row_of_its_own() -> Iterator[None]:
    """A library that cannot be used is no fault of the device: its row fails, and is asked again next time."""
    try:
        yield
    except SetupError as error:
        reason = f"{error.message}: {error.hint}" if error.hint else error.message
        raise TrialFailed(Status.INFEASIBLE, Stage.SPACE, reason) from None
