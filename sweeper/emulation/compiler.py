"""The host's C++ compiler: which one, and running it in a process group that can be killed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.emulation.children import end_group, finished_before
from sweeper.errors import SetupError

__all__ = ["CompilerRun", "HostCompiler", "cpu_identity", "find_compiler", "run_compiler"]

_CANDIDATES = ("g++", "clang++", "c++")
_HINT = "install one (apt install g++, or pip install ziglang), or name it in the environment variable CXX"
_LOG_LIMIT = 8 << 20
_SUPERVISE = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A C++17 compiler. `command` is an argument vector; `kind` is `gcc` or `clang`."""

    command: tuple[str, ...]
    kind: str
    version: str

    @property
    def identity(self) -> str:
        """Equal only for compilers that make the same code of the same text on this machine."""
        return f"{self.kind} {self.version} for {platform.machine()}"


@dataclass(frozen=True, slots=True)
class CompilerRun:
    """How a compiler ended: `code` is None where the deadline ended it; `log` is all that it said."""

    code: int | None
    log: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def find_compiler(environment: Mapping[str, str] | None = None) -> HostCompiler:
    """The compiler named by `CXX`, else the first of g++, clang++, c++ on PATH, else ziglang's.

    Raises SetupError where there is none, or the one that `CXX` names does not run.
    """
    env = os.environ if environment is None else environment
    return _find(env.get("CXX", ""), env.get("PATH", ""))


@functools.lru_cache(maxsize=16)
def _find(named: str, path: str) -> HostCompiler:
    if sys.platform != "linux":
        raise SetupError(
            f"the emulator runs on Linux only, not on {sys.platform}", hint="use backend=replay here"
        )
    if named.strip():
        compiler = _probe(tuple(shlex.split(named)))
        if compiler is None:
            raise SetupError(f"CXX={named} does not run as a C++ compiler", hint=_HINT)
        return compiler
    for name in _CANDIDATES:
        found = shutil.which(name, path=path)
        compiler = _probe((found,)) if found else None
        if compiler is not None:
            return compiler
    if importlib.util.find_spec("ziglang") is not None:
        compiler = _probe((sys.executable, "-m", "ziglang", "c++"))
        if compiler is not None:
            return compiler
    raise SetupError("there is no C++ compiler, which emulating kernels needs", hint=_HINT)


def _probe(command: tuple[str, ...]) -> HostCompiler | None:
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = done.stdout.partition("\n")[0].strip()
    if done.returncode != 0 or not first:
        return None
    return HostCompiler(command, "clang" if "clang" in first.lower() else "gcc", first)


@functools.cache
def cpu_identity() -> str:
    """A digest of the instructions this machine has: code for one CPU may not run on another."""
    lines: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.split("\t")[0].strip() in ("flags", "Features", "model name", "CPU part"):
                lines[line] = None
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def run_compiler(
    compiler: HostCompiler,
    arguments: Sequence[str],
    *,
    folder: Path,
    deadline: float,
    supervisor: Path | None = None,
    running: set[subprocess.Popen[bytes]] | None = None,
) -> CompilerRun:
    """Run the compiler in `folder` until `deadline` (of `time.monotonic`), then kill all it started.

    Its temporary files go to `folder`, which the caller removes. It ends when this process is killed: `supervisor`
    (the launcher) sees to that, where it has been built already. Meanwhile its process is in `running`, for
    another thread to end it.
    """
    supervised = [str(supervisor), "--supervise"] if supervisor else [sys.executable, "-ES", str(_SUPERVISE)]
    prefix = [*supervised, str(os.getpid())]
    running = set() if running is None else running
    with tempfile.TemporaryFile(dir=folder) as output:
        try:
            process = subprocess.Popen(
                [*prefix, *compiler.command, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(folder),
                start_new_session=True,
            )
        except OSError as error:
            return CompilerRun(1, f"{compiler.command[0]}: error: {error.strerror}")
        running.add(process)
        in_time = False
        try:
            in_time = finished_before(process, deadline)
        finally:
            running.discard(process)
            code = end_group(process)
        output.seek(0)
        return CompilerRun(code if in_time else None, output.read(_LOG_LIMIT).decode(errors="replace"))


def _environment(folder: Path | None = None) -> dict[str, str]:
    """The caller's environment with messages in English and temporary files in `folder`."""
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    return environment | {"TMPDIR": str(folder)} if folder else environment
