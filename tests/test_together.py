"""Several shapes of one kernel with one budget: one command, a study each."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from command_rig import PretendedGpu, kernel_in, rows, runs, sweep

pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.model import Timing  # noqa: E402
from sweeper.table import frame, write_csv  # noqa: E402

BLOCKS = list(range(1, 33))


def table(path: Path, *sizes: int) -> Path:
    """A recorded table of `mine` at square sizes; the larger the size, the steeper the way to the best block."""
    trials = [
        trial(
            number,
            kernel="mine",
            shape=f"{size}x{size}x{size}",
            dims=dict.fromkeys("MNK", size),
            params={"block": block},
            timing=Timing((1.0 + size * abs(block - 20) / 1000,), "events", "cold"),
        )
        for number, (size, block) in enumerate(itertools.product(sizes, BLOCKS), start=1)
    ]
    write_csv(frame(trials), path)
    return path


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    kernel = kernel_in(tmp_path / "kernels", params={"block": BLOCKS})
    path = table(tmp_path / "trials.csv", 32, 64, 96)
    return [*kernel, f"backend.path={path}", "resume=false"]


def replayed(mine: list[str], out: Path, *arguments: str) -> int:
    return sweep(*mine, f"results_dir={out}", *arguments, backend="replay")


def test_the_budget_is_that_of_all_shapes_together(mine: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert replayed(mine, out, "shapes=[32x32x32,64x64x64,96x96x96]", "search.budget=80") == 0
    asked = Counter(row["shape"] for row in rows(out))
    assert asked.total() == 80
    assert set(asked) == {"32x32x32", "64x64x64", "96x96x96"}
    assert min(asked.values()) >= 24
    assert {row["shape"] for row in rows(out, "best.csv")} == set(asked)


def test_every_shape_has_the_rows_and_the_record_of_a_run_of_its_own(mine: list[str], tmp_path: Path) -> None:
    out, alone = tmp_path / "out", tmp_path / "alone"
    assert replayed(mine, out, "shapes=[32x32x32,64x64x64]", "search.budget=64") == 0
    assert replayed(mine, alone, "shape=64x64x64", "search.budget=32") == 0
    (single,) = runs(alone)
    by_study = {run["study"]: run for run in runs(out)}
    assert len(by_study) == 2
    one = by_study[single["study"]]
    assert one["context"] == single["context"]
    assert one["config"]["shape"] == {"name": None, "m": 64, "n": 64, "k": 64}
    assert one["config"]["shapes"] is None
    assert one["statuses"] == {"ok": 32}
    own = ("study", "param_block", "time_ms", "status", "shape")

    def of(folder: Path) -> set[tuple[str, ...]]:
        return {tuple(row[name] for name in own) for row in rows(folder) if row["shape"] == "64x64x64"}

    assert of(out) == of(alone)


def test_the_same_seed_asks_the_same(mine: list[str], tmp_path: Path) -> None:
    asked = []
    for name in ("one", "other"):
        assert replayed(mine, tmp_path / name, "shapes=[32x32x32,96x96x96]", "search.budget=40") == 0
        asked.append([(row["shape"], row["param_block"]) for row in rows(tmp_path / name)])
    assert asked[0] == asked[1]


def test_whoever_begins_later_knows_what_was_found_before(mine: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert replayed(mine, out, "shapes=[64x64x64,96x96x96]", "search.budget=48") == 0
    later = [row["param_block"] for row in rows(out) if row["shape"] == "96x96x96"]
    assert later[0] == "20"


def test_a_shape_that_counts_more_is_asked_more(mine: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shapes = "shapes={32x32x32:1,64x64x64:50}"
    assert replayed(mine, out, shapes, "search.budget=54", "search=random") == 0
    asked = Counter(row["shape"] for row in rows(out))
    assert asked["64x64x64"] > asked["32x32x32"]


def test_a_shape_by_name_is_that_of_the_group_and_of_the_users_folder(tmp_path: Path) -> None:
    kernel = kernel_in(tmp_path / "kernels", params={"block": [8, 16]})
    shape = tmp_path / "kernels" / "shape"
    shape.mkdir()
    (shape / "own.yaml").write_text("name: own\nm: 48\nn: 16\nk: 32\n")
    out = tmp_path / "out"
    assert sweep(*kernel, "shapes=[tiny,own]", "search.budget=4", f"results_dir={out}") == 0
    assert Counter(row["shape"] for row in rows(out)) == {"tiny": 2, "own": 2}


def test_a_shape_of_which_nothing_can_be_measured_leaves_the_budget_to_others(tmp_path: Path) -> None:
    kernel = kernel_in(tmp_path / "kernels", params={"block": [4, 8, 16]}, constraints=["M % 16 == 0"])
    out = tmp_path / "out"
    assert sweep(*kernel, "shapes=[16x16x16,17x16x16]", "search.budget=3", f"results_dir={out}") == 1
    assert [(row["shape"], row["status"]) for row in rows(out)].count(("16x16x16", "ok")) == 3
    assert ("17x16x16", "infeasible") in {(row["shape"], row["status"]) for row in rows(out)}


def test_on_a_gpu_each_shape_is_confirmed_and_answers_a_later_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gpu = PretendedGpu(tmp_path, monkeypatch)
    kernel = kernel_in(tmp_path / "kernels", params={"block": [4, 8, 16, 32]})
    assert gpu.sweep(*kernel, "shapes=[tiny,small]", "search.budget=8", "measure.confirm_blocks=8") == 0
    (first,) = (tmp_path / "results" / "runs").iterdir()
    assert Counter(row["shape"] for row in rows(first)) == {"tiny": 4, "small": 4}
    assert {row["shape"] for row in rows(first, "confirmed.csv")} == {"tiny", "small"}
    measured = len(gpu.measured)
    assert (
        gpu.sweep(*kernel, "shape=small", "search.budget=4", "measure.confirm_blocks=8", "results_dir=b") == 0
    )
    assert gpu.sweep(*kernel, "shapes=[small,tiny]", "search.budget=8", "measure.confirm_blocks=8") == 0
    again = max((tmp_path / "results" / "runs").iterdir())
    assert Counter(row["status"] for row in rows(again)) == {"ok": 8}
    # Only the run in a folder of its own, which answers from no other, has measured anything.
    assert len(gpu.measured) == measured + 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shapes=[tiny,tinny]"], "no shape is called 'tinny'"),
        (["shapes=[tiny,tiny]"], "tiny is named twice"),
        (["shapes=[64x64x64,64x64x64]"], "named twice"),
        (["shapes={tiny:0}"], "the weight of tiny is 0, and not a positive number"),
        (["shapes=[]"], "shapes is empty"),
        (["shapes=tiny"], "shapes = 'tiny' is not a list: write shapes=[tiny]"),
        (["shapes=[tiny]", "shape=small"], "shape and shapes are both given"),
        (["shapes=[512]"], "512 is no shape"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    kernel = kernel_in(tmp_path / "kernels")
    assert sweep(*kernel, *arguments, f"results_dir={tmp_path / 'out'}") == 2
    assert said in capsys.readouterr().err


def test_a_table_without_one_of_the_shapes_is_refused_before_anything_is_asked(
    mine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replayed(mine, tmp_path / "out", "shapes=[32x32x32,48x48x48]") == 2
    assert "K=48 M=48 N=48" in capsys.readouterr().err
    assert not (tmp_path / "out" / "trials.csv").exists()


def test_a_dry_run_says_what_each_shape_would_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", "shapes=[tiny,odd]", "dry_run=true", f"results_dir={tmp_path / 'out'}") == 0
    said = capsys.readouterr().out
    assert "tiled at tiny" in said
    assert "tiled at odd" in said
