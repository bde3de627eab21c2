"""cuBLASLt as the library's answer to a matrix product: each of the algorithms that its heuristics propose."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.backend.cuda.cublas import refusal
from sweeper.backend.cuda.cublas_gemm import Gemm, neutral_environment, no_equivalent
from sweeper.backend.cuda.cublas_loading import CublasError, starting
from sweeper.backend.cuda.cublaslt_api import HEURISTIC_RESULT, CublasLtApi, load_cublaslt

__all__ = ["WORKSPACE_BYTES", "Algorithm", "CublasLt", "LtProduct"]

WORKSPACE_BYTES = 32 << 20
"""What an algorithm may use beside the arrays: the default of cuBLAS itself on Hopper."""

# Values of cublasLt.h.
_TRANS_A, _TRANS_B = 3, 4
_FAST_SUMS = 25
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MAX_WORKSPACE, _REDUCTION_MASK = 1, 3
_ALIGNMENTS = {"a": 5, "b": 6, "c": 7, "d": 8}
# Parts of a sum are added up in the compute type, in the workspace. To add them in place is to round each to the
# output's type: with bfloat16 at 4097³ that puts 3 % of the elements outside the bound of a single rounding.
_IN_COMPUTE_TYPE = 2
_TRANSPOSE = 1
_CONFIG = {
    "id": (0, np.int32),
    "tile": (1, np.uint32),
    "split_k": (2, np.int32),
    "reduction": (3, np.uint32),
    "swizzle": (4, np.uint32),
    "custom": (5, np.uint32),
    "stages": (6, np.uint32),
    "cluster": (8, np.uint16),
}
_NAMED = ("tile", "stages", "cluster")
_LARGEST_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One proposal of the heuristics: its `place` among them from 1, its address, and what it is.

    `config` has what the library tells: `id`, `tile` and `stages` by name where NVIDIA's bindings are there
    and by number elsewhere, `split_k`, `reduction`, `swizzle`, `cluster`. A tile is one of the transposed product.
    """

    place: int
    address: int
    workspace_bytes: int
    config: Mapping[str, int | str]

    def __str__(self) -> str:
        shown = [f"{key} {self.config[key]}" for key in ("tile", "stages", "cluster") if key in self.config]
        split = self.config.get("split_k", 1)
        shown += [f"split-K {split}"] if split not in (0, 1) else []
        shown += [f"workspace {self.workspace_bytes} B"] if self.workspace_bytes else []
        return f"algorithm {self.config.get('id', '?')}" + (f" ({', '.join(shown)})" if shown else "")


class CublasLt:
    """A cuBLASLt handle in the current context, for one stream; `allocate` gives device memory.

    Raises SetupError where there is no cuBLASLt.
    """

    name = "cuBLASLt"

    def __init__(self, stream_handle: int, allocate: Callable[[int], Any]) -> None:
        neutral_environment()
        self.stream_handle = stream_handle
        self.allocate = allocate
        with starting(self.name):
            self.api: CublasLtApi = load_cublaslt()
            self.version = self.api.version()

    @contextlib.contextmanager
    def product(
        self, gemm: Gemm, pointers: Mapping[str, int], *, fast_sums: bool = False
    ) -> Iterator[LtProduct]:
        """The product as the library sees it, for arrays at `pointers` and any others aligned as they are.

        `fast_sums` lets it leave sums in the tensor cores, where the class has such a choice.
        Raises TrialFailed: infeasible where the library declines the types or sizes, out of memory where
        there is none for the workspace.
        """
        with contextlib.ExitStack() as objects:
            try:
                made = LtProduct(self, gemm, pointers, objects, fast_sums=fast_sums)
            except CublasError as error:
                raise refusal(self.name, gemm, error) from None
            yield made

    def close(self) -> None:
        with contextlib.suppress(CublasError):
            self.api.call("destroy", self.api.handle)


class LtProduct:
    """Descriptors of one product, its workspace, and what the heuristics propose for it."""

    def __init__(
        self,
        library: CublasLt,
        gemm: Gemm,
        pointers: Mapping[str, int],
        objects: contextlib.ExitStack,
        *,
        fast_sums: bool,
    ) -> None:
        self._library = library
        self._api = library.api
        self._gemm = gemm
        self._objects = objects
        self._factors = gemm.mode.factors()
        self._operation = self._made("matmul_desc", gemm.mode.compute, gemm.mode.scale_type)
        # Operands change places: what the library calls A is our B, and a row of ours is its column.
        for attribute, transposed in ((_TRANS_A, gemm.transpose_b), (_TRANS_B, gemm.transpose_a)):
            if transposed:
                self._set("matmul_desc", self._operation, attribute, np.int32(_TRANSPOSE))
        if fast_sums:
            self._set("matmul_desc", self._operation, _FAST_SUMS, np.int8(1))
        apart_a, apart_b, apart_c = gemm.strides
        self._left = self._layout(gemm.operand_type, gemm.stored_b, gemm.ldb, apart_b)
        self._right = self._layout(gemm.operand_type, gemm.stored_a, gemm.lda, apart_a)
        self._out = self._layout(gemm.output_type, (gemm.m, gemm.n), gemm.ldc, apart_c)
        self._alignment = {
            "a": _alignment(pointers[gemm.b]),
            "b": _alignment(pointers[gemm.a]),
            "c": _alignment(pointers[gemm.c]),
            "d": _alignment(pointers[gemm.c]),
        }
        self._results = np.zeros(0, HEURISTIC_RESULT)
        self._workspace = library.allocate(WORKSPACE_BYTES)

    def _made(self, kind: str, *numbers: int) -> int:
        """A new object of the library's, destroyed with the others."""
        handle = self._api.call(f"{kind}_create", *numbers)
        self._objects.callback(self._destroyed, kind, handle)
        return handle

    def _destroyed(self, kind: str, handle: int) -> None:
        with contextlib.suppress(CublasError):
            self._api.call(f"{kind}_destroy", handle)

    def _set(self, kind: str, handle: int, attribute: int, value: Any) -> None:
        held = np.array([value])
        self._api.call(f"{kind}_set_attribute", handle, attribute, held.ctypes.data, held.nbytes)

    def _layout(self, element: int, stored: tuple[int, int], leading: int, apart: int) -> int:
        rows, columns = stored
        layout = self._made("matrix_layout", element, columns, rows, leading)
        if self._gemm.batch > 1:
            self._set("matrix_layout", layout, _BATCH_COUNT, np.int32(self._gemm.batch))
            self._set("matrix_layout", layout, _BATCH_OFFSET, np.int64(apart))
        return layout

    def algorithms(self, count: int) -> list[Algorithm]:
        """The first `count` proposals, best first by the library's own estimate; those it marks unusable left out.

        Raises TrialFailed (infeasible) where there is none.
        """
        try:
            return self._algorithms(count)
        except CublasError as error:
            raise refusal(self._library.name, self._gemm, error) from None

    def _algorithms(self, count: int) -> list[Algorithm]:
        preference = self._made("matmul_preference")
        self._set("matmul_preference", preference, _MAX_WORKSPACE, np.uint64(WORKSPACE_BYTES))
        if self._gemm.rounds_its_result:
            self._set("matmul_preference", preference, _REDUCTION_MASK, np.uint32(_IN_COMPUTE_TYPE))
        for matrix, alignment in self._alignment.items():
            self._set("matmul_preference", preference, _ALIGNMENTS[matrix], np.uint32(alignment))
        # Kept: an algorithm is launched from where it was written.
        self._results = np.zeros(count, HEURISTIC_RESULT)
        found = np.zeros(1, np.int32)
        self._api.call(
            "matmul_algo_get_heuristic",
            *(self._library.api.handle, self._operation, self._left, self._right, self._out, self._out),
            *(preference, count, self._results.ctypes.data, found.ctypes.data),
        )
        usable = [n for n in range(int(found[0])) if self._results["state"][n] == 0]
        if not usable:
            raise no_equivalent(f"cuBLASLt proposes no algorithm for {self._gemm}")
        return [self._algorithm(n) for n in usable]

    def _algorithm(self, n: int) -> Algorithm:
        address = self._results.ctypes.data + n * HEURISTIC_RESULT.itemsize
        config: dict[str, int | str] = {}
        for key, (attribute, kind) in _CONFIG.items():
            value, written = np.zeros(1, kind), np.zeros(1, np.uint64)
            # Older versions do not know every attribute.
            with contextlib.suppress(CublasError):
                self._api.call(
                    "matmul_algo_config_get_attribute",
                    *(address, attribute, value.ctypes.data, value.nbytes, written.ctypes.data),
                )
                number = int(value[0])
                config[key] = self._api.name_of(key, number) if key in _NAMED else number
        return Algorithm(n + 1, address, int(self._results["workspace_bytes"][n]), config)

    def run(self, algorithm: Algorithm, a: int, b: int, c: int) -> None:
        """Queue C = A·B on device pointers by `algorithm`. Raises TrialFailed as `Cublas.run` does."""
        one, zero = self._factors
        try:
            self._api.call(
                "matmul",
                *(self._api.handle, self._operation, one.ctypes.data, b, self._left, a, self._right),
                *(zero.ctypes.data, c, self._out, c, self._out, algorithm.address),
                *(int(self._workspace), WORKSPACE_BYTES, self._library.stream_handle),
            )
        except CublasError as error:
            raise refusal(self._library.name, self._gemm, error) from None


def _alignment(pointer: int) -> int:
    """Bytes that `pointer` is a multiple of, as far as the library asks."""
    return min(pointer & -pointer, _LARGEST_ALIGNMENT)
