"""The few functions of cuBLASLt that are used: by NVIDIA's own bindings where they are installed, else by ctypes.

Both are called alike, by the bindings' names and with numbers: an address is a number, and what creates an
object gives its handle. Numbers of attributes and the layout of a heuristic's result are those of cublasLt.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from typing import Any, Protocol

import numpy as np

from sweeper.backend.cuda.cublas_loading import CublasError, load, missing

__all__ = ["HEURISTIC_RESULT", "CublasLtApi", "load_cublaslt"]

HEURISTIC_RESULT = np.dtype(
    [
        ("algorithm", np.uint64, (8,)),
        ("workspace_bytes", np.uint64),
        ("state", np.int32),
        ("waves", np.float32),
        ("reserved", np.int32, (4,)),
    ],
    align=True,
)
"""`cublasLtMatmulHeuristicResult_t`, 96 bytes."""

# Name in C, kinds of the arguments (i: int, q: int64, Q: size_t and uint64, p: pointer), whether it creates.
_FUNCTIONS = {
    "create": ("cublasLtCreate", "", True),
    "destroy": ("cublasLtDestroy", "p", False),
    "matmul_desc_create": ("cublasLtMatmulDescCreate", "ii", True),
    "matmul_desc_set_attribute": ("cublasLtMatmulDescSetAttribute", "pipQ", False),
    "matmul_desc_destroy": ("cublasLtMatmulDescDestroy", "p", False),
    "matrix_layout_create": ("cublasLtMatrixLayoutCreate", "iQQq", True),
    "matrix_layout_set_attribute": ("cublasLtMatrixLayoutSetAttribute", "pipQ", False),
    "matrix_layout_destroy": ("cublasLtMatrixLayoutDestroy", "p", False),
    "matmul_preference_create": ("cublasLtMatmulPreferenceCreate", "", True),
    "matmul_preference_set_attribute": ("cublasLtMatmulPreferenceSetAttribute", "pipQ", False),
    "matmul_preference_destroy": ("cublasLtMatmulPreferenceDestroy", "p", False),
    "matmul_algo_get_heuristic": ("cublasLtMatmulAlgoGetHeuristic", "pppppppipp", False),
    "matmul_algo_config_get_attribute": ("cublasLtMatmulAlgoConfigGetAttribute", "pipQp", False),
    "matmul": ("cublasLtMatmul", "ppppppppppppppQp", False),
}
_KINDS = {"i": ctypes.c_int, "q": ctypes.c_int64, "Q": ctypes.c_uint64, "p": ctypes.c_void_p}
_STATUS_UNKNOWN = -1


class CublasLtApi(Protocol):
    """The part of cuBLASLt that is used; a failing call raises CublasError."""

    handle: int

    def call(self, function: str, *numbers: int) -> int:
        """Call one of the functions above; the handle of what it created, else 0."""
        ...

    def version(self) -> str: ...

    def name_of(self, kind: str, number: int) -> str:
        """The library's own name for a tile, stages or cluster shape, else the number as text."""
        ...


class _Bindings:
    """cuBLASLt through nvmath.bindings."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.handle = self.call("create")

    def call(self, function: str, *numbers: int) -> int:
        try:
            return int(getattr(self._module, function)(*numbers) or 0)
        except self._module.cuBLASLtError as error:
            raise CublasError(int(getattr(error, "status", _STATUS_UNKNOWN)), function) from error

    def version(self) -> str:
        return ".".join(str(self._module.get_property(part)) for part in range(3))

    def name_of(self, kind: str, number: int) -> str:
        names = {"tile": "MatmulTile", "stages": "MatmulStages", "cluster": "ClusterShape"}
        try:
            name = str(getattr(self._module, names[kind])(number).name)
        except (AttributeError, ValueError):
            return str(number)
        return name.partition("_")[2]


class _SharedLibrary:
    """cuBLASLt through ctypes."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.handle = self.call("create")

    def call(self, function: str, *numbers: int) -> int:
        name, kinds, creates = _FUNCTIONS[function]
        packed: list[Any] = [_KINDS[kind](number) for kind, number in zip(kinds, numbers, strict=True)]
        created = ctypes.c_void_p()
        if creates:
            packed.insert(0, ctypes.byref(created))
        status = int(getattr(self._library, name)(*packed))
        if status:
            raise CublasError(status, name)
        return created.value or 0

    def version(self) -> str:
        parts = (ctypes.c_int * 3)()
        for n in range(3):  # major, minor, patch level
            status = int(
                self._library.cublasLtGetProperty(n, ctypes.byref(parts, n * ctypes.sizeof(ctypes.c_int)))
            )
            if status:
                raise CublasError(status, "cublasLtGetProperty")
        return ".".join(map(str, parts))

    def name_of(self, kind: str, number: int) -> str:
        del kind
        return str(number)


def load_cublaslt() -> CublasLtApi:
    """A handle in the current context. Raises SetupError where there is no cuBLASLt, CublasError if it fails."""
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        return _Bindings(importlib.import_module("nvmath.bindings.cublasLt"))
    library = load("libcublasLt")
    if library is None:
        raise missing("cuBLASLt", "libcublasLt")
    return _SharedLibrary(library)
