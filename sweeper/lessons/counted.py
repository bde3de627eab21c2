"""Counters for a report: `python -m sweeper.profile` as a command of its own over the results folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["count"]

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_ERROR, _STEP = "error: ", "profiling "


def count(
    folder: Path,
    kernels: Iterable[str],
    *,
    top: int,
    config_dirs: Iterable[Path] = (),
    device: int = 0,
    allow_shared: bool = False,
    compiler: str = "auto",
    say: Callable[[str], object] = lambda _: None,
) -> str:
    """Profile the best `top` configurations of `kernels` in `folder`, which gets `profile.csv`.

    Kernels that are not shipped are looked for in `config_dirs`; `say` hears of each configuration before it is
    profiled. Gives an empty text, or why not all of them could be profiled: there is no ncu, or no permission.
    """
    command = [
        *(sys.executable, "-m", "sweeper.profile", str(folder), "--top", str(top), "--device", str(device)),
        *("--compiler", compiler, *(["--allow-shared"] if allow_shared else [])),
        *(word for kernel in kernels for word in ("--kernel", kernel)),
        *(word for place in config_dirs for word in ("--config-dir", str(place))),
    ]
    found = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*found, _PACKAGE_PARENT])}
    errors: list[str] = []
    # What it prints for people goes to a file: a pipe that nobody reads would fill up.
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        with child:
            try:
                for line in child.stderr or ():
                    if line.startswith(_ERROR):
                        errors.append(line.removeprefix(_ERROR).strip())
                    elif line.startswith(_STEP):
                        say(line.strip())
            except BaseException:
                # Interrupted, it ends ncu and what ran under it, and keeps what was counted.
                child.send_signal(signal.SIGINT)
                raise
    if child.returncode == 0:
        return ""
    return errors[0] if errors else f"the profiler ended with {child.returncode}"
