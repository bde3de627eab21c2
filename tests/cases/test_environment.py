"""What a machine lacks is said once, before any configuration is tried, with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_rig import PRODUCT_CU, PretendedGpu, kernel_in, python, rows, sweep

from sweeper.build import toolkit

TWENTY = {"block": [4, 8, 16, 32], "LATE": [0, 1, 2, 3, 4]}


def test_without_nvcc_the_places_tried_and_the_fix_are_told(
    here: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU is there, a compiler is not: one error with exit code 3, and no row."""
    # NervanaSystems/nervanagpu#23; andyzeng/tsdf-fusion-python#8
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setenv("CUDA_HOME", str(here / "cuda"))
    monkeypatch.setattr(toolkit, "_DEFAULT_ROOT", here / "usr" / "local" / "cuda")
    monkeypatch.setattr(toolkit.sysconfig, "get_path", lambda _: str(here / "site"))
    assert gpu.sweep(*kernel_in(here), "results_dir=out") == 3
    err = capsys.readouterr().err
    assert "nvcc not found" in err
    assert f"{here / 'cuda' / 'bin' / 'nvcc'} (CUDA_HOME)" in err
    assert str(here / "usr" / "local" / "cuda") in err
    assert "put nvcc's folder on PATH or set CUDA_HOME" in err
    assert not (here / "out").exists()


def test_a_compiler_too_old_for_the_device_is_told_once_with_both_their_numbers(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # inducer/pycuda#437; zju3dv/NeuralRecon#119
    old = {"version": "11.6.124", "archs": "sm_35 sm_52 sm_70 sm_80 sm_86"}
    gpu = PretendedGpu(tmp_path / "gpu", monkeypatch, name="rtx4090", **old)
    kernel = kernel_in(here, params={"block": [4, 8, 16, 32]})
    assert gpu.sweep(*kernel, "results_dir=out") == 3
    err = capsys.readouterr().err
    assert err.count("error:") == 1
    assert "nvcc 11.6.124 cannot compile for compute capability 8.9 (sm_89): it knows sm_35 to sm_86" in err
    assert "install a newer CUDA toolkit" in err
    assert gpu.compiled == 0
    assert not (here / "out").exists()


@pytest.mark.parametrize("target", ["sm_999", "h999"])
def test_a_device_that_nobody_knows_is_answered_with_those_that_are_known(
    here: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", f"backend.target={target}", "results_dir=out") == 2
    err = capsys.readouterr().err
    assert f"unknown target '{target}'" in err
    assert "h200" in err
    assert not (here / "out").exists()


@pytest.fixture
def no_pycuda(tmp_path: Path) -> str:
    """A search path on which PyCUDA is there and cannot be loaded, as without a driver."""
    package = tmp_path / "stubs" / "pycuda"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        'raise ImportError("libcuda.so.1: cannot open shared object file")\n'
    )
    return str(package.parent)


def test_what_needs_no_gpu_runs_without_pycuda(here: Path, no_pycuda: str) -> None:
    """A plan, and a search in the emulator, and its table searched again."""
    # open-mmlab/mmdeploy#2657; inducer/pycuda#361
    command = ["-m", "sweeper", "backend=emulator", "kernel=tiled", "shape=tiny"]
    planned = python(*command, "--dry-run", PYTHONPATH=no_pycuda)
    assert planned.returncode == 0, planned.stderr
    assert "3 feasible of 3 configurations" in planned.stdout
    done = python(*command, "results_dir=out", PYTHONPATH=no_pycuda)
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in rows(here / "out")] == ["ok"] * 3
    replay = ["backend=replay", f"backend.path={here / 'out' / 'trials.csv'}", "results_dir=again"]
    again = python(*command, *replay, PYTHONPATH=no_pycuda)
    assert again.returncode == 0, again.stderr


def test_a_gpu_that_was_asked_for_and_cannot_be_used_is_one_error(here: Path, no_pycuda: str) -> None:
    asked = python("-m", "sweeper", "backend=cuda", "kernel=tiled", "results_dir=out", PYTHONPATH=no_pycuda)
    assert asked.returncode == 3
    assert "there is no NVIDIA driver here" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_the_package_does_not_ask_for_pycuda_to_be_installed() -> None:
    import tomllib

    project = tomllib.loads((Path(toolkit.__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert not [name for name in project["dependencies"] if "cuda" in name]
    assert any(name.startswith("pycuda") for name in project["optional-dependencies"]["cuda"])


def test_twenty_variants_cost_no_second_compile(here: Path, gpu: PretendedGpu) -> None:
    """Measured again on purpose, they come from the cache: the rows say how long this run spent compiling."""
    # inducer/pycuda#462
    source = PRODUCT_CU.replace("float sum = 0;", "float sum = 0 * LATE;")
    kernel = kernel_in(here, params=TWENTY, source=source)
    assert gpu.sweep(*kernel, "search=grid", "results_dir=first") == 0
    spent = [float(row["build_s"]) for row in rows(here / "first")]
    assert len(spent) == 20
    assert any(spent)
    compiled = gpu.compiled
    assert gpu.sweep(*kernel, "search=grid", "resume=false", "results_dir=second") == 0
    assert len(gpu.measured) == 40
    assert sum(float(row["build_s"]) for row in rows(here / "second")) < 1
    assert gpu.compiled == compiled
