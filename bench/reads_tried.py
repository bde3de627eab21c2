"""What `bench_reads.py` tries: sizes, and kernels of `reads.cu` with what they have under way."""

from __future__ import annotations

from dataclasses import dataclass

from sweeper.model import Launch

__all__ = ["KIB", "PITCH", "SIZES", "Reader", "readers"]

PITCH = 8192
"""Bytes of a row of the matrix that the sizes are cut of: 4096 elements of 16 bits."""

SIZES = tuple(rows * PITCH for rows in (1024, 2048, 4096, 8192, 16384, 28672))
"""Bytes; the third is the matrix of a product with N = K = 4096, the last that of N = 28672."""


KIB = 1024


@dataclass(frozen=True, slots=True)
class Reader:
    """A kernel of `reads.cu` and how it is launched; `kernel` is empty for a copy by the driver.

    `chunk` bytes `stages` times are what a block has under way; `segment` bytes of a row are one piece of a
    chunk. Of the kernels without a ring `chunk` is what all threads of a block load at once. `hint`: what the
    second-level cache shall do with what was read, as `_HINTS` says.
    """

    kernel: str
    blocks: int
    chunk: int = 0
    stages: int = 1
    segment: int = 0
    hint: int = 1
    threads: int = 32
    cluster: int = 1
    nothing: bool = False

    @property
    def way(self) -> str:
        """What it reads with."""
        if self.nothing:
            return "nothing"
        ways = {"read_bulk": "TMA", "read_tensor": "TMA, tensor map", "": "copy"}
        others = "loads" if "loads" in self.kernel else "cp.async"
        return ways.get(self.kernel, "loads, strips" if self.strips else others)

    @property
    def ring(self) -> bool:
        return self.kernel in ("read_bulk", "read_tensor")

    @property
    def strips(self) -> bool:
        return self.kernel.startswith("read_strips")

    def under_way(self, sm_count: int) -> int:
        """Bytes that a multiprocessor has under way."""
        return self.chunk * self.stages * self.blocks // sm_count

    @property
    def shared_bytes(self) -> int:
        if self.ring:
            return self.chunk * self.stages + 8 * self.stages
        return self.chunk * self.stages if "copies" in self.kernel else 0

    def launch(self) -> Launch:
        cluster = (self.cluster, 1, 1) if self.cluster > 1 else None
        return Launch((self.threads, 1, 1), (self.blocks, 1, 1), self.shared_bytes, cluster=cluster)

    @property
    def box(self) -> tuple[int, int]:
        """Elements of 16 bits and rows of a chunk."""
        return self.segment // 2, self.chunk // self.segment


def readers(sm_count: int) -> list[Reader]:
    """What is tried; the first of a way is its plainest."""
    all_, even = sm_count, sm_count // 64 * 64
    found = [Reader("", 0), Reader("read_bulk", all_, 16 * KIB, 4, 16 * KIB, nothing=True)]
    found += [Reader("read_bulk", even, 16 * KIB, 4, 16 * KIB, cluster=2, nothing=True)]
    for chunk, stages, blocks in (
        (8, 4, all_), (16, 4, all_), (8, 8, all_), (16, 6, all_), (16, 12, all_), (32, 3, all_), (32, 6, all_),
        (8, 4, 2 * all_), (8, 6, 2 * all_),
    ):  # fmt: skip
        found.append(Reader("read_bulk", blocks, chunk * KIB, stages, chunk * KIB))
    found += [Reader("read_bulk", all_, 16 * KIB, 6, 16 * KIB, hint=hint) for hint in (0, 2)]
    found += [
        Reader("read_bulk", blocks, 16 * KIB, 6, segment)
        for segment in (256, 512, 1024, 2048)
        for blocks in (even, all_)
    ]
    found += [
        Reader("read_tensor", even, 16 * KIB, 6, segment, cluster=cluster)
        for segment, cluster in ((128, 1), (128, 2), (256, 1), (512, 1), (512, 2))
    ]
    found += [Reader("read_tensor", all_, 16 * KIB, 6, segment) for segment in (128, 512)]
    for at_once, threads, blocks in (
        (4, 512, all_), (4, 1024, all_), (8, 256, all_), (8, 512, all_), (8, 1024, all_), (4, 512, 2 * all_),
        (8, 256, 2 * all_), (8, 512, 2 * all_), (4, 256, 8 * all_),
    ):  # fmt: skip
        found.append(Reader(f"read_loads_{at_once}", blocks, 16 * at_once * threads, threads=threads))
    found += [Reader("read_loads_8", all_, 16 * 8 * 512, threads=512, hint=hint) for hint in (0, 2)]
    strips = PITCH // 128
    for run, threads, blocks, cluster in (
        (16, 128, 2 * strips, 1), (16, 128, 2 * strips, 2), (16, 256, 2 * strips, 1), (16, 128, 4 * strips, 1),
        (16, 256, strips, 1), (8, 256, 2 * strips, 1), (8, 512, 2 * strips, 1), (8, 256, 4 * strips, 1),
    ):  # fmt: skip
        chunk = threads * run * 8
        found.append(
            Reader(f"read_strips_{run}", blocks, chunk, 4, 8 * run, threads=threads, cluster=cluster)
        )
    for stages, threads, blocks in ((2, 512, all_), (4, 256, all_), (4, 512, all_), (2, 256, 2 * all_)):
        found.append(Reader(f"read_copies_{stages}", blocks, 64 * threads, stages, threads=threads))
    found.append(Reader("read_copies_4", all_, 64 * 256, 4, threads=256, hint=0))
    return found
