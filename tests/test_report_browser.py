"""The report in a real browser, where one is found: it draws every figure and complains of nothing."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from report_rig import evil_results, predicted, stored

from sweeper.report import write_report

pytest.importorskip("plotly")

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium: CHROMIUM names one, or PATH has one")


@dataclass
class Seen:
    """A page after its script has run: its elements as text, what it drew, and what the console said."""

    dom: str
    figures: dict[str, dict[str, Any]]
    errors: list[str]
    console: list[str]


def browse(page: Path, profile: Path, theme: str = "light") -> Seen:
    """Open `page` with all figures drawn; nothing but the file itself can be reached."""
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--virtual-time-budget=20000",
            "--window-size=1280,2000", "--dump-dom", f"{page.as_uri()}#draw=all&theme={theme}",
        ],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    root = re.search(r"<html[^>]*>", done.stdout)
    assert root, done.stderr[-2000:]
    found = {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', root[0])}
    assert found.get("data-ready") == "true", done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen(done.stdout, json.loads(found["data-figures"]), json.loads(found["data-errors"]), console)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The recorded course of rungs on an H200."""
    folder = tmp_path_factory.mktemp("ladder")
    written = write_report([ROOT / "results" / "h200" / "ladder-course"], folder, figures=False)
    return browse(written.page, folder / "profile")


def test_nothing_is_complained_of(ladder: Seen) -> None:
    assert ladder.console == []
    assert ladder.errors == []


def test_every_figure_has_data_or_says_why_not(ladder: Seen) -> None:
    with_data = {name for name, figure in ladder.figures.items() if figure["points"] > 0}
    assert with_data >= {"kernels", "roofline", "progress", "levels", "parallel", "pair", "samples", "clocks"}
    without = {name: figure for name, figure in ladder.figures.items() if name not in with_data}
    assert all(figure.get("none") or figure.get("hidden") for figure in without.values())


def test_axes_have_titles_with_units(ladder: Seen) -> None:
    titles = {
        html.unescape(t) for t in re.findall(r'<text class="[xy]\d*title"[^>]*>([^<]*)</text>', ladder.dom)
    }
    assert {
        "rate (GFLOP/s)",
        "arithmetic intensity (FLOP/B)",
        "time a launch (ms)",
        "evaluations, in the order asked",
        "SM clock (MHz)",
        "power (W)",
        "temperature (°C)",
    } <= titles


def test_figures_are_told_to_those_who_do_not_see_them(ladder: Seen) -> None:
    told = [html.unescape(text) for text in re.findall(r'aria-label="([^"]*)"', ladder.dom)]
    assert len(told) >= 8
    assert any("tma_pipeline 55,085 · 2.495 ms" in text and "cuBLAS at 51,266" in text for text in told)


def test_nothing_offers_to_send_results_away(ladder: Seen) -> None:
    assert "Download plot" in ladder.dom
    assert "Share" not in ladder.dom
    assert "cloud.plotly" not in ladder.dom


def test_in_the_dark_and_with_hostile_names_it_draws_the_same(tmp_path: Path) -> None:
    written = write_report([evil_results(tmp_path / "results")], tmp_path, figures=False)
    seen = browse(written.page, tmp_path / "profile", "dark")
    assert seen.console == []
    assert seen.errors == []
    assert seen.figures["pair"]["points"] == 9
    assert seen.figures["levels"]["points"] == 35
    assert re.search(r'<html[^>]*data-theme="dark"', seen.dom)
    assert "<img" not in seen.dom


def test_predicted_times_have_figures_that_say_predicted(tmp_path: Path) -> None:
    rows = [predicted(n, 1 + n % 3, params={"tile": n % 4, "vector": n % 3}) for n in range(1, 13)]
    written = write_report([stored(tmp_path / "r", rows)], tmp_path, figures=False)
    seen = browse(written.page, tmp_path / "profile")
    assert seen.console == []
    assert "predicted time a launch (ms)" in seen.dom
    assert seen.figures["samples"]["none"] == "Predicted times have no samples."
