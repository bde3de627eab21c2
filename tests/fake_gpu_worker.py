"""A worker for tests, `python -m fake_gpu_worker cuda FOLDER`: a GPU by name that times without running.

A configuration takes 1 ms over the sum of its whole parameters. PRETENDED_GPU names the product,
PRETENDED_DRIVER its driver; every measurement adds a line with its parameters to PRETENDED_CALLS.
"""

from __future__ import annotations

import json
import os
import sys

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import SetupError
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Timing
from sweeper.problem import Problem

RIGHT = Check(passed=True, checked=4, wrong=0, max_error=0.0, error_ratio=0.0, error_index=None)


class PretendedBackend:
    name = "cuda"

    def open(self, device: int, name: str | None) -> tuple[Target, DeviceIdentity]:
        limits = target(os.environ["PRETENDED_GPU"])
        driver = os.environ["PRETENDED_DRIVER"]
        uuid = f"GPU-{os.environ['PRETENDED_GPU']}-{device}"
        return limits, DeviceIdentity(limits.name, uuid=uuid, driver=driver, index=device)

    def prepare(self, spec: KernelSpec, problem: Problem) -> None: ...

    def measure(
        self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol, *_: object, **__: object
    ) -> Outcome:
        with open(os.environ["PRETENDED_CALLS"], "a", encoding="utf-8") as calls:
            calls.write(json.dumps(point.params) + "\n")
        time_ms = 1 / max(1, sum(v for v in point.params.values() if isinstance(v, int)))
        return Outcome(RIGHT, build, launch, Timing((time_ms,) * 6, "events", protocol.cache))

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        raise SetupError(f"no {library} on a pretended GPU")

    def close(self) -> None: ...


if __name__ == "__main__":
    from sweeper.worker.main import BACKENDS, run

    run(sys.argv[1:], {**BACKENDS, "cuda": lambda *_: PretendedBackend()})
