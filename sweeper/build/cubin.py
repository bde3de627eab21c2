"""The process that compiles: `python -m sweeper.build.cubin`, one request one cubin.

PyCUDA's compiler module does it where PyCUDA can be loaded; where it cannot (no package, or no driver
on this machine) nvcc is run with the same arguments, so that cubins can be made without a GPU. The
parent kills this process, and nvcc with it, at the deadline.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweeper.process import serve

__all__ = ["CompileOutcome", "CompileRequest", "compile_cubin"]

CUBIN_NAME = "kernel.cubin"
LOG_NAME = "compiler.log"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One compilation. `options` are nvcc's, defines included, but for architecture and include folders.

    `folder` is private to it: temporary files, the cubin and the log go there.
    """

    text: str
    nvcc: str
    arch: str
    options: tuple[str, ...]
    include_dirs: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """`error` names what was raised (`CompileError`) and is empty for a cubin; `way` is pycuda or nvcc."""

    way: str
    error: str
    log: str
    cubin: bytes | None = None


@lru_cache(maxsize=1)
def _pycuda_compile() -> Callable[..., bytes] | None:
    """`pycuda.compiler.compile`, or None where PyCUDA or the driver's library is missing."""
    try:
        importlib.import_module("pycuda.driver")
        compile_: Callable[..., bytes] = importlib.import_module("pycuda.compiler").compile
    except (ImportError, OSError):
        return None
    return compile_


def compile_cubin(request: CompileRequest) -> CompileOutcome:
    """Compile `request.text`. What the compiler says is in the outcome, whether it succeeds or not."""
    compile_ = _pycuda_compile()
    if compile_ is None:
        return _with_nvcc(request)
    return _with_pycuda(compile_, request)


def _with_pycuda(compile_: Callable[..., bytes], request: CompileRequest) -> CompileOutcome:
    # arch= and never options=["-arch=…"], which PyCUDA overrides; no extern "C" around the text, which
    # no template survives; no cache of PyCUDA's, which is not written atomically.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            cubin = compile_(
                request.text,
                nvcc=request.nvcc,
                options=list(request.options),
                arch=request.arch,
                no_extern_c=True,
                cache_dir=False,
                keep=False,
                include_dirs=list(request.include_dirs),
            )
        except Exception as error:
            said = [getattr(error, "stdout", None), getattr(error, "stderr", None)]
            log = "\n".join(text for text in said if text) or str(error)
            return CompileOutcome("pycuda", type(error).__name__, log)
    log = "\n".join(str(w.message) for w in caught)
    return CompileOutcome("pycuda", "", log, cubin)


def _with_nvcc(request: CompileRequest) -> CompileOutcome:
    source = Path(request.folder) / "kernel.cu"
    source.write_text(request.text, encoding="utf-8")
    done = subprocess.run(
        [*_arguments(request), source.name],
        cwd=request.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    log = done.stdout + done.stderr
    cubin = Path(request.folder) / CUBIN_NAME
    if done.returncode != 0 or not cubin.is_file():
        return CompileOutcome("nvcc", "CompileError", log or f"nvcc ended with {done.returncode}")
    return CompileOutcome("nvcc", "", log, cubin.read_bytes())


def _arguments(request: CompileRequest) -> Sequence[str]:
    """The argument vector that PyCUDA would use, but for its own include folder."""
    includes = [f"-I{folder}" for folder in request.include_dirs]
    return [request.nvcc, "--cubin", *request.options, "-arch", request.arch, *includes]


def _handle(message: dict[str, Any]) -> dict[str, Any]:
    """Compile into the request's folder: the cubin and the log are files there, the reply is short.

    `{"op": "warm"}` only loads what compiling needs.
    """
    if message.get("op") == "warm":
        return {"error": "", "way": "nvcc" if _pycuda_compile() is None else "pycuda"}
    fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in message.items()}
    request = CompileRequest(**fields)
    # nvcc and PyCUDA both write below the temporary folder, and PyCUDA leaves some there on an error.
    os.environ["TMPDIR"] = tempfile.tempdir = request.folder
    outcome = compile_cubin(request)
    folder = Path(request.folder)
    (folder / LOG_NAME).write_text(outcome.log, encoding="utf-8", errors="replace")
    if outcome.cubin is not None:
        (folder / CUBIN_NAME).write_bytes(outcome.cubin)
    return {"way": outcome.way, "error": outcome.error, "cubin": outcome.cubin is not None}


if __name__ == "__main__":
    serve(_handle)
