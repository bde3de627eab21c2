"""Commands as processes that tests can kill, and what of them is left."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import sweeper

__all__ = ["Command", "stored_params"]

_MARK = "SWEEPER_TEST_COMMAND"


class Command:
    """`python -m sweeper …` under way, marked so that whatever it starts can be told by its environment."""

    def __init__(self, arguments: Sequence[object], *, limit_file_bytes: int | None = None) -> None:
        self.mark = uuid4().hex
        env = {**os.environ, "PYTHONPATH": str(Path(sweeper.__file__).parents[1]), _MARK: self.mark}
        command = [sys.executable, "-m", "sweeper", *map(str, arguments)]
        if limit_file_bytes is not None:
            blocks = limit_file_bytes // 1024
            command = ["bash", "-c", f'ulimit -f {blocks}; trap "" XFSZ; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def finish(self, timeout: float = 120) -> tuple[int, str, str]:
        """Its exit code, and what it said on its two channels."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def until_stored(self, store: Path) -> None:
        """Wait until it has stored a trial, or ended."""
        while self.process.poll() is None and not stored_params(store):
            time.sleep(0.005)

    def left(self, within_s: float = 2.0) -> list[str]:
        """The command lines of what it started and is still there after `within_s`."""
        end = time.monotonic() + within_s
        while (alive := self._alive()) and time.monotonic() < end:
            time.sleep(0.05)
        return alive

    def _alive(self) -> list[str]:
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    line = (
                        (folder / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                        .strip()
                    )
                    # Without a command line it has ended, and waits for its parent to notice.
                    found += [line] if line else []
            except OSError:
                continue
        return found


def stored_params(store: Path) -> list[str]:
    """The keys of all candidates that a store which another process may be writing has acknowledged."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            rows = connection.execute("SELECT params_key FROM trials WHERE role = 'candidate' ORDER BY id")
            return [str(key) for (key,) in rows]
    except sqlite3.Error:
        return []
