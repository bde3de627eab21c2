"""The instrument that holds every family against the libraries, without a GPU: data, search, tables, queue."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_evaluate import StubBuilder, config
from test_evaluate import StubWorker as Device

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import bench_shapes
import shapes_merge
import shapes_results
from shapes_data import FAMILIES, KINDS, Family, Rung, dims_of, kinds, suiting
from shapes_queue import Shared, longest_first, serve
from shapes_results import Final, Found, Work, best_of, rung_rows, searched_rows, shape_row, warm_columns
from shapes_search import Bench
from shapes_seeds import Seed, Seeded, favourites, nearest
from shapes_table import COLUMNS, RUNG_COLUMNS, read_seeds, save, summary

from sweeper.backend.base import Outcome, Rounds, Turns
from sweeper.check.compose import Composer
from sweeper.config import MeasureConfig
from sweeper.device import target
from sweeper.dispatch.read import read_entries
from sweeper.dtypes import DTYPES
from sweeper.evaluate import LiveEvaluator, live
from sweeper.model import Confirmed, Point, Role
from sweeper.paths import conf_dir
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.statistics import RatioInterval
from sweeper.table.standings import winner_of

H200 = target("h200")
WORK = Work(2 * 4096**3, 3 * 4096**2 * 4, "float32", H200)


class TestTheData:
    @pytest.mark.parametrize("name", FAMILIES)
    def test_names_precision_classes_and_shapes(self, name: str) -> None:
        family = FAMILIES[name]
        assert name in DTYPES
        assert len({family.short for family in FAMILIES.values()}) == len(FAMILIES)
        assert len(set(family.shapes)) == len(family.shapes)
        for shape in family.shapes:
            assert suiting(family, dims_of(shape), DTYPES[name].bytes), f"no rung is tried at {shape}"

    @pytest.mark.parametrize(("name", "least"), [("float32", 30), ("bfloat16", 40), ("float16", 40)])
    def test_has_as_many_shapes_as_a_claim_about_a_family_needs(self, name: str, least: int) -> None:
        assert len(FAMILIES[name].shapes) >= least

    @pytest.mark.parametrize("name", FAMILIES)
    def test_pins_parameters_that_the_kernels_have(self, name: str) -> None:
        for rung in FAMILIES[name].rungs:
            path = conf_dir() / "kernel" / f"{rung.kernel}.yaml"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            unknown = [parameter for parameter in rung.levels if text and f"\n  {parameter}: [" not in text]
            assert not unknown, rung.kernel
            assert rung.kinds <= set(KINDS)

    @pytest.mark.parametrize(
        ("shape", "element_bytes", "wanted"),
        [
            ("4096x4096x4096", 4, "large"),
            ("4096x4096x4100", 4, "large"),
            ("4096x4096x4100", 2, "large odd"),
            ("1024x1024x1024", 4, "few large"),
            ("4097x4097x4097", 4, "large odd"),
            ("512x512x512", 4, "few"),
            ("64x4096x4096", 4, "skinny few"),
            ("16x4096x4096", 2, "gemv"),
            ("65536x8x128", 2, "gemv"),
        ],
    )
    def test_sorts_shapes_by_kind(self, shape: str, element_bytes: int, wanted: str) -> None:
        assert kinds(dims_of(shape), element_bytes) == set(wanted.split())

    def test_takes_a_layout_behind_the_sizes(self) -> None:
        assert dims_of("64x32x16-nt") == dims_of("64x32x16")

    @pytest.mark.parametrize(
        "shape", ["", "4096", "4096x4096", "8x8x8-xy", "4096x4096x0", "4096x-1x2", "axbxc"]
    )
    def test_refuses_what_is_no_shape(self, shape: str) -> None:
        with pytest.raises(ValueError, match="is not MxNxK"):
            dims_of(shape)


class TestWhereASearchBegins:
    def test_with_what_was_best_at_the_nearest_shapes(self) -> None:
        seeds = [
            Seed("a", dims_of("256x256x256"), {"tile": 8}),
            Seed("a", dims_of("4096x4096x4096"), {"tile": 32}),
            Seed("a", dims_of("2048x2048x2048"), {"tile": 16}),
            Seed("a", dims_of("3000x2048x2048"), {"tile": 16}),
            Seed("b", dims_of("2048x2048x2048"), {"tile": 4}),
        ]
        near = nearest(seeds, "a", dims_of("1500x2048x2048"), 2)
        assert near == [{"tile": 16}, {"tile": 32}]

    def test_with_configurations_that_are_feasible_and_fast_by_the_model(self) -> None:
        with Composer() as composer:
            spec, _ = composer.compose(["kernel=tiled"])
        dims = {**dims_of("512x512x512"), "LDA": 512, "LDB": 512, "LDC": 512}
        space = feasible_space(spec, dims, H200)
        chosen = favourites(spec, space, dims, H200, (2 * 512**3, 3 * 512**2 * 4), 2)
        assert len(chosen) == 2
        assert all(0 <= row < len(space) for row in chosen)

    def test_may_well_ask_the_seeds_that_are_left_and_what_its_strategy_thinks_of(self) -> None:
        with Composer() as composer:
            spec, _ = composer.compose(["kernel=gemv"])
        space = feasible_space(spec, {**dims_of("8x512x512"), "LDA": 512, "LDB": 512, "LDC": 512}, H200)
        strategy = make("guided", space, 0, {"startup": 2})
        seeded = Seeded(strategy, [2, 0, 5])
        assert seeded.likely(2) == [2, 0]
        for row in seeded.ask(2):
            assert seeded.has_taken(row)
            seeded.tell(row, 1.0)
        assert not seeded.has_taken(5)
        assert seeded.likely(1) == [5]
        (row,) = seeded.ask()
        seeded.tell(row, 2.0)
        seeded.ask()
        likely = seeded.likely(4)
        assert len(likely) == 4
        assert not {0, 2, 5} & set(likely)

    def test_goes_on_with_the_search_and_asks_nothing_twice(self) -> None:
        with Composer() as composer:
            spec, _ = composer.compose(["kernel=tiled"])
        space = feasible_space(spec, {**dims_of("512x512x512"), "LDA": 512, "LDB": 512, "LDC": 512}, H200)
        seeded = Seeded(make("random", space, 0), [2, 0, 2])
        assert seeded.ask(1) == [2]
        seeded.tell(2, 1.0)
        rest: list[int] = []
        while more := seeded.ask(2):
            rest += more
        assert rest[0] == 0
        late = Seeded(make("random", space, 0), [2], lambda: True)
        assert late.ask(1) == [2]
        assert late.ask(1) == [], "what it begins with is tried, however late it is"

    def test_ends_once_ten_configurations_are_no_match_for_what_is_known(self) -> None:
        with Composer() as composer:
            spec, _ = composer.compose(["kernel=gemv"])
        space = feasible_space(spec, {**dims_of("8x512x512"), "LDA": 512, "LDB": 512, "LDC": 512}, H200)
        for best, goes_on in ((1.9, True), (2.0, False)):
            seeded = Seeded(make("random", space, 0), [], hopeless_ms=2.0)
            for number, row in enumerate(seeded.ask(10)):
                assert seeded.ask(1), "fewer than ten say nothing"
                seeded.tell(row, 3.0 if number else best)
            assert bool(seeded.ask(1)) is goes_on


def confirmed(kernel: str, times: Sequence[float], role: Role = Role.CANDIDATE, **more: Any) -> Confirmed:
    return Confirmed(
        "c", "now", "s", kernel, "float32", "x", more.pop("params", {"tile": 8}), role, False, tuple(times), **more
    )  # fmt: skip


def final(ours: float, *libraries: float) -> Final:
    """A confirmation in eight quiet blocks."""
    finals = [confirmed("ours", [ours * (1 + 1e-4 * i) for i in range(8)])]
    for name, each in zip(("cublas", "cublaslt"), libraries, strict=False):
        params = {"library": name}
        times = [each * (1 + 1e-4 * i) for i in range(8)]
        finals.append(confirmed(name, times, Role.BASELINE, params=params, note=f"of {name}"))
    winner = winner_of(finals)
    assert winner is not None
    return Final.of(winner, finals)


def found(kernel: str, searched: float, confirmed_as: Final | None = None) -> Found:
    return Found(kernel, "", 10, 9, {"tile": 8}, (searched,) * 7, confirmed_as)


class TestARow:
    def test_holds_the_winner_against_the_better_library(self) -> None:
        row = shape_row("4096x4096x4096", WORK, [found("ours", 2.0, final(2.0, 3.0, 2.5))], 0)
        assert row["ratio"] == pytest.approx(1.25)
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert (row["better_library"], row["verdict"]) == ("cublaslt", "faster")
        assert row["cublas_ms"] == pytest.approx(3.0, rel=1e-3)
        assert row["note"] == "cublas: of cublas; cublaslt: of cublaslt"
        assert row["time_low_ms"] <= row["time_ms"] <= row["time_high_ms"]
        assert row["tflops"] == pytest.approx(2 * 4096**3 / row["time_ms"] * 1e-9)
        assert row["percent_of_peak"] == pytest.approx(100 * row["tflops"] / (256 * 132 * 1.98e-3))
        assert "percent_of_copy" not in row, "the device is bound by its arithmetic here"

    def test_says_how_much_of_a_copys_bandwidth_is_used_where_memory_is_the_limit(self) -> None:
        moved = (4096 * 4096 + 2 * 4096) * 4
        work = Work(2 * 4096**2, moved, "float32", H200)
        row = shape_row("1x4096x4096", work, [found("ours", 0.02, final(0.02, 0.03))], 0)
        assert row["percent_of_copy"] == pytest.approx(100 * moved / (row["time_ms"] * 1e6) / 4270)

    def test_says_so_where_no_library_ran(self) -> None:
        row = shape_row("8x8x8", WORK, [found("ours", 2.0, final(2.0))], 0)
        assert row["verdict"] == "no library ran"
        assert "ratio" not in row

    def test_says_why_where_nothing_ran(self) -> None:
        row = shape_row("8x8x8", WORK, [Found("ours", reason="there is no kernel ours")], None)
        assert row["verdict"] == "nothing ran"
        assert row["note"] == "ours: there is no kernel ours"

    def test_of_each_rung_tells_what_was_only_searched_and_what_did_not_run(self) -> None:
        rungs = [found("a", 2.0, final(2.0, 3.0)), found("b", 4.0), Found("c", reason="it spills")]
        rows = rung_rows("8x8x8", WORK, rungs, 0)
        assert [row["kernel"] for row in rows] == ["a", "b", "c"]
        assert [row["best"] for row in rows] == [True, False, False]
        assert [row.get("timed") for row in rows] == ["in turns", "in the search", None]
        assert rows[1]["verdict"] == "not confirmed"
        assert rows[2]["note"] == "it spills"

    def test_leaves_the_interval_of_too_few_samples_blank(self) -> None:
        few = Found("a", "", 3, 3, {"tile": 8}, (1.0, 1.1))
        (row,) = rung_rows("8x8x8", WORK, [few], 0)
        assert row["time_ms"] == pytest.approx(1.05)
        assert not {"time_low_ms", "time_high_ms"} & set(row)

    def test_has_the_times_of_a_warm_cache_in_columns_of_their_own(self) -> None:
        warm = {"ours": (2.0,) * 8, "cublas": (4.0,) * 8, "cublaslt": (3.0,) * 8}
        row = warm_columns(warm, "ours", 0.01)
        assert (row["warm_ms"], row["cublas_warm_ms"], row["cublaslt_warm_ms"]) == (2.0, 4.0, 3.0)
        assert row["warm_ratio"] == pytest.approx(1.5)
        assert row["warm_verdict"] == "faster"
        assert warm_columns({}, "ours", 0.01) == {}
        assert warm_columns({"ours": (2.0,) * 8}, "ours", 0.01) == {"warm_ms": 2.0}


class TestTheBestOfTheRungs:
    def test_is_the_one_with_the_best_ratio_of_its_own_confirmation(self) -> None:
        """The second is the slower one by its clock time, but the device was slower then, as its library shows."""
        rungs = [found("a", 2.0, final(2.0, 2.2)), found("b", 2.02, final(2.02, 2.4))]
        assert best_of(rungs) == 1

    def test_was_confirmed_where_any_was(self) -> None:
        assert best_of([found("a", 1.0), found("b", 1.05, final(1.05, 2.0))]) == 1
        assert best_of([found("a", 1.2), found("b", 1.1)]) == 1

    def test_is_nobody_where_none_ran(self) -> None:
        assert best_of([Found("a", reason="no")]) is None
        assert best_of([]) is None


class TestTheTables:
    def rows(self) -> list[dict[str, Any]]:
        first = shape_row("4096x4096x4096", WORK, [found("ours", 2.0, final(2.0, 4.0))], 0)
        second = shape_row("512x512x512", WORK, [found("ours", 2.0, final(2.0, 1.0))], 0)
        return [first, second, {"shape": "8x8x8", "dtype": "float32", "verdict": "no time was left"}]

    def test_are_written_after_every_shape_and_read_back(self, tmp_path: Path) -> None:
        rungs = rung_rows("512x512x512", WORK, [found("ours", 2.0), Found("other", reason="no")], 0)
        every = searched_rows(
            "512x512x512", WORK, [replace(found("ours", 2.0), searched=(({"tile": 4}, 3.0),))]
        )
        save(tmp_path, "fp32-shapes", self.rows(), rungs, every, {"compiler": "x"})
        with (tmp_path / "fp32-shapes.csv").open(encoding="utf-8") as file:
            read = list(csv.DictReader(file))
        assert tuple(read[0]) == COLUMNS
        assert [row["shape"] for row in read] == ["4096x4096x4096", "512x512x512", "8x8x8"]
        assert float(read[0]["ratio"]) == self.rows()[0]["ratio"]
        assert json.loads((tmp_path / "fp32-shapes.json").read_text()) == {"compiler": "x"}
        (one,) = read_entries([tmp_path / "fp32-shapes-searched.csv"])
        assert (one.params, one.time_ms, one.confirmed) == ({"tile": 4}, 3.0, False)
        assert read_seeds(tmp_path / "fp32-shapes-rungs.csv") == [
            Seed("ours", dims_of("512x512x512"), {"tile": 8})
        ]

    def test_of_several_runs_are_one_in_which_the_later_one_counts(self, tmp_path: Path) -> None:
        def table(name: str, *found_at: tuple[str, float | None]) -> str:
            rows, rungs, searched = [], [], []
            for shape, ms in found_at:
                if ms is None:
                    rows.append({"shape": shape, "dtype": "float32", "verdict": "no time was left"})
                    continue
                one = replace(found("ours", ms), searched=(({"tile": 4}, ms),))
                rows.append(shape_row(shape, WORK, [one], 0))
                rungs += rung_rows(shape, WORK, [one], 0)
                searched += searched_rows(shape, WORK, [one])
            save(tmp_path, name, rows, rungs, searched, {"run": name})
            return str(tmp_path / name)

        first = table("first", ("512x512x512", 2.0), ("256x256x256", None), ("4096x4096x4096", 9.0))
        later = table("later", ("256x256x256", 1.0), ("512x512x512", None), ("4096x4096x4096", 8.0))
        assert shapes_merge.main([str(tmp_path), "both", first, later]) == 0
        with (tmp_path / "both.csv").open(encoding="utf-8") as file:
            times = {row["shape"]: float(row["time_ms"]) for row in csv.DictReader(file)}
        assert list(times.items()) == [("256x256x256", 1.0), ("512x512x512", 2.0), ("4096x4096x4096", 8.0)]
        with (tmp_path / "both-rungs.csv").open(encoding="utf-8") as file:
            assert [float(row["time_ms"]) for row in csv.DictReader(file)] == [1.0, 2.0, 8.0]
        record = json.loads((tmp_path / "both.json").read_text())
        assert record == {"runs": [{"run": "first"}, {"run": "later"}]}

        alone = table("alone", ("512x512x512", 2.0))
        assert shapes_merge.main([str(tmp_path), "again", alone]) == 0
        for ending in (".csv", "-rungs.csv", "-searched.csv", ".md"):
            assert Path(f"{alone}{ending}").read_bytes() == (tmp_path / f"again{ending}").read_bytes()

    def test_of_several_runs_have_every_parameter_that_a_kernel_has_now(self) -> None:
        rows = [
            {"kernel": "tiled", "params": "{}"},
            {"kernel": "tiled", "params": '{"tile": 8}'},
            {"kernel": "gone", "params": '{"a": 1}'},
            {"kernel": None, "params": None},
        ]
        with Composer() as composer:
            default = composer.compose(["kernel=tiled"])[0].default_point.params["tile"]
            done = shapes_merge.completed(rows, composer)
        assert [row["params"] for row in done] == [f'{{"tile": {default}}}', '{"tile": 8}', '{"a": 1}', None]

    def test_have_every_column_that_a_row_may_have(self) -> None:
        row = shape_row("1x8x8", Work(1, 1e9, "float32", H200), [found("a", 2.0, final(2.0, 3.0, 4.0))], 0)
        row |= warm_columns({"a": (1.0,) * 8, "cublas": (2.0,) * 8, "cublaslt": (2.0,) * 8}, "a", 0.01)
        assert set(row) <= set(COLUMNS)
        (rung,) = rung_rows("1x8x8", WORK, [found("a", 2.0, final(2.0, 3.0))], 0)
        assert set(rung) <= set(RUNG_COLUMNS)

    def test_sum_up_by_the_geometric_mean_and_the_least(self) -> None:
        text = summary(self.rows())
        assert "| 4096×4096×4096 | ours |" in text
        assert "| no time was left |" in text
        assert "Geometric mean over 2 shapes, L2 cold: 1.000; the least: 0.500, at 512×512×512." in text


# A process that stands for a GPU's: it is lost at some shapes, and silent at others.
PRETENDED = """
import json, sys, time
if sys.argv[1] == "GPU-9":
    sys.exit(3)
print("for people", flush=True)
print("@" + json.dumps({"device": {"uuid": sys.argv[1]}, "compiler": "c"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["shape"] == "6x1x1":
        sys.exit(7)
    if asked["shape"] == "5x1x1":
        time.sleep(60)
    print("@" + json.dumps({"row": {"shape": asked["shape"], "by": sys.argv[1], "seeds": asked["seeds"]}}), flush=True)
"""


class TestTheQueue:
    @pytest.fixture
    def ask(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
        script = tmp_path / "pretended.py"
        script.write_text(PRETENDED)
        monkeypatch.setattr("shapes_queue._GRACE_S", 0.2)

        def run(shapes: Sequence[str], gpus: Sequence[int], **more: Any) -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            shared = Shared(
                shapes=list(shapes),
                ends_s=more.get("ends_s", time.monotonic() + 60),
                limit_s=more.get("limit_s", 20.0),
                seeds=lambda: [["k", {"M": 1}, {"tile": len(rows)}]],
                done=lambda answer: rows.append(answer["row"]),
                started=lambda facts: None,
            )
            serve(shared, gpus, lambda gpu: [str(script), f"GPU-{gpu}"])
            return rows

        return run

    def test_gives_every_shape_to_one_gpu(self, ask: Callable[..., list[dict[str, Any]]]) -> None:
        rows = ask([f"{n}x2x2" for n in range(1, 9)], [0, 1])
        assert sorted(row["shape"] for row in rows) == sorted(f"{n}x2x2" for n in range(1, 9))
        assert {row["by"] for row in rows} <= {"GPU-0", "GPU-1"}

    def test_loses_one_shape_where_a_process_dies(self, ask: Callable[..., list[dict[str, Any]]]) -> None:
        rows = ask(["1x1x1", "6x1x1", "2x1x1"], [0])
        assert [row.get("verdict") for row in rows] == [None, "failed", None]
        assert rows[1]["note"] == "its process ended with 7"

    def test_leaves_a_shape_to_the_others_where_a_gpu_cannot_be_used(
        self, ask: Callable[..., list[dict[str, Any]]]
    ) -> None:
        rows = ask(["1x1x1", "2x1x1", "3x1x1"], [0, 9])
        assert {row["by"] for row in rows} == {"GPU-0"}
        assert sorted(row["shape"] for row in rows) == ["1x1x1", "2x1x1", "3x1x1"]

    def test_ends_a_process_that_takes_too_long(
        self, ask: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shapes_queue._OVERTIME_S", 0.2)
        rows = ask(["5x1x1", "2x1x1"], [0], limit_s=1.0)
        assert [row.get("verdict") for row in rows] == ["failed", None]
        assert rows[0]["note"].startswith("stopped after")

    def test_tells_each_search_what_was_found_before(self, ask: Callable[..., list[dict[str, Any]]]) -> None:
        rows = ask(["1x1x1", "2x1x1"], [0])
        assert [row["seeds"][0][2]["tile"] for row in rows] == [0, 1]

    def test_begins_nothing_once_time_is_up(self, ask: Callable[..., list[dict[str, Any]]]) -> None:
        assert ask(["1x1x1"], [0], ends_s=time.monotonic() - 1) == []

    def test_begins_with_the_longest(self) -> None:
        given = ["8x8x8", "64x64x64", "8x8x8", "16x16x32"]
        assert longest_first(given) == ["64x64x64", "16x16x32", "8x8x8"]


class Timed(Device):
    """A device where a configuration takes as many ms as its parameters say, and libraries 8 and 6 ms."""

    def measure(self, point: Point, build: Any, protocol: Any) -> Outcome:
        return _outcome(_ms(point), protocol.cache)

    def baseline(self, library: str, protocol: Any) -> Outcome:
        return _outcome({"cublas": 8.0, "cublaslt": 6.0}[library], protocol.cache)

    def confirm(self, finalists: Any, protocol: Any, rounds: Rounds) -> tuple[Turns, ...]:
        factor = 0.5 if protocol.cache == "warm" else 1.0
        times = [
            _ms(each.point) if each.point is not None else {"cublas": 8.0, "cublaslt": 6.0}[each.library]
            for each in finalists
        ]
        return tuple(Turns((factor * each,) * rounds.count) for each in times)


def _ms(point: Point) -> float:
    """The larger the tile, the better; blocks of odd sizes are the worst."""
    return 64.0 / float(math.prod(value for value in point.params.values() if isinstance(value, int)) ** 0.5)


def _outcome(value: float, cache: str) -> Outcome:
    from test_evaluate import RIGHT

    from sweeper.model import Timing

    return Outcome(RIGHT, None, None, Timing((value,) * 7, "events", cache))


class TestAShape:
    @pytest.fixture
    def bench(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
        Device.opened = []
        monkeypatch.setattr(live, "DeviceWorker", Timed)
        monkeypatch.setattr(live, "make_builder", lambda *_, **__: StubBuilder({}))
        rungs = (
            Rung("naive", frozenset({"few"}), {"block_x": [8, 16]}, (4, 4)),
            Rung("tiled", frozenset({"few"}), {}, (4, 4)),
            Rung("to_come", frozenset({"few"})),
            Rung("gemv", frozenset({"gemv"})),
        )
        family = Family("t", ("256x256x256",), rungs)
        world = LiveEvaluator("cuda", config(measure=MeasureConfig()))
        with Composer() as composer:
            yield Bench(world, composer, MeasureConfig(), family, "float32")
        world.close()

    def test_is_searched_rung_by_rung_and_the_best_is_held_against_the_libraries(self, bench: Bench) -> None:
        result = bench.result("256x256x256", [], 60)
        assert [one.kernel for one in result.rungs] == ["to_come", "naive", "tiled"]
        assert result.rungs[0].reason == "there is no kernel to_come"
        assert result.best is not None
        best = result.rungs[result.best]
        assert best.final is not None
        assert best.final.better == "cublaslt"
        assert isinstance(best.final.ratio, RatioInterval)
        assert best.final.ratio.ratio == pytest.approx(6.0 / best.final.time_ms)
        row = shapes_results.shape_row("256x256x256", result.work, result.rungs, result.best)
        assert row["evaluations"] == sum(one.evaluations for one in result.rungs)
        assert len(searched_rows("256x256x256", result.work, result.rungs)) == row["evaluations"]

    def test_leaves_out_a_rung_that_does_not_serve_its_layout(self, bench: Bench) -> None:
        result = bench.result("256x256x256-tn", [], 60)
        reasons = {one.kernel: one.reason for one in result.rungs}
        assert "'tn' is not among this kernel's layouts" in reasons["tiled"]

    def test_is_timed_with_a_warm_cache_too(self, bench: Bench) -> None:
        result = bench.result("256x256x256", [], 60)
        assert result.best is not None
        best = result.rungs[result.best]
        assert best.final is not None
        assert set(result.warm) == {best.kernel, "cublas", "cublaslt"}
        assert result.warm[best.kernel][0] == pytest.approx(best.final.time_ms / 2)

    def test_begins_no_second_rung_after_its_limit(self, bench: Bench) -> None:
        result = bench.result("256x256x256", [], -1)
        reasons = [one.reason for one in result.rungs]
        assert reasons == ["there is no kernel to_come", "", "no time was left"]

    def test_tries_what_was_best_elsewhere(self, bench: Bench) -> None:
        seeds = [Seed("naive", dims_of("512x512x512"), {"block_x": 16, "block_y": 4})]
        result = bench.result("256x256x256", seeds, 60)
        assert result.rungs[1].evaluations == 4


class TestTheCommand:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (["--dtype", "float31"], "unknown precision class 'float31'"),
            (["--dtype", "int32"], "no shapes for it"),
            (["--shapes", "12x"], "is not MxNxK"),
            (["--seeds", "/nowhere.csv"], "nowhere.csv"),
        ],
    )
    def test_refuses_what_it_does_not_know(
        self, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            bench_shapes.parsed(given)
        assert caught.value.code == 2
        assert said in capsys.readouterr().err

    def test_names_its_tables_by_the_class(self) -> None:
        chosen = bench_shapes.parsed(["--dtype", "bf16", "--gpus", "0,1"])
        assert (chosen.dtype, chosen.name, chosen.gpus) == ("bfloat16", "bf16-shapes", [0, 1])
        assert chosen.shapes == list(FAMILIES["bfloat16"].shapes)

    def test_ends_with_3_where_there_is_no_gpu(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(bench_shapes, "why_no_gpu", lambda ask: "no GPU found")
        assert bench_shapes.main([]) == 3
        assert "no GPU found" in capsys.readouterr().err
