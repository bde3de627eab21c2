"""The shipped experiments: they run as they are, and the command line still has the last word."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

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
