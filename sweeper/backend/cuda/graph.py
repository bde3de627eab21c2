"""CUDA graphs: launches recorded once and replayed by a single call, without the host in between.

The driver's own functions through ctypes, on the handle of PyCUDA's stream. A stream that records starts
nothing, so whatever is queued meanwhile is a node of the graph, in the order of the stream (CUDA Driver
API, "Stream Management" and "Graph Management").
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, Protocol, Self

__all__ = ["Graph", "GraphApi", "GraphError", "Graphs", "load_graph_api"]

# CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do is no reason to refuse.
_THREAD_LOCAL = 1


class GraphError(Exception):
    """The driver cannot record or replay; the text says which call and why."""


class GraphApi(Protocol):
    """The part of the driver that is used: handles are integers, a failing call raises GraphError."""

    def begin(self, stream: int) -> None: ...
    def end(self, stream: int) -> int: ...
    def instantiate(self, graph: int) -> int: ...
    def upload(self, executable: int, stream: int) -> None: ...
    def launch(self, executable: int, stream: int) -> None: ...
    def destroy(self, graph: int) -> None: ...
    def destroy_executable(self, executable: int) -> None: ...


class _Libcuda:
    """The driver's library, which is in the process already where PyCUDA is."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def _call(self, name: str, *args: Any) -> None:
        status = int(getattr(self._library, name)(*args))
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            told = text.value.decode() if text.value else f"error {status}"
            raise GraphError(f"{name}: {told}")

    def begin(self, stream: int) -> None:
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(_THREAD_LOCAL))

    def end(self, stream: int) -> int:
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        return graph.value or 0

    def instantiate(self, graph: int) -> int:
        executable = ctypes.c_void_p()
        flags = ctypes.c_ulonglong(0)
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), ctypes.c_void_p(graph), flags)
        return executable.value or 0

    def upload(self, executable: int, stream: int) -> None:
        self._call("cuGraphUpload", ctypes.c_void_p(executable), ctypes.c_void_p(stream))

    def launch(self, executable: int, stream: int) -> None:
        self._call("cuGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))

    def destroy(self, graph: int) -> None:
        self._call("cuGraphDestroy", ctypes.c_void_p(graph))

    def destroy_executable(self, executable: int) -> None:
        self._call("cuGraphExecDestroy", ctypes.c_void_p(executable))


def load_graph_api() -> GraphApi:
    """Raises GraphError where the driver is not there, or older than CUDA 11.4."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuGraphInstantiateWithFlags  # noqa: B018 - the newest of the functions
    except (OSError, AttributeError) as error:
        raise GraphError(str(error)) from None
    return _Libcuda(library)


class Graph:
    """A recorded sequence of launches, ready to be queued as one. Close it before its arrays are freed."""

    def __init__(self, api: GraphApi, stream: int, executable: int) -> None:
        self._api = api
        self._stream = stream
        self._executable = executable

    def launch(self) -> None:
        """Queue the whole sequence once. Raises GraphError."""
        self._api.launch(self._executable, self._stream)

    def close(self) -> None:
        """Give it back; nothing of it may be in flight. An error of the driver is of no consequence here."""
        if self._executable:
            executable, self._executable = self._executable, 0
            with contextlib.suppress(GraphError):
                self._api.destroy_executable(executable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Graphs:
    """Records what is queued on one stream; the driver's functions are looked up at the first recording."""

    def __init__(self, stream: int, load: Callable[[], GraphApi] | None = None) -> None:
        self._stream = stream
        self._load = load
        self._api: GraphApi | None = None

    def record(self, queue: Callable[[], object]) -> Graph:
        """What `queue` queues on the stream, which must be idle of other recordings.

        Raises GraphError where the driver refuses, whatever `queue` raises once the recording has ended.
        """
        if self._api is None:
            self._api = (self._load or load_graph_api)()
        api = self._api
        api.begin(self._stream)
        try:
            queue()
        except BaseException:
            self._abandon(api)
            raise
        graph = api.end(self._stream)
        try:
            executable = api.instantiate(graph)
        finally:
            api.destroy(graph)
        ready = Graph(api, self._stream, executable)
        try:
            api.upload(executable, self._stream)
        except GraphError:
            ready.close()
            raise
        return ready

    def _abandon(self, api: GraphApi) -> None:
        """End a recording that failed, so that the stream works again."""
        with contextlib.suppress(GraphError):
            graph = api.end(self._stream)
            if graph:
                api.destroy(graph)
