"""What the launcher is told: one line for each fact, and memory files that it inherits."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.geometry import Geometry, Order
from sweeper.emulation.report import Argument

__all__ = ["Files", "chosen_blocks", "request_lines"]


def request_lines(
    module: Path,
    arguments: Sequence[Argument],
    geometry: Geometry,
    *,
    kernel: int,
    order: Order,
    seed: int,
    workers: int,
    strict: bool,
    stack_bytes: int,
) -> list[str]:
    """Those lines that need no file."""
    return [
        f"module {module.resolve()}",
        f"kernel {kernel}",
        f"grid {_words(geometry.grid)}",
        f"block {_words(geometry.block)}",
        f"shared {geometry.shared_bytes}",
        f"stack {-(-stack_bytes // mmap.PAGESIZE) * mmap.PAGESIZE}",
        f"order {int(order)}",
        f"seed {seed % 2**64}",
        f"workers {max(1, workers)}",
        f"strict {int(strict)}",
        *(_buffer_line(b) for b in arguments if isinstance(b, Buffer)),
        *_argument_lines(arguments),
    ]


def _words(values: Sequence[int]) -> str:
    return " ".join(str(int(v)) for v in values)


def _kind(dtype: np.dtype[Any]) -> str:
    """abi.h's letter for a NumPy type."""
    if dtype.name == "bfloat16":
        return "b"
    if dtype.kind == "f":
        return "h" if dtype.itemsize == 2 else "f"
    return "i" if dtype.kind in "iub" else "s"


def _buffer_line(b: Buffer) -> str:
    item = b.dtype.itemsize
    rows = (b.width * item, b.pitch * item) if b.has_gaps else (0, 0)
    numbers = (b.descriptor, b.map_bytes, b.offset, b.nbytes, item, int(b.writable), int(b.empty), *rows)
    return f"buffer {_words(numbers)}"


def _argument_lines(arguments: Sequence[Argument]) -> list[str]:
    lines, number = [], 0
    for argument in arguments:
        if isinstance(argument, Buffer):
            lines.append(f"array {number} {_kind(argument.dtype)} {int(argument.writable)}")
            number += 1
        else:
            lines.append(f"scalar {_kind(argument.value.dtype)} {argument.value.tobytes().hex()}")
    return lines


def chosen_blocks(blocks: npt.NDArray[Any], geometry: Geometry) -> npt.NDArray[np.uint64]:
    """`blocks` as the launcher reads them. Raises ValueError where they are none of the grid's."""
    chosen = np.ascontiguousarray(blocks, np.uint64)
    if chosen.ndim != 1 or chosen.size == 0 or int(chosen.max()) >= geometry.blocks:
        raise ValueError(f"blocks are linear indices below {geometry.blocks}, at least one")
    return chosen


class Files:
    """Memory files for one launch, closed together."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def empty(self, size: int) -> int:
        descriptor = os.memfd_create("sweeper-launch", os.MFD_CLOEXEC)
        self.descriptors.append(descriptor)
        os.ftruncate(descriptor, size)
        return descriptor

    def holding(self, content: bytes) -> int:
        descriptor = self.empty(len(content))
        os.pwrite(descriptor, content, 0)
        return descriptor
