"""A child process with a private channel for requests and replies.

    parent                                                        child
    Child.request() ── one JSON line ──▶ pipe ──▶ serve(handler)
                    ◀── one JSON line ── pipe ◀──
    last 64 KiB     ◀── standard output and error, drained by a thread

Replies never share a stream with what the child or its libraries print, so printed text cannot pass
for a result. The child leads a session, so its process group is its own: killing that group ends
compilers and helpers with it. A guard process in the group ends all of it once the parent is gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import secrets
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from sweeper.errors import SetupError, SweeperError

__all__ = ["Child", "ChildDied", "ChildError", "ChildTimeout", "ChildUnkillable", "StopServing", "serve"]

Message = dict[str, Any]

_CHANNEL = "SWEEPER_CHANNEL"
_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 1 << 16
_POLL_S = 0.1
_PACKAGE_PARENT = str(Path(__file__).resolve().parent.parent)


class ChildError(SweeperError):
    """A child process did not answer. `output` is the end of what it printed, errors last."""

    def __init__(self, message: str, *, output: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.output = output


class ChildTimeout(ChildError):  # noqa: N818
    """No reply before the deadline; the child's whole group has been killed."""


class ChildDied(ChildError):  # noqa: N818
    """The child ended, or broke the channel, instead of replying; nothing of its group is left.

    `signal_name` (`SIGSEGV`) or `exit_status` says how it ended; both are None for a broken channel.
    """

    def __init__(
        self,
        message: str,
        *,
        output: str = "",
        signal_name: str | None = None,
        exit_status: int | None = None,
    ) -> None:
        hint = "the system may have been out of memory" if signal_name == "SIGKILL" else None
        super().__init__(message, output=output, hint=hint)
        self.signal_name = signal_name
        self.exit_status = exit_status


class ChildUnkillable(ChildError):  # noqa: N818
    """The child outlived SIGKILL: it hangs inside the system, in a driver as a rule."""


class StopServing(Exception):  # noqa: N818
    """Raised by a handler: send `reply`, then end `serve`."""

    def __init__(self, reply: Message) -> None:
        super().__init__()
        self.reply = reply


class _Output(threading.Thread):
    """Drains a child's standard output and error, keeping the last bytes of each."""

    def __init__(self, name: str, streams: Sequence[IO[bytes]]) -> None:
        super().__init__(name=f"output of {name}", daemon=True)
        self._streams = tuple(streams)
        self._tails = {stream.fileno(): bytearray() for stream in streams}
        self._stop_read, self._stop_write = os.pipe()

    def run(self) -> None:
        with selectors.PollSelector() as selector:
            for fd in (*self._tails, self._stop_read):
                selector.register(fd, selectors.EVENT_READ)
            while len(selector.get_map()) > 1:
                for key, _ in selector.select():
                    if key.fd == self._stop_read:
                        return
                    self._drain(key.fd, selector)

    def _drain(self, fd: int, selector: selectors.BaseSelector) -> None:
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            selector.unregister(fd)
            return
        tail = self._tails[fd]
        tail += chunk
        del tail[:-_TAIL_BYTES]

    def text(self) -> str:
        parts = (bytes(tail).decode(errors="replace").strip() for tail in self._tails.values())
        return "\n".join(part for part in parts if part)

    def close(self) -> None:
        """Wait for what was printed to arrive; a process that escaped with the pipe is not waited for."""
        self.join(timeout=1.0)
        os.write(self._stop_write, b"x")
        self.join()
        for stream in self._streams:
            stream.close()
        os.close(self._stop_read)
        os.close(self._stop_write)


class Child:
    """One `python -m module` and the parent's end of its channel. Not shared between threads."""

    def __init__(
        self,
        module: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        reap_s: float = 5.0,
    ) -> None:
        self.module = module
        self.args = tuple(args)
        self.env = dict(env or {})
        self.name = name or module
        self.reap_s = reap_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: _Output | None = None
        self._request_fd = self._reply_fd = -1
        self._printed = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._exited(self._process)

    @property
    def output(self) -> str:
        """The end of what the child has printed, standard error last; kept after its death."""
        return self._output.text() if self._output else self._printed

    def start(self) -> None:
        """Start the process, ending first what is left of an earlier one.

        Raises SetupError where the system refuses another process.
        """
        self.kill()
        child_request, request = os.pipe()
        reply, child_reply = os.pipe()
        try:
            process = subprocess.Popen(
                # -P: a file in the current folder must not stand in for a library's module.
                [sys.executable, "-P", "-m", self.module, *self.args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(child_request, child_reply),
                start_new_session=True,
                env=self._environment(child_request, child_reply),
            )
        except OSError as error:
            os.close(request)
            os.close(reply)
            raise SetupError(f"cannot start {self.name}: {error}") from error
        finally:
            os.close(child_request)
            os.close(child_reply)
        os.set_blocking(request, False)
        self._request_fd, self._reply_fd = request, reply
        self._process, self._printed = process, ""
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        self._output = _Output(self.name, streams)
        self._output.start()

    def request(self, message: Message, *, deadline_s: float) -> Message:
        """Send `message` and return the reply, both plain JSON objects of any size.

        Raises ChildTimeout, having killed the group, and ChildDied. Interrupted, it kills the group
        too: an answer nobody waits for must not pass for the next one.
        """
        if self._process is None:
            raise ChildDied(f"{self.name} is not running", output=self._printed)
        token = secrets.token_hex(8)
        body = {"id": token, "request": message}
        line = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            answer = self._exchange(memoryview(line), time.monotonic() + deadline_s)
        except TimeoutError:
            self.kill()
            raise ChildTimeout(
                f"{self.name} did not answer within {deadline_s:g} s", output=self.output
            ) from None
        except EOFError:
            raise self._dead(self._process) from None
        except BaseException:
            self.kill()
            raise
        return self._checked(answer, token)

    def close(self, *, grace_s: float = 5.0) -> None:
        """Ask the child to end, wait `grace_s`, then kill what is left. Raises ChildUnkillable."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._request_fd, b'{"close":true}\n')
            self._wait(self._process, grace_s)
        self.kill()

    def kill(self) -> None:
        """End the whole group now and free its pipes. Raises ChildUnkillable if it will not end."""
        process = self._process
        if process is None:
            return
        # Not yet waited for, so the leader's id, and with it the group's, cannot be anybody else's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(self.reap_s)
        except subprocess.TimeoutExpired:
            raise ChildUnkillable(
                f"{self.name} (process {process.pid}) is still there {self.reap_s:g} s after SIGKILL",
                output=self.output,
                hint="it hangs in the system; look at dmesg, then reset the device or the host",
            ) from None
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _environment(self, request_fd: int, reply_fd: int) -> dict[str, str]:
        env = {**os.environ, **self.env, _CHANNEL: f"{request_fd},{reply_fd}"}
        paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        # The same package as this one, installed or not; last, so that nothing of it hides a library.
        env["PYTHONPATH"] = os.pathsep.join([*paths, _PACKAGE_PARENT])
        return env

    @staticmethod
    def _exited(process: subprocess.Popen[bytes]) -> bool:
        """Whether the leader has ended, leaving its id taken until `kill` has used it."""
        if process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._exited(process) and time.monotonic() < end:
            time.sleep(0.005)

    def _exchange(self, pending: memoryview, end: float) -> bytes:
        """Write the request and read one line. Raises TimeoutError at `end`, EOFError on a death."""
        received = bytearray()
        with selectors.PollSelector() as selector:
            selector.register(self._request_fd, selectors.EVENT_WRITE)
            selector.register(self._reply_fd, selectors.EVENT_READ)
            while (left := end - time.monotonic()) > 0:
                ready = [key.fd for key, _ in selector.select(min(left, _POLL_S))]
                if self._request_fd in ready:
                    pending = self._write(pending)
                    if not pending:
                        selector.unregister(self._request_fd)
                if self._reply_fd in ready:
                    chunk = os.read(self._reply_fd, _CHUNK_BYTES)
                    if not chunk:
                        raise EOFError
                    received += chunk
                    if b"\n" in chunk:
                        return bytes(received)
                # A grandchild may hold the pipe open, so a death need not show as its end.
                elif not ready and self._process is not None and self._exited(self._process):
                    raise EOFError
        raise TimeoutError

    def _write(self, pending: memoryview) -> memoryview:
        try:
            return pending[os.write(self._request_fd, pending[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return pending
        except BrokenPipeError:
            return pending[:0]

    def _checked(self, answer: bytes, token: str) -> Message:
        line, _, rest = answer.partition(b"\n")
        try:
            body = json.loads(line)
        except ValueError:
            body = None
        well_formed = isinstance(body, dict) and body.get("id") == token and not rest
        if well_formed and isinstance(body.get("reply"), dict):
            reply: Message = body["reply"]
            return reply
        self.kill()
        shown = line[:200].decode(errors="replace")
        raise ChildDied(
            f"{self.name} sent something that is no reply and was ended: {shown!r}", output=self.output
        )

    def _dead(self, process: subprocess.Popen[bytes]) -> ChildDied:
        # The pipe's end may be seen a moment before the exit status is there.
        self._wait(process, 1.0)
        exited = self._exited(process)
        self.kill()
        code = process.returncode
        if not exited:
            return ChildDied(f"{self.name} closed its channel and was ended", output=self.output)
        if code >= 0:
            return ChildDied(f"{self.name} exited with code {code}", output=self.output, exit_status=code)
        name = _signal_name(-code)
        return ChildDied(f"{self.name} was killed by {name}", output=self.output, signal_name=name)

    def _release(self) -> None:
        if self._output is not None:
            self._output.close()
            self._printed = self._output.text()
        for fd in (self._request_fd, self._reply_fd):
            os.close(fd)
        self._process, self._output = None, None
        self._request_fd = self._reply_fd = -1


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def serve(handler: Callable[[Message], Message]) -> None:
    """The child's side: answer each request with `handler(message)` until told to end.

    Call it before importing much: the guard is a fork, which wants a process of one thread. An
    exception out of `handler` ends the process; its traceback is in what the parent has of the
    child's output. Raises SetupError when the process was not started by a `Child`.
    """
    try:
        request_fd, reply_fd = (int(fd) for fd in os.environ.pop(_CHANNEL).split(","))
    except (KeyError, ValueError):
        raise SetupError(
            "this module answers requests of a parent process, and there is none",
            hint="it is started by sweeper itself; run python -m sweeper instead",
        ) from None
    for fd in (request_fd, reply_fd):
        os.set_inheritable(fd, False)
    faulthandler.enable()
    if os.fork() == 0:
        _guard(request_fd)
    _answer(handler, request_fd, reply_fd)


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


def _answer(handler: Callable[[Message], Message], request_fd: int, reply_fd: int) -> None:
    buffer = bytearray()
    while chunk := os.read(request_fd, _CHUNK_BYTES):
        buffer += chunk
        if b"\n" not in chunk:
            continue
        body = json.loads(buffer)
        buffer.clear()
        if "request" not in body:
            return
        try:
            reply, last = handler(body["request"]), False
        except StopServing as stop:
            reply, last = stop.reply, True
        line = json.dumps({"id": body["id"], "reply": reply}, separators=(",", ":"), allow_nan=False)
        pending = memoryview(line.encode() + b"\n")
        while pending:
            pending = pending[os.write(reply_fd, pending) :]
        if last:
            return
