"""On a GPU: finalists timed in turns, by the loop and by the worker, and what one that fails does to the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_cuda_backend import QUICK, Gpu, act, gemm
from test_kernel import shipped
from test_tune import Ears, Memory

from sweeper.backend.base import Finalist, Rounds, Turns
from sweeper.build.source import translation_unit
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device.present import why_no_gpu
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.description import load
from sweeper.model import Confirmed, Point, Role
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.statistics import Verdict, paired_log_ratio, verdict
from sweeper.table.confirmed import confirmed_frame
from sweeper.table.standings import standings
from sweeper.tune import Study, confirm, tune
from sweeper.worker.finals import turns_of

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))

DIMS = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture
def gpu(tmp_path: Path) -> Any:
    made = Gpu(tmp_path)
    yield made
    made.worker.close()


class Keeper(Memory):
    """Remembers confirmations too."""

    kept: tuple[Confirmed, ...] = ()

    def confirmed(self) -> list[Confirmed]:
        return list(self.kept)

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        self.kept = tuple(confirmed)


def acts(gpu: Gpu, *names: str) -> tuple[Turns, ...]:
    """The turns of the GEMM's acts of these names."""
    spec = gemm(gpu, dims={"M": 512, "N": 512, "K": 512}).spec
    assert spec is not None

    def finalist(params: Mapping[str, Any]) -> Finalist:
        point = Point.of(dict(params))
        unit = translation_unit(spec, point)
        return Finalist(point, gpu.builder.build(unit, arch=gpu.target.arch, deadline_s=120))

    finalists = [finalist(act(name)) for name in names]
    return turns_of(gpu.worker, finalists, QUICK, Rounds(8, seed=3))


def test_a_configuration_is_not_told_from_itself(gpu: Gpu) -> None:
    first, second = acts(gpu, "right", "right")
    assert len(first.times_ms) == len(second.times_ms) == 8
    assert verdict(paired_log_ratio(first.times_ms, second.times_ms)) in (Verdict.SAME, Verdict.UNSURE)


def test_wrong_results_are_reported_and_the_others_are_timed(gpu: Gpu) -> None:
    right, half, memory, other = acts(gpu, "right", "half", "from_memory", "prints")
    assert "wrong" in half.reason
    assert "negated" in memory.reason, "found by the launch after the last block"
    assert len(right.times_ms) == len(other.times_ms) == 8


def test_one_that_kills_its_context_is_left_out(gpu: Gpu) -> None:
    right, deadly, other = acts(gpu, "right", "illegal_address", "prints")
    assert "illegal" in deadly.reason
    assert len(right.times_ms) == len(other.times_ms) == 8
    assert gpu.worker.restarts >= 1


def test_a_search_ends_with_a_winner_and_verdicts_against_default_and_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    path = conf_dir() / "kernel" / "register_tile.yaml"
    spec = load(shipped(path), path)
    measure = MeasureConfig()
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=measure,
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler="nvrtc"),
    )
    with closing(LiveEvaluator("cuda", config, print)) as world:
        world.prepare(spec, DIMS, 1)
        problem = resolve(spec, DIMS, spec.default_point, seed=1)
        protocol = measure.conditions()
        study = Study(spec, DIMS, "1024", 1, problem.flops, problem.bytes, world, protocol)
        space = feasible_space(spec, DIMS, world.target)
        keeper = Keeper()
        strategy = make("random", space, 1)
        tally = tune(
            study,
            space,
            lambda: strategy,
            keeper,
            Ears(keeper),
            budget=8,
            lookahead=4,
            baselines=("cublas",),
        )
        found = confirm(study, space, tally, keeper, finalists=3, blocks=12, least_effect=0.01)
        again = confirm(study, space, tally, keeper, finalists=3, blocks=12, least_effect=0.01)
    assert found.why_not == ""
    assert [one.reason for one in found.confirmed] == [""] * len(found.confirmed)
    assert {len(one.blocks_ms) for one in found.confirmed} == {12}
    assert found.confirmed == keeper.kept
    assert again.reused
    assert again.confirmed == found.confirmed
    (winner,) = (standing for standing in standings(found.confirmed) if standing.is_winner)
    assert winner.confirmed.registers
    assert winner.against is not None
    assert {"default", "cublas"} - set(winner.against) <= {"default"}
    library = winner.against["cublas"]
    assert 0.2 < library.ratio.ratio < 20
    assert library.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
    table = confirmed_frame(found.confirmed)
    assert table["winner"].sum() == 1
    assert set(table["role"]) >= {"default", Role.BASELINE.value}
