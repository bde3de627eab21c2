"""What a child process prints: drained for ever, the last of it kept."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Sequence
from typing import IO

__all__ = ["ChildOutput"]

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 1 << 16


class ChildOutput(threading.Thread):
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
        if len(tail) > _TAIL_BYTES:
            # A line that lost its beginning would be read as another one.
            del tail[: max(len(tail) - _TAIL_BYTES, tail.find(b"\n", len(tail) - _TAIL_BYTES) + 1)]

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
