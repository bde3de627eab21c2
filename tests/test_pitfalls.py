"""The pitfalls: right in the emulator, alike but for the mistake, and described by figures that exist."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.register_assert_rewrite("contract.pitfalls_contract")

from contract.pitfalls_contract import PITFALLS, PitfallsContract  # noqa: E402

from sweeper.build.cache import BuildCache  # noqa: E402
from sweeper.build.nvcc import NvccBuilder  # noqa: E402
from sweeper.build.source import translation_unit  # noqa: E402
from sweeper.check import check_kernel  # noqa: E402
from sweeper.check.compose import Composer  # noqa: E402
from sweeper.device import TARGETS, target  # noqa: E402
from sweeper.lessons import Pitfall, why_no_report  # noqa: E402
from sweeper.model import KernelSpec, Point  # noqa: E402
from sweeper.paths import conf_dir  # noqa: E402
from sweeper.profile.execution_rules import WAITS  # noqa: E402
from sweeper.profile.figures import FIGURES  # noqa: E402
from sweeper.resources import resources  # noqa: E402
from sweeper.resources.feasible import feasible_space  # noqa: E402
from sweeper.table import COLUMNS  # noqa: E402

LARGE = {"M": 4096, "N": 4096, "K": 4096, "LDA": 4096, "LDB": 4096, "LDC": 4096}
EACH = pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda p: p.kernel)


class TestPitfallsEmulated(PitfallsContract):
    backend = "emulator"


def described(pitfall: Pitfall) -> KernelSpec:
    with Composer() as composer:
        return composer.compose([f"kernel={pitfall.kernel}"])[0]


def test_the_experiment_runs_every_kernel_that_it_has_a_pair_of() -> None:
    with Composer() as composer:
        kernels = {name for name in composer.kernels if name.startswith("pitfall_")}
    assert {pitfall.kernel for pitfall in PITFALLS} == kernels
    assert not why_no_report("pitfalls", PITFALLS)


@EACH
def test_a_pair_is_all_of_its_kernels_space(pitfall: Pitfall) -> None:
    """Both sides have the same tile: only the mistake differs, and one other thing never."""
    spec = described(pitfall)
    varied = [param for param in spec.params if len(param.levels) > 1]
    assert [param.name for param in varied] == list(pitfall.spoiled) == list(pitfall.sound)
    (param,) = varied
    assert set(param.levels) == {pitfall.spoiled[param.name], pitfall.sound[param.name]}
    assert param.default == pitfall.sound[param.name]


@EACH
@pytest.mark.parametrize("gpu", sorted(TARGETS))
def test_both_sides_can_be_launched_on_every_gpu(pitfall: Pitfall, gpu: str) -> None:
    assert len(feasible_space(described(pitfall), LARGE, target(gpu))) == 2


@EACH
def test_the_figures_that_show_a_mistake_exist(pitfall: Pitfall) -> None:
    stall = pitfall.counter.removeprefix("stall_")
    assert pitfall.counter in {figure.name for figure in FIGURES} or stall in WAITS
    assert pitfall.static in {"", *(column.name for column in COLUMNS)}
    assert pitfall.look


@EACH
def test_the_static_model_never_takes_a_mistake_for_a_gain(pitfall: Pitfall) -> None:
    spec = described(pitfall)
    space = feasible_space(spec, LARGE, target("h200"))
    times = {}
    for row in range(len(space)):
        point = space.point(row)
        figures = resources(spec, point, LARGE, target("h200"), flops=2 * 4096**3, bytes=3 * 4 * 4096**2)
        times[point.params[next(iter(pitfall.spoiled))]] = figures.predicted_ms
    (name,) = pitfall.spoiled
    assert times[pitfall.spoiled[name]] >= times[pitfall.sound[name]] > 0


@EACH
def test_a_pitfall_is_clean_in_check_mode(pitfall: Pitfall) -> None:
    """No race and no order that matters, on either side: slow is all that a mistake here may be."""
    report = check_kernel(conf_dir() / "kernel" / f"{pitfall.kernel}.yaml", configurations=2, shapes_each=2)
    assert report.clean, str(report)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_only_the_spoiled_side_spills_and_only_where_that_is_the_mistake(tmp_path: Path, arch: str) -> None:
    builder = NvccBuilder(BuildCache(tmp_path))
    found = {}
    try:
        for pitfall in PITFALLS:
            spec = described(pitfall)
            for side in ("spoiled", "sound"):
                point = Point.of({**spec.default_point.params, **getattr(pitfall, side)})
                built = builder.build(translation_unit(spec, point), arch=arch, deadline_s=120)
                assert built.spill_bytes is not None
                found[pitfall.kernel, side] = built.spill_bytes
    finally:
        builder.close()
    assert {key for key, spilled in found.items() if spilled} == {("pitfall_spills", "spoiled")}
