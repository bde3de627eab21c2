"""Shapes shared among GPUs: a process for each, which takes the next shape when it is done with one.

A process that dies, or takes too long, costs the shape that it was at; another takes its place.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shapes_data import dims_of

__all__ = ["Shared", "longest_first", "serve"]

_WORKER = Path(__file__).with_name("shapes_worker.py")
# A process that was asked to end has this long to give its GPU back.
_GRACE_S = 10.0
# What a shape may take after its limit, when no rung is begun: what is under way, and the confirmation.
_OVERTIME_S = 60.0
_MOST_STARTS = 4

Row = dict[str, Any]
Command = Callable[[int], Sequence[str]]


def longest_first(shapes: Sequence[str]) -> list[str]:
    """By their work, so that the last ones are short and all GPUs end together."""
    return sorted(dict.fromkeys(shapes), key=lambda shape: -math.prod(dims_of(shape).values()))


@dataclass
class Shared:
    """What the threads of all GPUs share. `done` is called with each answer, one at a time.

    `seeds` gives what a search may begin with. No shape is begun after `ends_s` of the monotonic clock;
    `limit_s` is what one may take.
    """

    shapes: list[str]
    ends_s: float
    limit_s: float
    seeds: Callable[[], list[list[Any]]]
    done: Callable[[Row], None]
    started: Callable[[Row], None]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str | None:
        """The next shape, or None: nothing is left, or no time."""
        with self.lock:
            return self.shapes.pop(0) if self.shapes and time.monotonic() < self.ends_s else None

    def report(self, answer: Row) -> None:
        with self.lock:
            self.done(answer)

    def request(self, shape: str) -> Row:
        with self.lock:
            seeds = self.seeds()
        left = max(1.0, min(self.limit_s, self.ends_s + self.limit_s - time.monotonic()))
        return {"shape": shape, "seeds": seeds, "limit_s": left}


class _Worker:
    """One process, and its answers as they come; None once it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.answers: queue.Queue[Row | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                self.answers.put(json.loads(line[1:]))
            else:
                print(line, end="", flush=True)
        self.answers.put(None)

    def ask(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> Row | str:
        """What comes within `seconds`, or why nothing does."""
        try:
            found = self.answers.get(timeout=seconds)
        except queue.Empty:
            return f"stopped after {seconds:.0f} s"
        return f"its process ended with {self._process.wait()}" if found is None else found

    def end(self) -> None:
        """Let it end by itself, then make it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for sign in (None, signal.SIGINT, signal.SIGKILL):
            if sign is not None:
                self._process.send_signal(sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
                return


def serve(shared: Shared, gpus: Sequence[int], command: Command) -> None:
    """Let a process of `command` for each of `gpus` measure until nothing is left."""
    threads = [threading.Thread(target=_serve, args=(shared, gpu, command)) for gpu in gpus]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        # The processes were interrupted as well: each gives its GPU back.
        with shared.lock:
            shared.shapes.clear()
        for thread in threads:
            thread.join()
        raise


def _serve(shared: Shared, gpu: int, command: Command) -> None:
    worker: _Worker | None = None
    starts = 0
    try:
        while shared.shapes:
            if worker is None:
                worker, starts = _started(shared, command(gpu), starts)
            if worker is None:
                print(f"GPU {gpu} cannot be used", flush=True)
                return
            shape = shared.next()
            if shape is None:
                return
            request = shared.request(shape)
            worker.ask(request)
            answer = worker.answer(request["limit_s"] + _OVERTIME_S)
            if isinstance(answer, str):
                worker.end()
                worker = None
                answer = {"row": {"shape": shape, "verdict": "failed", "note": answer}}
            shared.report(answer)
    finally:
        if worker is not None:
            worker.end()


def _started(shared: Shared, command: Sequence[str], starts: int) -> tuple[_Worker | None, int]:
    """A process that has its GPU, and how many were started so far."""
    while starts < _MOST_STARTS:
        starts += 1
        worker = _Worker([sys.executable, "-u", *command])
        first = worker.answer(120)
        if not isinstance(first, str):
            with shared.lock:
                shared.started(first)
            return worker, starts
        worker.end()
    return None, starts
