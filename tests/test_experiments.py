"""The shipped experiments: they run as they are, and the command line still has the last word."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sweeper.cli.app import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def swept(*arguments: str) -> list[dict[str, str]]:
    """The rows of a multirun in the emulator."""
    assert main(["-m", "backend=emulator", *arguments, "results_dir=out"]) == 0
    with Path("out/trials.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_tile_sweep_has_every_tile_at_every_shape() -> None:
    rows = swept("experiment=tile_sweep")
    found = sorted((r["kernel"], r["shape"], int(r["param_tile"])) for r in rows)
    assert found == [("tiled", shape, tile) for shape in ("odd", "small") for tile in (8, 16, 32)]
    assert {r["status"] for r in rows} == {"ok"}


def test_the_variants_stand_side_by_side_at_every_shape() -> None:
    rows = swept("experiment=variants")
    found = {(r["kernel"], r["shape"]) for r in rows}
    assert found == {(k, s) for k in ("naive", "tiled", "register_tile") for s in ("small", "odd")}
    assert {r["status"] for r in rows} == {"ok"}
    assert all(sum((r["kernel"], r["shape"]) == job for r in rows) <= 4 for job in found)


@pytest.mark.parametrize(
    ("arguments", "tiles"),
    [
        (["experiment=tile_sweep", "shape=tiny", "kernel.params.tile=16"], ["16"]),
        (["experiment=tile_sweep", "+shape=tiny", "+kernel.params.tile=8,32"], ["8", "32"]),
        (["experiment=variants", "kernel=tiled", "shape=tiny", "search=grid", "search.budget=1"], ["8"]),
    ],
)
def test_the_command_line_has_the_last_word(arguments: list[str], tiles: list[str]) -> None:
    found = [(r["kernel"], r["shape"], r["param_tile"]) for r in swept(*arguments)]
    assert found == [("tiled", "tiny", tile) for tile in tiles]


CONF = Path(__file__).parents[1] / "conf" / "experiment"


@pytest.mark.parametrize("name", ["llm", "roofline", "shape_sweep"])
def test_a_dry_run_of_an_experiment_says_what_it_would_search(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"experiment={name}", "backend=emulator", "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^\w+ at \S+: \d+ feasible of \d+ configurations", said, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda p: p.stem)
def test_an_experiment_says_what_it_is_and_how_it_is_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# @package _global_\n# ")
    assert f"python -m sweeper experiment={path.stem}" in text.replace(" -m experiment", " experiment")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda p: p.stem)
def test_the_kernels_and_shapes_that_an_experiment_names_are_shipped(path: Path) -> None:
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    params = node.get("hydra", {}).get("sweeper", {}).get("params", {})
    for group in ("kernel", "shape"):
        names = str(params.get(group, params.get(f"+{group}", ""))).split(",")
        shipped = {file.stem for file in (CONF.parent / group).glob("*.yaml")}
        assert {name.strip() for name in names if name} <= shipped


def test_the_shape_sweep_has_the_best_of_every_shape() -> None:
    swept("experiment=shape_sweep", "+shape=tiny,16x24x8", "kernel=tiled", "search.budget=2")
    with Path("out/best.csv").open(newline="", encoding="utf-8") as file:
        assert {row["shape"] for row in csv.DictReader(file)} == {"tiny", "16x24x8"}


def test_the_products_of_a_transformer_share_a_budget_by_their_weights(
    capsys: pytest.CaptureFixture[str],
) -> None:
    weights = yaml.safe_load((CONF / "llm.yaml").read_text(encoding="utf-8"))["shapes"]
    shapes = {path.stem for path in (CONF.parent / "shape").glob("llm_*.yaml")}
    assert set(weights) == shapes, "all of them"
    command = ["experiment=llm", "kernel=tiled", "~shapes", "shapes=[tiny,16x24x8]", "search.budget=4"]
    assert main([*command, "backend=emulator", "results_dir=out"]) == 0
    with Path("out/trials.csv").open(newline="", encoding="utf-8") as file:
        assert Counter(row["shape"] for row in csv.DictReader(file)) == {"tiny": 2, "16x24x8": 2}


def test_the_roofline_says_what_bounds_each_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    swept("experiment=roofline", "kernel=gemv,tiled", "+shape=1x256x512,64x64x512", "search.budget=1")
    said = capsys.readouterr().out
    assert "roofline of emulated NVIDIA H200" in said
    assert "they meet at 15.7 FLOP/B" in said
    text = Path("out/roofline.md").read_text(encoding="utf-8")
    row = re.search(r"\| gemv \| 1x256x512 \| (\S+) \| (\w+) \|", text)
    assert row
    assert float(row[1]) == pytest.approx(2 * 256 * 512 / (4 * (512 + 256 * 512 + 256)), rel=0.01)
    assert row[2] == "memory"
