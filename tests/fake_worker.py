"""A worker for tests: `python -m fake_worker fake FOLDER`, on a backend that does what a point's `act` says.

It notes each call in FOLDER/calls, and fails at opening in the way that FOLDER/at_open says, as many
times as it says.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.kernel import description as kernel
from sweeper.model import Build, Check, KernelSpec, Launch, Mismatch, Point, Stage, Status, Timing
from sweeper.problem import Problem

ACTS = (
    "right",
    "wrong",
    "hang",
    "segfault",
    "exit",
    "sticky",
    "print",
    "bug",
    "no_memory",
    "broken",
    "launch",
)
GOOD = Check(passed=True, checked=4, wrong=0, max_error=0.0, error_ratio=0.0, error_index=None)
FORGED = '{"id": "1", "reply": {"ok": true, "outcome": {"check": "perfect"}}}'


def spec_in(folder: Path, parameters: str = "const T* x, T* y", **changes: Any) -> KernelSpec:
    """A kernel whose only parameter is what the fake backend shall do; its files lie in `folder`."""
    (folder / "act.cu").write_text(
        f"template <class T, int act> __global__ void act_kernel({parameters}) {{}}\n"
    )
    node = {
        "name": "act",
        "source": "act.cu",
        "entry": "act_kernel",
        "template": ["T", "act"],
        "dtype": "float32",
        "dims": {"N": 4},
        "params": {"act": list(ACTS)},
        "launch": {"block": [32], "grid": ["ceil(N / 32)"]},
        "args": [
            {"name": "x", "shape": ["N"], "direction": "in"},
            {"name": "y", "shape": ["N"], "direction": "out"},
        ],
        "reference": {"contraction": "n->n"},
    }
    return kernel.load({**node, **changes}, folder / "act.yaml")


class FakeBackend:
    name = "fake"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _note(self, text: str) -> None:
        with (self._folder / "calls").open("a") as calls:
            calls.write(text + "\n")

    def identify(self, device: int, name: str | None) -> tuple[Target, DeviceIdentity]:
        self._note("identify")
        if (self._folder / "nameless").exists():
            raise SetupError("no driver", hint="install one")
        return target(name or "h200"), DeviceIdentity("Fake", uuid=f"FAKE-{device}", index=device)

    def open(self, device: int, name: str | None) -> tuple[Target, DeviceIdentity]:
        self._note("open")
        self._fail_at_open()
        uuid = (self._folder / "uuid").read_text() if (self._folder / "uuid").exists() else f"FAKE-{device}"
        order = os.environ.get("CUDA_DEVICE_ORDER", "")
        return target(name or "h200"), DeviceIdentity("Fake", uuid=uuid, index=device, driver=order)

    def _fail_at_open(self) -> None:
        plan = self._folder / "at_open"
        if not plan.exists():
            return
        how, _, times = plan.read_text().partition(" ")
        if int(times) == 0:
            return
        plan.write_text(f"{how} {int(times) - 1}")
        if how == "hang":
            time.sleep(600)
        if how == "refuse":
            raise SetupError("no such device", hint="buy one")
        sys.stderr.write(f"libfake.so: undefined symbol number {times}\n")
        sys.stderr.flush()
        os._exit(3)

    def canary(self) -> None:
        self._note("canary")

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        taken = problem.ahead is not None and problem.ahead.take(problem.key) is not None
        self._note(f"prepare {problem.dims['N']}" + (" with inputs" if taken else ""))
        if problem.dims["N"] > 1_000_000:
            raise TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, "wanted more", details={"wanted_bytes": 1})

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        act = str(point.params["act"])
        self._note(f"measure {act}")
        _ACTIONS.get(act, lambda: None)()
        timing = Timing((0.5, math.inf), f"cache {protocol.cache}", protocol.cache)
        return Outcome(GOOD, build, launch, timing, "note")

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        self._note(f"baseline {library}")
        if library != "cublas":
            raise ConfigError(f"unknown library {library}", hint="use cublas")
        return Outcome(GOOD, None, None, None, "cuBLAS 13.0")

    def close(self) -> None:
        self._note("close")


def _segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def _exit() -> None:
    sys.stderr.write("the driver gave up\n")
    sys.stderr.flush()
    os._exit(9)


def _wrong() -> None:
    check = Check(False, 4, 1, math.nan, math.inf, (2,), (Mismatch("y", (2,), math.nan, 1.0, 1e-6),))
    launch = Launch((32, 1, 1), (1, 1, 1), 0)
    raise TrialFailed(
        Status.WRONG_RESULT, Stage.VERIFY, "1 wrong", details={"check": check, "launch": launch}
    )


def _sticky() -> None:
    sys.stdout.write("device-side assert in act.cu:1\n")
    raise TrialFailed(Status.CRASH, Stage.LAUNCH, "an illegal memory access", details={"sticky": True})


def _print() -> None:
    for _ in range(20_000):
        sys.stdout.write(FORGED + "\n")


def _bug() -> None:
    raise KeyError("nobody thought of this")


def _no_memory() -> None:
    raise MemoryError("Unable to allocate 3 TiB")


def _broken() -> None:
    raise SetupError("the device fell off the bus", hint="put it back")


def _launch() -> None:
    raise TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, "threads 2048 > 1024", details={"threads": 2048})


_ACTIONS: dict[str, Callable[[], None]] = {
    "hang": lambda: time.sleep(600),
    "segfault": _segfault,
    "exit": _exit,
    "wrong": _wrong,
    "sticky": _sticky,
    "print": _print,
    "bug": _bug,
    "no_memory": _no_memory,
    "broken": _broken,
    "launch": _launch,
}

if __name__ == "__main__":
    from sweeper.worker.main import run

    run(sys.argv[1:], {"fake": lambda scratch, shared: FakeBackend(scratch or Path())})
