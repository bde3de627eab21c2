"""The parent's side of a private channel: a child process that answers, or fails in a way that says how."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sweeper.errors import SetupError, SweeperError
from sweeper.process.child_output import ChildOutput
from sweeper.process.serving import CHANNEL

__all__ = ["Child", "ChildDied", "ChildError", "ChildTimeout", "ChildUnkillable"]

Message = dict[str, Any]

_CHUNK_BYTES = 1 << 16
_POLL_S = 0.1
# A driver takes its time with a process whose kernel prints without end: more than 5 s were seen on an H200.
_REAP_S = 60.0
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


class ChildError(SweeperError):
    """A child process did not answer. `output` is the end of what it printed, errors last."""

    def __init__(self, message: str, *, output: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.output = output


class ChildTimeout(ChildError):
    """No reply before the deadline; the child's whole group has been killed."""


class ChildDied(ChildError):
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


class ChildUnkillable(ChildError):
    """The child outlived SIGKILL: it hangs inside the system, in a driver as a rule."""


class Child:
    """One `python -m module` and the parent's end of its channel. Not safe for threads, but for `end_group`."""

    def __init__(
        self,
        module: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        reap_s: float = _REAP_S,
    ) -> None:
        self.module = module
        self.args = tuple(args)
        self.env = dict(env or {})
        self.name = name or module
        self.reap_s = reap_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: ChildOutput | None = None
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
        self._output = ChildOutput(self.name, streams)
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

    def end_group(self) -> None:
        """Send SIGKILL to the whole group; a request that waits meanwhile raises ChildDied.

        The one method that another thread may call.
        """
        process = self._process
        if process is not None:
            # Not yet waited for, so the leader's id, and with it the group's, cannot be anybody else's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the whole group now and free its pipes. Raises ChildUnkillable if it will not end."""
        process = self._process
        if process is None:
            return
        self.end_group()
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
        env = {**os.environ, **self.env, CHANNEL: f"{request_fd},{reply_fd}"}
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
