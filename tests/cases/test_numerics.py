"""What a command says where numbers, not kernels, are at fault. The bounds themselves are tested with `problem`."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_rig import matrices, sizes
from command_rig import PRODUCT_CU, kernel_in, rows, sweep

HALF_CU = (
    PRODUCT_CU.replace("float* A", "__half* A")
    .replace("float* B", "__half* B")
    .replace("float* C", "__half* C")
)
HALF_CU = HALF_CU.replace("A[i * K + k] * B[k * N + j]", "float(A[i * K + k]) * float(B[k * N + j])")


def half_in(folder: Path, fill: str) -> list[str]:
    """A product in half precision, summed in float32."""
    source = HALF_CU.replace("= sum;", "= __half(sum);")
    return kernel_in(folder, source=source, dtype="float16", args=[*matrices(fill=fill), *sizes(*"MNK")])


def test_a_result_beyond_its_type_is_told_as_the_inputs_and_other_jobs_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # adelj88/rocm_wmma_samples#2
    shapes = "shape=16x16x70000,16x16x64"
    assert sweep("-m", *half_in(here, "ones"), shapes, "results_dir=out") == 2
    err = capsys.readouterr().err
    assert "input range: C[0, 0] should be 70000, beyond float16's range of -65504 to 65504" in err
    assert "use a fill of smaller values" in err
    assert [(row["k"], row["status"]) for row in rows(here / "out")] == [("64", "ok")]


@pytest.mark.parametrize("fill", ["uniform", "normal"])
def test_random_inputs_are_scaled_so_that_no_sum_overflows(here: Path, fill: str) -> None:
    assert sweep(*half_in(here, fill), "shape=16x16x70000", "results_dir=out") == 0
    (row,) = rows(here / "out")
    assert row["status"] == "ok"
    assert 0 < float(row["error_ratio"]) < 1


@pytest.mark.parametrize("k", [64, 8192])
def test_a_right_kernel_passes_and_one_off_in_the_last_term_fails_at_any_length(here: Path, k: int) -> None:
    # pytorch/torchtitan#4348
    right = kernel_in(here, "right")
    short = kernel_in(here, "short", source=PRODUCT_CU.replace("k < K", "k < K - 1"))
    assert sweep(*right, f"shape=16x16x{k}", "results_dir=right") == 0
    assert sweep(*short, f"shape=16x16x{k}", "results_dir=short") == 1
    assert rows(here / "short")[0]["status"] == "wrong_result"
