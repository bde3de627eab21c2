"""Which configuration to take for a shape: what the tables say of it, or of shapes like it, and what cannot be said."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.dispatch import Answer, Dispatcher, best
from sweeper.dispatch.choose import CONFIRMED_MARGIN, at_shape, distance, guesses
from sweeper.dispatch.command import main
from sweeper.dispatch.entry import Entry
from sweeper.dispatch.read import read_entries
from sweeper.errors import ConfigError, NoValidConfiguration, StorageError
from sweeper.kernel.sizes import parse_shape
from sweeper.model import Confirmed, Point, Role, Stage, Status, TimeSource, Timing, Trial
from sweeper.recording import read_recorded
from sweeper.resources.feasible import feasible_space
from sweeper.store import Store
from sweeper.table import frame, write_csv
from sweeper.table.confirmed import confirmed_frame

H200 = "NVIDIA H200"
TILED = {"tile": 16}
TMA = {"bm": 128, "bn": 256, "bk": 32, "wm": 64, "wn": 64, "stages": 4, "group": 8}
COLUMNS = ("shape", "dtype", "kernel", "params", "timed", "time_ms", "ratio", "better_library", "device")


def cube(size: int) -> dict[str, int]:
    return dict.fromkeys("MNK", size)


def entry(kernel: str = "tiled", size: int = 512, time_ms: float = 1.0, **more: Any) -> Entry:
    values = {"params": TILED, "dims": cube(size), "confirmed": True, **more}
    return Entry(kernel=kernel, dtype="float32", layout="nn", time_ms=time_ms, device=H200, **values)


def table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A table of shapes, as the instrument for families writes it."""
    usual = {
        "dtype": "float32",
        "timed": "in turns",
        "ratio": "1.1",
        "better_library": "cublas",
        "device": H200,
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()
        for row in rows:
            lines.writerow({**usual, **row, "params": json.dumps(row["params"])})
    return path


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Two kernels at 4096 cubed, and one of them at 1000 cubed."""
    rows = [
        {"shape": "4096x4096x4096", "kernel": "tma_pipeline", "params": TMA, "time_ms": 2.5},
        {"shape": "4096x4096x4096", "kernel": "tiled", "params": {"tile": 32}, "time_ms": 16.0},
        {"shape": "1000x1000x1000", "kernel": "tiled", "params": TILED, "time_ms": 0.3},
    ]
    return table(tmp_path / "fp32-shapes-rungs.csv", rows)


def trial(params: dict[str, Any], ms: float, **more: Any) -> Trial:
    values: dict[str, Any] = {
        "study": "s", "number": 1, "context": "c", "kernel": "tiled", "dtype": "float32", "shape": "small",
        "dims": cube(512), "status": Status.OK, "stage": Stage.DONE, "time_source": TimeSource.MEASURED,
        "timing": Timing((ms,) * 7, "events", "cold"), "device": H200, "backend": "cuda", "device_uuid": "GPU-1",
    }  # fmt: skip
    return Trial(params=params, **{**values, **more})


def run_of(folder: Path, *, exports: bool) -> Path:
    """A results folder: three configurations and a library, two of them confirmed."""
    folder.mkdir()
    library = {"role": Role.BASELINE, "kernel": "cublas", "number": 0}
    trials = [
        trial({"library": "cublas"}, 0.5, **library),
        trial({"tile": 8}, 0.40, number=1),
        trial({"tile": 16}, 0.30, number=2),
        trial({"tile": 32}, 0.10, number=3, status=Status.WRONG_RESULT, reason="wrong"),
    ]
    one = Confirmed("c", "now", "s", "tiled", "float32", "small", {"tile": 8}, device=H200, cache="cold")
    confirmed = [
        replace(one, blocks_ms=(0.40,) * 8),
        replace(one, params={"tile": 16}, blocks_ms=(0.31,) * 8),
        replace(
            one, kernel="cublas", params={"library": "cublas"}, role=Role.BASELINE, blocks_ms=(0.62,) * 8
        ),
    ]
    if exports:
        write_csv(frame(trials), folder / "trials.csv")
        confirmed_frame(confirmed).to_csv(folder / "confirmed.csv", index=False)
    else:
        with Store(folder / "study.db") as store:
            for each in trials:
                store.add(each)
            store.add_confirmed(confirmed)
    return folder


def test_an_answer_has_what_its_kernel_got_a_parameter_for_since(tmp_path: Path) -> None:
    older = {name: value for name, value in TMA.items() if name != "stages"}
    with Composer() as composer:
        default = composer.compose(["kernel=tma_pipeline"])[0].default_point.params["stages"]
    row = {"shape": "4096x4096x4096", "kernel": "tma_pipeline", "params": older, "time_ms": 2.5}
    answer = best([table(tmp_path / "fp32-shapes-rungs.csv", [row])], "4096x4096x4096")
    assert answer.tuned
    assert answer.params == {**TMA, "stages": default}


class TestWhatIsRead:
    @pytest.mark.parametrize("exports", [True, False], ids=["trials.csv", "study.db"])
    def test_of_a_run_is_what_was_measured_right_and_what_was_confirmed(
        self, tmp_path: Path, *, exports: bool
    ) -> None:
        found = read_entries([run_of(tmp_path / "run", exports=exports)])
        searched = {e.params["tile"]: e for e in found if not e.confirmed}
        confirmed = {e.params["tile"]: e for e in found if e.confirmed}
        assert set(searched) == set(confirmed) == {8, 16}
        assert searched[16].ratio == pytest.approx(0.5 / 0.3)
        assert confirmed[16].ratio == pytest.approx(2.0)
        assert (confirmed[16].library, confirmed[16].time_ms) == ("cublas", pytest.approx(0.31))
        assert all(e.dims == cube(512) and e.layout == "nn" and e.device == H200 for e in found)

    @pytest.mark.parametrize(
        "change",
        [
            {"time_source": TimeSource.PREDICTED, "timing": None, "predicted_ms": 0.1},
            {"time_source": TimeSource.REPLAYED},
            {"timing": Timing((0.1,) * 7, "events", "warm")},
            {"status": Status.CRASH, "timing": None},
        ],
        ids=["predicted", "replayed", "warm", "failed"],
    )
    def test_leaves_out_what_no_clock_measured_cold(self, tmp_path: Path, change: dict[str, Any]) -> None:
        write_csv(frame([trial({"tile": 8}, 1.0), trial({"tile": 16}, 0.1, number=2, **change)]),
                  tmp_path / "trials.csv")  # fmt: skip
        assert [e.params for e in read_entries([tmp_path])] == [{"tile": 8}]

    def test_of_a_folder_is_in_the_folders_in_it_too(self, tmp_path: Path, shapes: Path) -> None:
        run_of(tmp_path / "run", exports=True)
        tables = {Path(e.table).name for e in read_entries([tmp_path])}
        assert tables == {"run", shapes.name}

    def test_of_a_shape_with_a_layout_is_of_that_layout(self, tmp_path: Path) -> None:
        rows = [{"shape": "64x64x64-nt", "kernel": "tiled", "params": TILED, "time_ms": 1}]
        (one,) = read_entries([table(tmp_path / "t.csv", rows)])
        assert (one.layout, one.dims) == ("nt", cube(64))

    def test_is_nothing_where_nothing_is_there(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no such file or folder"):
            read_entries([tmp_path / "nowhere"])
        with pytest.raises(StorageError, match="no measured configuration"):
            read_entries([tmp_path])

    @pytest.mark.parametrize("shape", ["512", "8x8", "8x8x0", "8x8x8x8", "axbxc", ""])
    @pytest.mark.parametrize("read", [lambda path: read_entries([path]), read_recorded])
    def test_of_a_shape_that_is_none_is_one_error_whoever_reads_it(
        self, read: Callable[[Path], object], shape: str, tmp_path: Path
    ) -> None:
        path = table(tmp_path / "t.csv", [{"shape": shape, "kernel": "tiled", "params": TILED, "time_ms": 1}])
        with pytest.raises(StorageError) as raised:
            read(path)
        assert raised.value.message == f"{path} is not a recorded table: shape {shape!r} is not MxNxK"

    def test_is_refused_where_it_is_no_table_of_ours(self, tmp_path: Path) -> None:
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(StorageError, match="is no table of configurations"):
            read_entries([tmp_path / "other.csv"])
        rows = table(
            tmp_path / "t.csv", [{"shape": "8x8x8", "kernel": "tiled", "params": TILED, "time_ms": 1}]
        )
        rows.write_text(rows.read_text().replace("{", "<"))
        with pytest.raises(StorageError, match="is no JSON"):
            read_entries([rows])


class TestAtAShapeThatWasTuned:
    def test_a_confirmed_configuration_goes_before_a_luckier_one(self) -> None:
        confirmed = entry(time_ms=1.0)
        lucky = entry(time_ms=1.0 / (CONFIRMED_MARGIN - 0.001), confirmed=False, params={"tile": 8})
        faster = entry(time_ms=0.9, confirmed=False, params={"tile": 32})
        assert at_shape([lucky, confirmed], cube(512)) == [confirmed, lucky]
        assert at_shape([lucky, confirmed, faster], cube(512))[0] == faster

    def test_only_the_very_sizes_count(self) -> None:
        assert at_shape([entry(size=512)], cube(513)) == []

    def test_the_answer_says_so_with_time_ratio_and_device(self, shapes: Path) -> None:
        answer = best([shapes], "4096x4096x4096")
        assert (answer.kernel, answer.params) == ("tma_pipeline", TMA)
        assert (answer.tuned, answer.time_ms, answer.ratio, answer.device) == (True, 2.5, 1.1, H200)
        assert answer.how == "tuned: confirmed in turns at this shape"
        assert answer.predicted_ms is None

    def test_one_that_its_kernel_no_longer_allows_is_passed_over(self, tmp_path: Path) -> None:
        rows = [
            {"shape": "512x512x512", "kernel": "tiled", "params": {"tile": 64}, "time_ms": 0.1},
            {"shape": "512x512x512", "kernel": "gone", "params": {}, "time_ms": 0.1},
            {"shape": "512x512x512", "kernel": "tiled", "params": {"tiles": 8}, "time_ms": 0.1},
            {"shape": "512x512x512", "kernel": "tiled", "params": TILED, "time_ms": 1.0},
        ]
        answer = best([table(tmp_path / "t.csv", rows)], "512x512x512")
        assert (answer.kernel, answer.params, answer.tuned) == ("tiled", TILED, True)


class TestAtAnyOtherShape:
    @pytest.fixture
    def dispatcher(self, shapes: Path) -> Dispatcher:
        return Dispatcher([shapes])

    def test_the_answer_says_from_where_it_is_and_that_nothing_was_measured(
        self, dispatcher: Dispatcher
    ) -> None:
        answer = dispatcher.best("4000x4096x4096")
        assert (answer.kernel, answer.tuned, answer.recorded_dims) == ("tma_pipeline", False, cube(4096))
        assert answer.how.startswith(
            "nearest: 4096x4096x4096 (confirmed in turns there), 0.03 doublings away"
        )
        assert answer.time_ms == 2.5
        assert answer.predicted_ms == pytest.approx(2.5, rel=0.1)

    def test_what_cannot_run_there_is_never_the_answer(self, dispatcher: Dispatcher) -> None:
        """Rows of 4097 floats do not begin at multiples of 16 bytes, as TMA wants them to."""
        answer = dispatcher.best("4097x4097x4097")
        assert answer.kernel == "tiled"

    @pytest.mark.parametrize("shape", ["1x1x1", "31x33x17", "3x3x431", "4096x4096x64", "70000x8x128"])
    def test_the_answer_can_run(self, dispatcher: Dispatcher, shape: str) -> None:
        answer = dispatcher.best(shape)
        with Composer() as composer:
            spec, _ = composer.compose([f"kernel={answer.kernel}"])
        sizes = {**parse_shape(shape)[0]}
        sizes |= {"LDA": sizes["K"], "LDB": sizes["N"], "LDC": sizes["N"]}
        assert feasible_space(spec, sizes, target("h200")).row(Point.of(dict(answer.params))) is not None

    def test_a_time_is_carried_over_by_what_the_model_says_of_both_shapes(self) -> None:
        """The kernel takes twice what the model says; so it does elsewhere."""
        predicted = {512: 1.0, 1024: 7.0}
        (guess,) = guesses(
            [entry(size=512, time_ms=2.0)], cube(1024), lambda e, dims: (None, predicted[dims["M"]])
        )
        assert guess.time_ms == pytest.approx(14.0)
        assert guess.by_model
        assert guess.distance == pytest.approx(3**0.5)

    def test_by_its_operations_where_the_model_says_nothing(self) -> None:
        (guess,) = guesses([entry(size=512, time_ms=2.0)], cube(1024), lambda e, dims: (None, None))
        assert guess.time_ms == pytest.approx(16.0)
        assert not guess.by_model

    def test_of_two_that_are_thought_equal_the_nearer_is_taken(self) -> None:
        near, far = entry(size=1000, params={"tile": 8}), entry(size=100, time_ms=1e-3, params={"tile": 16})
        ranked = guesses([far, near], cube(1024), lambda e, dims: (None, None))
        assert [guess.entry for guess in ranked] == [near, far]

    def test_what_was_slow_everywhere_is_not_looked_at(self) -> None:
        slow = entry(time_ms=3.0, params={"tile": 8})
        ranked = guesses([entry(time_ms=1.0), slow], cube(1024), lambda e, dims: (None, None))
        assert [guess.entry.time_ms for guess in ranked] == [1.0]

    def test_shapes_of_other_sizes_are_not_compared(self) -> None:
        assert distance({"M": 8}, {"N": 8}) == float("inf")
        assert guesses([entry(dims={"M": 8})], cube(8), lambda e, dims: (None, None)) == []


class TestWhatCannotBeAnswered:
    @pytest.mark.parametrize(
        ("asked", "kind", "said"),
        [
            ({"shape": "512"}, ConfigError, "shape '512' is not MxNxK"),
            ({"dtype": "float31"}, ConfigError, "unknown precision class 'float31'"),
            ({"dtype": "bf16"}, NoValidConfiguration, "precision class bfloat16; they have float32"),
            ({"layout": "nt"}, NoValidConfiguration, "layout nt; they have nn"),
            ({"device": "h2oo"}, ConfigError, "unknown target 'h2oo'"),
            ({"device": "a100"}, NoValidConfiguration, "device NVIDIA A100-SXM4-80GB; they have NVIDIA H200"),
        ],
    )
    def test_is_said_with_what_there_is(
        self, shapes: Path, asked: dict[str, str], kind: type[Exception], said: str
    ) -> None:
        with pytest.raises(kind) as caught:
            best([shapes], **{"shape": "512x512x512", **asked})
        assert said in str(caught.value)

    def test_a_kernel_that_the_device_is_too_old_for_is_no_answer(self, tmp_path: Path) -> None:
        row = {"shape": "512x512x512", "kernel": "tma_pipeline", "params": TMA, "time_ms": 1}
        path = table(tmp_path / "t.csv", [{**row, "device": "NVIDIA A100-SXM4-80GB"}])
        with pytest.raises(
            NoValidConfiguration, match="none of 1 recorded configurations can run at 512x512x512"
        ):
            best([path], "512x512x512")

    def test_tables_of_two_devices_need_one_to_be_named(self, tmp_path: Path) -> None:
        row = {"shape": "512x512x512", "kernel": "tiled", "params": TILED, "time_ms": 1}
        other = {**row, "device": "NVIDIA A100-SXM4-80GB", "params": {"tile": 32}}
        path = table(tmp_path / "t.csv", [row, other])
        with pytest.raises(ConfigError, match="2 kinds of device"):
            best([path], "512x512x512")
        assert best([path], "512x512x512", device="a100").params == {"tile": 32}

    def test_a_problem_that_the_memory_does_not_hold_has_no_answer(self, shapes: Path) -> None:
        with pytest.raises(NoValidConfiguration, match="none of 3 recorded configurations can run"):
            best([shapes], {"M": 400_000, "N": 400_000, "K": 64})


class TestTheCommand:
    def test_tells_kernel_configuration_and_grounds(
        self, shapes: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(shapes), "--shape", "4096x4096x4096", "--shape", "4000x4000x4000"]) == 0
        said = capsys.readouterr().out
        assert "tma_pipeline bm=128 bn=256" in said
        assert "tuned: confirmed in turns at this shape" in said
        assert "2.5 ms here, 1.100 × cublas" in said
        assert "nearest: 4096x4096x4096" in said
        assert "expected here: not measured" in said

    def test_gives_json_for_programs(self, shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(shapes), "--shape", "4096x4096x4096", "--json", "--device", "h200"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["kernel"] == "tma_pipeline"
        assert told["params"] == TMA
        assert told["tuned"] is True
        assert set(told) == set(Answer.__dataclass_fields__) | {"how"}

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["--shape", "8x8"], 2, "is not MxNxK"),
            (["--shape", "8x8x8", "--dtype", "f99"], 2, "unknown precision class"),
            (["--shape", "8x8x8", "--dtype", "bf16"], 1, "no configuration of precision class bfloat16"),
            ([], 2, "--shape"),
        ],
    )
    def test_ends_with_a_reason(
        self, shapes: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(shapes), *arguments]) == code
        assert said in capsys.readouterr().err

    def test_ends_with_4_where_there_are_no_results(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(tmp_path / "nowhere"), "--shape", "8x8x8"]) == 4
        assert "no such file or folder" in capsys.readouterr().err
