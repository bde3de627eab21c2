"""The command line from end to end, without a GPU: what people type, and what they get."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.cli.app import main
from sweeper.model import Status

SAXPY = Path(__file__).parents[1] / "docs" / "examples" / "saxpy"
EMULATED = "backend=emulator"


def sweep(*arguments: str) -> int:
    return main([EMULATED, *arguments])


def rows(folder: Path, name: str = "trials.csv") -> list[dict[str, str]]:
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command is run from an empty folder that is not the checkout."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_one_pinned_configuration_is_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert sweep("kernel=tiled", "kernel.params.tile=16", "+shape=tiny", f"results_dir={out}") == 0
    (row,) = rows(out)
    assert (row["kernel"], row["shape"], row["param_tile"], row["status"]) == ("tiled", "tiny", "16", "ok")
    assert row["time_source"] == "predicted"
    assert row["checked"] == str(64 * 64)
    assert capsys.readouterr().out.splitlines()[-1] == f"results: {out}"
    assert {p.name for p in out.iterdir()} == {"trials.csv", "best.csv", "study.db", "run.json"}


def test_a_multirun_is_one_merged_table(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    command = ["-m", "kernel=tiled", "kernel.params.tile=8,16", "+shape=tiny,odd", f"results_dir={out}"]
    assert sweep(*command) == 0
    found = [(r["shape"], r["param_tile"]) for r in rows(out)]
    assert sorted(found) == [("odd", "16"), ("odd", "8"), ("tiny", "16"), ("tiny", "8")]
    assert {r["shape"] for r in rows(out, "best.csv")} == {"tiny", "odd"}
    assert len(json.loads((out / "run.json").read_text())["runs"]) == 4


def test_variants_side_by_side_keep_their_parameters_apart(tmp_path: Path) -> None:
    out = tmp_path / "variants"
    assert sweep("-m", "kernel=naive,tiled", "search.budget=2", "+shape=tiny", f"results_dir={out}") == 0
    for row in rows(out):
        own = {"naive": ("param_block_x", "param_block_y"), "tiled": ("param_tile",)}[row["kernel"]]
        assert all(row[name] for name in own)
        assert {n for n, v in row.items() if n.startswith("param_") and v} == set(own)


def test_the_same_command_again_is_answered_from_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["kernel=tiled", "+shape=tiny", f"results_dir={tmp_path / 'out'}"]
    assert sweep(*command) == 0
    first = (tmp_path / "out" / "trials.csv").read_bytes()
    capsys.readouterr()
    assert sweep(*command) == 0
    assert "3 of them reused" in capsys.readouterr().out
    assert (tmp_path / "out" / "trials.csv").read_bytes() == first


def test_a_run_without_a_folder_reuses_what_earlier_runs_measured(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", "kernel.params.tile=[8,16]", "+shape=tiny") == 0
    capsys.readouterr()
    assert sweep("kernel=tiled", "+shape=tiny") == 0
    assert "2 of them reused" in capsys.readouterr().out, "a level that was added is all that is left to do"
    assert len(list((elsewhere / "results" / "runs").iterdir())) == 2


def test_two_fresh_runs_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        command = ["+shape=tiny", "search.budget=6", "resume=false", f"results_dir={tmp_path / name}"]
        assert sweep(*command) == 0
    assert (tmp_path / "a" / "trials.csv").read_bytes() == (tmp_path / "b" / "trials.csv").read_bytes()


def test_a_random_search_over_a_small_space_ends_when_it_is_used_up(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shape = ["shape.m=100", "shape.n=90", "shape.k=7"]
    assert (
        sweep(
            "kernel=tiled", "search=random", "search.budget=20", "search.seed=1", *shape, f"results_dir={out}"
        )
        == 0
    )
    assert sorted(r["param_tile"] for r in rows(out)) == ["16", "32", "8"]
    assert {r["shape"] for r in rows(out)} == {"100x90x7"}


def test_ones_own_kernel_is_one_source_and_one_description(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        main(["--config-dir", str(SAXPY), EMULATED, "kernel=saxpy", "shape.n=1000", f"results_dir={out}"])
        == 0
    )
    assert {r["status"] for r in rows(out)} == {"ok"}
    assert len(rows(out)) == 16


def test_ones_own_kernels_may_lie_in_a_group_folder_too(tmp_path: Path) -> None:
    group = tmp_path / "mine" / "kernel"
    group.mkdir(parents=True)
    for file in SAXPY.iterdir():
        (group / file.name).write_text(file.read_text())
    out = tmp_path / "out"
    command = ["--config-dir", str(group.parent), EMULATED, "kernel=saxpy", "shape.n=64", "search.budget=1"]
    assert main([*command, f"results_dir={out}"]) == 0


def test_a_kernel_that_hides_behind_a_shipped_one_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiled.yaml").write_text((SAXPY / "saxpy.yaml").read_text())
    sweep("--config-dir", str(tmp_path), "kernel=tiled", "+shape=tiny", "dry_run=true")
    assert "hidden by the shipped kernel=tiled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tlie=8", "kernel=tiled"], 2, "did you mean 'kernel.params.tile'?"),
        (["+tlie=8", "kernel=tiled"], 2, "did you mean 'kernel.params.tile'?"),
        (["++kernel.params.BMM=64"], 2, "BMM"),
        (["+shpe=large"], 2, "did you mean 'shape'?"),
        (["kernel=tild"], 2, "tiled"),
        (["+shape=lrage"], 2, "large"),
        (["kernel=tiled", "kernel.params.tile=016"], 2, "write 16, not 016"),
        (["shape.m=1e2"], 2, "write 100"),
        (["shape.m=0"], 2, "at least 1"),
        (["shape=128"], 2, "shape=128x128x128"),
        (["search.name=tpee"], 2, "tpe"),
        (["backend.name=gpu"], 2, "none of auto, cuda, emulator, replay"),
        (["kernel.dtype=float31"], 2, "unknown precision class"),
        (["backend=replay"], 2, "backend.path=PATH"),
        (["--config-dir", "absent"], 2, "no such folder"),
        (["backend.target=h300"], 2, "h200"),
        (["search.objective=gflops", "search.direction=minimize"], 2, "contradicts"),
    ],
)  # fmt: skip
def test_a_wrong_command_ends_with_its_code_and_names_the_right_form(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    given = arguments if any(a.startswith("backend") for a in arguments) else [EMULATED, *arguments]
    assert main(given) == code
    captured = capsys.readouterr()
    assert says in captured.err + captured.out
    assert not list(elsewhere.rglob("study.db")), "nothing was begun, so nothing is left behind"


@pytest.mark.parametrize("form", ["kernel=tiled", "+kernel=tiled", "++kernel=tiled"])
def test_a_group_is_chosen_whatever_its_prefix(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(form, "+shape=tiny", "dry_run=true") == 0
    assert "tiled at tiny" in capsys.readouterr().out


def test_a_misspelt_experiment_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("experiment=nonsense") == 2
    assert "tile_sweep" in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_made_ends_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert sweep("kernel=tiled", "+shape=tiny", f"results_dir={tmp_path / 'file'}") == 4
    assert "results_dir=PATH" in capsys.readouterr().err


def test_a_size_the_kernel_does_not_have_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", str(SAXPY), EMULATED, "kernel=saxpy", "shape.m=5"]) == 2
    assert "the kernel has no size m, only n" in capsys.readouterr().err


def test_what_a_compiler_says_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.cu").write_text(
        '#error "a[i] and [bold] and :100:"\n__global__ void odd(float* y) { y[0] = 1; }\n'
    )
    (tmp_path / "odd.yaml").write_text(
        "{name: odd, source: odd.cu, entry: odd, dims: {N: 1}, launch: {block: [1], grid: [1]},"
        " args: [{name: y, shape: [N], direction: out}], reference: {kernel: odd, launch: {block: [1], grid: [1]}}}"
    )
    main(["--config-dir", str(tmp_path), EMULATED, "kernel=odd"])
    assert "a[i] and [bold] and :100:" in capsys.readouterr().out


def test_replaying_another_table_is_another_study(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    assert sweep("kernel=tiled", "kernel.params.tile=8", "+shape=tiny", f"results_dir={recorded}") == 0
    table = (recorded / "trials.csv").read_text()
    time_ms = rows(recorded)[0]["time_ms"]
    (tmp_path / "copy.csv").write_text(table.replace(time_ms, "0.777"))
    out = f"results_dir={tmp_path / 'out'}"
    for path in (recorded / "trials.csv", tmp_path / "copy.csv"):
        replay = [
            "backend=replay",
            f"backend.path={path}",
            "kernel=tiled",
            "kernel.params.tile=8",
            "+shape=tiny",
        ]
        assert main([*replay, out]) == 0
    assert [r["time_ms"] for r in rows(tmp_path / "out")] == [time_ms, "0.777"]


def test_a_reused_row_is_called_by_this_runs_shape(elsewhere: Path) -> None:
    assert sweep("kernel=tiled", "+shape=tiny") == 0
    assert sweep("kernel=tiled", "shape=64x64x64") == 0
    newest = max((elsewhere / "results" / "runs").iterdir(), key=lambda p: p.name)
    assert {r["shape"] for r in rows(newest)} == {"64x64x64"}


def test_a_usage_error_ends_the_same_way_under_a_debugger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hydra._internal.utils.is_under_debugger", lambda: True)
    assert main([EMULATED, "kernel=tild"]) == 2
    assert "tiled" in capsys.readouterr().err


def test_an_infeasible_configuration_is_a_row_with_the_numbers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert sweep("-m", "kernel=tiled", "kernel.params.tile=999,16", "+shape=tiny", f"results_dir={out}") == 1
    by_tile = {r["param_tile"]: r for r in rows(out)}
    assert by_tile["999"]["status"] == Status.INFEASIBLE
    assert "998001 > 1024" in by_tile["999"]["reason"]
    assert by_tile["16"]["status"] == Status.OK, "the other job ran"


def test_a_shape_a_kernel_does_not_serve_says_which_condition(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert sweep("kernel=sample_block", "+shape=odd", f"results_dir={out}") == 1
    assert "M % block == 0" in rows(out)[0]["reason"]


def test_a_kernel_that_is_wrong_shows_where(tmp_path: Path) -> None:
    for file in SAXPY.iterdir():
        text = file.read_text().replace(
            "first + i * width;\n    if (at < n) y[at] = a",
            "first + i * width;\n    if (at < n) y[at] = 2 * a",
        )
        (tmp_path / file.name.replace("saxpy", "broken")).write_text(text.replace("saxpy.cu", "broken.cu"))
    out = tmp_path / "out"
    command = ["--config-dir", str(tmp_path), EMULATED, "kernel=broken", "shape.n=64", "search.budget=2"]
    assert main([*command, f"results_dir={out}"]) == 1
    for row in rows(out):
        assert row["status"] == Status.WRONG_RESULT
        assert int(row["wrong"]) > 0
        assert "y[" in row["reason"]


def test_a_recorded_table_can_be_searched_again(tmp_path: Path) -> None:
    recorded, replayed = tmp_path / "recorded", tmp_path / "replayed"
    assert sweep("kernel=tiled", "+shape=tiny", f"results_dir={recorded}") == 0
    table = recorded / "trials.csv"
    command = [
        "backend=replay",
        f"backend.path={table}",
        "kernel=tiled",
        "+shape=tiny",
        f"results_dir={replayed}",
    ]
    assert main(command) == 0
    before = {r["param_tile"]: r["time_ms"] for r in rows(recorded)}
    assert {r["param_tile"]: r["time_ms"] for r in rows(replayed)} == before
    assert {r["time_source"] for r in rows(replayed)} == {"replayed"}


def test_a_dry_run_says_what_would_be_done_and_leaves_nothing(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("+shape=large", "dry_run=true") == 0
    assert "688 feasible of 1024 configurations" in capsys.readouterr().out
    assert not list(elsewhere.rglob("*.db"))


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_sources_are_found_whatever_the_working_folder_becomes(tmp_path: Path, chdir: str) -> None:
    out = tmp_path / "out"
    command = ["kernel=tiled", "kernel.params.tile=8", "+shape=tiny", f"hydra.job.chdir={chdir}"]
    assert sweep(*command, f"results_dir={out}") == 0


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)


def test_the_composed_configuration_can_be_shown() -> None:
    shown = python("-m", "sweeper", "--cfg", "job", "kernel=tiled", "shape=large")
    assert shown.returncode == 0
    assert "entry: gemm_tiled" in shown.stdout
    assert "m: 4096" in shown.stdout


def test_completion_knows_kernels_and_shapes() -> None:
    asked = python("-m", "sweeper", "-sc", "query=bash", COMP_LINE="sweeper kernel=", COMP_POINT="15")
    assert "kernel=tiled" in asked.stdout
    shapes = python("-m", "sweeper", "-sc", "query=bash", COMP_LINE="sweeper +shape=", COMP_POINT="15")
    assert "+shape=large" in shapes.stdout


def test_the_package_is_light_and_never_starts_cuda_in_the_parent() -> None:
    heavy = "[m for m in ('pandas', 'optuna', 'hydra', 'sqlalchemy', 'pycuda', 'torch') if m in sys.modules]"
    bare = python("-c", f"import sys, sweeper; print({heavy})")
    assert bare.stdout.strip() == "[]"
    session = python("-c", "import sys, sweeper.cli.session; print('pycuda' in sys.modules)")
    assert session.stdout.strip() == "False"


@pytest.mark.parametrize("environment", [{"LC_ALL": "de_DE.UTF-8"}, {"PYTHONHASHSEED": "1"}, {"LC_ALL": "C"}])
def test_locale_and_hash_seed_do_not_reach_the_table(tmp_path: Path, environment: dict[str, str]) -> None:
    command = ["-m", "sweeper", EMULATED, "kernel=tiled", "+shape=tiny", "resume=false"]
    for name, env in (("plain", {}), ("other", environment)):
        done = python(*command, f"results_dir={tmp_path / name}", **env)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "plain" / "trials.csv").read_bytes() == (
        tmp_path / "other" / "trials.csv"
    ).read_bytes()
