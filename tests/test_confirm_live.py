"""The world in which finalists are built again and timed in turns, and the worlds in which nothing is timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from specs import gemm_spec
from test_confirm import Turning
from test_evaluate import DIMS, StubBuilder, config

from sweeper.backend.base import Finalist, Rounds, Turns
from sweeper.errors import TrialFailed
from sweeper.evaluate import LiveEvaluator, live
from sweeper.model import Build, Point, Stage, Status

POINTS = [Point.of({"tile": tile}) for tile in (8, 16)]


class Worker(Turning):
    """A device whose finalists each take as many ms as their tile."""

    def __init__(self, backend: str, *, device: int, **_: Any) -> None:
        super().__init__(device)

    def confirm(self, finalists: Any, protocol: Any, rounds: Rounds) -> tuple[Turns, ...]:
        return tuple(Turns((float(f.point.params["tile"]),) * rounds.count) for f in finalists)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> StubBuilder:
    made = StubBuilder({})
    monkeypatch.setattr(live, "DeviceWorker", Worker)
    monkeypatch.setattr(live, "make_builder", lambda *_, **__: made)
    return made


@pytest.fixture
def world(builder: StubBuilder, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveEvaluator]:
    source = tmp_path / "tiled.cu"
    source.write_text(
        "template <typename T, int tile> __global__ void matmul(const T*, const T*, T*, int);\n"
    )
    made = LiveEvaluator(getattr(request, "param", "cuda"), config(), devices=(0, 1))
    made.prepare(replace(gemm_spec(), source=source), DIMS, 1)
    yield made
    made.close()


def test_finalists_are_built_again_and_timed_on_one_device(world: LiveEvaluator) -> None:
    finalists = world.finalists(POINTS)
    assert [f.point for f in finalists if isinstance(f, Finalist)] == POINTS
    world.ready()
    answer = world.confirm([f for f in finalists if isinstance(f, Finalist)], Rounds(4))
    assert answer is not None
    turns, device = answer
    assert [one.times_ms for one in turns] == [(8.0,) * 4, (16.0,) * 4]
    assert device in world.devices
    assert device.uuid, "several serve the search, but one ran the finalists"


def test_one_that_cannot_be_built_again_says_why(
    world: LiveEvaluator, builder: StubBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = builder.build

    def refuses(unit: Any, **options: Any) -> Build:
        if "16" in unit.template_args:
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, "no space left")
        return build(unit, **options)

    monkeypatch.setattr(builder, "build", refuses)
    first, second = world.finalists(POINTS)
    assert isinstance(first, Finalist)
    assert isinstance(second, TrialFailed)
    assert second.reason == "no space left"


def test_one_that_no_longer_fits_the_device_says_why(world: LiveEvaluator, builder: StubBuilder) -> None:
    builder.figures["registers"] = 255
    builder.figures["static_shared_bytes"] = 300_000
    (refused,) = world.finalists(POINTS[:1])
    assert isinstance(refused, TrialFailed)
    assert refused.status is Status.INFEASIBLE


@pytest.mark.parametrize("world", ["emulator"], indirect=True)
def test_the_emulator_times_nothing(world: LiveEvaluator) -> None:
    assert world.confirm([Finalist(POINTS[0])], Rounds(4)) is None
