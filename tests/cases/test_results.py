"""What a run leaves behind, however it ends, and what the next one makes of it."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_rig import PRODUCT_CU, PretendedGpu, kernel_in, rows, runs, sweep
from cuda_rig import make_rig
from fake_pycuda import Refused

import sweeper
from sweeper.store import Store


def test_an_interrupt_keeps_every_finished_row_and_the_next_run_does_the_rest(
    here: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C when the seventh of twenty is stored: a whole table, exit code 130, and thirteen left to do."""
    # ROCm/aiter#5263; KernelTuner/kernel_tuner#90
    kernel = kernel_in(
        here, params={"block": [8, 16], "x": list(range(1, 11))}, source=f"#define X x\n{PRODUCT_CU}"
    )
    added: list[int] = []
    whole = Store.add

    def counted(store: Store, trial: Any, *more: Any) -> Any:
        stored = whole(store, trial, *more)
        added.append(trial.number)
        if len(added) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return stored

    monkeypatch.setattr(Store, "add", counted)
    command = [*kernel, "search=grid", "search.lookahead=1", "results_dir=out"]
    assert gpu.sweep(*command) == 130
    kept = rows(here / "out")
    assert [row["status"] for row in kept] == ["ok"] * len(added)
    assert 7 <= len(kept) < 20
    (record,) = runs(here / "out")
    assert (record["exit_code"], record["error"]) == (130, "interrupted")
    assert record["device"]["name"] == "NVIDIA A100-SXM4-80GB"
    captured = capsys.readouterr()
    assert "interrupted; what was measured is kept" in captured.err
    assert captured.out.splitlines()[-1] == f"results: {here / 'out'}"
    first = list(added)
    assert gpu.sweep(*command) == 0
    assert len(added) == 20, "what was stored is answered, not stored again"
    assert len(rows(here / "out")) == 20
    assert [row["trial"] for row in rows(here / "out")][: len(first)] == [str(number) for number in first]
    assert f"{len(first)} of them reused" in capsys.readouterr().out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_sweep_ends_it_and_all_it_started(
    here: Path, how: signal.Signals
) -> None:
    """From outside, during a multirun: the tables are whole, no process is left, the exit code is 130."""
    source = PRODUCT_CU.replace("float sum = 0;", "float sum = 0 * LATE;")
    kernel = kernel_in(here, params={"block": [16], "LATE": list(range(8))}, source=source)
    command = ["-m", "sweeper", "backend=emulator", "-m", *kernel, "shape=40x50x60,50x50x50", "search=grid"]
    env = {**os.environ, "PYTHONPATH": str(Path(sweeper.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, *command, "build.workers=1", "results_dir=out"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and stored(here / "out" / "study.db") < 2:
        time.sleep(0.02)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out.splitlines()[-1] == f"results: {here / 'out'}"
    kept = rows(here / "out")
    assert 2 <= len(kept) < 16
    assert {row["status"] for row in kept} == {"ok"}
    assert len(kept) == stored(here / "out" / "study.db")


def stored(path: Path) -> int:
    """How many trials are in the store that another process is writing."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_kernels_with_other_parameters_share_a_table_without_shifting_a_value(
    here: Path, gpu: PretendedGpu
) -> None:
    # torchgeo/torchgeo-bench#281
    tiled = kernel_in(here, "tiles", params={"tile": [8, 16]}, launch=square("tile"))
    assert gpu.sweep(*tiled, "results_dir=out") == 0
    before = rows(here / "out")
    launch = {"block": ["bm", "bn"], "grid": ["ceil(N / bm)", "ceil(M / bn)"]}
    other = kernel_in(here, "regs", params={"bm": [4], "bn": [8, 32]}, launch=launch)
    assert gpu.sweep(*other, "results_dir=out") == 0
    table = rows(here / "out")
    assert {len(line) for line in csv.reader((here / "out" / "trials.csv").open(newline=""))} == {
        len(table[0])
    }
    for row in table:
        own = {f"param_{name}": str(value) for name, value in json.loads(row["params"]).items()}
        assert own == {key: value for key, value in row.items() if key.startswith("param_") and value}
    shared = set(before[0])
    assert [{k: v for k, v in row.items() if k in shared} for row in table[:2]] == before


def square(edge: str) -> dict[str, Any]:
    return {"block": [edge, edge], "grid": [f"ceil(N / {edge})", f"ceil(M / {edge})"]}


def test_a_level_that_is_added_is_all_that_is_measured(here: Path, gpu: PretendedGpu) -> None:
    # triton-lang/triton#9822
    kernel = kernel_in(here, params={"block": [8, 16]})
    assert gpu.sweep(*kernel, "results_dir=out") == 0
    kernel = kernel_in(here, params={"block": [8, 16, 32]})
    assert gpu.sweep(*kernel, "results_dir=out") == 0
    assert sorted(point["block"] for point in gpu.measured) == [8, 16, 32]
    assert len(rows(here / "out")) == 3


@pytest.mark.parametrize(
    "change",
    [
        "another device",
        "another driver",
        "another source",
        "other options",
        "another seed",
        "another protocol",
    ],
)
def test_what_was_measured_under_other_conditions_is_measured_again(
    here: Path, gpu: PretendedGpu, change: str
) -> None:
    kernel = kernel_in(here, params={"block": [8, 16]})
    assert gpu.sweep(*kernel, "results_dir=out") == 0
    more: list[str] = []
    if change == "another device":
        gpu.become("t4")
    elif change == "another driver":
        gpu.become("a100", driver="590.2")
    elif change == "another source":
        kernel_in(here, source=PRODUCT_CU + "// changed\n", params={"block": [8, 16]})
    elif change == "other options":
        kernel_in(here, options=["-lineinfo"], params={"block": [8, 16]})
    else:
        more = {"another seed": ["seed=7"], "another protocol": ["measure=quick"]}[change]
    assert gpu.sweep(*kernel, *more, "results_dir=out") == 0
    assert sorted(point["block"] for point in gpu.measured) == [8, 8, 16, 16]
    assert len({row["context"] for row in rows(here / "out")}) == 2


def test_a_configuration_that_constraints_ruled_out_is_run_once_they_allow_it(
    here: Path, gpu: PretendedGpu
) -> None:
    kernel = kernel_in(here, constraints=["block == 8"])
    assert gpu.sweep(*kernel, "results_dir=out") == 1
    kernel_in(here, constraints=["block == 16"])
    assert gpu.sweep(*kernel, "results_dir=out") == 0
    assert [row["status"] for row in rows(here / "out")] == ["infeasible", "ok"]


@pytest.mark.parametrize("shape", ["shape=tiny", "shape=200000x200000x200000"])
def test_a_job_that_cannot_begin_leaves_one_row_however_often_it_is_tried(
    here: Path, gpu: PretendedGpu, shape: str
) -> None:
    constraints = ["block == 8"] if shape == "shape=tiny" else []
    kernel = kernel_in(here, constraints=constraints)
    backend = gpu.sweep if constraints else sweep
    for _ in range(2):
        assert backend(*kernel, shape, "results_dir=out") == 1
    (row,) = rows(here / "out")
    assert row["status"] == ("infeasible" if constraints else "out_of_memory")
    assert row["params"] == '{"block": 16}'
    assert row["exception"]


FAILURES_CU = PRODUCT_CU.replace(
    "float sum = 0;", 'static_assert(act != 1, "not this one"); float sum = 0;'
).replace(
    "  C[i * N + j] = sum;",
    "  if (act == 2) sum += 1;\n  if (act == 3) C[1ll << 40] = sum;\n  if (act == 4) __trap();\n"
    "  C[i * N + j] = sum;",
)


def test_every_failed_row_says_which_configuration_where_it_stood_and_what_was_raised(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed compile, a wrong result, a stray write and a trap in one sweep, and a valid one among them."""
    # KernelTuner/kernel_tuner#121; ROCm/aiter#3388
    kernel = kernel_in(here, params={"block": [16], "act": [0, 1, 2, 3, 4]}, source=FAILURES_CU)
    assert sweep(*kernel, "search=grid", "shape=40x50x60", "results_dir=out") == 0
    table = rows(here / "out")
    by_act = {row["param_act"]: (row["status"], row["stage"]) for row in table}
    assert by_act == {
        "0": ("ok", "done"),
        "1": ("build_error", "build"),
        "2": ("wrong_result", "verify"),
        "3": ("crash", "launch"),
        "4": ("crash", "launch"),
    }
    for row in table[1:]:
        assert json.loads(row["params"]) == {"block": 16, "act": int(row["param_act"])}
        assert row["reason"]
        assert row["exception"]
        assert row["time_ms"] == row["gflops"] == ""
    assert table[1]["exception"] == "CompileError"
    out = capsys.readouterr().out
    for status in ("build_error at build", "wrong_result at verify", "crash at launch"):
        assert status in out
    assert '"act": 3' in out


@pytest.mark.parametrize("raised", ["LaunchError", "LogicError"])
def test_a_devices_failure_names_what_the_driver_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    def run(*_: Any) -> None:
        raise Refused("too many resources requested for launch", raised)

    failure = make_rig(tmp_path, monkeypatch).prepared().failure(run)
    assert failure.details["type"] == raised


def test_a_rerun_of_failures_answers_from_the_store_what_would_fail_again(
    here: Path, gpu: PretendedGpu
) -> None:
    source = PRODUCT_CU.replace("// fake: kernels product", "// fake: error")
    kernel = kernel_in(here, source=source, params={"block": [8, 16]})
    for _ in range(2):
        assert gpu.sweep(*kernel, "results_dir=out") == 1
    assert [row["status"] for row in rows(here / "out")] == ["build_error"] * 2
