"""Tables of results: what is derived from trials, the CSV file's bytes, and what ranks."""

from __future__ import annotations

import errno
import json
import locale
import math
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.atomic import atomic_write  # noqa: E402
from sweeper.errors import NoValidConfiguration, StorageError  # noqa: E402
from sweeper.model import Build, Check, Launch, Role, Stage, Status, TimeSource, Timing, Trial  # noqa: E402
from sweeper.table import (  # noqa: E402
    COLUMNS,
    best,
    best_per_shape,
    csv_bytes,
    frame,
    rankable,
    read_csv,
    status_counts,
    write_csv,
)
from sweeper.table.columns import LATER  # noqa: E402
from sweeper.table.ranking import failure_lines  # noqa: E402
from sweeper.table.row import without_paths  # noqa: E402

RESULTS = Path(__file__).parents[1] / "results"


def timed(number: int, *samples: float, **changes: Any) -> Trial:
    return trial(number, timing=Timing(samples, "events", "cold"), **changes)


def failed(number: int, status: Status, reason: str, **changes: Any) -> Trial:
    values = {"stage": Stage.LAUNCH, "timing": None, "time_source": None, "check": None, **changes}
    return trial(number, status=status, reason=reason, **values)


def library(name: str, ms: float, **changes: Any) -> Trial:
    return timed(0, ms, role=Role.BASELINE, kernel=name, params={"library": name}, **changes)


def predicted(number: int = 1, **changes: Any) -> Trial:
    values = {"time_source": TimeSource.PREDICTED, "predicted_ms": 3.0, "timing": None, **changes}
    return trial(number, **values)


def only(table: Any) -> Any:
    assert len(table) == 1
    return table.iloc[0]


# Cells


def test_a_billion_operations_in_two_milliseconds_are_a_thousand_gflops() -> None:
    row = only(frame([timed(1, 2.0, dims={"M": 1000, "N": 1000, "K": 1000}, flops=2 * 1000**3)]))
    assert row["gflops"] == 1000.0


def test_the_time_is_the_median_and_the_interval_is_that_of_the_median() -> None:
    row = only(frame([timed(1, *[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])]))
    assert (row["time_ms"], row["time_min_ms"], row["samples"]) == (4.0, 1.0, 7)
    # Seven samples: the smallest and the largest cover the median with 1 - 2/2^7 = 98.4 %.
    assert (row["time_low_ms"], row["time_high_ms"]) == (1.0, 7.0)


def test_too_few_samples_have_a_median_and_no_interval() -> None:
    row = only(frame([timed(1, 1.0, 2.0)]))
    assert row["time_ms"] == 1.5
    assert row["time_low_ms"] is pd.NA
    assert row["time_high_ms"] is pd.NA


def test_a_predicted_row_has_its_time_and_nothing_a_clock_or_a_folder_wrote() -> None:
    build = Build(
        "k", "host", Path("/home/me/cache/k.so"), "mm", "g++ 12", ("-O2", "-I/home/me/kernels"), seconds=1.5
    )
    row = only(frame([predicted(build=build, build_s=1.5, measure_s=2.5, details={"log": "/home/me/log"})]))
    assert (row["time_ms"], row["time_source"]) == (3.0, "predicted")
    for name in ("time_low_ms", "time_high_ms", "time_min_ms", "samples", "build_s", "measure_s"):
        assert row[name] is pd.NA
    assert "/home/me" not in csv_bytes(frame([predicted(build=build)])).decode()
    assert row["options"] == "-O2 -Ikernels"


def test_a_failed_row_has_no_time_though_one_was_predicted_for_it() -> None:
    row = only(frame([predicted(status=Status.WRONG_RESULT, stage=Stage.VERIFY, reason="wrong")]))
    assert row["time_ms"] is pd.NA
    assert row["gflops"] is pd.NA


def test_times_are_compared_with_the_fastest_library_of_the_same_study() -> None:
    rows = frame(
        [timed(1, 2.0), library("cublas", 1.0), library("cublaslt", 0.5), timed(1, 2.0, study="other")]
    )
    assert rows["percent_of_library"].tolist() == [50.0, 100.0, 25.0, pd.NA]


def test_measured_times_are_not_compared_with_predicted_ones() -> None:
    rows = frame([predicted(1), library("cublas", 1.0)])
    assert rows.iloc[1]["percent_of_library"] is pd.NA


def test_the_share_of_the_roofline_follows_from_the_least_time() -> None:
    assert only(frame([timed(1, 2.0, details={"roofline_ms": 0.5})]))["percent_of_roofline"] == 25.0
    assert only(frame([timed(1, 2.0)]))["percent_of_roofline"] is pd.NA


def test_copies_and_the_hosts_product_stand_beside_each_row_where_they_were_asked_for() -> None:
    told = {"h2d_ms": 5.0, "d2h_ms": 3.0, "cpu_ms": 40.0, "cpu_note": "NumPy float32"}
    asked, plain = (
        row for _, row in frame([timed(1, 2.0, details={"transfers": told}), timed(2, 2.0)]).iterrows()
    )
    assert [asked[name] for name in told] == [5.0, 3.0, 40.0, "NumPy float32"]
    assert asked["h2d_pinned_ms"] is pd.NA, "pinned memory was not to be had"
    assert [plain[name] for name in told] == [pd.NA, pd.NA, pd.NA, ""]


def test_shared_memory_is_the_compilers_static_figure_and_the_dynamic_one() -> None:
    launch = Launch((16, 16, 1), (2, 3, 4), 1000, 500)
    known = Build(
        "k", "nvcc", Path("k"), "mm", "nvcc", static_shared_bytes=600, spill_bytes=8, local_bytes=16
    )
    row = only(frame([trial(1, launch=launch, build=known, occupancy=0.5)]))
    assert (row["shared_bytes"], row["threads"], row["blocks"]) == (1600, 256, 24)
    assert (row["spill_bytes"], row["local_bytes"], row["occupancy"]) == (8, 16, 0.5)
    assert only(frame([trial(1, launch=launch, build=None)]))["shared_bytes"] == 1500
    assert only(frame([trial(1, launch=None, build=known)]))["shared_bytes"] == 600


def test_a_failed_check_shows_its_largest_error_and_where_it_is() -> None:
    check = Check(False, 100, 3, 0.5, math.inf, (3, 4), note="12 of 64 blocks")
    row = only(frame([failed(1, Status.WRONG_RESULT, "3 of 100 wrong", check=check)]))
    assert (row["wrong"], row["checked"], row["max_error"], row["error_ratio"]) == (3, 100, 0.5, math.inf)
    assert (row["error_index"], row["check_note"]) == ("[3, 4]", "12 of 64 blocks")


def test_every_failed_row_has_parameters_stage_reason_and_the_errors_type() -> None:
    row = only(frame([failed(1, Status.BUILD_ERROR, "no such header", details={"exception": "KeyError"})]))
    assert json.loads(row["params"]) == trial(1).params
    assert (row["param_tile"], row["stage"], row["reason"]) == (8, "launch", "no such header")
    assert row["exception"] == "KeyError"


@pytest.mark.parametrize("samples", [(math.nan,), (1.0, math.inf), ()])
def test_samples_that_are_no_numbers_give_no_time(samples: tuple[float, ...]) -> None:
    assert only(frame([timed(1, *samples)]))["time_ms"] is pd.NA


def test_a_figure_too_large_for_a_column_is_blank() -> None:
    assert only(frame([trial(1, flops=2**70, seed=2**64)]))["flops"] is pd.NA


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/kernels/tiled.cu(12): error", "tiled.cu(12): error"),
        ("see '/tmp/a/log' and /var/b", "see 'log' and b"),
        ("-I/opt/cuda/include", "-Iinclude"),
        ("--include-path=/opt/cuda/include", "--include-path=include"),
        ("grid x = M / 16 / 2", "grid x = M / 16 / 2"),
        ("12 GFLOP/s, a/b/c and 3/4", "12 GFLOP/s, a/b/c and 3/4"),
        ("two\nlines\tand\x1b[1m more", "two lines and [1m more"),
    ],
)
def test_text_is_one_line_and_paths_are_cut_to_their_last_part(text: str, shown: str) -> None:
    assert without_paths(text) == shown


# Rows and columns


def test_every_column_is_described_once_and_there_whatever_the_kernel() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in COLUMNS)
    table = frame([trial(1)])
    assert [name for name in table.columns if not name.startswith("param_")] == names
    assert {str(table[c.name].dtype) for c in COLUMNS} == {"Int64", "Float64", "string"}


def test_rows_stand_in_the_order_of_studies_and_numbers() -> None:
    given = [trial(2, study="b"), trial(1, study="a"), trial(1, study="b"), library("cublas", 1.0, study="a")]
    table = frame(given)
    assert list(zip(table["study"], table["trial"], strict=True)) == [("b", 1), ("b", 2), ("a", 0), ("a", 1)]


def test_kernels_with_different_parameters_share_one_table(tmp_path: Path) -> None:
    one = trial(1, study="tiled", params={"tile": 8})
    other = trial(1, study="reg", params={"bm": 64, "tile": 16, "layout": "row"})
    table = frame([one, other])
    assert [name for name in table.columns if name.startswith("param_")] == [
        "param_tile",
        "param_bm",
        "param_layout",
    ]
    assert table["param_bm"].tolist() == [pd.NA, 64]
    assert table["param_layout"].tolist() == ["", "row"]
    write_csv(table, tmp_path / "t.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "t.csv"), table)


def test_a_librarys_name_is_no_parameter_column() -> None:
    assert "param_library" not in frame([trial(1), library("cublas", 1.0)]).columns


@pytest.mark.parametrize(
    ("levels", "dtype"),
    [
        ([1, 2], "Int64"),
        ([0.5, 1.0], "Float64"),
        ([True, False], "boolean"),
        (["a", "b"], "string"),
        ([1, "a"], "string"),
        ([1, 0.5], "string"),
        ([2**70, 1], "string"),
    ],
)
def test_a_parameters_column_has_the_type_of_its_levels(
    tmp_path: Path, levels: list[Any], dtype: str
) -> None:
    table = frame([trial(n, params={"p": level}) for n, level in enumerate(levels, start=1)])
    assert str(table["param_p"].dtype) == dtype
    write_csv(table, tmp_path / "t.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "t.csv"), table)


# The file


MIXED = [
    trial(1),
    timed(2, 0.1, 0.2, 1 / 3, 1e-7, 12345678.9),
    failed(3, Status.CRASH, 'SIGSEGV: "quoted", comma\nand line'),
    predicted(4, params={"tile": 64, "vector": 1}),
    library("cublas", 1.0),
]


def test_a_table_reads_back_as_it_was_written(tmp_path: Path) -> None:
    table = frame(MIXED)
    write_csv(table, tmp_path / "trials.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "trials.csv"), table)


def test_the_same_trials_give_the_same_bytes() -> None:
    assert csv_bytes(frame(MIXED)) == csv_bytes(frame(list(MIXED)))
    assert csv_bytes(frame(MIXED)).decode("utf-8").count("\n") == len(MIXED) + 1


def test_numbers_are_written_in_their_shortest_form_and_blanks_are_empty() -> None:
    header, *lines = csv_bytes(frame([timed(1, 1 / 3)])).decode().splitlines()
    cells = dict(zip(header.split(","), lines[0].split(","), strict=False))
    assert cells["time_ms"] == "0.3333333333333333"
    assert cells["trial"] == "1"
    assert cells["time_low_ms"] == cells["spill_bytes"] == cells["reason"] == ""


def test_the_bytes_do_not_depend_on_locale_hash_seed_or_terminal(tmp_path: Path) -> None:
    code = (
        "import sys, locale; from contract.store_contract import trial; from sweeper.table import *;"
        "locale.setlocale(locale.LC_ALL, '');"
        "sys.stdout.buffer.write(csv_bytes(frame([trial(n, reason='µs × 0.5') for n in (1, 2)])))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    outputs = set()
    for settings in (
        {"LC_ALL": "C", "PYTHONHASHSEED": "0"},
        {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7", "TERM": "dumb"},
        {"LC_ALL": comma_locale(), "PYTHONIOENCODING": "latin-1"},
    ):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": paths, **settings},
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert b"\xc2\xb5s" in outputs.pop()


def comma_locale() -> str:
    """A locale with a decimal comma where the machine has one, else a plain one."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8"):
            try:
                locale.setlocale(locale.LC_ALL, name)
            except locale.Error:
                continue
            return name
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return "C"


def test_text_that_is_no_unicode_does_not_stop_the_export(tmp_path: Path) -> None:
    table = frame([trial(1, device="x\udcffy")])
    write_csv(table, tmp_path / "t.csv")
    assert "x\\udcffy" in (tmp_path / "t.csv").read_text(encoding="utf-8")


def test_an_empty_table_is_a_header(tmp_path: Path) -> None:
    write_csv(frame([]), tmp_path / "t.csv")
    assert len(read_csv(tmp_path / "t.csv")) == 0
    assert list(read_csv(tmp_path / "t.csv").columns) == [column.name for column in COLUMNS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "it has no column study"),
        (b"", "it has no column study"),
        (b"\xff\xfe", "no UTF-8"),
        (b"PK\x03\x04\n\x00", "it has no column"),
    ],
)
def test_a_foreign_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(StorageError, match=message):
        read_csv(tmp_path / "t.csv")


def test_a_table_changed_by_hand_is_refused_with_the_row(tmp_path: Path) -> None:
    good = csv_bytes(frame([trial(1)])).decode()
    for old, new, message in (
        (",2.0,", ",fast,", "row gemm-float32-large-12345678 1: .*fast"),
        ("2.0,", "2.0,,,", "cells where the header has"),
        ('"{""tile"": 8, ""vector"": 4}"', "tile", "params"),
        ('"{""tile', '"{"tile', "',' expected"),
    ):
        assert old in good
        (tmp_path / "t.csv").write_text(good.replace(old, new, 1))
        with pytest.raises(StorageError, match=message):
            read_csv(tmp_path / "t.csv")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"t\.csv cannot be read"):
        read_csv(tmp_path / "t.csv")


def test_a_file_cut_off_opens_without_its_last_line_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_csv(frame([trial(1), trial(2)]), path)
    os.truncate(path, path.stat().st_size - 5)
    with pytest.warns(UserWarning, match="last line was cut off"):
        assert read_csv(path)["trial"].tolist() == [1]


def test_a_file_that_cannot_be_written_leaves_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_csv(frame([trial(1)]), path)
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(old) + 10, limits[1]))
        with pytest.raises(StorageError, match=r"t\.csv cannot be written: File too large") as caught:
            write_csv(frame([trial(n) for n in range(1, 9)]), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_code == 4
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("function", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EROFS)]
)
def test_an_error_at_any_step_of_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(StorageError, match=os.strerror(code)):
        atomic_write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_a_folder_that_cannot_be_synced_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls = []

    def only_files(descriptor: int) -> None:
        calls.append(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "no sync for folders")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    atomic_write(tmp_path / "a" / "t", b"new")
    assert (tmp_path / "a" / "t").read_bytes() == b"new"
    assert len(calls) == 2


def test_a_link_keeps_pointing_where_it_does(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


# What ranks


def test_only_valid_rows_with_a_finite_time_above_zero_rank() -> None:
    table = frame(
        [
            timed(1, 0.0),
            timed(2, math.nan),
            timed(3, 2.0),
            timed(4, math.inf),
            timed(5, 1.0, status=Status.WRONG_RESULT, stage=Stage.VERIFY),
            library("cublas", 0.5),
            timed(7, 2.5),
        ]
    )
    assert best(table)["trial"] == 3
    assert rankable(table)["trial"].tolist() == [3, 7]


def test_of_equal_times_the_first_configuration_is_best() -> None:
    assert best(frame([timed(1, 3.0), timed(2, 2.0), timed(3, 2.0)]))["trial"] == 2


def test_without_a_valid_row_the_error_counts_the_reasons() -> None:
    table = frame(
        [
            failed(1, Status.LAUNCH_ERROR, "threads 2048 > 1024"),
            failed(2, Status.LAUNCH_ERROR, "threads 4096 > 1024"),
            failed(3, Status.WRONG_RESULT, "7 of 64 elements wrong"),
            timed(4, math.nan),
        ]
    )
    with pytest.raises(NoValidConfiguration) as caught:
        best(table)
    message = str(caught.value)
    assert "2 × launch_error at launch: threads 2048 > 1024" in message
    assert "1 × wrong_result" in message
    assert "1 × ok without a finite time" in message
    assert '{"tile": 8, "vector": 4}' in message
    assert caught.value.exit_code == 1


def test_an_empty_table_has_no_best_and_says_that_nothing_was_tried() -> None:
    with pytest.raises(NoValidConfiguration, match="no configuration was tried"):
        best(frame([]))
    assert len(best_per_shape(frame([]))) == 0
    assert failure_lines(frame([])) == []


def test_statuses_are_counted_with_an_example_of_each_reason() -> None:
    table = frame(
        [
            timed(1, 1.0),
            failed(2, Status.CRASH, "SIGSEGV", details={"exception": "ChildDied"}),
            failed(3, Status.BUILD_ERROR, "line 3", stage=Stage.BUILD),
            failed(4, Status.BUILD_ERROR, "line 9", stage=Stage.BUILD),
            library("cublas", 1.0),
        ]
    )
    counts = status_counts(table)
    assert list(zip(counts["status"], counts["stage"], counts["count"], strict=True)) == [
        ("build_error", "build", 2),
        ("ok", "done", 1),
        ("crash", "launch", 1),
    ]
    assert counts["reason"].tolist() == ["line 3", "", "SIGSEGV"]
    assert counts["exception"].tolist() == ["", "", "ChildDied"]
    assert json.loads(counts["params"][0]) == trial(3).params


def test_a_thousand_failures_make_a_short_list() -> None:
    rows = [failed(n, Status.CRASH, f"reason {chr(97 + n % 26)}") for n in range(1, 1001)]
    lines = failure_lines(frame(rows))
    assert len(lines) == 11
    assert lines[0].startswith("39 × crash")
    assert lines[-1] == "and 16 more kinds of failure"


def test_the_best_of_every_kernel_shape_and_class_stands_beside_the_library() -> None:
    other = {"study": "small", "shape": "small"}
    table = frame(
        [
            library("cublas", 1.0),
            library("cublaslt", 0.8),
            timed(1, 4.0),
            timed(2, 2.0),
            failed(3, Status.CRASH, "x"),
            timed(1, 0.5, **other),
            failed(2, Status.CRASH, "x", **other),
            failed(1, Status.CRASH, "x", study="none", shape="none"),
        ]
    )
    shapes = best_per_shape(table)
    assert shapes["shape"].tolist() == ["large", "small"]
    assert shapes["trial"].tolist() == [2, 1]
    assert shapes["param_tile"].tolist() == [16, 8]
    assert shapes["library"].tolist() == ["cublaslt", ""]
    assert shapes["library_ms"].tolist() == [0.8, pd.NA]
    assert shapes["percent_of_library"].tolist() == [40.0, pd.NA]
    assert shapes["trials"].tolist() == [3, 2]
    assert shapes["valid"].tolist() == [2, 1]


def test_measured_and_predicted_times_and_devices_do_not_compete() -> None:
    table = frame(
        [
            timed(1, 4.0),
            timed(2, 1.0, device="NVIDIA A100"),
            predicted(3, predicted_ms=0.1),
        ]
    )
    assert best_per_shape(table)["trial"].tolist() == [1, 2, 3]


def test_the_best_of_every_shape_can_be_written(tmp_path: Path) -> None:
    table = frame([timed(1, 4.0), replace(timed(1, 2.0), study="b", shape="b")])
    write_csv(best_per_shape(table), tmp_path / "best.csv")
    assert (
        (tmp_path / "best.csv")
        .read_text()
        .startswith("kernel,dtype,shape,m,n,k,device,time_source,param_tile")
    )


def test_ranking_survives_the_way_through_a_file(tmp_path: Path) -> None:
    table = frame(MIXED)
    write_csv(table, tmp_path / "t.csv")
    again = read_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(best_per_shape(again), best_per_shape(table))
    pd.testing.assert_frame_equal(status_counts(again), status_counts(table))


def test_pandas_is_not_imported_until_a_table_is_made() -> None:
    code = "import sys, sweeper.table, sweeper.table.ranking; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", sorted((RESULTS / "h200").rglob("trials.csv")), ids=lambda p: p.parent.name)
def test_a_table_recorded_by_an_earlier_version_can_be_read(path: Path) -> None:
    table = read_csv(path)
    assert len(table) > 0
    assert not best_per_shape(table).empty


def test_columns_that_a_table_did_not_have_yet_are_blank(tmp_path: Path) -> None:
    whole = frame([timed(1, 2.0, details={"transfers": {"h2d_ms": 5.0}})])
    write_csv(whole.drop(columns=sorted(LATER)), tmp_path / "trials.csv")
    row = only(read_csv(tmp_path / "trials.csv"))
    assert row["h2d_ms"] is pd.NA
    assert row["cpu_note"] == ""
    assert row["time_ms"] == 2.0
