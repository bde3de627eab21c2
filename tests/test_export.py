"""Exports: what is chosen, how a shape finds its row, and what each format says of it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.errors import ConfigError, NoValidConfiguration, StorageError
from sweeper.export import Chosen, Export, export_of, json_table, markdown, python_module, read_table
from sweeper.export.chosen import Filters
from sweeper.export.command import FORMATS, main
from sweeper.export.json_table import record
from sweeper.export.lookup import find, log2_fixed
from sweeper.model import Confirmed, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.recording import read_recorded
from sweeper.store import Store
from sweeper.table import frame, write_csv

SHAPE_COLUMNS = (
    "shape", "dtype", "kernel", "params", "timed", "time_ms", "ratio", "better_library", "verdict", "device"
)  # fmt: skip
H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"


def cube(size: int) -> dict[str, int]:
    return dict.fromkeys("MNK", size)


def trial(params: dict[str, Any], ms: float, number: int = 1, **more: Any) -> Trial:
    values: dict[str, Any] = {
        "study": "s", "context": "c", "kernel": "tiled", "dtype": "float32", "shape": "small", "dims": cube(512),
        "status": Status.OK, "stage": Stage.DONE, "time_source": TimeSource.MEASURED,
        "timing": Timing((ms,) * 7, "events", "cold"), "device": H200, "backend": "cuda", "device_uuid": "GPU-1",
        "driver": "580.1", "kernel_digest": "abcd",
    }  # fmt: skip
    return Trial(params=params, number=number, **{**values, **more})


def predicted(params: dict[str, Any], ms: float, **more: Any) -> Trial:
    return trial(params, ms, time_source=TimeSource.PREDICTED, timing=None, predicted_ms=ms, **more)


FAILED = trial(
    {"tile": 32},
    0.1,
    3,
    status=Status.WRONG_RESULT,
    stage=Stage.VERIFY,
    timing=None,
    reason="element 7 is wrong",
)
LIBRARY = trial({"library": "cublas"}, 0.5, 0, role=Role.BASELINE, kernel="cublas")
SMALL = [LIBRARY, trial({"tile": 8}, 0.40, 1), trial({"tile": 16}, 0.30, 2), FAILED]
RUN = {
    "id": "r", "study": "s", "started": "2026-11-30T10:00:00Z", "ended": "2026-11-30T10:05:00Z",
    "compiler": "nvcc 13.0.88", "git": {"commit": "0123456789abcdef", "dirty": False},
}  # fmt: skip


def confirmed(times: dict[int, float], study: str = "s") -> list[Confirmed]:
    """Finalists by tile, and the library beside them."""
    one = Confirmed("c", "now", study, "tiled", "float32", "small", {}, device=H200, cache="cold")
    return [
        *(replace(one, params={"tile": tile}, blocks_ms=(ms,) * 8) for tile, ms in times.items()),
        replace(
            one, kernel="cublas", params={"library": "cublas"}, role=Role.BASELINE, blocks_ms=(0.62,) * 8
        ),
    ]


def folder(
    path: Path, trials: Sequence[Trial], finals: Sequence[Confirmed] = (), *, csv: bool = False
) -> Path:
    """A results folder with a store, or with nothing but its exported table."""
    path.mkdir(parents=True)
    if csv:
        write_csv(frame(trials), path / "trials.csv")
        return path
    with Store(path / "study.db") as store:
        for each in trials:
            store.add(each)
        store.add_confirmed(finals)
        store.add_run(RUN)
    return path


def chosen(kernel: str = "tiled", size: int = 512, time_ms: float = 1.0, **more: Any) -> Chosen:
    values: dict[str, Any] = {
        "dtype": "float32", "layout": "nn", "device": H200, "dims": tuple(cube(size).items()),
        "params": {"tile": 16}, "timed": "confirmed", "best": True,
    }  # fmt: skip
    return Chosen(kernel=kernel, time_ms=time_ms, **{**values, **more})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shapes of one kernel, the smaller one with finalists that were confirmed."""
    large = [trial({"tile": tile}, ms, study="l", shape="large", number=number, dims=cube(4096))
             for number, (tile, ms) in enumerate({8: 30.0, 16: 18.0, 32: 15.0}.items(), 1)]  # fmt: skip
    return folder(tmp_path_factory.mktemp("runs") / "run", [*SMALL, *large], confirmed({8: 0.35, 16: 0.31}))


class TestWhatIsChosen:
    def test_of_each_shape_is_the_one_that_was_confirmed_or_the_fastest(self, results: Path) -> None:
        small, large = export_of([results]).rows
        assert (small.params, small.timed, small.time_ms) == ({"tile": 16}, "confirmed", pytest.approx(0.31))
        assert (small.library, small.verdict, small.ratio) == ("cublas", "faster", pytest.approx(2.0))
        assert (large.params, large.timed, large.time_ms) == ({"tile": 32}, "measured", 15.0)
        assert (large.ratio, large.verdict) == (None, "")

    def test_the_confirmed_winner_goes_before_a_faster_search(self, tmp_path: Path) -> None:
        """The best of many samples is also the luckiest."""
        run = folder(tmp_path / "run", SMALL, confirmed({8: 0.30, 16: 0.35}))
        assert export_of([run]).rows[0].params == {"tile": 8}

    def test_of_two_runs_it_is_the_faster_one_where_luck_does_not_explain_it(self, tmp_path: Path) -> None:
        first = folder(tmp_path / "a", SMALL, confirmed({8: 0.35, 16: 0.31}))
        for ms, tile in ((0.306, 16), (0.29, 4)):
            other = folder(tmp_path / f"b{tile}", [trial({"tile": 4}, ms)])
            assert export_of([first, other]).rows[0].params == {"tile": tile}

    def test_where_it_comes_from_is_told(self, results: Path) -> None:
        one = export_of([results]).rows[0].provenance
        assert (one.device, one.driver, one.compiler) == (H200, "580.1", "nvcc 13.0.88")
        assert (one.kernel_digest, one.measured, one.commit) == ("abcd", "2026-11-30", "0123456789ab")
        assert one.table == "run"

    def test_predicted_times_count_only_where_they_are_asked_for_and_nothing_was_measured(
        self, tmp_path: Path
    ) -> None:
        only = folder(tmp_path / "only", [predicted({"tile": 8}, 0.1)])
        with pytest.raises(NoValidConfiguration, match="1 are predicted"):
            export_of([only])
        (row,) = export_of([only], allow_predicted=True).rows
        assert (row.timed, row.time_ms) == ("predicted", 0.1)
        both = folder(tmp_path / "both", [trial({"tile": 16}, 0.3), predicted({"tile": 8}, 0.1, number=2)])
        assert export_of([both], allow_predicted=True).rows[0].params == {"tile": 16}

    def test_a_warm_time_counts_only_where_there_is_no_cold_one(self, tmp_path: Path) -> None:
        warm = trial({"tile": 8}, 0.1, 2, study="w", timing=Timing((0.1,) * 7, "events", "warm"))
        assert export_of([folder(tmp_path / "w", [warm])]).rows[0].cache == "warm"
        both = folder(tmp_path / "both", [trial({"tile": 16}, 0.3), warm])
        assert export_of([both]).rows[0].params == {"tile": 16}

    def test_the_best_kernel_of_a_shape_is_marked(self, tmp_path: Path) -> None:
        other = trial({"width": 4}, 0.2, study="o", kernel="other")
        rows = export_of([folder(tmp_path / "run", [*SMALL, other])]).rows
        assert {row.kernel: row.best for row in rows} == {"other": True, "tiled": False}

    def test_an_exported_table_says_the_same_as_the_store(self, tmp_path: Path) -> None:
        store, table = folder(tmp_path / "a", SMALL), folder(tmp_path / "b", SMALL, csv=True)
        (a,), (b,) = export_of([store]).rows, export_of([table]).rows
        assert replace(a, provenance=b.provenance) == b

    def test_a_table_of_shapes_is_read_beside_runs(self, tmp_path: Path, results: Path) -> None:
        shapes = tmp_path / "shapes.csv"
        with shapes.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(
                [
                    "shape",
                    "dtype",
                    "kernel",
                    "params",
                    "timed",
                    "time_ms",
                    "ratio",
                    "better_library",
                    "verdict",
                    "device",
                ]
            )
            line = [
                "64x64x64-nt",
                "float32",
                "tiled",
                '{"tile": 8}',
                "in turns",
                0.01,
                1.5,
                "cublas",
                "faster",
                H200,
            ]
            lines.writerow(line)
        rows = export_of([results, shapes]).rows
        assert {(row.sizes, row.layout) for row in rows} == {
            ("64x64x64", "nt"), ("512x512x512", "nn"), ("4096x4096x4096", "nn"),
        }  # fmt: skip
        (row,) = (row for row in rows if row.layout == "nt")
        assert (row.timed, row.ratio, row.library, row.verdict) == ("confirmed", 1.5, "cublas", "faster")

    @pytest.mark.parametrize(
        ("filters", "said"),
        [
            (Filters(kernel="tilde"), "did you mean 'tiled'"),
            (Filters(dtype="fp64"), "--dtype float64: the results have none"),
            (Filters(device="a100-sxm4-80gb"), f"they have {H200}"),
            (Filters(shape="1x2x3"), "4096x4096x4096"),
            (Filters(dtype="float33"), "unknown precision class"),
        ],
    )
    def test_a_filter_that_nothing_passes_names_what_there_is(
        self, results: Path, filters: Filters, said: str
    ) -> None:
        with pytest.raises(ConfigError) as error:
            export_of([results], filters)
        assert said in str(error.value)

    @pytest.mark.parametrize("shape", ["large", "4096x4096x4096"])
    def test_a_shape_goes_by_its_name_and_its_sizes(self, results: Path, shape: str) -> None:
        (row,) = export_of([results], Filters("tiled", "fp32", "h200", shape)).rows
        assert row.sizes == "4096x4096x4096"


class TestFewConfigurations:
    def test_one_serves_all_shapes_at_a_price(self, results: Path) -> None:
        """tile=16 takes 18 ms of the 15 that 32 takes, which is wrong at the small shape."""
        export = export_of([results], most=1)
        assert [row.params for row in export.rows] == [{"tile": 16}, {"tile": 16}]
        assert [row.slowdown for row in export.rows] == [1.0, pytest.approx(1.2)]
        (price,) = export.prices
        assert (price.count, price.shapes) == (1, 2)
        assert (price.price, price.worst) == (pytest.approx(1.2**0.5), pytest.approx(1.2))

    def test_as_many_as_are_needed_cost_nothing(self, results: Path) -> None:
        few, all_of_them = export_of([results], most=2), export_of([results])
        assert few.rows == all_of_them.rows
        assert few.prices[0].price == 1.0

    def test_where_none_covers_all_shapes_it_says_how_many_do(self, tmp_path: Path) -> None:
        rows = [trial({"tile": n}, 1.0, n, study=str(n), dims=cube(n)) for n in (8, 16, 32)]
        with pytest.raises(ConfigError, match="no 2 cover all 3 shapes of tiled float32; 3 do"):
            export_of([folder(tmp_path / "run", rows)], most=2)
        with pytest.raises(ConfigError, match="at least one"):
            export_of([tmp_path / "run"], most=0)


class TestTheRule:
    ROWS = tuple(record(chosen(size=size)) for size in (256, 1024, 4096))

    def ask(self, size: int, **more: Any) -> tuple[int, bool]:
        answer = find(self.ROWS, cube(size), **more)
        return answer.row["dims"]["M"], answer.exact

    def test_a_shape_of_the_table_answers_for_itself(self) -> None:
        assert self.ask(1024) == (1024, True)

    def test_any_other_takes_the_nearest_by_the_logarithms_of_its_sizes(self) -> None:
        assert [self.ask(size) for size in (1, 500, 3000, 10**6)] == [
            (256, False), (256, False), (4096, False), (4096, False),
        ]  # fmt: skip
        assert find(self.ROWS, cube(2**13)).doublings == pytest.approx(3**0.5)

    def test_of_two_as_near_it_takes_the_first(self) -> None:
        assert self.ask(2048) == (1024, False)

    def test_sizes_of_other_names_do_not_answer(self) -> None:
        with pytest.raises(LookupError, match="no row with sizes M, N"):
            find(self.ROWS, {"M": 1, "N": 1})
        with pytest.raises(ValueError, match="size M is -1"):
            find(self.ROWS, {**cube(1), "M": -1})

    def test_what_is_not_named_is_the_only_one_and_what_is_unknown_an_error(self) -> None:
        rows = [*self.ROWS, record(chosen(device=A100)), record(chosen(device=A100, layout="nt"))]
        assert find(self.ROWS, cube(1024), device=H200, dtype="float32", layout="nn", kernel="tiled").exact
        for wrong in ({"device": "A"}, {"dtype": "float64"}, {"layout": "tt"}, {"kernel": "k"}):
            with pytest.raises(LookupError):
                find(rows, cube(1024), **{"device": H200, **wrong})
        with pytest.raises(LookupError, match=f"name the device: {H200}, {A100}"):
            find(rows, cube(1024))
        assert find(rows, cube(512), device=A100).row["layout"] == "nn"

    @given(st.integers(1, 2**63 - 1))
    def test_the_logarithm_is_right_to_a_unit(self, size: int) -> None:
        import math

        assert abs(log2_fixed(size) - 65536 * math.log2(size)) < 2

    @given(st.integers(0, 62))
    def test_the_logarithm_of_a_power_of_two_is_exact(self, power: int) -> None:
        assert log2_fixed(2**power) == 65536 * power


class TestFormats:
    def test_the_json_table_reads_back_and_says_its_rule(self, results: Path, tmp_path: Path) -> None:
        export = export_of([results])
        path = tmp_path / "dispatch.json"
        path.write_text(json_table(export), encoding="utf-8")
        table = read_table(path)
        assert [
            {**row, "provenance": place} for place, row in enumerate(map(record, export.rows))
        ] == table.rows
        assert table.lookup(cube(600)).row["time_ms"] == pytest.approx(0.31)
        assert table.provenance[0]["device"] == H200
        content = json.loads(path.read_text(encoding="utf-8"))
        assert (content["format"], content["version"]) == ("sweeper-dispatch", 1)
        assert set(content["lookup"]) >= {"exact", "nearest", "L"}

    @pytest.mark.parametrize("text", ["{}", "no", '{"format": "sweeper-dispatch", "version": 2}', "[1]"])
    def test_what_is_no_such_table_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "t.json").write_text(text, encoding="utf-8")
        with pytest.raises(StorageError):
            read_table(tmp_path / "t.json")

    def test_the_module_answers_without_this_package(self, results: Path, tmp_path: Path) -> None:
        (tmp_path / "best.py").write_text(python_module(export_of([results])), encoding="utf-8")
        program = "from best import *; print(lookup(4000, 4096, 4096)[:3], lookup(512, 512, 512, dtype='float32')[2])"
        done = subprocess.run(
            [sys.executable, "-I", "-c", f"import sys; sys.path = ['.', *sys.path[1:]]; {program}"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "('tiled', {'tile': 32}, False) True\n"

    def test_sizes_that_only_some_rows_have_go_by_name(self) -> None:
        wide = chosen(dims=(("M", 8), ("N", 8), ("K", 8), ("LDA", 16)))
        odd = chosen(dims=(("class", 8), ("größe", 8), ("kernel", 8)))
        space: dict[str, Any] = {}
        exec(python_module(Export([chosen(size=8), wide])), space)  # noqa: S102 - our own module
        assert space["lookup"](8, 8, 8).row["dims"] == cube(8)
        assert space["lookup"](8, 8, 8, lda=17).row["dims"]["LDA"] == 16
        exec(python_module(Export([odd])), space)  # noqa: S102
        assert space["lookup"](8, 8, 8).exact

    def test_the_table_fits_and_says_how_far_the_library_is(self, results: Path) -> None:
        text = markdown(export_of([results], most=1))
        assert (
            "| 512x512x512    | tiled  | 1 |          310 µs |        200.0 | faster cublas | confirmed |"
            in text
        )
        assert "| 4096x4096x4096 | tiled  | 1 | 18 ms (+20.0 %) |" in text
        assert "1. tiled tile=16" in text
        assert "1 configuration serves 2 shapes, 9.54 % slower in the geometric" in text

    def test_a_table_of_long_names_still_fits(self) -> None:
        params = {f"a_parameter_with_a_long_name_{n}": 2**n for n in range(30)}
        dims = tuple((f"SIZE_{n}", 10**9) for n in range(9))
        row = chosen("a_kernel_with_quite_a_long_name_indeed", params=params, dims=dims, ratio=1.2345,
                     library="cublaslt", verdict="faster", slowdown=1.5)  # fmt: skip
        assert max(map(len, markdown(Export([row])).splitlines())) <= 100

    def test_equal_results_give_equal_bytes(self, results: Path, tmp_path: Path) -> None:
        for form in ("header", "json", "python", "table", "kernel_tuner", "t4"):
            texts = []
            for name in ("a", "b"):
                path = tmp_path / f"{name}.{form}"
                assert main([str(results), "--format", form, "--shape", "large", "--output", str(path)]) == 0
                texts.append(path.read_bytes())
            assert texts[0] == texts[1]

    @pytest.mark.parametrize("form", ["kernel_tuner", "t4"])
    def test_other_tuners_get_every_row_of_one_space(
        self, results: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "space.json"
        command = [str(results), "--format", form, "--output", str(path)]
        assert main(command) == 2
        assert "tiled float32 512x512x512" in capsys.readouterr().err
        assert main([*command, "--shape", "small"]) == 0
        rows = {row.params["tile"]: row for row in read_recorded(path)}
        assert {tile: row.usable_ms for tile, row in rows.items()} == {8: 0.40, 16: 0.30, 32: None}
        assert rows[32].status is Status.WRONG_RESULT or form == "kernel_tuner"

    def test_kernel_tuner_searches_the_cache_without_a_gpu(self, results: Path, tmp_path: Path) -> None:
        kernel_tuner = pytest.importorskip("kernel_tuner")
        path = tmp_path / "tiled.json"
        assert (
            main([str(results), "--format", "kernel_tuner", "--shape", "large", "--output", str(path)]) == 0
        )
        found, _ = kernel_tuner.tune_kernel(
            "tiled", "__global__ void tiled() {}", (1,), [], {"tile": [8, 16, 32]}, lang="CUDA",
            simulation_mode=True, cache=str(path), verbose=False, quiet=True,
        )  # fmt: skip
        assert {one["tile"]: one["time"] for one in found} == {8: 30.0, 16: 18.0, 32: 15.0}


class TestTheCommand:
    def test_writes_to_standard_output(self, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(results), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["format"] == "sweeper-dispatch"

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ([FAILED], "no right configuration with a time in run"),
            ([predicted({"tile": 8}, 0.1)], "--allow-predicted"),
        ],
        ids=["failed", "predicted"],
    )
    @pytest.mark.parametrize("form", FORMATS)
    def test_nothing_that_may_rank_is_one_error(
        self, tmp_path: Path, form: str, rows: list[Trial], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = folder(tmp_path / "run", rows)
        assert main([str(run), "--format", form, "--output", str(tmp_path / "out")]) == 1
        heard = capsys.readouterr().err
        assert heard.startswith("error: no ")
        assert said in heard or form not in ("header", "json", "python", "table")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("more", "code", "said"),
        [
            (["--format", "yaml"], 2, "invalid choice"),
            (["--format", "optuna"], 2, "needs --output"),
            (["--format", "t4", "--max-configurations", "2"], 2, "has no meaning with --format t4"),
            (["--format", "header", "--prefix", "my-lib"], 2, "write my_lib"),
            (["--format", "json", "--output", "."], 2, "is a folder"),
            (["--format", "json", "--output", "run/trials.csv"], 2, "a file of results"),
            (["--format", "json", "--output", "run/study.db"], 2, "a file of results"),
            (["--format", "json", "--output", "other.db"], 2, "a file of results"),
            (["--format", "optuna", "--output", "other.db"], 2, "holds more than an export"),
            (["nowhere", "--format", "json"], 4, "no such file"),
        ],
    )
    def test_what_cannot_be_is_told_and_costs_nothing(
        self,
        tmp_path: Path,
        more: list[str],
        code: int,
        said: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        folder(tmp_path / "run", SMALL)
        Path("other.db").write_bytes(Path("run/study.db").read_bytes())
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert main(["run", *more]) == code
        assert said in capsys.readouterr().err
        assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def test_reading_changes_nothing(self, results: Path) -> None:
        before = {path: path.read_bytes() for path in results.iterdir()}
        export_of([results])
        assert before == {path: path.read_bytes() for path in results.iterdir()}
