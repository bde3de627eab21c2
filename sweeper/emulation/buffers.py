"""Arrays in memory that a launch maps: they end where memory that nobody may touch begins."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffer"]

_PAGE = mmap.PAGESIZE
_FILL = 0xFF  # NaN, so that what a kernel reads beside an array spoils its result


class Buffer:
    """An array in C order, shared with the process that runs a kernel on it.

    There it is followed by an inaccessible page; at most 15 bytes lie between, filled with ones, and
    so does the rest of its first page: `overrun` tells whether they were written. Only a `writable`
    buffer may be written by a kernel, while `array` may be at any time. `close` releases the memory.

    With a `pitch` its rows, which the last size counts, begin so many elements apart. What lies between is
    filled with ones too, and `gap_write` tells whether that was written. `nbytes` and `size` count it.
    What an `empty` buffer holds is nothing that a kernel may read before it has written it.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        *,
        writable: bool,
        pitch: int | None = None,
        empty: bool = False,
    ) -> None:
        self.name = name
        self.empty = empty
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.writable = writable
        rows, self.width = math.prod(self.shape[:-1]), (self.shape or (1,))[-1]
        self.pitch = self.width if pitch is None or rows < 2 else pitch
        self.size = (rows - 1) * self.pitch + self.width if self.has_gaps else math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.map_bytes, self.offset = _placement(self.nbytes)
        self.descriptor = os.memfd_create(f"sweeper-{name}", os.MFD_CLOEXEC)
        self._close_descriptor = weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, self.map_bytes)
        self._map = mmap.mmap(self.descriptor, self.map_bytes)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        stored = self._bytes[self.offset : self.offset + self.nbytes].view(self.dtype)
        self.array: npt.NDArray[Any] = stored.reshape(self.shape) if not self.has_gaps else self._rows(stored)
        for side in self._sides():
            side[:] = _FILL
        gaps = self._gaps()
        if gaps is not None:
            gaps[...] = _FILL

    @property
    def has_gaps(self) -> bool:
        return self.pitch > self.width

    def _rows(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of its elements alone."""
        strides = [self.dtype.itemsize, self.pitch * self.dtype.itemsize]
        for size in self.shape[-2:0:-1]:
            strides.append(strides[-1] * size)
        return np.lib.stride_tricks.as_strided(stored, self.shape, strides[::-1])

    def _gaps(self) -> npt.NDArray[np.uint8] | None:
        """The bytes between its rows, a row of them for each row of the array but the last."""
        if not self.has_gaps:
            return None
        row, width = self.pitch * self.dtype.itemsize, self.width * self.dtype.itemsize
        count = (self.size - self.width) // self.pitch
        start = self._bytes[self.offset + width : self.offset + self.nbytes]
        return np.lib.stride_tricks.as_strided(start, (count, row - width), (row, 1))

    @classmethod
    def of(cls, name: str, array: npt.NDArray[Any], *, writable: bool = False) -> Buffer:
        """A buffer that holds a copy of `array`."""
        buffer = cls(name, array.shape, array.dtype, writable=writable)
        buffer.array[...] = array
        return buffer

    def _sides(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """What is mapped before and after the array."""
        return self._bytes[: self.offset], self._bytes[self.offset + self.nbytes :]

    def overrun(self) -> int | None:
        """The first byte outside the array that was written, counted from its start; None if none was."""
        before, after = self._sides()
        for side, start in ((before, -self.offset), (after, self.nbytes)):
            changed = np.flatnonzero(side != _FILL)
            if changed.size:
                side[:] = _FILL
                return start + int(changed[0])
        return None

    def gap_write(self) -> int | None:
        """The first byte between rows that was written, counted from the array's start; None if none was."""
        gaps = self._gaps()
        if gaps is None:
            return None
        changed = np.argwhere(gaps != _FILL)
        if not changed.size:
            return None
        gaps[...] = _FILL
        row, place = (int(i) for i in changed[0])
        return (row * self.pitch + self.width) * self.dtype.itemsize + place

    def in_gap(self, offset: int, nbytes: int = 1) -> bool:
        """Whether any of `nbytes` bytes from `offset` on lies between two rows."""
        if not self.has_gaps or not 0 <= offset < self.nbytes:
            return False
        place = offset % (self.pitch * self.dtype.itemsize)
        return place + nbytes > self.width * self.dtype.itemsize

    def element(self, offset: int) -> str:
        """What lies `offset` bytes from the array's start: `A[12, 5]`, and `A[12, 5]+0x2` within an element.

        Past the end, and before the start, the first index goes on counting; between rows the last one does.
        """
        index, rest = divmod(offset, self.dtype.itemsize)
        places: list[int] = []
        for extent in (self.pitch, *reversed(self.shape[1:-1])) if len(self.shape) > 1 else ():
            index, place = divmod(index, extent or 1)
            places.append(place)
        places.append(index)
        text = f"{self.name}[{', '.join(str(place) for place in reversed(places))}]"
        return f"{text}+{rest:#x}" if rest else text

    def close(self) -> None:
        """Release the memory once no view of `array` is left."""
        if self._close_descriptor.alive:
            self._close_descriptor()
            del self.array, self._bytes
            with contextlib.suppress(BufferError):
                self._map.close()

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {'×'.join(map(str, self.shape))} {self.dtype})"


def _placement(nbytes: int) -> tuple[int, int]:
    """Bytes to map, and where in them the array begins, for it to end as near their end as it can.

    It begins at a multiple of the largest power of two within [16, 256] that divides its size: 256 is
    what CUDA gives an allocation, 16 what the widest vector access needs.
    """
    alignment = 16
    while alignment < 256 and nbytes % (2 * alignment) == 0:
        alignment *= 2
    room = -(-nbytes // alignment) * alignment
    map_bytes = max(_PAGE, -(-room // _PAGE) * _PAGE)
    return map_bytes, map_bytes - room
