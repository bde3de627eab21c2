"""A dry run: how many configurations there are, and the static model's favourites among them."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from specs import gemm_spec, launch

from sweeper.cli.dry_run import show_plan
from sweeper.device import target
from sweeper.errors import ConfigError, ExpressionError
from sweeper.expressions import parse
from sweeper.model import KernelSpec, WorkModel
from sweeper.problem import resolve
from sweeper.resources import resources
from sweeper.resources.feasible import feasible_space

H200 = target("h200")
DIMS = {"M": 512, "N": 384, "K": 96}
LEVELS = {"tile": (4, 8, 16, 32), "unroll": (1, 2, 4)}


def said(spec: KernelSpec) -> list[str]:
    out = io.StringIO()
    assert show_plan(spec, DIMS, "mine", H200, Console(file=out, width=200)) == 0
    return out.getvalue().splitlines()


def test_the_favourites_are_the_fastest_by_the_model_of_each_and_of_equals_the_first() -> None:
    spec = gemm_spec(params=LEVELS)
    space, problem = feasible_space(spec, DIMS, H200), resolve(spec, DIMS, spec.default_point, seed=0)
    times = []
    for row in range(len(space)):
        figures = resources(
            spec, space.point(row), DIMS, H200, flops=problem.flops, bytes=problem.bytes
        )  # fmt: skip
        assert figures.predicted_ms is not None
        times.append((figures.predicted_ms, row))
    title, *favourites = said(spec)
    assert title == f"tiled at mine: {len(space)} feasible of 12 configurations on {H200.name}"
    assert [line.partition("predicted  ")[2] for line in favourites] == [
        str(space.point(row)) for _, row in sorted(times)[:10]
    ]


def test_a_work_model_without_a_value_is_told() -> None:
    spec = gemm_spec(params=LEVELS, model=WorkModel(steps=parse("K // (tile - 8)")))
    with pytest.raises(ExpressionError, match=r"division by zero"):
        said(spec)


def test_a_launch_that_is_no_whole_number_is_told_with_its_configuration() -> None:
    spec = gemm_spec(params=LEVELS, launch=launch([32], ["N / (tile + unroll)"]))
    with pytest.raises(ConfigError, match=re.escape("tiled with tile=4 unroll=1: grid x = ")):
        said(spec)
