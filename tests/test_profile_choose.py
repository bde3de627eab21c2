"""Which rows of a results folder are profiled, and with which kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_rig import matrices, sizes
from command_rig import PRODUCT_CU, kernel_in, runs, sweep
from contract.store_contract import trial

from sweeper.errors import ConfigError, KernelError, NoValidConfiguration, StorageError
from sweeper.model import Role, Status, Timing, Trial
from sweeper.profile.choose import choose, jobs_of, parse_params, store_path
from sweeper.store import Store


def row(number: int, time_ms: float, kernel: str = "tiled", size: int = 64, **changes: Any) -> Trial:
    given: dict[str, Any] = {
        "study": f"{kernel}-{size}",
        "kernel": kernel,
        "shape": f"s{size}",
        "dims": {"M": size, "N": size, "K": size},
        "params": {"tile": number, "unroll": 1},
        "timing": Timing((time_ms,) * 3, "events", "cold"),
        "role": Role.CANDIDATE,
        "status": Status.OK,
        **changes,
    }
    return replace(trial(number), **given)


ROWS = [
    row(1, 3.0),
    row(2, 1.0),
    row(3, 2.0),
    row(1, 9.0, "naive"),
    row(2, 8.0, "naive"),
    row(1, 5.0, size=128),
]


def numbers(trials: list[Trial]) -> list[tuple[str, str, int]]:
    return [(t.kernel, t.shape, t.number) for t in trials]


def test_the_fastest_of_every_kernel_and_shape_by_default() -> None:
    assert numbers(choose(ROWS)) == [("tiled", "s64", 2), ("naive", "s64", 2), ("tiled", "s128", 1)]


def test_top_counts_within_a_kernel_and_shape() -> None:
    assert numbers(choose(ROWS, top=2, kernels=["tiled"])) == [
        ("tiled", "s64", 2),
        ("tiled", "s64", 3),
        ("tiled", "s128", 1),
    ]


@pytest.mark.parametrize("shape", ["s128", "128x128x128"])
def test_a_shape_goes_by_its_name_or_its_sizes(shape: str) -> None:
    assert numbers(choose(ROWS, shapes=[shape])) == [("tiled", "s128", 1)]


def test_params_choose_a_configuration_that_is_not_the_best() -> None:
    assert numbers(choose(ROWS, params={"tile": 3}, kernels=["tiled"])) == [("tiled", "s64", 3)]


def test_failed_rows_libraries_and_rows_without_a_time_are_never_chosen() -> None:
    rows = [
        row(1, 0.1, status=Status.WRONG_RESULT),
        row(2, 0.2, role=Role.BASELINE),
        row(3, float("nan")),
        row(4, 4.0),
    ]
    assert numbers(choose(rows, top=9)) == [("tiled", "s64", 4)]


def test_a_configuration_measured_twice_counts_once_with_its_latest_row() -> None:
    again = row(7, 1.5, params={"tile": 2, "unroll": 1})
    assert numbers(choose([*ROWS[:3], again], top=5)) == [
        ("tiled", "s64", 7),
        ("tiled", "s64", 3),
        ("tiled", "s64", 1),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": ["tilde"]}, "no 'tilde' .did you mean 'tiled'"),
        ({"shapes": ["s65"]}, "--shape: these results have no 's65'"),
        ({"params": {"tiles": 8}}, "no 'tiles' .did you mean 'tile'"),
    ],
)
def test_a_name_that_the_results_do_not_have_names_the_nearest(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(ROWS, **options)


def test_parameters_that_no_row_has_are_said_to_be_missing() -> None:
    with pytest.raises(NoValidConfiguration, match="with tile=99"):
        choose(ROWS, params={"tile": 99})


def test_results_without_a_valid_row_say_so() -> None:
    with pytest.raises(NoValidConfiguration, match="no valid configuration to profile"):
        choose([row(1, 1.0, status=Status.CRASH)])


def test_params_are_read_with_their_types() -> None:
    assert parse_params("tile=16,fast=true, order=rows scale=0.5") == {
        "tile": 16,
        "fast": True,
        "order": "rows",
        "scale": 0.5,
    }


@pytest.mark.parametrize("text", ["tile", "=3", "tile=", "", " , "])
def test_params_that_are_no_pairs_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--params"):
        parse_params(text)


def test_a_folder_without_a_store_is_no_results_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no results folder: there is no study\.db"):
        store_path(tmp_path)
    with pytest.raises(StorageError, match="no such path"):
        store_path(tmp_path / "none")


def test_a_row_is_profiled_with_the_kernel_as_its_run_described_it(tmp_path: Path) -> None:
    """The pinned precision class and the place of one's own source are those of the run."""
    chosen = kernel_in(
        tmp_path / "own", dtypes=["float32", "float64"], dtype="float32", params={"block": [8, 16]}
    )
    assert sweep(*chosen, "shape=8x9x10", f"results_dir={tmp_path / 'out'}") == 0
    with Store(store_path(tmp_path / "out")) as store:
        picked = choose(store.trials())
    (job,) = jobs_of(picked, runs(tmp_path / "out"), [tmp_path / "own"])
    assert (job.spec.name, job.spec.source) == ("mine", tmp_path / "own" / "mine.cu")
    assert (job.dims, job.point.params, job.note) == ({"M": 8, "N": 9, "K": 10}, picked[0].params, "")


def test_a_kernel_that_changed_since_is_profiled_with_a_note(tmp_path: Path) -> None:
    chosen = kernel_in(tmp_path / "own")
    assert sweep(*chosen, "shape=8x9x10", f"results_dir={tmp_path / 'out'}") == 0
    with (tmp_path / "own" / "mine.cu").open("a") as source:
        source.write("// another line\n")
    with Store(store_path(tmp_path / "out")) as store:
        (job,) = jobs_of(choose(store.trials()), store.runs(), [tmp_path / "own"])
    assert "changed since" in job.note


def test_a_source_that_the_stored_description_no_longer_fits_is_taken_with_the_present_one(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    assert sweep(*kernel_in(own), "shape=8x9x10", f"results_dir={tmp_path / 'out'}") == 0
    wider = PRODUCT_CU.replace("int K)", "int K, int extra)")
    extra = {"name": "extra", "scalar": "int32", "value": "K"}
    kernel_in(own, source=wider, args=[*matrices(), *sizes("M", "N", "K"), extra])
    with Store(store_path(tmp_path / "out")) as store:
        picked, described = choose(store.trials()), store.runs()
    (job,) = jobs_of(picked, described, [own])
    assert len(job.spec.args) == 7
    assert "changed since" in job.note

    kernel_in(own, source=wider, args=[*matrices(), *sizes("M", "N", "K"), extra], params={"other": [16]},
              launch={"block": ["other", "other"], "grid": ["N", "M"]})  # fmt: skip
    with pytest.raises(KernelError, match="do not agree") as caught:
        jobs_of(picked, described, [own])
    assert "run the sweep again" in str(caught.value)


def test_a_row_that_no_run_describes_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="no run in these results describes kernel tiled"):
        jobs_of(choose(ROWS[:1]), [])
