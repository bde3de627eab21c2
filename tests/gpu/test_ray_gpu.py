"""On two GPUs: one search on a Ray cluster of this host, an actor for each, against the same on one host alone."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from cluster_rig import descendants
from test_kernel import shipped
from test_tune import Ears, Memory

from sweeper.config import BackendConfig, BuildConfig, Config, EngineConfig, MeasureConfig, ShapeConfig
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.evaluate import make_evaluator
from sweeper.kernel.description import load
from sweeper.model import Role, Status
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.tune import Study, Tally, tune

pytest.importorskip("ray", reason="pip install 'ray>=2.40'")

pytestmark = [
    pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True))),
    pytest.mark.skipif(not why_no_gpu(ask=False) and count_gpus() < 2, reason="one GPU"),
]

DIMS = {"M": 1024, "N": 1024, "K": 1024}
HERE = EngineConfig(name="ray")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))


class Killing(Ears):
    """Kills an actor once, in the middle of the search."""

    killed = 0

    def finished(self, trial: object, *, reused: bool) -> None:
        super().finished(trial, reused=reused)  # type: ignore[arg-type]
        if len(self.heard) == 4 and not self.killed:
            actors = [pid for pid, title in descendants(os.getpid()) if title.startswith("ray::DeviceActor")]
            os.kill(actors[0], signal.SIGKILL)
            self.killed = actors[0]


def search(engine: EngineConfig, *, devices: tuple[int, ...] | None = None, kills: bool = False) -> Tally:
    path = conf_dir() / "kernel" / "register_tile.yaml"
    spec = load(shipped(path), path)
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        backend=BackendConfig(name="cuda", devices=devices),
        build=BuildConfig(compiler="nvrtc"),
        engine=engine,
    )
    with closing(make_evaluator(config, print, (spec, DIMS, 1))) as world:
        problem = resolve(spec, DIMS, spec.default_point, seed=1)
        study = Study(spec, DIMS, "1024", 1, problem.flops, problem.bytes, world, asdict(MeasureConfig()))
        space = feasible_space(spec, DIMS, world.target)
        memory = Memory()
        ears = Killing(memory) if kills else Ears(memory)
        strategy = make("random", space, 1)
        tally = tune(
            study, space, lambda: strategy, memory, ears, budget=16, lookahead=8, baselines=("cublas",)
        )
        assert not kills or getattr(ears, "killed", 0)
        return tally


@pytest.fixture(scope="module")
def uuids() -> set[str]:
    """Those of this host's GPUs, as a search without Ray tells them."""
    return {trial.device_uuid for trial in search(EngineConfig(), devices=tuple(range(count_gpus()))).trials}


@pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "an actor killed"])
def test_two_gpus_of_a_cluster_share_one_search(uuids: set[str], kills: bool) -> None:
    tally = search(HERE, kills=kills)
    candidates = [t for t in tally.trials if t.role is Role.CANDIDATE]
    assert len({t.point.key for t in candidates}) == len(candidates) == 16
    assert all(t.status is Status.OK for t in tally.trials), [t.reason for t in tally.trials]
    assert {t.device_uuid for t in candidates} == uuids
    assert len(uuids) == count_gpus()


def test_its_rows_have_the_context_of_one_host() -> None:
    alone, cluster = search(EngineConfig(), devices=(0, 1)), search(EngineConfig(name="ray", gpus=2))
    assert {t.context for t in alone.trials} == {t.context for t in cluster.trials}
    assert [t.point.key for t in alone.trials] == [t.point.key for t in cluster.trials]
