"""Children for tests of `sweeper.process`: started as `python -m process_children [how]`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from sweeper.process import StopServing, serve


def _die(message: dict[str, Any]) -> None:
    sys.stderr.write("about to read address 0\n")
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def _exit(message: dict[str, Any]) -> None:
    sys.stderr.write("giving up: no more paper\n")
    sys.stderr.flush()
    os._exit(message["code"])


def _print(message: dict[str, Any]) -> None:
    for _ in range(message["times"]):
        sys.stdout.write(message["text"] + "\n")
    sys.stdout.flush()


def _raise(message: dict[str, Any]) -> None:
    raise ZeroDivisionError("the divisor was nought")


def _stop(message: dict[str, Any]) -> None:
    raise StopServing({"goodbye": True})


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "echo": lambda message: {"echo": message.get("value")},
    "environment": lambda message: {
        "value": os.environ.get(message["name"]),
        "own_session": os.getsid(0) == os.getpid(),
    },
    "sleep": lambda message: time.sleep(message["seconds"]),
    "segfault": _die,
    "exit": _exit,
    "print": _print,
    "raise": _raise,
    "spawn": lambda message: {"pid": subprocess.Popen(["sleep", "1000"]).pid},
    "last": _stop,
    "no json": lambda message: {"value": float("nan")},
}


def handle(message: dict[str, Any]) -> dict[str, Any]:
    return OPERATIONS[message["op"]](message) or {"done": message["op"]}


def _by_hand(answer: str) -> None:
    """Answer every request with the text `answer`, whatever a reply ought to look like."""
    request, reply = (int(fd) for fd in os.environ["SWEEPER_CHANNEL"].split(","))
    asked = json.loads(os.read(request, 1 << 16))
    os.write(reply, answer.replace("ID", asked["id"]).encode())
    time.sleep(60)


def _close_channel() -> None:
    request, reply = (int(fd) for fd in os.environ["SWEEPER_CHANNEL"].split(","))
    os.read(request, 1 << 16)
    os.close(reply)
    time.sleep(60)


if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "dies at start":
        sys.exit("libanswer.so.42: cannot open shared object file")
    elif how == "answers":
        _by_hand(sys.argv[2])
    elif how == "closes":
        _close_channel()
    else:
        serve(handle)
