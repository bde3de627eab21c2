"""A pretended CUDA graph API beside `fake_pycuda`: what is queued while a stream records is replayed later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fake_pycuda import FakeDriver

from sweeper.backend.cuda.graph import GraphError


@dataclass
class FakeGraphApi:
    """`GraphApi` on a pretended driver. `refuse` names the call that fails; `live` are executables not given back."""

    driver: FakeDriver
    refuse: str = ""
    gap_ms: float = 0.0005
    live: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    recorded: int = 0
    launched: int = 0
    _graphs: dict[int, list[Callable[[], None]]] = field(default_factory=dict)

    def _may(self, call: str) -> None:
        self.driver.host_ms += self.driver.call_ms
        if call == self.refuse:
            raise GraphError(f"{call}: CUDA_ERROR_PRETENDED")
        if self.driver.lost:
            raise GraphError(f"{call}: {self.driver.lost}")

    def begin(self, stream: int) -> None:
        self._may("begin")
        assert self.driver.recording is None, "the stream records already"
        self.driver.recording = []

    def end(self, stream: int) -> int:
        nodes, self.driver.recording = self.driver.recording, None
        assert nodes is not None, "the stream does not record"
        self._may("end")
        self.recorded += 1
        self._graphs[self.recorded] = nodes
        return self.recorded

    def instantiate(self, graph: int) -> int:
        self._may("instantiate")
        self.live[graph] = self._graphs[graph]
        return graph

    def upload(self, executable: int, stream: int) -> None:
        self._may("upload")

    def launch(self, executable: int, stream: int) -> None:
        self._may("launch")
        self.launched += 1
        for node in self.live[executable]:
            node()

    def destroy(self, graph: int) -> None:
        del self._graphs[graph]

    def destroy_executable(self, executable: int) -> None:
        del self.live[executable]
