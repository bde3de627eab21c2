"""The child's side of a private channel: requests come in, replies go out, and nothing outlives the parent."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from sweeper.errors import SetupError

__all__ = ["CHANNEL", "StopServing", "serve"]

Message = dict[str, Any]

CHANNEL = "SWEEPER_CHANNEL"
"""The environment variable in which a child finds its two ends of the channel."""

_CHUNK_BYTES = 1 << 16


class StopServing(Exception):
    """Raised by a handler: send `reply`, then end `serve`."""

    def __init__(self, reply: Message) -> None:
        super().__init__()
        self.reply = reply


def serve(handler: Callable[[Message], Message], *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """The child's side: answer each request with `handler(message)` until told to end.

    `meanwhile` is called once before the first is read: what it loads is ready when a request comes.
    Call it before importing much: the guard is a fork, which wants a process of one thread. An
    exception out of `handler` ends the process; its traceback is in what the parent has of the
    child's output. Raises SetupError when the process was not started by a `Child`.
    """
    try:
        request_fd, reply_fd = (int(fd) for fd in os.environ.pop(CHANNEL).split(","))
    except (KeyError, ValueError):
        raise SetupError(
            "this module answers requests of a parent process, and there is none",
            hint="it is started by sweeper itself; run python -m sweeper instead",
        ) from None
    for fd in (request_fd, reply_fd):
        os.set_inheritable(fd, False)
    faulthandler.enable()
    guard = os.fork()
    if guard == 0:
        _guard(request_fd)
    meanwhile()
    told = _answer(handler, request_fd, reply_fd)
    if told:
        os.kill(guard, signal.SIGKILL)
    # Whoever would inherit the guard need not wait for it. Where the parent is gone, it ends us here.
    os.waitpid(guard, 0)
    if not told:
        os.killpg(0, signal.SIGKILL)


def _guard(request_fd: int) -> NoReturn:
    """End the whole group once nobody can send requests any more.

    A process and not a thread: a thread needs the interpreter, which a hanging library call may hold.
    """
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.closerange(3, request_fd)
        os.closerange(request_fd + 1, os.sysconf("SC_OPEN_MAX"))
        poller = select.poll()
        poller.register(request_fd, 0)  # no event asked for: only the hang-up is reported
        poller.poll()
        os.killpg(0, signal.SIGKILL)
    finally:
        os._exit(0)


def _answer(handler: Callable[[Message], Message], request_fd: int, reply_fd: int) -> bool:
    """Answer until told to end (True) or until the parent is gone (False)."""
    buffer = bytearray()
    while chunk := os.read(request_fd, _CHUNK_BYTES):
        buffer += chunk
        if b"\n" not in chunk:
            continue
        body = json.loads(buffer)
        buffer.clear()
        if "request" not in body:
            return True
        try:
            reply, last = handler(body["request"]), False
        except StopServing as stop:
            reply, last = stop.reply, True
        line = json.dumps({"id": body["id"], "reply": reply}, separators=(",", ":"), allow_nan=False)
        pending = memoryview(line.encode() + b"\n")
        while pending:
            pending = pending[os.write(reply_fd, pending) :]
        if last:
            return True
    return False
