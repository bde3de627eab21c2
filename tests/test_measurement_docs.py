"""What docs/measurement.md says of the protocol is what the code does, and its figures are the recorded ones."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from sweeper.backend.cuda import floor, plan, sampler
from sweeper.config import MeasureConfig

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
TIMING = ROOT / "results" / "h200" / "timing"


def test_the_numbers_of_a_sample_are_the_codes() -> None:
    said = " ".join(PAGE.split())
    assert f"less than {floor._FACTOR} times as long" in said
    assert f"as fill {plan.INTERVAL_MS} ms, {plan._MOST_GRAPHED} at most" in said
    assert f"queued one by one, {plan._MOST_BATCHED} at most" in said
    assert f"{sampler._LEAST_FLUSH_BYTES >> 20} MiB at least" in said


def test_the_defaults_it_names_are_the_protocols() -> None:
    said, measure = " ".join(PAGE.split()), MeasureConfig()
    named = yaml.safe_load((ROOT / "conf" / "measure" / "default.yaml").read_text(encoding="utf-8"))
    assert f"`measure.graph_below_ms` ({measure.graph_below_ms * 1e3:g} µs)" in said
    assert f"`measure.clock_tolerance` ({measure.clock_tolerance:.0%})".replace("%", " %") in said
    assert f"`measure.recovery_s` ({measure.recovery_s:g} s)" in said
    assert f"`measure.energy_seconds` ({measure.energy_seconds:g} s)" in said
    assert f"`measure.stop_factor` ({named['stop_factor']:g})" in said
    assert measure.cache == "cold"
    assert "the default |" in next(line for line in PAGE.splitlines() if line.startswith("| `cold`"))


def test_every_reason_to_stop_is_explained() -> None:
    rows = PAGE.partition("| `stopped_by` | |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines()[2:])))
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    note = results.partition("- **`stopped_by`**")[2].partition("- **")[0]
    assert explained == set(re.findall(r"`([a-z_]+)`", note)) - {"note"}


def test_the_coverage_of_intervals_is_the_recorded_one() -> None:
    recorded = (TIMING / "intervals.md").read_text(encoding="utf-8")
    names = {
        "independent, normal": "iid normal",
        "every tenth sample off by half": "iid outliers",
        "each error 0.6 of the last (AR(1))": "AR(1) 0.6",
        "each error 0.8 of the last": "AR(1) 0.8",
    }
    for shown, name in names.items():
        (row,) = re.findall(rf"^\| {re.escape(shown)} \| (.*) \|$", PAGE, re.MULTILINE)
        found = {
            samples: (float(plain), float(reported))
            for samples, plain, reported in re.findall(
                rf"^\| {re.escape(name)} \| (\d+) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|",
                recorded,
                re.MULTILINE,
            )
        }
        wanted = [found[n][1] for n in ("20", "50", "100")] + [found["100"][0]]
        assert [float(cell.removesuffix(" %")) for cell in row.split(" | ")] == [
            round(100 * share + 1e-9, 1) for share in wanted
        ]
