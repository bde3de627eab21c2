"""The report: what it says of results, what it draws, and what it never does."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_rig import (
    EVIL,
    Page,
    blob,
    candidate,
    confirmed,
    evil_results,
    failed,
    library,
    predicted,
    stored,
)

from sweeper.errors import ConfigError, StorageError
from sweeper.model import Energy, Status, Timing
from sweeper.report import Written, write_report
from sweeper.report.columns import Columns, column, packed, unpack
from sweeper.report.command import main
from sweeper.report.page import FIGURES
from sweeper.report.wording import digits, span, time

pytest.importorskip("plotly")

ROOT = Path(__file__).parents[1]
LADDER = ROOT / "results" / "h200" / "ladder-course"
SPACE = ROOT / "results" / "h200" / "spaces" / "tiled-2048.csv.gz"
ASSETS = ROOT / "sweeper" / "report" / "assets"


def report(*results: Path, into: Path, **options: Any) -> Written:
    return write_report(results, into, **{"figures": False, **options})


def html_of(written: Written) -> str:
    return written.page.read_text(encoding="utf-8")


def data_of(written: Written) -> tuple[dict[str, Any], bytes]:
    return unpack(blob(html_of(written)))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A report of results whose names and reasons hold markup."""
    folder = tmp_path_factory.mktemp("evil")
    return report(evil_results(folder / "results"), into=folder)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The report of the recorded course of rungs, with its figures."""
    pytest.importorskip("matplotlib")
    return report(LADDER, into=tmp_path_factory.mktemp("ladder"), figures=True)


# What it says


def test_it_names_the_best_how_good_it_is_and_how_sure(ladder: Written) -> None:
    text = Page(html_of(ladder)).text
    assert (
        "tma_pipeline with bm=128 bn=256 bk=32 wm=64 wn=64 stages=4 group=8 is fastest, 2.495 ms a launch"
        in text
    )
    assert "107.5 % of cuBLAS's speed, 82.3 % of the roofline" in text
    assert "95 % interval 2.494 to 2.500 ms, clear of cuBLAS's interval; not confirmed in turns" in text


def test_every_kernel_has_a_row_and_the_library_stands_below(ladder: Written) -> None:
    text = Page(html_of(ladder)).text
    for kernel in (
        "uncoalesced",
        "naive",
        "tiled",
        "thread_tile",
        "warp_tile",
        "async_pipeline",
        "tma_pipeline",
    ):
        assert kernel in text
    assert "cuBLAS 2.681 ms" in text


def test_a_confirmed_winner_speaks_by_its_blocks(tmp_path: Path) -> None:
    rows = [candidate(1, 1.00), candidate(2, 0.99), library(1.1)]
    finals = [
        confirmed(rows[0], [0.80 + 0.001 * i for i in range(12)]),
        confirmed(rows[1], [0.90 + 0.001 * i for i in range(12)]),
        confirmed(rows[2], [1.00 + 0.001 * i for i in range(12)]),
    ]
    written = report(stored(tmp_path / "r", rows, finals), into=tmp_path)
    text = Page(html_of(written)).text
    # The search's least time was the other one's.
    assert "tiled with tile=8 is fastest, 805.5 µs a launch" in text
    assert re.search(
        r"Confirmed in 12 blocks: 24\.\d % faster than cublas|Confirmed in 12 blocks: 24\.\d % faster than cuBLAS",
        text,
    )
    assert re.search(r"12[34]\.\d % of cuBLAS's speed", text)
    assert "Confirmations" in text


def test_what_is_predicted_says_so_and_claims_no_measurement(tmp_path: Path) -> None:
    written = report(stored(tmp_path / "r", [predicted(1, 2.0), predicted(2, 1.0)]), into=tmp_path)
    text = Page(html_of(written)).text
    assert "is predicted to be fastest, 1.000 ms a launch" in text
    assert "nothing was timed" in text
    assert "is fastest" not in text.replace("predicted to be fastest", "")
    header, _ = data_of(written)
    assert header["problems"][0]["source"] == "predicted"
    # The emulated device has the limits of the one that it stands for.
    assert header["problems"][0]["bandwidth"] == pytest.approx(4270.0)


def test_a_problem_without_a_valid_configuration_says_where_the_reasons_are(tmp_path: Path) -> None:
    rows = [failed(n, f"line {n}: no such intrinsic") for n in (1, 2, 3)]
    written = report(stored(tmp_path / "r", rows), into=tmp_path)
    text = Page(html_of(written)).text
    assert "no valid configuration among 3 tried; the reasons are under Failures" in text
    assert "line 1: no such intrinsic" in text


def test_reasons_that_differ_in_numbers_only_are_one(tmp_path: Path) -> None:
    rows = [
        candidate(1, 1.0),
        *(failed(n, f"uses {n} registers") for n in range(2, 7)),
        failed(9, "timed out", Status.TIMEOUT),
    ]
    text = Page(html_of(report(stored(tmp_path / "r", rows), into=tmp_path))).text
    assert "1 ok, 5 build_error, 1 timeout, of 7 configurations" in text
    assert text.count("registers") == 1


def test_shapes_by_variants_are_in_percent_of_the_library(tmp_path: Path) -> None:
    rows = [
        candidate(1, 2.0, study="a-1", kernel="a"), library(1.0, study="a-1"),
        candidate(1, 0.5, study="b-1", kernel="b"),
        candidate(1, 8.0, study="a-2", kernel="a", shape="huge", dims={"M": 2, "N": 2, "K": 3}),
    ]  # fmt: skip
    page = Page(html_of(report(stored(tmp_path / "r", rows), into=tmp_path)))
    cells = [at for at in page.named("td") if at.get("class", "").startswith("cell")]
    assert [cell.get("class") for cell in cells] == ["cell", "cell top", "cell", "cell top", "cell", "cell"]
    assert "large (1000³) 50.0 200.0 cuBLAS 1.000 ms huge (2×2×3) 8.000 ms – –" in page.text
    assert "--below" in cells[0]["style"]
    assert "--above" in cells[1]["style"]


def test_where_energy_was_the_objective_the_thriftiest_wins(tmp_path: Path) -> None:
    def drawn(number: int, ms: float, joules: float) -> Any:
        energy = Energy(joules, joules * 0.99, joules * 1.01, 400.0, "counter")
        timing = Timing((ms,) * 9, "events", "cold", energy=energy)
        return candidate(number, ms, timing=timing, details={"objective": "energy"})

    folder = stored(tmp_path / "r", [drawn(1, 1.0, 0.5), drawn(2, 2.0, 0.3)])
    text = Page(html_of(report(folder, into=tmp_path))).text
    assert "tile=16 takes the least energy, 300.0 mJ a launch, in 2.000 ms" in text


def test_several_results_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name, ms in (("before", 2.0), ("after", 1.0)):
        stored(tmp_path / name, [candidate(1, ms)])
    written = report(tmp_path / "before", tmp_path / "after", into=tmp_path / "out")
    header, _ = data_of(written)
    assert [problem["label"] for problem in header["problems"]] == [
        "before, large (1000³)",
        "after, large (1000³)",
    ]
    assert [problem["result"] for problem in header["problems"]] == [0, 1]


def test_a_recorded_space_has_its_library_and_its_place_under_the_roofline(tmp_path: Path) -> None:
    header, _ = data_of(report(SPACE, into=tmp_path))
    (problem,) = header["problems"]
    assert problem["libraries"][0]["name"] == "cuBLAS"
    assert problem["flops"] == 2 * 2048**3
    assert problem["bytes"] == 3 * 4 * 2048**2


# What it draws


def test_the_page_holds_every_row_for_its_figures(ladder: Written) -> None:
    header, arrays = data_of(ladder)
    study = next(one for one in header["studies"] if one["kernel"] == "tma_pipeline")
    values = column(study["value"], arrays)
    assert len(values) == study["tried"] == 8
    assert values.min() == pytest.approx(2.495, abs=5e-4)
    assert study["best"] == int(values.argmin())
    assert sum(one["tried"] for one in header["studies"]) == 91
    (bm,) = (one for one in study["params"] if one["name"] == "bm")
    assert {bm["levels"][code] for code in column(bm["codes"], arrays)} == set(bm["levels"])
    assert len(study["finalists"]) == 7


def test_rungs_stand_in_their_order(ladder: Written) -> None:
    header, _ = data_of(ladder)
    kernels = [header["studies"][place]["kernel"] for place in header["problems"][0]["studies"]]
    assert kernels[:4] == ["uncoalesced", "naive", "tiled", "thread_tile"]


def test_a_failed_row_has_a_status_and_a_reason_and_no_value(evil: Written) -> None:
    header, arrays = data_of(evil)
    study = header["studies"][0]
    status, values = column(study["status"], arrays), column(study["value"], arrays)
    bad = [i for i, code in enumerate(status) if study["statuses"][code] != "ok"]
    assert len(bad) == 5
    assert np.isnan(values[bad]).all()
    assert all(study["reasons"][code].startswith(EVIL) for code in column(study["reason"], arrays)[bad])


def test_every_figure_has_a_title_a_caption_and_a_function_that_draws_it(ladder: Written) -> None:
    html, script = html_of(ladder), (ASSETS / "report.js").read_text(encoding="utf-8")
    drawn = {at["data-figure"] for at in Page(html).named("figure")}
    assert (
        drawn
        == {name for name, *_ in FIGURES}
        == set(re.findall(r"^  figures\.(\w+) = ", script, re.MULTILINE))
    )
    assert all(title and len(caption) > 20 for _, title, caption, _ in FIGURES)


def test_figures_are_written_beside_and_shown_in_the_markdown(ladder: Written) -> None:
    text = ladder.markdown.read_text(encoding="utf-8")
    names = {path.name for path in ladder.figures}
    assert {
        "kernels.png",
        "roofline.png",
        "progress.png",
        "levels.png",
        "pair.png",
        "samples.png",
        "clocks.png",
    } <= names
    for path in ladder.figures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"](figures/{path.name})" in text


def test_the_markdown_says_the_same(ladder: Written) -> None:
    text = ladder.markdown.read_text(encoding="utf-8")
    assert "is fastest, 2.495 ms a launch" in text
    assert (
        "| **tma\\_pipeline** | 2.495 ms | 2.494 to 2.500 ms | 55,085 | 107.5 | 82.3 | unconfirmed |" in text
    )
    assert "python -m sweeper.reproduce" in text


def test_two_reports_of_the_same_results_are_the_same_bytes(evil: Written, tmp_path: Path) -> None:
    again = report(evil_results(tmp_path / "results"), into=tmp_path)
    assert html_of(again) == html_of(evil)


# What it never does


def test_names_and_reasons_are_shown_and_never_obeyed(evil: Written) -> None:
    page = Page(html_of(evil))
    assert EVIL in page.text
    assert len(page.named("script")) == 4
    assert not page.named("img")
    assert not page.named("b") or all(set(at) == {"style"} for at in page.named("b"))
    assert not [at for _, at in page.elements if any(name.startswith("on") for name in at)]


def test_the_markdown_keeps_markup_harmless(evil: Written) -> None:
    text = evil.markdown.read_text(encoding="utf-8")
    assert "<script" not in re.sub(r"`[^`]*`", "", text)
    assert "<img" not in re.sub(r"`[^`]*`", "", text)
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| build")}
    assert widths == {6}


def test_nothing_is_loaded_from_anywhere(evil: Written) -> None:
    html = html_of(evil)
    page = Page(html)
    policy = next(
        at["content"] for at in page.named("meta") if at.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "http" not in policy
    linked = [at.get(name, "") for _, at in page.elements for name in ("src", "href")]
    assert all(target == "" or target.startswith(("#", "data:")) for target in linked)
    assert "url(" not in (ASSETS / "report.css").read_text(encoding="utf-8")


def test_the_script_puts_text_in_as_text() -> None:
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    for obeying in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "fetch(",
    ):
        assert obeying not in script


def test_it_is_small_enough_to_send(ladder: Written) -> None:
    assert ladder.page.stat().st_size < 2_000_000


def test_measured_files_are_only_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(LADDER, folder, ignore=shutil.ignore_patterns("report*", "figures"))
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    written = write_report([folder], figures=False)
    assert written.page == folder / "report.html"
    after = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"report.html", "report.md"}


# The command


def test_a_table_is_reported_on_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(SPACE), "--no-figures", "--title", "A <title>"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "report: report.html"
    assert "<title>A &lt;title&gt;" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_not_there_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == StorageError.exit_code
    assert "no such file or folder" in capsys.readouterr().err
    assert main([]) == ConfigError.exit_code
    assert main([str(SPACE), "--outpt", "x"]) == ConfigError.exit_code


@pytest.mark.parametrize(
    ("missing", "told"), [("plotly", "plotly"), ("matplotlib", "--no-figures does without")]
)
def test_a_missing_package_is_one_clear_error(
    missing: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == missing else real(name, *rest)
    )
    assert main([str(SPACE), "--output", str(tmp_path)]) == 3
    told_all = capsys.readouterr().err
    assert f"a report lacks {missing}" in told_all
    assert told in told_all
    assert "pip install matplotlib plotly" in told_all
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(SPACE), "--no-figures", "--output", str(tmp_path / "file")]) == StorageError.exit_code
    assert "cannot be written" in capsys.readouterr().err


# Its parts


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)),
    st.lists(st.integers(-1, 70_000)),
    st.text(),
)
def test_what_is_packed_is_unpacked(reals: list[float], codes: list[int], text: str) -> None:
    columns = Columns()
    header = {"reals": columns.floats(reals), "text": text, "many": columns.floats(codes)}
    places = columns.codes([code for code in codes if code < 65_535])
    found, arrays = unpack(columns.pack({**header, "codes": places}))
    assert column(found["reals"], arrays).tolist() == reals
    assert found["text"] == text.encode("utf-8", "replace").decode()
    none = {"u1": 0xFF, "u2": 0xFFFF}[found["codes"]["t"]]
    back = [-1 if code == none else int(code) for code in column(found["codes"], arrays)]
    assert back == [code for code in codes if code < 65_535]


@given(st.binary())
def test_packed_data_has_no_character_that_markup_knows(data: bytes) -> None:
    assert not re.search(r"[<'\"/\\\s]", packed(data))


@pytest.mark.parametrize(
    ("ms", "told"),
    [(2.49499, "2.495 ms"), (0.0234, "23.40 µs"), (1234.5, "1.234 s"), (0.0000123, "12.30 ns")],
)
def test_times_have_four_digits_and_the_unit_that_suits(ms: float, told: str) -> None:
    assert time(ms) == told


def test_an_interval_is_in_one_unit() -> None:
    assert span(0.9996, 1.0004) == "0.9996 to 1.000 ms"
    assert digits(1234567.8) == "1,234,568"


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_stands_out_from_its_ground_in_both_themes(theme: str) -> None:
    """At least 4.5 to 1, as WCAG 2.2 wants of text (1.4.3)."""
    style = (ASSETS / "report.css").read_text(encoding="utf-8")
    block = style[style.index(theme) :].partition("}")[0]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ground = luminance(colours["ground"])
    for name in ("ink", "soft", "accent", "bad"):
        bright, dark = sorted((luminance(colours[name]), ground), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, name
    for place in range(8):
        bright, dark = sorted((luminance(colours[f"cat{place}"]), ground), reverse=True)
        # Of what is drawn, 3 to 1 (1.4.11).
        assert (bright + 0.05) / (dark + 0.05) >= 3, place
