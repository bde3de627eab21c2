"""`search.learn_from=[neighbours]`: a job of a multirun begins with what the jobs before it have measured."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from command_rig import kernel_in, rows, sweep

pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.model import Timing  # noqa: E402
from sweeper.table import frame, write_csv  # noqa: E402

BLOCKS = list(range(1, 33))
BEST = 20


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel whose best block is the same at two sizes, by a recorded table."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    trials = [
        trial(
            number,
            kernel="mine",
            shape=f"{size}x{size}x{size}",
            dims=dict.fromkeys("MNK", size),
            params={"block": block},
            timing=Timing((1.0 + size * abs(block - BEST) / 1000,), "events", "cold"),
        )
        for number, (size, block) in enumerate(itertools.product((32, 64), BLOCKS), start=1)
    ]
    write_csv(frame(trials), tmp_path / "trials.csv")
    kernel = kernel_in(tmp_path / "kernels", params={"block": BLOCKS})
    return [*kernel, f"backend.path={tmp_path / 'trials.csv'}", "-m", "shape=32x32x32,64x64x64"]


def first_asked(mine: list[str], out: Path, *more: str) -> list[str]:
    """The first block asked at each size."""
    assert sweep(*mine, f"results_dir={out}", *more, backend="replay") == 0
    found: dict[str, str] = {}
    for row in sorted(rows(out), key=lambda row: int(row["trial"])):
        found.setdefault(row["shape"], row["param_block"])
    return [found["32x32x32"], found["64x64x64"]]


def test_a_job_begins_with_the_best_of_the_sizes_before_it(mine: list[str], tmp_path: Path) -> None:
    asked = first_asked(mine, tmp_path / "out", "search.budget=32", "search.learn_from=[neighbours]")
    assert asked[0] != str(BEST)
    assert asked[1] == str(BEST)


def test_nothing_is_learned_unasked_nor_from_a_handful(mine: list[str], tmp_path: Path) -> None:
    unasked = first_asked(mine, tmp_path / "unasked", "search.budget=32")
    assert unasked[1] != str(BEST)
    few = first_asked(mine, tmp_path / "few", "search.budget=7", "search.learn_from=[neighbours]")
    assert few[1] == unasked[1]
