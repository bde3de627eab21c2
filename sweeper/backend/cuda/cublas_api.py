"""The few functions of cuBLAS that are used: by NVIDIA's own bindings where they are installed, else by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sweeper.backend.cuda.cublas_loading import CublasError, load, missing

__all__ = ["CublasApi", "load_cublas"]


class CublasApi(Protocol):
    """The part of cuBLAS that is used; a failing call raises an exception with a `status`."""

    def version(self) -> str: ...
    def set_stream(self, stream: int) -> None: ...
    def set_math_mode(self, mode: int) -> None: ...
    def gemm_ex(self, *args: int) -> None: ...
    def gemm_strided_batched_ex(self, *args: int) -> None: ...
    def close(self) -> None: ...


class _Bindings:
    """cuBLAS through nvmath.bindings."""

    def __init__(self, module: Any) -> None:
        self._module = module
        with self._translated("cublasCreate"):
            self._handle = module.create()

    @contextlib.contextmanager
    def _translated(self, call: str) -> Iterator[None]:
        try:
            yield
        except self._module.cuBLASError as error:
            raise CublasError(int(getattr(error, "status", -1)), call) from error

    def version(self) -> str:
        return ".".join(str(self._module.get_property(part)) for part in range(3))

    def set_stream(self, stream: int) -> None:
        with self._translated("cublasSetStream"):
            self._module.set_stream(self._handle, stream)

    def set_math_mode(self, mode: int) -> None:
        with self._translated("cublasSetMathMode"):
            self._module.set_math_mode(self._handle, mode)

    def gemm_ex(self, *args: int) -> None:
        with self._translated("cublasGemmEx"):
            self._module.gemm_ex(self._handle, *args)

    def gemm_strided_batched_ex(self, *args: int) -> None:
        with self._translated("cublasGemmStridedBatchedEx"):
            self._module.gemm_strided_batched_ex(self._handle, *args)

    def close(self) -> None:
        with self._translated("cublasDestroy"):
            self._module.destroy(self._handle)


class _SharedLibrary:
    """cuBLAS through ctypes."""

    _GEMM_TYPES = "iiiiippiipiippiiii"
    _BATCHED_TYPES = "iiiiippiiqpiiqppiiqiii"

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))

    def _call(self, name: str, *args: Any) -> None:
        status = int(getattr(self._library, name)(*args))
        if status:
            raise CublasError(status, name)

    def version(self) -> str:
        parts = (ctypes.c_int * 3)()
        for n in range(3):  # major, minor, patch level
            self._call("cublasGetProperty", n, ctypes.byref(parts, n * ctypes.sizeof(ctypes.c_int)))
        return ".".join(map(str, parts))

    def set_stream(self, stream: int) -> None:
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))

    def set_math_mode(self, mode: int) -> None:
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(mode))

    def gemm_ex(self, *args: int) -> None:
        self._call("cublasGemmEx", self._handle, *_packed(self._GEMM_TYPES, args))

    def gemm_strided_batched_ex(self, *args: int) -> None:
        self._call("cublasGemmStridedBatchedEx", self._handle, *_packed(self._BATCHED_TYPES, args))

    def close(self) -> None:
        self._call("cublasDestroy_v2", self._handle)


def _packed(types: str, args: Sequence[int]) -> list[Any]:
    kinds: dict[str, Any] = {"i": ctypes.c_int, "p": ctypes.c_void_p, "q": ctypes.c_longlong}
    return [kinds[kind](value) for kind, value in zip(types, args, strict=True)]


def load_cublas() -> CublasApi:
    """A handle in the current context. Raises SetupError where there is no cuBLAS, CublasError if it fails."""
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        return _Bindings(importlib.import_module("nvmath.bindings.cublas"))
    library = load("libcublas")
    if library is None:
        raise missing("cuBLAS", "libcublas")
    return _SharedLibrary(library)
