"""The profiled process: one launch between the profiler's start and stop, and a reply that says how it went."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_rig import kernel_in
from cubins import Figures, cubin
from cuda_rig import Rig, make_rig, product
from fake_pycuda import Behaviour, Lost, Memory

from sweeper.backend.cuda import cublas_baselines
from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.cublas_baselines import Contender
from sweeper.model import Build, Stage, Status
from sweeper.problem import Problem
from sweeper.profile import target
from sweeper.profile.request import Reply, Request
from sweeper.wire import from_wire, to_wire

DIMS = {"M": 12, "N": 10, "K": 8}


class Profiled:
    """A pretended GPU whose profiler's marks and launches are noted in `seen`."""

    def __init__(self, folder: Path, rig: Rig) -> None:
        self.folder, self.rig = folder, rig
        self.seen: list[str] = []
        self.outputs: list[np.ndarray] = []
        driver: Any = rig.driver
        driver.start_profiler = lambda: self.seen.append("start")
        driver.stop_profiler = lambda: self.seen.append("stop")

    def kernel(self, memory: Memory, a: int, b: int, c: int, m: int, n: int, k: int) -> None:
        self.seen.append("launch")
        self.outputs.append(memory.array(c, (m, n), np.float32).copy())
        product(memory, a, b, c, m, n, k)

    def run(self, does: Callable[..., None] | None = None, **changes: Any) -> tuple[int, Reply]:
        self.rig.driver.behaviours["product"] = Behaviour(does or self.kernel)
        kernel_in(self.folder)
        image = self.folder / "kernel.cubin"
        image.write_bytes(cubin({"product": Figures()}))
        path = self.folder / "mine.yaml"
        given: dict[str, Any] = {
            "kernel": json.dumps(yaml.safe_load(path.read_text())),
            "path": path,
            "dims": DIMS,
            "seed": 42,
            "params": {"block": 16},
            "build": Build("key", "nvcc", image, "product", "nvcc 13"),
            **changes,
        }
        request, reply = self.folder / "request.json", self.folder / "reply.json"
        request.write_text(json.dumps(to_wire(Request(**given))))
        code = target.main([str(request), str(reply)])
        return code, from_wire(Reply, json.loads(reply.read_text()))


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    return Profiled(tmp_path, make_rig(tmp_path, monkeypatch))


def test_one_launch_is_seen_after_one_that_is_proved_right(profiled: Profiled) -> None:
    code, reply = profiled.run()
    assert (code, reply.error) == (0, "")
    assert profiled.seen == ["launch", "start", "launch", "stop"]


def test_the_seen_launch_finds_its_output_as_a_checked_one_would(profiled: Profiled) -> None:
    profiled.run()
    assert all(np.isnan(output).all() for output in profiled.outputs)


def test_a_library_is_launched_in_place_of_the_build(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own first choice, and proved right as well."""

    class Libraries:
        def __init__(self, device: object) -> None: ...

        @contextlib.contextmanager
        def contenders(
            self, library: str, problem: Problem, arguments: Arguments
        ) -> Iterator[list[Contender]]:
            memory = profiled.rig.driver.memory

            def first(given: Arguments) -> None:
                profiled.seen.append(library)
                product(memory, *(given.arrays[name].pointer for name in "ABC"), *problem.dims.values())

            yield [Contender(first, "", {}), Contender(lambda given: None, "", {})]
            profiled.seen.append("given back")

    monkeypatch.setattr(cublas_baselines, "Baselines", Libraries)
    code, reply = profiled.run(library="cublas", build=None)
    assert (code, reply.error) == (0, "")
    assert profiled.seen == ["cublas", "start", "cublas", "stop", "given back"]


def test_a_wrong_result_is_not_profiled(profiled: Profiled) -> None:
    code, reply = profiled.run(lambda memory, *numbers: None)
    assert (code, reply.status, reply.stage) == (3, Status.WRONG_RESULT, Stage.VERIFY)
    assert "start" not in profiled.seen


def test_a_failed_configuration_replies_with_its_status_and_reason(profiled: Profiled) -> None:
    def illegal(memory: Memory, *numbers: int) -> None:
        raise Lost("an illegal memory access was encountered")

    code, reply = profiled.run(illegal)
    assert (code, reply.kind, reply.status, reply.stage) == (3, "TrialFailed", Status.CRASH, Stage.LAUNCH)
    assert "illegal memory access" in reply.error
    assert "start" not in profiled.seen


def test_a_device_that_is_not_there_replies_with_the_set_up_s_error(profiled: Profiled) -> None:
    code, reply = profiled.run(device=3)
    assert (code, reply.kind, reply.status) == (3, "SetupError", None)
    assert "no CUDA device 3" in reply.error


def test_a_request_for_nothing_is_refused(profiled: Profiled) -> None:
    code, reply = profiled.run(build=None)
    assert code == 3
    assert "neither a build nor a library" in reply.error
