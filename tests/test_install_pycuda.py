"""Finding a toolkit and standing in for the driver's library, without building PyCUDA itself."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "install_pycuda.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("install_pycuda", TOOL)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def toolkit(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "include").mkdir()
    (root / "bin" / "nvcc").write_text("#!/bin/sh\n")
    (root / "bin" / "nvcc").chmod(0o755)
    (root / "include" / "cuda.h").write_text(
        "#define cuMemAlloc cuMemAlloc_v2\nint cuInit(unsigned flags);\nint cuMemAlloc(void** p, unsigned long n);\n"
    )
    return root


def test_a_script_that_starts_nvcc_elsewhere_is_no_toolkit(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "wrapper").mkdir()
    (tmp_path / "wrapper" / "nvcc").write_text("#!/bin/sh\n")
    (tmp_path / "wrapper" / "nvcc").chmod(0o755)
    real = toolkit(tmp_path / "cuda")
    environ = {"PATH": str(tmp_path / "wrapper"), "CUDA_HOME": str(tmp_path / "none"), "CUDA_PATH": str(real)}
    assert tool.find_toolkit(None, environ=environ) == real


def test_a_toolkit_on_path_is_found_through_links(tool: ModuleType, tmp_path: Path) -> None:
    real = toolkit(tmp_path / "cuda-13.0")
    (tmp_path / "cuda").symlink_to(real)
    assert tool.find_toolkit(None, environ={"PATH": str(tmp_path / "cuda" / "bin")}) == real


def test_a_named_folder_must_be_a_toolkit(tool: ModuleType, tmp_path: Path) -> None:
    assert tool.find_toolkit(toolkit(tmp_path / "cuda")) == tmp_path / "cuda"
    with pytest.raises(tool.InstallError, match="no CUDA toolkit"):
        tool.find_toolkit(tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_stand_in_defines_what_the_header_declares_under_the_names_that_are_linked(
    tool: ModuleType, tmp_path: Path
) -> None:
    folder = tool.make_stub(toolkit(tmp_path / "cuda"), tmp_path / "stub", "g++")
    library = folder / "libcuda.so"
    content = library.read_bytes()
    assert b"cuInit\0" in content
    assert b"cuMemAlloc_v2\0" in content
    assert b"libcuda.so.1\0" in content


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_header_without_functions_is_an_error(tool: ModuleType, tmp_path: Path) -> None:
    root = toolkit(tmp_path / "cuda")
    (root / "include" / "cuda.h").write_text("\n")
    with pytest.raises(tool.InstallError, match="declares no driver function"):
        tool.make_stub(root, tmp_path / "stub", "g++")


def test_the_build_is_told_where_everything_is(tool: ModuleType, tmp_path: Path) -> None:
    settings: dict[str, object] = {}
    for line in tool.siteconf(toolkit(tmp_path / "cuda"), tmp_path / "stub").splitlines():
        name, _, value = line.partition(" = ")
        settings[name] = value
    assert settings["CUDA_ROOT"] == repr(str(tmp_path / "cuda"))
    assert settings["CUDADRV_LIB_DIR"] == repr([str(tmp_path / "stub")])
    assert settings["CUDA_ENABLE_CURAND"] == "False"


def test_a_problem_is_one_message_and_exit_code_3(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--toolkit", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("install_pycuda: ")
    assert "Traceback" not in done.stderr


def test_a_missing_compiler_is_told_with_the_fix(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert tool.main([]) == 3
    assert "install g++" in capsys.readouterr().err
