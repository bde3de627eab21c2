"""`python -m sweeper.profile` from a results folder to its files, with a recorded ncu and a pretended GPU."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_rig import PretendedGpu, kernel_in
from contract.store_contract import trial
from fake_ncu import calls, fake_ncu

from sweeper.errors import ConfigError, StorageError
from sweeper.kernel import load
from sweeper.model import Timing
from sweeper.profile import Failed, Profile, Profiler, Settings, counters, job_of
from sweeper.profile.command import main
from sweeper.profile.files import COLUMNS
from sweeper.store import Store

SIZES = {"M": 64, "N": 48, "K": 32}


class Folder:
    """A results folder of two configurations of kernel `mine` at 64×48×32, the larger block the faster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "out"
        kernel_in(folder / "own", params={"block": [8, 16]})
        path = folder / "own" / "mine.yaml"
        node = yaml.safe_load(path.read_text())
        stored = replace(
            trial(1),
            study="mine-64x48x32",
            kernel="mine",
            dtype="float32",
            shape="64x48x32",
            dims=SIZES,
            seed=42,
            kernel_digest=load(node, path).digest,
        )
        with Store(self.results / "study.db") as store:
            for number, block in enumerate((8, 16), start=1):
                timing = Timing((1.0 / block,) * 3, "events", "cold")
                store.add(replace(stored, number=number, params={"block": block}, timing=timing))
            store.add_run({"id": "1", "started": "2026", "study": stored.study, "config": {"kernel": node}})

    def ncu(self, **answers: str) -> Path:
        return fake_ncu(self.folder / "ncu", answers or {"*": "tiled"})

    def profile(self, *options: object, ncu: Path | None = None) -> int:
        own = ["--config-dir", self.folder / "own", "--ncu", ncu or self.ncu()]
        return main([str(o) for o in (self.results, *own, *options)])

    def rows(self) -> list[dict[str, str]]:
        with (self.results / "profile.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def records(self) -> list[dict[str, Any]]:
        return json.loads((self.results / "profile.json").read_text(encoding="utf-8"))["profiles"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    PretendedGpu(tmp_path, monkeypatch, name="h200")
    return Folder(tmp_path)


def test_the_best_configuration_gets_a_row_and_a_table(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.profile() == 0
    (row,) = folder.rows()
    assert tuple(row) == COLUMNS
    assert (row["kernel"], row["params"], row["dims"]) == (
        "mine",
        '{"block": 16}',
        '{"M": 64, "N": 48, "K": 32}',
    )
    assert float(row["compulsory_bytes"]) == 4 * (64 * 32 + 32 * 48 + 64 * 48)
    shown = capsys.readouterr().out
    for line in ("DRAM traffic", "issue slots used", "warps wait:", "profile.csv"):
        assert line in shown


def test_the_profiled_process_gets_the_row_s_own_problem_and_build(folder: Folder) -> None:
    ncu = folder.ncu()
    assert folder.profile(ncu=ncu) == 0
    (call,) = calls(ncu)
    asked: Any = call["request"]
    assert (asked["dims"], asked["params"], asked["seed"]) == ({"M": 64, "N": 48, "K": 32}, {"block": 16}, 42)
    assert Path(asked["build"]["artifact"]).is_file()
    assert "sweeper.profile.target" in call["arguments"]  # type: ignore[operator]


def test_top_profiles_several_and_the_library_beside_them(folder: Folder) -> None:
    assert folder.profile("--top", 2, "--library", "cublas") == 0
    assert [(r["kernel"], r["params"]) for r in folder.rows()] == [
        ("mine", '{"block": 16}'),
        ("mine", '{"block": 8}'),
        ("cublas", "{}"),
    ]


def test_params_choose_the_configuration(folder: Folder) -> None:
    assert folder.profile("--params", "block=8") == 0
    assert [r["params"] for r in folder.rows()] == ['{"block": 8}']


def test_what_was_profiled_before_stays_and_the_same_row_is_replaced(folder: Folder) -> None:
    for block in (8, 16, 8):
        assert folder.profile("--params", f"block={block}") == 0
    assert [r["params"] for r in folder.rows()] == ['{"block": 16}', '{"block": 8}']
    assert all(record["ncu"] == "2025.3.1.0" and record["metrics"] for record in folder.records())


def test_a_counter_that_this_ncu_does_not_know_is_not_asked_for_again(folder: Folder) -> None:
    ncu = folder.ncu(mine="without sm__maximum_warps_per_active_cycle_pct")
    assert folder.profile("--top", 2, ncu=ncu) == 0
    asked = ["sm__maximum_warps_per_active_cycle_pct" in str(call["arguments"]) for call in calls(ncu)]
    assert asked == [True, False, False]
    assert len(folder.rows()) == 2


def test_one_configuration_that_fails_costs_itself_alone(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    ncu = folder.ncu(mine="out of memory", cublas="tiled")
    assert folder.profile("--library", "cublas", ncu=ncu) == 1
    assert [r["kernel"] for r in folder.rows()] == ["cublas"]
    assert "mine block=16: 4096 B of device memory wanted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ("permission", 3, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("busy", 3, "another tool holds the GPU's performance counters"),
        ("no launch", 3, "ncu saw no launch"),
        ("no pycuda", 3, "PyCUDA cannot be used"),
        ("crash", 1, "ended with 139 before its launch was done"),
    ],
)
def test_a_refusal_is_one_message_and_an_exit_code(
    folder: Folder, capsys: pytest.CaptureFixture[str], answer: str, code: int, message: str
) -> None:
    assert folder.profile(ncu=folder.ncu(**{"*": answer})) == code
    assert message in capsys.readouterr().err
    assert not (folder.results / "profile.csv").exists()


def test_a_launch_that_fails_for_want_of_permission_is_told_as_such(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.profile(ncu=folder.ncu(mine="permission and a failed launch")) == 3
    assert "NVreg_RestrictProfilingToAdminUsers" in capsys.readouterr().err


def test_a_reply_that_was_cut_off_is_a_crash(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.profile(ncu=folder.ncu(mine="cut off")) == 1
    assert "before its launch was done" in capsys.readouterr().err


def test_a_configuration_that_never_ends_is_given_up(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.profile("--timeout", 1, ncu=folder.ncu(mine="hang")) == 1
    assert "did not finish within 1 s" in capsys.readouterr().err


def test_without_ncu_the_exit_code_is_3_and_the_message_says_where_to_get_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sweeper.profile.ncu._PLACES", ())
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert main([str(folder.results), "--config-dir", str(folder.folder / "own")]) == 3
    said = capsys.readouterr().err
    assert "ncu (NVIDIA Nsight Compute) is not installed" in said
    assert "https://developer.nvidia.com/nsight-compute" in said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone"], 4, "no results folder"),
        ([], 2, "RESULTS"),
        (["out", "--tops", "2"], 2, "--tops"),
        (["out", "--top", "0"], 2, "whole number of at least 1"),
        (["out", "--kernel", "mint"], 2, "did you mean 'mine'"),
        (["out", "--params", "block"], 2, "NAME=VALUE"),
        (["out", "--params", "block=99"], 1, "with block=99"),
        (["out", "--library", "magma"], 2, "magma"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main(arguments) == code
    assert message in capsys.readouterr().err


def test_a_profile_json_of_somebody_else_is_never_overwritten(folder: Folder) -> None:
    (folder.results / "profile.json").write_text("[1, 2]")
    assert folder.profile() == StorageError.exit_code
    assert (folder.results / "profile.json").read_text() == "[1, 2]"


def test_counters_of_configurations_from_python(folder: Folder) -> None:
    """By a description's path or a shipped kernel's name; what fails stands in its place with a reason."""
    ncu = folder.ncu(**{"*": "tiled", "naive": "out of memory"})
    mine = folder.folder / "own" / "mine.yaml"
    sizes: Mapping[str, int] = {"M": 64, "N": 64, "K": 64}
    with Profiler(Settings(ncu=ncu, compiler="nvcc")) as profiler:
        first, second = counters([(mine, {"block": 8}, sizes), (mine, {}, sizes)], profiler=profiler)
    assert isinstance(first, Profile)
    assert isinstance(second, Profile)
    assert (first.job.params, second.job.params) == ({"block": 8}, {"block": 8})
    assert first["ipc"] == first["sm__inst_executed.avg.per_cycle_active"]
    assert first["no_such_figure"] is None


def test_counters_of_a_results_folder_from_python(folder: Folder) -> None:
    results = counters(
        folder.results, top=2, settings=Settings(ncu=folder.ncu()), folders=[folder.folder / "own"]
    )
    assert [r.job.params for r in results] == [{"block": 16}, {"block": 8}]
    assert not any(isinstance(r, Failed) for r in results)


@pytest.mark.parametrize(
    ("kernel", "params", "message"),
    [
        ("tilde", {}, "no kernel 'tilde' .did you mean 'tiled'"),
        ("none.yaml", {}, "no such file"),
        ("tiled", {"tiles": 8}, "no parameter 'tiles'"),
    ],
)
def test_counters_of_what_is_not_there(kernel: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job_of(kernel, params, {"M": 8, "N": 8, "K": 8})
