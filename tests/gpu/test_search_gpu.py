"""On a GPU: a whole search, built by either compiler, measured while the next ones build."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from test_kernel import shipped
from test_tune import Ears, Memory

from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.description import load
from sweeper.model import Role, Status, TimeSource
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.table.row import time_ms
from sweeper.tune import STOPPED, Study, Tally, tune

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))

DIMS = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))


def search(
    devices: tuple[int, ...] = (0,), compiler: str = "nvrtc", budget: int = 8, **measure: Any
) -> Tally:
    path = conf_dir() / "kernel" / "register_tile.yaml"
    spec = load(shipped(path), path)
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=MeasureConfig(**measure),
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler=compiler),
    )
    with closing(LiveEvaluator("cuda", config, print, devices=devices)) as world:
        world.prepare(spec, DIMS, 1)
        problem = resolve(spec, DIMS, spec.default_point, seed=1)
        study = Study(spec, DIMS, "1024", 1, problem.flops, problem.bytes, world, asdict(config.measure))
        space = feasible_space(spec, DIMS, world.target)
        memory = Memory()
        strategy = make("random", space, 1)
        return tune(study, space, lambda: strategy, memory, Ears(memory), budget=budget, lookahead=4)


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_configurations_are_built_proved_right_and_timed(compiler: str) -> None:
    tally = search(compiler=compiler)
    candidates = [t for t in tally.trials if t.role is Role.CANDIDATE]
    assert [t.status for t in candidates] == [Status.OK] * 8, [t.reason for t in candidates]
    assert all(t.time_source is TimeSource.MEASURED and t.device_uuid for t in candidates)
    assert all(t.build is not None and t.build.compiler.startswith(compiler) for t in candidates)
    assert all(t.measure_s and t.measure_s > 0 for t in candidates)


def test_where_the_time_went_is_known() -> None:
    seconds = search().seconds
    assert 0 < sum(seconds["device_busy"]) <= seconds["total"]
    assert {"load", "verify", "measure"} <= set(seconds["phases"])


def test_what_cannot_win_is_not_sampled_in_full() -> None:
    tally = search(budget=20, stop_factor=1.2, min_samples=40, max_samples=40)
    timed = [t for t in tally.trials if t.role is Role.CANDIDATE and t.timing is not None]
    stopped = [t for t in timed if STOPPED in t.details]
    assert stopped
    assert min(len(t.timing.samples_ms) for t in stopped if t.timing) < 40
    best = min(timed, key=lambda t: time_ms(t) or 1e9)
    assert best.timing is not None
    assert len(best.timing.samples_ms) == 40


@pytest.mark.skipif(not why_no_gpu(ask=False) and count_gpus() < 2, reason="one GPU")
def test_two_gpus_share_one_search() -> None:
    tally = search(devices=(0, 1), budget=12)
    assert len({t.device_uuid for t in tally.trials if t.role is Role.CANDIDATE}) == 2
    assert all(t.status is Status.OK for t in tally.trials), [t.reason for t in tally.trials]
