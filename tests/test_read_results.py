"""Results are read from whatever a person has of them: a folder, a store, an exported table, a recorded space."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sweeper.errors import StorageError
from sweeper.recording.work import Work, work_of
from sweeper.results import read_results
from sweeper.table import write_csv

RECORDED = Path(__file__).parents[1] / "results" / "h200"


def test_a_folder_its_store_and_its_exported_table_tell_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "tile-sweep"
    shutil.copytree(RECORDED / "tile-sweep", folder)
    write_csv(read_results([folder])[0].trials, folder / "trials.csv")
    whole, store, table = read_results([folder, folder / "study.db", folder / "trials.csv"])
    assert whole.name == store.name == table.name == "tile-sweep"
    assert whole.trials.equals(store.trials)
    assert whole.trials.equals(table.trials)
    assert len(whole.runs) == len(table.runs) > 0


def test_only_a_store_has_raw_samples() -> None:
    folder = RECORDED / "tile-sweep"
    whole, table = read_results([folder, folder / "trials.csv"])
    rows = whole.trials.set_index(["study", "trial"])
    samples = whole.samples()
    assert {key: len(values) for key, values in samples.items()} == rows["samples"].to_dict()
    assert table.samples() == {}


def test_a_folder_of_folders_is_all_of_them() -> None:
    names = [one.name for one in read_results([RECORDED])]
    assert "tile-sweep" in names
    assert "ladder-course" in names
    assert names == sorted(names)


def test_finalists_come_back_from_their_table(tmp_path: Path) -> None:
    from sweeper.model import Confirmed, Role
    from sweeper.table.confirmed import confirmed_frame

    one = {"confirmation": "c", "started": "2026-01-01", "study": "s", "kernel": "k", "dtype": "float32"}
    finals = (
        Confirmed(**one, shape="8x8x8", params={"tile": 8}, blocks_ms=(1.0, 1.1, 1.05), wanted=3),
        Confirmed(**one, shape="8x8x8", params={"tile": 4}, is_default=True, blocks_ms=(2.0, 2.1, 2.05), wanted=3),
        Confirmed(**one, shape="8x8x8", params={}, role=Role.BASELINE, reason="absent", registers=8),
    )  # fmt: skip
    shutil.copy(RECORDED / "tile-sweep" / "trials.csv", tmp_path / "trials.csv")
    confirmed_frame(finals).to_csv(tmp_path / "confirmed.csv", index=False)
    (read,) = read_results([tmp_path])
    assert [(f.params, f.role, f.is_default, f.blocks_ms, f.reason) for f in read.finals] == [
        (f.params, f.role, f.is_default, f.blocks_ms, f.reason) for f in finals
    ]
    assert read.confirmed["winner"].tolist() == confirmed_frame(finals)["winner"].tolist()


def test_a_recorded_space_is_a_study_with_its_library() -> None:
    (space,) = read_results([RECORDED / "spaces" / "tiled-2048.csv.gz"])
    assert space.name == "tiled-2048"
    assert space.trials["study"].nunique() == 1
    assert space.trials["role"].tolist().count("baseline") == 1
    candidates = space.trials[space.trials["role"] == "candidate"]
    assert candidates["percent_of_library"].notna().all()
    assert candidates["registers"].notna().all()


def test_a_recorded_problem_of_a_shipped_kernel_has_its_work_and_its_roofline() -> None:
    (space,) = read_results([RECORDED / "spaces" / "tiled-2048.csv.gz"])
    row = space.trials.iloc[-1]
    assert row["gflops"] == pytest.approx(2 * 2048**3 / row["time_ms"] / 1e6)
    assert 0 < row["percent_of_roofline"] < 100


def test_somebody_elses_kernel_has_none() -> None:
    assert work_of("their_gemm", "float32", "", (("M", 8), ("N", 8), ("K", 8)), "NVIDIA H200") == Work()
    assert work_of("tiled", "float32", "", (("WIDTH", 8),), "NVIDIA H200") == Work()
    assert (
        work_of("tiled", "float32", "", (("M", 8), ("N", 8), ("K", 8)), "a device of theirs").roofline_ms
        is None
    )


def test_a_table_of_shapes_is_a_study_a_shape_and_kernel_with_the_libraries_beside_each() -> None:
    (table,) = read_results([RECORDED / "shapes" / "fp32-shapes-rungs.csv"])
    square = table.trials[table.trials["shape"] == "4096x4096x4096"]
    assert square["study"].nunique() > 1
    for _, study in square.groupby("study"):
        assert sorted(study["kernel"][study["role"] == "baseline"]) == ["cublas", "cublaslt"]
        assert study["percent_of_library"].notna().all()
    assert set(table.trials["dtype"]) == {"float32"}


def test_a_table_of_shapes_keeps_the_layout() -> None:
    (table,) = read_results([RECORDED / "shapes" / "tf32-shapes.csv"])
    assert set(table.trials["shape"]) == {"4096x4096x4096-nt", "8192x8192x8192-nt"}


def test_reading_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(RECORDED / "tile-sweep", folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    read_results([folder])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("content", [None, "", "a,b\n1,2\n", "{}"])
def test_what_is_no_result_is_an_error_that_names_it(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "thing.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StorageError, match=r"thing\.csv"):
        read_results([path])


def test_a_folder_without_results_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"has study\.db or trials\.csv"):
        read_results([tmp_path])


def test_a_damaged_store_is_told_with_the_way_to_recover(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_bytes((RECORDED / "tile-sweep" / "study.db").read_bytes()[:5000])
    with pytest.raises(StorageError, match=r"recovery study\.db"):
        read_results([path])


def test_looking_at_a_store_of_an_earlier_version_leaves_its_bytes_as_they_are(tmp_path: Path) -> None:
    """Opening one for writing brings it up to date, which published results must not be."""
    from sweeper.dispatch.read import read_entries
    from sweeper.table.samples import run

    store = tmp_path / "study.db"
    shutil.copy(RECORDED / "tile-sweep" / "study.db", store)
    before = store.read_bytes()
    read_entries([store])
    assert run([str(store), str(tmp_path / "samples.csv")]) == 0
    assert store.read_bytes() == before
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["samples.csv", "study.db"]
