"""A worker for tests, `python -m fake_gpu_worker cuda FOLDER`: a GPU by name that times without running.

A configuration takes 1 ms over the sum of its whole parameters. PRETENDED_GPU names the product,
PRETENDED_DRIVER its driver; every measurement adds a line with its parameters to PRETENDED_CALLS. A parameter
`fate` of 1 to 5 is a configuration that fails: with a wrong result, at launch, out of memory, by a crash, or never.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence

import numpy as np

from sweeper.backend.base import Entrant, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import TrialFailed
from sweeper.model import Build, Check, Energy, KernelSpec, Launch, Point, Stage, Status, Timing
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
        _meet_fate(point.params.get("fate"))
        energy = None if protocol.objective == "time" else _energy(point)
        timing = Timing((_time_ms(point),) * 6, "events", protocol.cache, energy=energy)
        return Outcome(RIGHT, build, launch, timing)

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        raise TrialFailed(Status.INFEASIBLE, Stage.SPACE, f"{library} was not found: install it")

    def confirm(
        self, entrants: Sequence[Entrant], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        """Everyone's own time with 0.1 % of noise; PRETENDED_FAILURES are parameters of who fails."""
        failing = json.loads(os.environ.get("PRETENDED_FAILURES", "[]"))
        rng = np.random.default_rng([rounds.seed, rounds.first])
        found = []
        for entrant in entrants:
            point = entrant.finalist.point or Point.of({})
            if point.params in failing:
                found.append(Turns(reason="3 of 4 elements are wrong"))
                continue
            noise = np.exp(rng.normal(0, 0.001, rounds.count))
            times_ms = tuple(_time_ms(point) * noise)
            found.append(Turns(times_ms, build=entrant.finalist.build, launch=entrant.launch))
        return tuple(found)

    def close(self) -> None: ...


def _meet_fate(fate: object) -> None:
    if fate == 1:
        check = Check(passed=False, checked=4, wrong=3, max_error=1.0, error_ratio=9.0, error_index=(0, 1))
        raise TrialFailed(
            Status.WRONG_RESULT, Stage.VERIFY, "3 of 4 elements are wrong", details={"check": check}
        )
    if fate == 2:
        raise TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, "too many resources requested for launch")
    if fate == 3:
        raise TrialFailed(Status.OUT_OF_MEMORY, Stage.LAUNCH, "8 GiB wanted, 1 GiB free")
    if fate == 4:
        os.kill(os.getpid(), signal.SIGSEGV)
    if fate == 5:
        time.sleep(3600)


def _time_ms(point: Point) -> float:
    return 1 / max(1, sum(v for v in point.params.values() if isinstance(v, int)))


def _energy(point: Point) -> Energy:
    """At 200 W and the square of the sum of the parameters: 16 takes least of 8, 16, 24 and 32."""
    time_ms = _time_ms(point)
    watts = 200 + 1 / time_ms**2
    joules = watts * time_ms / 1e3
    return Energy(joules, 0.99 * joules, 1.01 * joules, watts, "counter")


if __name__ == "__main__":
    from sweeper.worker.main import BACKENDS, run

    run(sys.argv[1:], {**BACKENDS, "cuda": lambda *_: PretendedBackend()})
