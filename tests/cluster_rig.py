"""Commands on a cluster of their own, and the processes that they have started."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from uuid import uuid4

import sweeper

__all__ = ["Command", "Nodes", "descendants", "marked"]

_MARK = "SWEEPER_TEST_CLUSTER"


def descendants(root: int) -> list[tuple[int, str]]:
    """Process id and title of all that `root` has started, and that they have."""
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, parent, title in _processes():
        children.setdefault(parent, []).append((pid, title))
    found, todo = list[tuple[int, str]](), [root]
    while todo:
        own = children.get(todo.pop(), [])
        found += own
        todo += [pid for pid, _ in own]
    return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """(process id, parent's, title) of everything that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state[0] != "Z":
            yield int(folder.name), int(state[1]), title


def marked(mark: str) -> dict[int, str]:
    """The titles, by process id, of everything that runs with `mark`, NAME=VALUE, in its environment."""
    found = {}
    for pid, _, title in _processes():
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found[pid] = title
        except OSError:
            continue
    return found


class Nodes:
    """A Ray cluster of `count` nodes on this host, a processor and a pretended GPU each, ended with the block."""

    def __init__(self, count: int, folder: Path) -> None:
        self.mark = uuid4().hex
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONPATH": str(Path(sweeper.__file__).parents[1]),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            _MARK: self.mark,
        }
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        self.address = f"{_own_address()}:{port}"
        self._each = ["ray", "start", "--num-cpus=1", "--num-gpus=1", "--disable-usage-stats"]
        self._head = [
            "--head",
            f"--port={port}",
            f"--node-ip-address={_own_address()}",
            "--include-dashboard=false",
        ]
        self._count = count

    def __enter__(self) -> Self:
        for number in range(self._count):
            words = [*self._each, *([f"--address={self.address}"] if number else self._head)]
            subprocess.run(words, env=self.environment, check=True, capture_output=True, timeout=180)
        return self

    def __exit__(self, *_: object) -> None:
        for pid in marked(f"{_MARK}={self.mark}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose_one(self) -> None:
        """Kill the node that joined last, as a power cut does."""
        raylets = [pid for pid, title in marked(f"{_MARK}={self.mark}").items() if "/raylet/raylet " in title]
        os.kill(max(raylets), signal.SIGKILL)


def _own_address() -> str:
    """The address by which other hosts would reach this one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class Command:
    """`python -m sweeper engine=… …` under way, with a cluster of two pretended GPUs where that is Ray's.

    With `nodes` it joins theirs. It is marked, so that whatever it starts can be told by its environment.
    """

    def __init__(
        self, folder: Path, *arguments: str, engine: str = "ray", nodes: Nodes | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.mark = uuid4().hex
        env = {**os.environ, "PYTHONPATH": str(Path(sweeper.__file__).parents[1]), _MARK: self.mark}
        env |= {**nodes.environment, _MARK: self.mark} if nodes else {}
        gpus = ["engine.gpus=2"] if engine == "ray" else []
        gpus += [f"engine.address={nodes.address}"] if nodes else []
        words = [f"engine={engine}", *gpus, *arguments, f"results_dir={folder / 'out'}", "resume=false"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sweeper", *words],
            env={**env, "SWEEPER_CACHE": str(folder / "cache")},
            stdout=(folder / "said").open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def rows(self) -> int:
        """How many trials it has stored."""
        try:
            store = sqlite3.connect(f"file:{self.folder / 'out' / 'study.db'}?mode=ro", uri=True)
            return int(store.execute("SELECT count(*) FROM trials").fetchone()[0])
        except sqlite3.Error:
            return 0

    def until(self, *, rows: int, within_s: float = 300.0) -> None:
        """Wait until it has stored `rows` trials."""
        end = time.monotonic() + within_s
        while self.rows() < rows and time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "said").read_text()
            time.sleep(0.1)
        assert self.rows() >= rows

    def table(self) -> str:
        return (self.folder / "out" / "trials.csv").read_text(encoding="utf-8")

    def left(self, *, within_s: float) -> dict[int, str]:
        """The titles of what it started and is still there after `within_s`."""
        end = time.monotonic() + within_s
        while (alive := marked(f"{_MARK}={self.mark}")) and time.monotonic() < end:
            time.sleep(0.2)
        return alive
