"""A pretended cuBLASLt on pretended device memory: descriptors, heuristics and products.

library = PretendedLt(driver, [Proposal(time_ms=0.2), Proposal(wrong=True)])
install_lt_bindings(library, monkeypatch)       # as nvmath.bindings.cublasLt
install_lt_library(library, monkeypatch)        # as what ctypes loads
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_pycuda import FakeDriver

from sweeper.backend.cuda import cublas_loading
from sweeper.backend.cuda.cublaslt_api import HEURISTIC_RESULT

TYPES = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    3: np.int8,
    10: np.int32,
    14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn,
}
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_ATTRIBUTES = {"id": 0, "tile": 1, "split_k": 2, "reduction": 3, "swizzle": 4, "custom": 5, "stages": 6}
_C_NAMES = {
    "cublasLtCreate": "create",
    "cublasLtDestroy": "destroy",
    "cublasLtMatmulDescCreate": "matmul_desc_create",
    "cublasLtMatmulDescSetAttribute": "matmul_desc_set_attribute",
    "cublasLtMatmulDescDestroy": "matmul_desc_destroy",
    "cublasLtMatrixLayoutCreate": "matrix_layout_create",
    "cublasLtMatrixLayoutSetAttribute": "matrix_layout_set_attribute",
    "cublasLtMatrixLayoutDestroy": "matrix_layout_destroy",
    "cublasLtMatmulPreferenceCreate": "matmul_preference_create",
    "cublasLtMatmulPreferenceSetAttribute": "matmul_preference_set_attribute",
    "cublasLtMatmulPreferenceDestroy": "matmul_preference_destroy",
    "cublasLtMatmulAlgoGetHeuristic": "matmul_algo_get_heuristic",
    "cublasLtMatmulAlgoConfigGetAttribute": "matmul_algo_config_get_attribute",
    "cublasLtMatmul": "matmul",
}


class Status(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@dataclass
class Proposal:
    """One algorithm that the heuristics propose, and what a launch of it does."""

    time_ms: float = 0.1
    wrong: bool = False
    status: int = 0
    state: int = 0
    workspace_bytes: int = 0
    config: dict[str, int] = field(default_factory=lambda: {"id": 66, "tile": 20, "stages": 13, "split_k": 1})
    loses_the_context: bool = False
    launches: int = 0


class PretendedLt:
    """What the library would be asked, by the names of NVIDIA's bindings; `asked` and `live` tell what was."""

    def __init__(self, driver: FakeDriver, proposals: list[Proposal] | None = None) -> None:
        self.driver = driver
        self.proposals = [Proposal()] if proposals is None else proposals
        self.live: dict[int, dict[str, Any]] = {}
        self.asked: dict[str, Any] = {}
        self.operations: list[dict[Any, Any]] = []
        self.streams: set[int] = set()
        self.heuristic_status = self.create_status = 0
        self._next = 1000

    def call(self, function: str, *numbers: int) -> int:
        """The handle of what was created, else 0; raises Status."""
        kind, _, action = function.rpartition("_")
        if function == "create" or action == "create":
            return self._create(kind, numbers)
        if function == "destroy" or action == "destroy":
            del self.live[numbers[0]]
            return 0
        if function.endswith("_set_attribute"):
            handle, attribute, address, nbytes = numbers
            self.live[handle][attribute] = int.from_bytes(ctypes.string_at(address, nbytes), "little")
            return 0
        return int(getattr(self, f"_{function}")(*numbers) or 0)

    def _create(self, kind: str, numbers: tuple[int, ...]) -> int:
        if kind == "" and self.create_status:
            raise Status(self.create_status)
        self._next += 1
        self.live[self._next] = {"kind": kind, "made": numbers}
        return self._next

    def _matmul_algo_get_heuristic(
        self, handle: int, operation: int, a: int, b: int, c: int, d: int, preference: int, *rest: int
    ) -> None:
        count, results, found = rest
        assert self.live[handle]["kind"] == ""
        assert c == d
        self.asked = {
            "compute": self.live[operation]["made"],
            "preference": dict(self.live[preference]),
            "layouts": [self.live[x]["made"] for x in (a, b, c)],
            "count": count,
        }
        self.operations.append(dict(self.live[operation]))
        if self.heuristic_status:
            raise Status(self.heuristic_status)
        proposed = self.proposals[:count]
        held = np.frombuffer(
            (ctypes.c_char * (count * HEURISTIC_RESULT.itemsize)).from_address(results), HEURISTIC_RESULT
        )
        for n, proposal in enumerate(proposed):
            held["algorithm"][n][0] = n
            held["workspace_bytes"][n] = proposal.workspace_bytes
            held["state"][n] = proposal.state
        ctypes.c_int.from_address(found).value = len(proposed)

    def _matmul_algo_config_get_attribute(self, algorithm: int, attribute: int, *rest: int) -> None:
        address, nbytes, written = rest
        config = self.proposals[ctypes.c_uint64.from_address(algorithm).value].config
        names = {number: name for name, number in _ATTRIBUTES.items()}
        if names.get(attribute) not in config:
            raise Status(7)
        ctypes.memmove(address, config[names[attribute]].to_bytes(nbytes, "little"), nbytes)
        ctypes.c_uint64.from_address(written).value = nbytes

    def _matmul(self, handle: int, operation: int, alpha: int, *rest: int) -> None:
        a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, nbytes, stream = rest
        proposal = self.proposals[ctypes.c_uint64.from_address(algorithm).value]
        assert self.live[handle]["kind"] == ""
        assert (c, c_layout) == (d, d_layout)
        assert nbytes >= proposal.workspace_bytes
        self.driver.memory.view(workspace, nbytes)
        self.streams.add(stream)
        _, scale = self.live[operation]["made"]
        assert [
            np.frombuffer(ctypes.string_at(x, np.dtype(TYPES[scale]).itemsize), TYPES[scale])[0]
            for x in (alpha, beta)
        ] == [1, 0]
        if proposal.status:
            raise Status(proposal.status)
        proposal.launches += 1
        self.driver.enqueue(proposal.time_ms)
        if proposal.loses_the_context:
            self.driver.lost = "an illegal memory access was encountered"
            return
        for number in range(self.live[a_layout].get(_BATCH_COUNT, 1)):
            left = self._matrix(a, a_layout, number)
            right = self._matrix(b, b_layout, number)
            left = left.T if self.live[operation].get(3) else left
            right = right.T if self.live[operation].get(4) else right
            out = self._matrix(d, d_layout, number)
            out[:] = (left.astype(np.float64) @ right.astype(np.float64)).astype(out.dtype)
            if proposal.wrong:
                out[0, 0] += 1

    def _matrix(self, start: int, layout: int, number: int) -> np.ndarray:
        """The column-major matrix of that number behind `start`."""
        kind, rows, columns, leading = self.live[layout]["made"]
        apart = self.live[layout].get(_BATCH_OFFSET, 0)
        address = start + number * apart * np.dtype(TYPES[kind]).itemsize
        assert leading >= rows
        # The last column need not be followed by its gap.
        size = leading * (columns - 1) + rows
        flat = self.driver.memory.array(address, (size,), TYPES[kind])
        step = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (step, leading * step))


def install_lt_bindings(library: PretendedLt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `nvmath.bindings.cublasLt` into place."""

    def function(name: str) -> Callable[..., int]:
        return lambda *numbers: library.call(name, *numbers)

    module = types.ModuleType("nvmath.bindings.cublasLt")
    module.cuBLASLtError = Status
    module.get_property = lambda part: (13, 1, 2)[part]
    for name in _C_NAMES.values():
        setattr(module, name, function(name))
    module.MatmulTile = lambda number: types.SimpleNamespace(name={20: "TILE_128x128"}[number])
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", types.ModuleType("nvmath.bindings"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", module)


class _SharedLibrary:
    """What `ctypes.CDLL` gives for libcublasLt."""

    def __init__(self, library: PretendedLt) -> None:
        self._library = library

    def cublasLtGetProperty(self, part: int, value: Any) -> int:  # noqa: N802 - the library's own name
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = (12, 8, 4)[part]
        return 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = _C_NAMES[name]

        def call(*given: Any) -> int:
            made = given[0]._obj if function.endswith("create") else None
            numbers = [value.value or 0 for value in (given[1:] if made is not None else given)]
            try:
                handle = self._library.call(function, *numbers)
            except Status as status:
                return status.status
            if made is not None:
                made.value = handle
            return 0

        return call


def install_lt_library(library: PretendedLt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ctypes find the library; the bindings are not installed."""
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", None)

    def load(path: str, mode: int = 0) -> _SharedLibrary:
        if "libcublasLt.so" not in path:
            raise OSError(f"{path}: cannot open shared object file")
        return _SharedLibrary(library)

    monkeypatch.setattr(cublas_loading.ctypes, "CDLL", load)
