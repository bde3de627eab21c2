"""How long a report takes over many rows, and how large it is: `python bench/bench_report.py [ROWS]`.

Synthetic trials of several kernels and shapes are written to a store, and the report made from it as the command
makes it: read, judged, analysed, drawn.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sweeper.model import Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.report import write_report
from sweeper.store import Store

_LEVELS = {
    "bm": [16, 32, 64, 96, 128, 192, 256],
    "bn": [16, 32, 64, 96, 128, 192, 256],
    "bk": [8, 16, 32, 64],
    "tm": [2, 4, 6, 8],
    "tn": [2, 4, 6, 8],
    "stages": [2, 3, 4, 5],
}
_SHAPES = {"large": 4096, "medium": 2048}
_KERNELS = ("pipeline", "register_tile")
_LIMIT_S, _LIMIT_BYTES = 20.0, 6_000_000


def trials(count: int, seed: int = 0) -> Iterator[Trial]:
    """`count` trials, one in ten of which failed, and a library beside each problem."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    points = [dict(zip(_LEVELS, values, strict=True)) for values in itertools.product(*_LEVELS.values())]
    studies = list(itertools.product(_KERNELS, _SHAPES))
    for kernel, shape in studies:
        chosen = draw.sample(points, min(math.ceil(count / len(studies)), len(points)))
        yield _trial(kernel, shape, 0, {"library": "cublas"}, 1.0, draw, role=Role.BASELINE)
        for number, params in enumerate(chosen, 1):
            slow = sum(
                abs(math.log2(params[name] / best))
                for name, best in zip(("bm", "bn", "bk"), (128, 128, 16), strict=True)
            )
            yield _trial(kernel, shape, number, params, 0.9 + 0.2 * slow + 0.05 * params["stages"], draw)


def _trial(
    kernel: str,
    shape: str,
    number: int,
    params: dict[str, object],
    ms: float,
    draw: random.Random,
    role: Role = Role.CANDIDATE,
) -> Trial:
    size = _SHAPES[shape]
    failed = role is Role.CANDIDATE and draw.random() < 0.1
    times = tuple(ms * (size / 2048) ** 3 * (1 + abs(draw.gauss(0, 0.004))) for _ in range(9))
    return Trial(
        study=f"{kernel}-float32-{shape}-0123abcd",
        number=number,
        context="0123abcd",
        kernel="cublas" if role is Role.BASELINE else kernel,
        dtype="float32",
        shape=shape,
        dims={"M": size, "N": size, "K": size},
        params=params,
        status=Status.LAUNCH_ERROR if failed else Status.OK,
        stage=Stage.LAUNCH if failed else Stage.DONE,
        role=role,
        reason=f"too many resources requested: {draw.randint(1, 255)} registers" if failed else "",
        time_source=None if failed else TimeSource.MEASURED,
        timing=None
        if failed
        else Timing(
            times,
            "events",
            "cold",
            sm_clock_mhz=1980 - 15 * draw.random(),
            power_w=400 + 60 * draw.random(),
            temperature_c=50.0,
        ),
        flops=2 * size**3,
        bytes=12 * size**2,
        device="NVIDIA H200",
        device_uuid="GPU-1",
        backend="cuda",
        seed=42,
    )


def main(count: int = 20_000) -> int:
    """Print seconds and sizes; 1 where a limit is passed."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.mkdir()
        with Store(results / "study.db") as store:
            store.add_all(list(trials(count)))
        began, spent = time.perf_counter(), time.process_time()
        written = write_report([results])
        seconds, cpu = time.perf_counter() - began, time.process_time() - spent
        size = written.page.stat().st_size
        print(
            f"{count:,} rows: {seconds:.1f} s ({cpu:.1f} s of CPU), report.html {size / 1e6:.2f} MB,"
            f" {len(written.figures)} figures"
        )
        return int(seconds > _LIMIT_S or size > _LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
