"""Holding the SM clock of GPUs for a while, and giving it back whatever happens.

Only where it is asked for is a clock changed. A process of its own holds it (`clock_keeper`): it sets the
clocks and waits until nobody is left at the other end of a pipe. However the parent ends, by an exception,
a signal or SIGKILL, the system closes the pipe, and the keeper resets the clocks. A worker that dies has no
part in it. Should the keeper itself be killed, the parent resets them.

What is given back is the driver's own way of choosing clocks: NVML cannot be asked for a lock that somebody
else had set before.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sweeper.errors import SetupError

__all__ = ["Clock", "ClockLock", "limits_of", "reset", "why_no_clock"]

Clock = str | int
"""`base`, `max`, or MHz."""

_NAMED = ("base", "max")
_SM = 1
# NVML_CLOCK_LIMIT_ID_TDP of nvml.h: the base clock, which the board holds under any load.
_BASE = 0xFFFFFF01
_ANSWER_S = 30.0
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


def why_no_clock(clock: Clock | None) -> str:
    """What is wrong with `clock` as a value of the configuration; empty for a right one."""
    if clock is None or clock in _NAMED:
        return ""
    if isinstance(clock, str):
        return "write base, max, or MHz as a whole number"
    return "" if 100 <= clock <= 10_000 else "a clock in MHz lies between 100 and 10000"


def limits_of(nv: Any, handle: Any, clock: Clock) -> tuple[int, int]:
    """The least and the greatest clock that NVML is asked for. May raise NVML's errors."""
    if clock == "base":
        return _BASE, _BASE
    if clock == "max":
        highest = int(nv.nvmlDeviceGetMaxClockInfo(handle, _SM))
        return highest, highest
    return int(clock), int(clock)


def reset(pci_bus_ids: Sequence[str], nv: Any | None = None) -> list[str]:
    """Let the driver choose the clocks of these devices again; of those where that failed, why."""
    failed = []
    nv = nv or importlib.import_module("pynvml")
    nv.nvmlInit()
    for pci_bus_id in pci_bus_ids:
        try:
            nv.nvmlDeviceResetGpuLockedClocks(nv.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
        except nv.NVMLError as error:
            failed.append(f"{pci_bus_id}: {error}")
    return failed


class ClockLock:
    """The SM clocks of the devices at `pci_bus_ids`, held at `clock` from `start` to `close`.

    `env` is added to the keeper's environment, for tests.
    """

    def __init__(
        self, clock: Clock, pci_bus_ids: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> None:
        self.clock = clock
        self._pci_bus_ids = tuple(dict.fromkeys(pci_bus_ids))
        self._env = dict(env or {})
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The keeper's process id while clocks are held."""
        return self._keeper.pid if self._keeper else None

    def start(self) -> None:
        """Set the clocks. Raises SetupError where that is not allowed or not possible; none is held then."""
        path = os.pathsep.join(filter(None, (_PACKAGE_PARENT, os.environ.get("PYTHONPATH", ""))))
        command = [sys.executable, "-P", "-m", "sweeper.device.clock_keeper", str(self.clock)]
        try:
            self._keeper = subprocess.Popen(
                [*command, *self._pci_bus_ids],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # A Ctrl-C is for the command, not for the one that cleans up after it.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, **self._env},
            )
        except OSError as error:
            raise SetupError(f"the process that would hold the clocks cannot be started: {error}") from error
        told = self._told()
        if "error" in told:
            self._end()
            raise SetupError(f"measure.lock_clocks = {self.clock}: {told['error']}", hint=told["hint"])

    def close(self) -> None:
        """Give the clocks back; nothing to do where none are held. Raises SetupError where that failed."""
        if self._keeper is None:
            return
        if self._end() == 0:
            return
        try:
            failed = reset(self._pci_bus_ids)
        except Exception as error:
            failed = [str(error)]
        if failed:
            raise SetupError(
                f"the clocks could not be given back: {'; '.join(failed)}",
                hint="as root: nvidia-smi --reset-gpu-clocks",
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _told(self) -> dict[str, str]:
        """The keeper's one line: that the clocks are held, or why they are not."""
        line = self._keeper.stdout.readline() if self._keeper and self._keeper.stdout else b""
        try:
            return dict(json.loads(line))
        except ValueError:
            return {"error": "the process that would hold the clocks ended at once", "hint": "try it again"}

    def _end(self) -> int:
        """Let the keeper reset the clocks and end; its exit status."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return 0
        try:
            keeper.communicate(timeout=_ANSWER_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.communicate()
        return keeper.returncode
