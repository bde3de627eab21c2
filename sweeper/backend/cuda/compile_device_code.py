"""Compile `device_code.cu` to the PTX beside it: `python -m sweeper.backend.cuda.compile_device_code`."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sweeper.backend.cuda.device_code import PTX_PATH
from sweeper.build.toolkit import Nvcc, find_nvcc
from sweeper.errors import SetupError

__all__ = ["compile_ptx", "compiler_of"]

# The oldest that have every instruction used (warp votes with a mask): PTX ISA 6.3, Volta.
_VERSION, _TARGET = "6.3", "sm_70"
_COMPILED_FOR = "compute_75"
_DEADLINE_S = 120.0


def compile_ptx(nvcc: Nvcc) -> str:
    """What `nvcc` makes of the source. Raises SetupError where it does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / PTX_PATH.name
        command = [
            str(nvcc.path),
            "-ptx",
            f"-arch={_COMPILED_FOR}",
            "-o",
            str(made),
            PTX_PATH.with_suffix(".cu").name,
        ]
        done = subprocess.run(
            command, cwd=PTX_PATH.parent, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        if done.returncode != 0:
            raise SetupError(f"{nvcc.identity} does not compile device_code.cu: {done.stderr.strip()}")
        text = made.read_text(encoding="utf-8")
    text = re.sub(r"^\.version .*$", f".version {_VERSION}", text, flags=re.MULTILINE)
    return re.sub(r"^\.target .*$", f".target {_TARGET}", text, flags=re.MULTILINE)


def compiler_of(ptx: str) -> str:
    """The version of the nvcc that made `ptx` (`13.0.88`); empty where it does not say."""
    match = re.search(r"^// Cuda compilation tools, .*\bV(\S+)$", ptx, flags=re.MULTILINE)
    return match[1] if match else ""


if __name__ == "__main__":
    try:
        PTX_PATH.write_text(compile_ptx(find_nvcc()), encoding="utf-8")
    except SetupError as error:
        sys.exit(f"error: {error}")
