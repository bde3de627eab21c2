"""Recorded tables in our compact form and in the community's: what is written is what is read."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.backend.replay import ReplayTable
from sweeper.errors import StorageError
from sweeper.model import Role, Stage, Status
from sweeper.recording import Recorded, read_recorded, write_cache, write_compact, write_t4

DIMS = {"M": 64, "N": 32, "K": 16}


def row(params: dict[str, Any], samples: tuple[float, ...] = (2.0, 3.0, 4.0), **more: Any) -> Recorded:
    known: dict[str, Any] = {
        "role": Role.CANDIDATE, "kernel": "tiled", "dtype": "float32", "dims": DIMS, "params": params,
        "status": Status.OK if samples else Status.BUILD_ERROR, "stage": Stage.DONE if samples else Stage.BUILD,
        "reason": "" if samples else "error: no", "samples_ms": samples, "time_source": "measured",
        "method": "events", "cache": "cold", "device": "NVIDIA H200", "device_uuid": "GPU-1", "driver": "580",
        "build_s": 0.25, "measure_s": 0.5,
    }  # fmt: skip
    return Recorded(**{**known, **more})


ROWS = [
    row({"tile": 8, "layout": "row"}, registers=32),
    row({"tile": 16, "layout": "row"}, (1.5,)),
    row({"tile": 32, "layout": "row"}, ()),
]
LIBRARY = row({"library": "cublas"}, (0.5,), role=Role.BASELINE, kernel="cublas")


@pytest.mark.parametrize(
    ("name", "write"), [("a.csv.gz", write_compact), ("a.t4.json", write_t4), ("a.json", write_cache)]
)
def test_what_each_format_holds_of_a_configuration_comes_back(tmp_path: Path, name: str, write: Any) -> None:
    write(tmp_path / name, ROWS)
    found = {r.params["tile"]: r for r in read_recorded(tmp_path / name)}
    assert list(found) == [8, 16, 32]
    assert found[8].samples_ms == (2.0, 3.0, 4.0)
    assert found[8].time_ms == 3.0
    assert (found[8].kernel, found[8].dtype, found[8].dims) == ("tiled", "float32", DIMS)
    assert (found[8].device, found[8].device_uuid) == ("NVIDIA H200", "GPU-1")
    assert (found[8].build_s, found[8].measure_s) == (0.25, 0.5)
    assert found[32].status is Status.BUILD_ERROR
    assert found[32].usable_ms is None


def test_a_compact_recording_keeps_registers_reasons_and_the_library(tmp_path: Path) -> None:
    write_compact(tmp_path / "a.csv.gz", [LIBRARY, *ROWS], {"whole": True})
    rows = read_recorded(tmp_path / "a.csv.gz")
    assert [r.kernel for r in rows if r.role is Role.BASELINE] == ["cublas"]
    by_tile = {r.params["tile"]: r for r in rows if r.role is Role.CANDIDATE}
    assert by_tile[8].registers == 32
    assert by_tile[32].reason == "error: no"
    head = json.loads(gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode().split("\n")[0][1:])
    assert head["whole"] is True


def test_equal_rows_give_equal_bytes_in_whatever_order_they_come(tmp_path: Path) -> None:
    write_compact(tmp_path / "a.gz", ROWS)
    write_compact(tmp_path / "b.gz", ROWS[::-1])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("write", [write_compact, write_t4, write_cache])
def test_rows_of_two_problems_or_devices_are_no_one_space(tmp_path: Path, write: Any) -> None:
    for other in (replace(ROWS[1], dims={**DIMS, "K": 17}), replace(ROWS[1], device_uuid="GPU-2")):
        with pytest.raises(StorageError, match="rows of 2 values of"):
            write(tmp_path / "a", [ROWS[0], other])
    with pytest.raises(StorageError, match="no configuration was recorded"):
        write(tmp_path / "a", [LIBRARY])


@pytest.mark.parametrize(
    ("name", "write"), [("a.csv.gz", write_compact), ("a.t4.json", write_t4), ("a.json", write_cache)]
)
def test_every_format_replays(tmp_path: Path, name: str, write: Any) -> None:
    write(tmp_path / name, ROWS)
    table = ReplayTable(tmp_path / name)
    table.select("tiled", "float32", DIMS)
    assert table.lookup({"layout": "row", "tile": 16}) == (Status.OK, 1.5, "")
    assert table.lookup({"layout": "row", "tile": 32}).status is Status.BUILD_ERROR


FOREIGN_T4 = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "seconds"},
    "results": [
        {"configuration": {"x": 1}, "times": {"compilation_time": 2, "runtimes": [0.001, 0.002, 0.003]},
         "invalidity": "correct", "correctness": 1},
        {"configuration": {"x": 2}, "times": {}, "invalidity": "correct", "correctness": 1,
         "measurements": [{"name": "time", "value": 5.0, "unit": "ms"}]},
        {"configuration": {"x": 3}, "times": {}, "invalidity": "compile", "correctness": 0},
        {"configuration": {"x": 4}, "times": {}, "invalidity": "correct", "correctness": 0},
        {"configuration": {"x": 5}, "times": {}, "invalidity": "correct", "correctness": 1},
    ],
}  # fmt: skip


def test_a_foreign_t4_file_is_read_in_its_own_unit(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(FOREIGN_T4))
    first, second, third, fourth, fifth = read_recorded(tmp_path / "a.json")
    assert first.samples_ms == (1.0, 2.0, 3.0)
    assert first.build_s == 2.0
    assert second.time_ms == 5.0
    assert third.status is Status.BUILD_ERROR
    assert fourth.status is Status.WRONG_RESULT
    assert fifth.status is Status.UNSTABLE


FOREIGN_CACHE = """{"device_name": "A100", "kernel_name": "convolution", "problem_size": [4096, 4096],
"tune_params_keys": ["block_size_x", "use_shmem"], "tune_params": {"block_size_x": [16, 32], "use_shmem": [0, 1]},
"objective": "time", "cache": {
"16,0": {"block_size_x": 16, "use_shmem": 0, "time": 1.5, "times": [1.0, 1.5, 2.0], "compile_time": 500.0,
 "verification_time": 100, "benchmark_time": 50},
"32,0": {"block_size_x": 32, "use_shmem": 0, "time": "RuntimeFailedConfig"},
"32,1": {"block_size_x": 32, "use_shmem": 1, "time": "CompilationFailedConfig"}"""


@pytest.mark.parametrize("end", ["}}", "}\n}", ",", "", ',\n"16,1": {"block_size_x": 16, "use_sh'])
def test_a_cache_that_was_not_closed_or_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, end: str) -> None:
    (tmp_path / "cache.json").write_text(FOREIGN_CACHE + end)
    if "use_sh" in end:
        with pytest.warns(UserWarning, match="cut off"):
            rows = read_recorded(tmp_path / "cache.json")
    else:
        rows = read_recorded(tmp_path / "cache.json")
    assert [r.status for r in rows] == [Status.OK, Status.LAUNCH_ERROR, Status.BUILD_ERROR]
    assert (rows[0].time_ms, rows[0].build_s, rows[0].measure_s) == (1.5, 0.5, pytest.approx(0.15))
    assert rows[0].device == "A100"


def test_a_table_that_does_not_say_what_it_measured_answers_for_what_is_asked(tmp_path: Path) -> None:
    (tmp_path / "cache.json").write_text(FOREIGN_CACHE + "}}")
    table = ReplayTable(tmp_path / "cache.json")
    table.select("my_convolution", "float32", {"W": 4096})
    assert table.lookup({"use_shmem": 0, "block_size_x": 16}).time_ms == 1.5


def test_a_plain_csv_says_its_times_and_what_they_cost(tmp_path: Path) -> None:
    text = "tile,layout,time_ms,compile_ms,benchmark_ms\n8,row,1.5,100,50\n16,row,,200,0\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    good, bad = read_recorded(tmp_path / "a.csv.gz")
    assert (good.params, good.time_ms) == ({"tile": 8, "layout": "row"}, 1.5)
    assert (good.build_s, good.measure_s) == (0.1, 0.05)
    assert bad.status is Status.LAUNCH_ERROR


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "neither"),
        ('{"results": [{"configuration": {}, "invalidity": "odd"}]}', "odd"),
        ('{"cache": {"1": {"time": 1}}}', "tune_params_keys"),
        ('{"cache" 5', "no JSON"),
        ('# {"format":"sweeper-space","version":9}\n', "version 9"),
        ('# {"format":"sweeper-space","version":1}\ntile,status\n8,fine\n', "not a recorded table"),
    ],
)
def test_what_is_none_of_them_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(StorageError, match=message):
        read_recorded(tmp_path / "a")


def test_a_torn_gzip_file_is_refused(tmp_path: Path) -> None:
    write_compact(tmp_path / "a.gz", ROWS)
    whole = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match="not a recorded table"):
        read_recorded(tmp_path / "a.gz")
