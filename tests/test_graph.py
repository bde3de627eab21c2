"""Recording launches into a graph: what was queued is replayed, and nothing is left behind when it fails."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
from fake_graphs import FakeGraphApi
from fake_pycuda import FakeDriver

from sweeper.backend.cuda import graph as graph_module
from sweeper.backend.cuda.graph import GraphError, Graphs, _Libcuda, load_graph_api

STREAM = 0x5EA


@pytest.fixture
def api() -> FakeGraphApi:
    return FakeGraphApi(FakeDriver())


def graphs(api: FakeGraphApi) -> Graphs:
    return Graphs(STREAM, lambda: api)


def test_what_is_queued_while_recording_runs_at_each_replay_and_not_before(api: FakeGraphApi) -> None:
    done: list[int] = []
    nodes = [lambda: done.append(1), lambda: done.append(2)]
    with graphs(api).record(lambda: api.driver.recording.extend(nodes)) as graph:
        assert done == []
        graph.launch()
        graph.launch()
    assert done == [1, 2, 1, 2]
    assert not api.live


def test_closing_twice_gives_back_once(api: FakeGraphApi) -> None:
    graph = graphs(api).record(lambda: None)
    graph.close()
    graph.close()
    assert not api.live


@pytest.mark.parametrize("call", ["begin", "end", "instantiate", "upload"])
def test_a_call_that_fails_leaves_no_graph_and_a_stream_that_works(api: FakeGraphApi, call: str) -> None:
    recorder = graphs(api)
    api.refuse = call
    with pytest.raises(GraphError, match=call):
        recorder.record(lambda: None)
    assert api.driver.recording is None
    assert not api.live
    assert not api._graphs
    api.refuse = ""
    recorder.record(lambda: None).close()


def test_a_launch_that_fails_while_recording_ends_the_recording(api: FakeGraphApi) -> None:
    def refused() -> None:
        raise RuntimeError("cuLaunchKernel failed: not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        graphs(api).record(refused)
    assert api.driver.recording is None
    assert not api._graphs


class Library:
    """`libcuda` as ctypes gives it: every function takes its arguments and gives a status."""

    def __init__(self, **statuses: int) -> None:
        self.statuses = statuses
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
            elif name in ("cuStreamEndCapture", "cuGraphInstantiateWithFlags"):
                out = next(a._obj for a in arguments if hasattr(a, "_obj"))
                out.value = 0xABC
            return self.statuses.get(name, 0)

        return call


def test_the_driver_is_called_in_the_order_that_it_asks_for() -> None:
    library = Library()
    with Graphs(STREAM, lambda: _Libcuda(library)).record(lambda: library.called.append("launches")) as graph:
        graph.launch()
    assert library.called == [
        "cuStreamBeginCapture_v2",
        "launches",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphUpload",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
    ]


def test_an_error_of_the_driver_says_which_call_and_its_name() -> None:
    library = Library(cuStreamBeginCapture_v2=900)
    with pytest.raises(GraphError, match="cuStreamBeginCapture_v2: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        Graphs(STREAM, lambda: _Libcuda(library)).record(lambda: None)


@pytest.mark.parametrize("library", [None, SimpleNamespace()])
def test_without_a_driver_or_with_an_old_one_there_are_no_graphs(
    monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    def load(name: str) -> object:
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    monkeypatch.setattr(graph_module.ctypes, "CDLL", load)
    with pytest.raises(GraphError):
        load_graph_api()
    assert ctypes.CDLL is load
