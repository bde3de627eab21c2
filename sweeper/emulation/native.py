"""The launcher: this package's C++, compiled once for each compiler and kept in the user's cache."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

import platformdirs

from sweeper.emulation.compiler import HostCompiler, run_compiler
from sweeper.errors import SetupError

__all__ = ["INCLUDE_DIR", "headers_digest", "launcher_path", "runtime_digest", "without_library"]

INCLUDE_DIR = Path(__file__).resolve().parent / "include"
_RUNTIME_DIR = Path(__file__).resolve().parent / "runtime"
_FLAGS = (
    "-std=gnu++17", "-O2", "-g", "-Wall", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-rdynamic",
    "-pthread", "-Wl,--as-needed",
)  # fmt: skip
_DEADLINE_S = 300.0


def _digest(*files: Path) -> str:
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        content.update(file.read_bytes())
    return content.hexdigest()[:16]


@functools.cache
def headers_digest() -> str:
    """What every module depends on beside its own text: the headers it includes."""
    return _digest(*sorted(INCLUDE_DIR.rglob("*.h")))


@functools.cache
def runtime_digest() -> str:
    """What the launcher is made of."""
    shared = [INCLUDE_DIR / "simt" / name for name in ("abi.h", "vector_types.h")]
    return _digest(*sorted(_RUNTIME_DIR.iterdir()), *shared)


@functools.cache
def launcher_path(compiler: HostCompiler, *, portable_switch: bool = False) -> Path:
    """The launcher's executable, compiled where the cache has none.

    `portable_switch` takes the C library's way from one fiber to another, as processors without a way
    of their own do. Raises SetupError where it does not compile.
    """
    extra = (*without_library(compiler), *(("-DSIMT_PORTABLE_SWITCH",) if portable_switch else ()))
    content = repr((runtime_digest(), compiler.identity, compiler.command, _FLAGS, extra))
    name = f"launcher-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    for folder in _folders():
        path = folder / name
        if os.access(path, os.X_OK):
            return path
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            return _build(compiler, extra, path)
    raise SetupError(
        "there is no folder to keep the emulator's launcher in", hint="set TMPDIR to one that can be written"
    )


def without_library(compiler: HostCompiler) -> tuple[str, ...]:
    """What keeps the C++ library out of a link that does not need it: ziglang would compile it first."""
    return ("-nostdlib++",) if compiler.kind == "clang" else ()


def _folders() -> tuple[Path, ...]:
    """The user's cache, else a temporary folder of this process."""
    named = os.environ.get("SWEEPER_CACHE")
    root = (
        Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("sweeper", appauthor=False))
    )
    return root / "emulator", _private_folder()


@functools.cache
def _private_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"sweeper-emulator-{uuid.uuid4().hex}"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _build(compiler: HostCompiler, extra: tuple[str, ...], path: Path) -> Path:
    sources = [str(s) for s in sorted(_RUNTIME_DIR.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".launcher-") as folder:
        arguments = [*_FLAGS, *extra, f"-I{INCLUDE_DIR}", *sources, "-ldl", "-o", path.name]
        run = run_compiler(compiler, arguments, folder=Path(folder), deadline=time.monotonic() + _DEADLINE_S)
        if not run.ok:
            first = next((line for line in run.log.splitlines() if "error" in line), run.log[:300])
            raise SetupError(
                f"{compiler.version} cannot compile the emulator: {first}",
                hint="name a C++17 compiler (g++ 9 or later, clang++ 10 or later) in CXX",
            )
        # Whoever is first wins; the same content by a second one does no harm.
        os.replace(Path(folder) / path.name, path)
    return path
