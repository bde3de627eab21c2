"""How fast bytes come to a kernel that only reads them: `python bench/bench_reads.py [--seconds 20] [--out FOLDER]`.

A product of a few rows lasts as long as its matrix takes to be read. How long is that at the least, its launch and the
first byte's latency included? Kernels that read 8 to 235 MB and compute nothing (`reads.cu`) answer it: TMA with a
tensor map and without, plain loads of 16 bytes, loads in strips as fragments of the tensor cores want them, and
asynchronous copies. They differ in blocks and bytes under way, in how long a piece of a row is, and in whether what was
read leaves the second-level cache first. Beside them a launch that reads nothing, and copies that move as many bytes.

Every reader first proves, by a sum over all words, that it reads each byte once. Then all are timed in turns, in
rounds of random order, one launch between two events, as the backend takes its samples: L2 cold, flushed by writing
twice its size as before each sample of a search, and warm where the bytes fit in. A search would time what lasts
less than 10 µs in a graph; here nothing is, so that all sizes can be compared.

Writes reads.csv, reads.md and reads.json into FOLDER (results/h200/reads). `% of copy` is of the bandwidth that
`bench_shapes.py` uses. Ends with 3 where there is no GPU with TMA, with 1 where a reader does not read all bytes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from reads_table import save, summary
from reads_tried import PITCH, SIZES, Reader, readers

from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.launching import Parameters, load_launch_api
from sweeper.backend.cuda.sampler import Sampler
from sweeper.backend.cuda.tensor_maps import encode
from sweeper.build.cubin import CUBIN_NAME, LOG_NAME
from sweeper.build.nvrtc_child import Compilation, compile_text
from sweeper.device import Target
from sweeper.device.nvml import Nvml
from sweeper.device.present import why_no_gpu
from sweeper.dtypes import dtype
from sweeper.errors import SetupError
from sweeper.paths import kernels_dir
from sweeper.problem.tensor_maps import ResolvedTensorMap
from sweeper.provenance import run_record
from sweeper.statistics import median_interval

__all__ = ["main"]

_BUFFER_BYTES = 1 << 28
_LEAST_ROUNDS = 7
_MOST_ROUNDS = 41


def _cubin(arch: str) -> bytes:
    """`reads.cu`, compiled by NVRTC. Raises SetupError."""
    source = Path(__file__).with_name("reads.cu")
    options = (f"--gpu-architecture={arch}", f"-I{kernels_dir() / 'common'}")
    with tempfile.TemporaryDirectory(prefix="reads-") as folder:
        answer = compile_text(Compilation(source.read_text(), source.name, options, "", {}, folder))
        if answer["error"]:
            log = (Path(folder) / LOG_NAME).read_text(errors="replace")
            raise SetupError(f"reads.cu does not compile: {answer['error']}\n{log[:2000]}")
        return (Path(folder) / CUBIN_NAME).read_bytes()


@dataclass(slots=True)
class _Bench:
    """The kernels and what they read, on GPU 0."""

    device: CudaDevice
    target: Target
    data: Any = None
    api: Any = None
    module: int = 0
    total: Any = None
    sums: dict[int, int] = field(default_factory=dict)
    _functions: dict[str, int] = field(default_factory=dict)

    def load(self) -> None:
        self.api = load_launch_api()
        self.module = self.api.load(_cubin(self.target.arch))
        self.data, self.total = self.device.allocate(_BUFFER_BYTES), self.device.allocate(4)
        words = np.random.default_rng(7).integers(0, 2**32, _BUFFER_BYTES // 4, np.uint32)
        self.device.drv.memcpy_htod(int(self.data), words)
        self.sums = {size: int(words[: size // 4].sum(dtype=np.uint64)) % 2**32 for size in SIZES}

    def queue(self, reader: Reader, size: int, *, add: bool = False) -> Callable[[], None]:
        """What queues a launch that reads `size` bytes."""
        start, stream = int(self.data), self.device.stream
        if not reader.kernel:
            copy, half = self.device.drv.memcpy_dtod_async, size // 2
            return lambda: copy(start + half, start, half, stream)
        launch, handle = reader.launch(), int(stream.handle)
        function = self._function(reader.kernel)
        letters, numbers, maps = self._arguments(reader, 0 if reader.nothing else size, add=add)
        parameters = Parameters(letters, numbers, maps)
        return lambda: self.api.launch(function, launch, handle, parameters.pointers)

    def _function(self, kernel: str) -> int:
        """With leave for as much shared memory as there is; a launch says how much it gets."""
        if kernel not in self._functions:
            self._functions[kernel] = self.api.function(self.module, kernel, self.target.max_shared_bytes)
        return self._functions[kernel]

    def _arguments(self, reader: Reader, size: int, *, add: bool) -> tuple[str, list[int], list[bytes]]:
        tail = [reader.hint, int(add), int(self.total)]
        if reader.strips:
            return "PQIIIP", [int(self.data), size, PITCH, *tail], []
        if not reader.ring:
            return "PQIIP", [int(self.data), size, *tail], []
        whole = reader.segment == reader.chunk
        ring = [size, reader.chunk, reader.stages, reader.segment, reader.chunk if whole else PITCH, *tail]
        if reader.kernel == "read_bulk":
            return "PQIIIIIIP", [int(self.data), *ring], []
        made = ResolvedTensorMap(
            "map", "B", dtype("float16", where="reads"), (PITCH // 2, size // PITCH), (PITCH,), reader.box, 0, False
        )  # fmt: skip
        return "QIIIIIIP", ring, [encode(self.api.encoder, made, int(self.data))]

    def reads_all(self, reader: Reader, size: int) -> bool:
        """Whether it reads every byte once, by the sum of all words."""
        drv, found = self.device.drv, np.zeros(1, np.uint32)
        drv.memcpy_htod(int(self.total), found)
        self.queue(reader, size, add=True)()
        self.device.synchronize()
        drv.memcpy_dtoh(found, int(self.total))
        return int(found[0]) == self.sums[size]


Key = tuple[int, str, int]
"""Bytes, cache, and the place of the reader."""


def _keys(count: int, l2_bytes: int) -> Iterator[Key]:
    for size in SIZES:
        for cache in ("cold", "warm") if size <= l2_bytes else ("cold",):
            for place in range(count):
                yield size, cache, place


def _taken(bench: _Bench, tried: Sequence[Reader], seconds: float) -> tuple[dict[Key, list[float]], float]:
    """Milliseconds of every key, a sample a round, and the median clock in MHz."""
    sampler = Sampler(bench.device, l2_bytes=bench.target.l2_bytes)
    keys = list(_keys(len(tried), bench.target.l2_bytes))
    queues = {(size, place): bench.queue(tried[place], size) for size, _, place in keys}
    times: dict[Key, list[float]] = {key: [] for key in keys}
    clocks: list[float] = []
    for _ in range(10):
        bench.device.pause(5.0)
    order = random.Random(1)  # noqa: S311 - an order, not a secret
    ends, rounds = time.monotonic() + seconds, 0
    while rounds < _MOST_ROUNDS and (rounds < _LEAST_ROUNDS or time.monotonic() < ends):
        order.shuffle(keys)
        for key in keys:
            size, cache, place = key
            queue = queues[size, place]
            ready = sampler.flush_cache if cache == "cold" else queue
            sample = sampler.take(queue, ready, flushes=cache == "cold")
            times[key].append(sample.elapsed_ms)
            if sample.clock_mhz is not None:
                clocks.append(sample.clock_mhz)
        rounds += 1
    return times, statistics.median(clocks) if clocks else 0.0


def _large_copy_gbs(bench: _Bench) -> float:
    """10⁹ B/s that a copy of all of the buffer's half moves, reads and writes counted, L2 cold."""
    sampler = Sampler(bench.device, l2_bytes=bench.target.l2_bytes)
    queue = bench.queue(Reader("", 0), _BUFFER_BYTES)
    taken = [sampler.take(queue, sampler.flush_cache, flushes=True).elapsed_ms for _ in range(9)]
    return _BUFFER_BYTES / statistics.median(taken) / 1e6


def _row(reader: Reader, key: Key, times_ms: Sequence[float], limits: Target) -> dict[str, Any]:
    size, cache, _ = key
    median, interval = statistics.median(times_ms), median_interval(times_ms)
    row: dict[str, Any] = {
        "bytes": size,
        "cache": cache,
        "way": reader.way,
        "kernel": reader.kernel or "memcpy_dtod",
        "blocks": reader.blocks or "",
        "threads": reader.threads if reader.kernel else "",
        "cluster": reader.cluster if reader.kernel else "",
        "chunk_bytes": reader.chunk or "",
        "stages": reader.stages if reader.kernel else "",
        "segment_bytes": reader.segment or "",
        "under_way_bytes": reader.under_way(limits.sm_count) if reader.kernel else "",
        "hint": reader.hint if reader.kernel else "",
        "us": round(median * 1e3, 3),
        "us_low": round(interval.low * 1e3, 3),
        "us_high": round(interval.high * 1e3, 3),
        "samples": len(times_ms),
    }
    if not reader.nothing:
        rate = size / median / 1e6
        row |= {"gbs": round(rate, 1), "percent_of_copy": round(100 * rate / limits.bandwidth_gbs, 2)}
    return row


def _measured(device: CudaDevice, seconds: float, folder: Path) -> int:
    """All of it on one device. Gives the exit code."""
    started, limits = datetime.now(UTC), device.target()
    if limits.cc[0] < 9:
        print(f"{limits.name} has no TMA", file=sys.stderr)
        return 3
    bench = _Bench(device, limits)
    bench.load()
    tried = readers(limits.sm_count)
    proved = [reader for reader in tried if reader.kernel and not reader.nothing]
    wrong = [r for r in proved if not all(bench.reads_all(r, size) for size in (SIZES[0], SIZES[-1]))]
    if wrong:
        print(*(f"does not read every byte once: {reader}" for reader in wrong), sep="\n", file=sys.stderr)
        return 1
    times, clock_mhz = _taken(bench, tried, seconds)
    rows = [_row(tried[key[2]], key, times[key], limits) for key in _keys(len(tried), limits.l2_bytes)]
    large = _large_copy_gbs(bench)
    text = summary(rows, limits.bandwidth_gbs, large, _BUFFER_BYTES // 2)
    facts = {"device": device.identity(), "sm_clock_mhz": clock_mhz, "large_copy_gbs": large}
    record = run_record(
        command=["python", "bench/bench_reads.py"], config={"seconds": seconds}, started=started, facts=facts
    )
    save(folder, rows, text, record)
    print(text)
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """Write what reading takes. Gives 0, 1 where a reader does not read all, 3 where there is no GPU with TMA."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="begin no round after this long")
    parser.add_argument("--out", type=Path, default=Path("results/h200/reads"))
    chosen = parser.parse_args(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: reads are measured on a GPU", file=sys.stderr)
        return 3
    try:
        device = CudaDevice(0, Nvml(), allow_shared=True)
        try:
            return _measured(device, chosen.seconds, chosen.out)
        finally:
            device.close()
    except SetupError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
