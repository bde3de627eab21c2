"""What stands beside the kernels: a library that is not there costs its own row and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_rig import PretendedGpu, kernel_in, rows, sweep


def test_a_missing_library_is_a_failed_row_and_the_run_ends_as_it_would_without_it(
    here: Path, gpu: PretendedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = kernel_in(here, params={"block": [8, 16]})
    assert gpu.sweep(*kernel, "baseline=[cublas,cublaslt]", "results_dir=out") == 0
    by_role = {
        role: [r for r in rows(here / "out") if r["role"] == role] for role in ("baseline", "candidate")
    }
    assert [r["status"] for r in by_role["candidate"]] == ["ok", "ok"]
    assert [(r["kernel"], r["status"], r["stage"], r["reason"]) for r in by_role["baseline"]] == [
        ("cublaslt", "infeasible", "space", "cublaslt was not found: install it"),
        ("cublas", "infeasible", "space", "cublas was not found: install it"),
    ]
    assert [r["percent_of_library"] for r in by_role["candidate"]] == ["", ""]
    out = capsys.readouterr().out
    assert "cublas: cublas was not found: install it" in out
    assert out.count("was not found") == 2


def test_a_missing_library_does_not_end_a_run_that_stops_at_the_first_failure(
    here: Path, gpu: PretendedGpu
) -> None:
    kernel = kernel_in(here, params={"block": [8, 16]})
    assert gpu.sweep(*kernel, "baseline=[cublas]", "fail_fast=true", "results_dir=out") == 0
    assert len([r for r in rows(here / "out") if r["role"] == "candidate"]) == 2


def test_a_trip_between_host_and_device_is_not_predicted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trip = {"axis": "M", "chunks": "chunks"}
    kernel = kernel_in(here, params={"block": [8], "chunks": [1, 2]}, trip=trip)
    assert sweep(*kernel, "results_dir=out") == 1
    assert "which no model predicts: use a GPU" in capsys.readouterr().out
