"""Clocks are held only where that is asked for, and given back however the command ends. Never on a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeper.device.clocks import ClockLock, reset, why_no_clock
from sweeper.errors import SetupError

BUS, OTHER = "0000:18:00.0", "0000:2A:00.0"
ROOT = Path(__file__).resolve().parents[1]

# `pynvml` as far as the keeper uses it; what is set stands in a file.
PRETENDED = """
import json, os, pathlib

class NVMLError(Exception): pass
class NVMLError_NoPermission(NVMLError): pass
class NVMLError_NotSupported(NVMLError): pass

_LOG = pathlib.Path(os.environ["PRETENDED_CLOCKS"])

def _say(*what):
    with _LOG.open("a") as log:
        log.write(json.dumps(what) + "\\n")

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByPciBusId(bus): return bus
def nvmlDeviceGetMaxClockInfo(handle, kind): return 1980

def nvmlDeviceSetGpuLockedClocks(handle, low, high):
    refuse = os.environ.get("PRETENDED_REFUSAL", "").split("=")
    if refuse[0] == handle:
        raise globals()[refuse[1]](refuse[1])
    _say("set", handle, low, high)

def nvmlDeviceResetGpuLockedClocks(handle):
    _say("reset", handle)
"""


class Clocks:
    """The pretended NVML of one test."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "clocks"
        (folder / "pynvml.py").write_text(PRETENDED)
        path = os.pathsep.join((str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")))
        self.env = {"PYTHONPATH": path, "PRETENDED_CLOCKS": str(self.log)}

    @property
    def told(self) -> list[list[object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def wait_for(self, what: list[object], seconds: float = 20.0) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what in self.told:
                return True
            time.sleep(0.02)
        return False


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.parametrize(
    ("clock", "low", "high"), [("base", 0xFFFFFF01, 0xFFFFFF01), ("max", 1980, 1980), (1500, 1500, 1500)]
)
def test_a_clock_is_held_and_given_back(clocks: Clocks, clock: str | int, low: int, high: int) -> None:
    with ClockLock(clock, [BUS, OTHER], env=clocks.env):
        assert clocks.told == [["set", BUS, low, high], ["set", OTHER, low, high]]
    assert clocks.told[2:] == [["reset", BUS], ["reset", OTHER]]


def test_an_exception_gives_the_clock_back(clocks: Clocks) -> None:
    with pytest.raises(RuntimeError), ClockLock("base", [BUS], env=clocks.env):
        raise RuntimeError("a sweep failed")
    assert clocks.told[-1] == ["reset", BUS]


_HOLDER = """
import sys, time
from sweeper.device.clocks import ClockLock
lock = ClockLock(1500, [sys.argv[1]])
lock.start()
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_killed_gives_the_clock_back(clocks: Clocks, number: signal.Signals) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, BUS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **clocks.env},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert clocks.told == [["set", BUS, 1500, 1500]]
    holder.send_signal(number)
    holder.wait(10)
    holder.stdout.close()
    assert clocks.wait_for(["reset", BUS])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_everybody_does_not_end_the_one_that_cleans_up(
    clocks: Clocks, number: signal.Signals
) -> None:
    with ClockLock("base", [BUS], env=clocks.env) as lock:
        assert lock.pid is not None
        os.kill(lock.pid, number)
        time.sleep(0.2)
        assert ["reset", BUS] not in clocks.told
        os.kill(lock.pid, 0)
    assert clocks.told[-1] == ["reset", BUS]


def test_where_the_keeper_itself_is_killed_the_parent_gives_the_clock_back(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    lock = ClockLock("base", [BUS], env=clocks.env)
    lock.start()
    assert lock.pid is not None
    os.kill(lock.pid, signal.SIGKILL)
    lock.close()
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert clocks.told == [["set", BUS, 0xFFFFFF01, 0xFFFFFF01], ["reset", BUS]]


@pytest.mark.parametrize(
    ("error", "says", "hint"),
    [
        ("NVMLError_NoPermission", "no permission to set the clocks of GPU 0000:2A:00.0", "root"),
        ("NVMLError_NotSupported", "cannot hold a clock", "lock_clocks=null"),
        ("NVMLError", "does not take the clock 1500", "SUPPORTED_CLOCKS"),
    ],
)
def test_a_refusal_is_a_set_up_error_that_says_what_to_do_and_leaves_no_clock_held(
    clocks: Clocks, error: str, says: str, hint: str
) -> None:
    lock = ClockLock(1500, [BUS, OTHER], env={**clocks.env, "PRETENDED_REFUSAL": f"{OTHER}={error}"})
    with pytest.raises(SetupError) as caught:
        lock.start()
    assert "measure.lock_clocks = 1500" in caught.value.message
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert clocks.told == [["set", BUS, 1500, 1500], ["reset", BUS]]
    assert lock.pid is None
    lock.close()


def test_without_nvml_there_is_no_clock_to_hold(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('no library here')\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    with pytest.raises(SetupError, match="NVML cannot be used"):
        ClockLock("base", [BUS], env={"PYTHONPATH": path}).start()


def test_closing_what_was_never_held_touches_nothing(clocks: Clocks) -> None:
    ClockLock("base", [BUS], env=clocks.env).close()
    assert clocks.told == []


def test_a_device_that_cannot_be_reset_does_not_keep_the_others_from_it(clocks: Clocks) -> None:
    done: list[str] = []

    class Library:
        NVMLError = RuntimeError

        def nvmlInit(self) -> None:  # noqa: N802 - the library's own name
            pass

        def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
            return bus

        def nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:  # noqa: N802
            if handle == BUS:
                raise RuntimeError("GPU is lost")
            done.append(handle)

    assert reset([BUS, OTHER], Library()) == [f"{BUS}: GPU is lost"]
    assert done == [OTHER]


@pytest.mark.parametrize("clock", [None, "base", "max", 1500])
def test_clocks_that_can_be_asked_for(clock: str | int | None) -> None:
    assert why_no_clock(clock) == ""


@pytest.mark.parametrize("clock", ["fast", "1500", 5, 100_000])
def test_clocks_that_cannot(clock: str | int) -> None:
    assert why_no_clock(clock)
