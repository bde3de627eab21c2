"""Arrays of other libraries on a GPU as what they are to a kernel: an address, a type, a shape and strides.

Understood are torch tensors (by `data_ptr`, since the CUDA array interface knows neither bfloat16 nor float8),
whatever has `__cuda_array_interface__` (CuPy, Numba, JAX, PyCUDA; numba.readthedocs.io, "CUDA Array Interface",
version 3), and PyCUDA's GPUArray of versions that have none.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.errors import ConfigError

__all__ = ["LEGACY_STREAM", "ForeignArray", "read_array", "stream_handle"]

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY of cuda.h: the stream that orders itself with all blocking ones; 0 means it too."""


@dataclass(frozen=True, slots=True)
class ForeignArray:
    """An array on a device. `strides` are in bytes; `dtype` is NumPy's name of the type, or torch's.

    `device` is its number where the library says so. `stream` is the one that its content is being made on (None:
    it is there already, or nobody says); `by_torch` tensors are torch's current stream's.
    """

    pointer: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    read_only: bool = False
    device: int | None = None
    stream: int | None = None
    by_torch: bool = False

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        if 0 in self.shape:
            return self.pointer
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        return self.pointer + reach + self.itemsize


def read_array(name: str, given: Any) -> ForeignArray:
    """`given` for the argument `name`. Raises ConfigError for what is no array on a GPU."""
    if _is_torch(given):
        return _torch(name, given)
    interface = getattr(given, "__cuda_array_interface__", None)
    if isinstance(interface, Mapping):
        return _interface(name, interface)
    if hasattr(given, "gpudata") and hasattr(given, "strides"):
        return _gpuarray(given)
    if isinstance(given, np.ndarray):
        raise ConfigError(
            f"{name} is a NumPy array, which is in the host's memory",
            hint="copy it to the GPU: torch.as_tensor(a, device='cuda'), cupy.asarray(a), pycuda.gpuarray.to_gpu(a)",
        )
    raise ConfigError(
        f"{name} is a {type(given).__module__}.{type(given).__qualname__}, which is no array on a GPU",
        hint="give a torch tensor, or an array that has __cuda_array_interface__",
    )


def stream_handle(given: Any) -> int:
    """The driver's handle of a stream: a number, or a stream of torch, CuPy, Numba or PyCUDA.

    Raises ConfigError for anything else.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    protocol = getattr(given, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(given, name):
            found = getattr(given, name)
            # Numba's is a ctypes pointer, whose value is None for the default stream.
            found = getattr(found, "value", found) or 0
            if isinstance(found, int):
                return found
    raise ConfigError(
        f"stream = {given!r} is no CUDA stream", hint="give its handle as a number, or torch's or CuPy's"
    )


def _is_torch(given: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _torch(name: str, tensor: Any) -> ForeignArray:
    if tensor.device.type != "cuda":
        raise ConfigError(
            f"{name} is a tensor on {tensor.device}, not on a GPU", hint="move it with .to('cuda')"
        )
    item = int(tensor.element_size())
    return ForeignArray(
        pointer=int(tensor.data_ptr()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        itemsize=item,
        shape=tuple(int(size) for size in tensor.shape),
        strides=tuple(int(step) * item for step in tensor.stride()),
        # What autograd would differentiate through must not change behind its back.
        read_only=bool(tensor.requires_grad),
        device=tensor.device.index,
        by_torch=True,
    )


def _interface(name: str, interface: Mapping[str, Any]) -> ForeignArray:
    if interface.get("mask") is not None:
        raise ConfigError(f"{name} has a mask, which no kernel knows of", hint="give the array without it")
    shape = tuple(int(size) for size in interface["shape"])
    typestr = str(interface["typestr"])
    if typestr.startswith(">"):
        raise ConfigError(f"{name} is of type {typestr}: big-endian")
    kind = np.dtype(typestr)
    strides = interface.get("strides")
    stream = interface.get("stream")
    if stream == 0:
        raise ConfigError(
            f"{name}: stream 0 is not allowed in the CUDA array interface: it is ambiguous",
            hint="1 is the legacy default stream, 2 the default one of each thread",
        )
    pointer, read_only = interface["data"]
    return ForeignArray(
        pointer=int(pointer),
        dtype=kind.name,
        itemsize=int(kind.itemsize),
        shape=shape,
        strides=_rows_in_order(shape, kind.itemsize) if strides is None else tuple(map(int, strides)),
        read_only=bool(read_only),
        stream=None if stream is None else int(stream),
    )


def _gpuarray(array: Any) -> ForeignArray:
    kind = np.dtype(array.dtype)
    return ForeignArray(
        pointer=int(array.gpudata),
        dtype=kind.name,
        itemsize=int(kind.itemsize),
        shape=tuple(int(size) for size in array.shape),
        strides=tuple(int(step) for step in array.strides),
    )


def _rows_in_order(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of an array in C order."""
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * size)
    return tuple(strides[::-1])[: len(shape)]
