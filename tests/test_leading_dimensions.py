"""Leading dimensions on the command line: how they are asked for, and what tables say of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml
from contract.storage_contract import BATCHED_CU

from sweeper.cli.app import main
from sweeper.paths import conf_dir

TILED = ["backend=emulator", "kernel=tiled", "kernel.params.tile=16", "shape=tiny", "results_dir=out"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows() -> list[dict[str, str]]:
    with Path("out/trials.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_leading_dimension_is_a_size_of_the_shape() -> None:
    assert main([*TILED, "shape.lda=70", "shape.ldc=65"]) == 0
    (row,) = rows()
    assert (row["status"], row["shape"], row["checked"]) == ("ok", "tiny-lda70-ldc65", "4096")
    assert json.loads(row["dims"]) == {"M": 64, "N": 64, "K": 64, "LDA": 70, "LDC": 65}
    assert (row["flops"], row["bytes"]) == (str(2 * 64**3), str(3 * 4 * 64**2))


def test_one_that_changes_nothing_is_the_shape_without_it() -> None:
    """Also for what earlier runs measured: the second command has nothing left to do."""
    assert main([*TILED, "shape.lda=64"]) == 0
    assert main(TILED) == 0
    (row,) = rows()
    assert row["shape"] == "tiny"
    assert json.loads(row["dims"]) == {"M": 64, "N": 64, "K": 64}


def test_leading_dimensions_may_be_swept() -> None:
    assert main(["-m", *TILED, "shape.lda=64,65,80"]) == 0
    found = rows()
    assert [row["shape"] for row in found] == ["tiny", "tiny-lda65", "tiny-lda80"]
    assert len({row["context"] for row in found}) == 3


def test_one_shorter_than_a_row_is_told_before_anything_is_opened(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    assert main([*TILED, "shape.lda=60"]) == 2
    said = capsys.readouterr()
    assert "shape.lda = 60: a row of A has K = 64 elements" in said.err
    assert "give at least 64, or rows would overlap" in said.err
    assert not (here / "out").exists()


def test_one_that_a_kernel_does_not_know_is_told_with_those_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*TILED, "shape.ldd=64"]) == 2
    assert "shape.ldd" in capsys.readouterr().err


def test_a_kernel_without_leading_dimensions_says_so() -> None:
    command = ["backend=emulator", "kernel=sample_block", "shape=tiny", "shape.ldb=65", "results_dir=out"]
    assert main(command) == 1
    (row,) = rows()
    assert (row["status"], row["reason"]) == ("infeasible", "requires LDB == N: 65 != 64")


def test_a_shape_of_ones_own_may_have_them(here: Path) -> None:
    (here / "mine" / "shape").mkdir(parents=True)
    (here / "mine" / "shape" / "padded.yaml").write_text("name: padded\nm: 40\nn: 30\nk: 20\nlda: 24\n")
    command = [part for part in TILED if part != "shape=tiny"]
    assert main(["--config-dir", "mine", *command, "shape=padded"]) == 0
    (row,) = rows()
    assert (row["status"], row["shape"]) == ("ok", "padded-lda24")


@pytest.mark.parametrize(
    ("given", "called"), [([], "tiny"), (["shape.batch=16"], "tiny"), (["shape.batch=3"], "tiny-batch3")]
)
def test_a_named_shape_tells_how_large_a_batch_is_where_it_is_not_the_usual_one(
    here: Path, given: list[str], called: str
) -> None:
    problem = yaml.safe_load((conf_dir() / "problem" / "batched_gemm.yaml").read_text(encoding="utf-8"))
    (here / "mine" / "kernel").mkdir(parents=True)
    (here / "mine" / "kernel" / "mine.cu").write_text(BATCHED_CU)
    node = {
        **problem,
        "name": "mine",
        "source": "mine.cu",
        "entry": "product",
        "template": ["T", 0],
        "launch": {"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)", "BATCH"]},
    }
    (here / "mine" / "kernel" / "mine.yaml").write_text(yaml.safe_dump(node))
    command = ["backend=emulator", "kernel=mine", "shape=tiny", "results_dir=out", *given]
    assert main(["--config-dir", "mine", *command]) == 0
    (row,) = rows()
    assert (row["status"], row["shape"]) == ("ok", called)
