"""CUDA's compilers and headers on this machine: where they are, which they are, what they can compile for."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from sweeper.errors import SetupError

__all__ = ["CudaCompiler", "CudaHeaders", "Nvcc", "Nvrtc", "check_arch", "find_headers", "find_nvcc"]

_INSTALL = (
    "install the CUDA toolkit, or `pip install 'cuda-toolkit[nvcc,cudart,crt,nvvm,cccl]==13.0.*'`; "
    "then put nvcc's folder on PATH or set CUDA_HOME"
)
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")
_ANSWER_S = 30.0
_DEFAULT_ROOT = Path("/usr/local/cuda")
_ROOT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_HEADER = "cuda_fp16.h"
_VERSION_HEADER = "cuda_runtime_api.h"


class CudaCompiler(Protocol):
    """A compiler of CUDA C++ to cubins: `path` is what is run or loaded; no `archs`: it did not say."""

    @property
    def identity(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def version(self) -> str: ...
    @property
    def archs(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Nvcc:
    """An nvcc that runs. `found_by` says how it was found (`PATH`, `CUDA_HOME`, …)."""

    path: Path
    version: str
    found_by: str
    archs: frozenset[str]

    @property
    def identity(self) -> str:
        return f"nvcc {self.version}"


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """An NVRTC that loads; `path` is its library."""

    path: Path
    version: str
    archs: frozenset[str]

    @property
    def identity(self) -> str:
        return f"nvrtc {self.version}"


@dataclass(frozen=True, slots=True)
class CudaHeaders:
    """The toolkit's headers: folders to look in, in order, and the runtime's version (`13.0`)."""

    folders: tuple[Path, ...]
    version: str


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(how, where) of each place that nvcc may be, the likeliest first."""
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    for folder in [on_path] if on_path else environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield "PATH", Path(folder) if on_path else Path(folder) / "nvcc"
    for variable in _ROOT_VARIABLES:
        if environ.get(variable):
            yield variable, Path(environ[variable]) / "bin" / "nvcc"
    yield str(_DEFAULT_ROOT), _DEFAULT_ROOT / "bin" / "nvcc"
    site = Path(sysconfig.get_path("purelib")) / "nvidia"
    for pattern in ("cu[0-9]*/bin/nvcc", "cuda_nvcc/bin/nvcc"):
        for found in sorted(site.glob(pattern), reverse=True):
            yield "site-packages", found


def _ask(nvcc: Path, *arguments: str) -> str:
    """What `nvcc` prints. Raises SetupError where it cannot be run."""
    try:
        done = subprocess.run(
            [str(nvcc), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"{nvcc} does not answer", hint=_INSTALL) from None
    except OSError as error:
        raise SetupError(f"{nvcc} cannot be run: {error.strerror or error}", hint=_INSTALL) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        reason = said[0] if said else f"exit code {done.returncode}"
        raise SetupError(f"{nvcc} {' '.join(arguments)} failed: {reason}", hint=_INSTALL)
    return done.stdout


@lru_cache(maxsize=8)
def _inspect(path: Path, found_by: str, _stamp: tuple[int, int]) -> Nvcc:
    said = _ask(path, "--version")
    match = re.search(r"\bV(\d+(?:\.\d+)+)", said) or re.search(r"release (\d+(?:\.\d+)+)", said)
    if match is None:
        raise SetupError(f"{path} --version does not name its version", hint=_INSTALL)
    listed = _ask(path, "--list-gpu-code") if _lists_archs(match[1]) else ""
    return Nvcc(path, match[1], found_by, frozenset(re.findall(r"sm_\d+[af]?", listed)))


def _lists_archs(version: str) -> bool:
    """--list-gpu-code is there since CUDA 11.0."""
    return int(version.partition(".")[0]) >= 11


def find_nvcc(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Nvcc:
    """The nvcc to use: `path`, else the first of PATH, CUDA_HOME, CUDA_PATH, CUDA_ROOT,
    /usr/local/cuda and the nvidia packages of this Python that is there.

    Raises SetupError, naming every place tried, where there is none, or the one found cannot be run.
    """
    places = [("configuration", path)] if path else list(_candidates(environ or os.environ))
    for how, place in places:
        if not place.is_file():
            continue
        if not os.access(place, os.X_OK):
            raise SetupError(f"{place} (from {how}) is not executable", hint=f"chmod +x {place}")
        stat = place.stat()
        return _inspect(place.absolute(), how, (stat.st_mtime_ns, stat.st_size))
    tried = ", ".join(f"{place} ({how})" for how, place in places if how != "PATH")
    searched = "PATH; " if any(how == "PATH" for how, _ in places) else ""
    raise SetupError(f"nvcc not found: tried {searched}{tried}", hint=_INSTALL)


def _packages() -> Iterator[Path]:
    """The folders of NVIDIA's packages for this Python, wherever on its path."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found and found.submodule_search_locations) or ():
        yield Path(folder)


def _header_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    """Each folder that may hold the toolkit's headers, the likeliest first."""
    for variable in _ROOT_VARIABLES:
        if environ.get(variable):
            yield Path(environ[variable]) / "include"
    nvcc = shutil.which("nvcc", path=environ.get("PATH", ""))
    if nvcc:
        yield Path(nvcc).resolve().parents[1] / "include"
    yield _DEFAULT_ROOT / "include"
    for package in _packages():
        for pattern in ("cu[0-9]*/include", "cuda_runtime/include"):
            yield from sorted(package.glob(pattern), reverse=True)
    if environ.get("CONDA_PREFIX"):
        yield Path(environ["CONDA_PREFIX"]) / "targets" / "x86_64-linux" / "include"
        yield Path(environ["CONDA_PREFIX"]) / "include"


def _headers_in(folder: Path) -> CudaHeaders | None:
    """The headers in `folder`, with those of libcu++ that belong to them; None where it has none."""
    try:
        text = (folder / _VERSION_HEADER).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    if match is None or not (folder / _HEADER).is_file():
        return None
    number = int(match[1])
    libraries = (folder / "cccl", folder.parents[1] / "cuda_cccl" / "include")
    folders = (folder, *(f for f in libraries if (f / "cuda" / "std").is_dir()))
    return CudaHeaders(folders, f"{number // 1000}.{number % 1000 // 10}")


def find_headers(version: str, *, environ: Mapping[str, str] | None = None) -> CudaHeaders:
    """The toolkit's headers for a compiler of `version` (`13.0.88`): of CUDA_HOME, CUDA_PATH, CUDA_ROOT, the
    nvcc on PATH, /usr/local/cuda, the nvidia packages of this Python or conda.

    The first of the same release is taken, else the first of the same major version. Raises SetupError.
    """
    places = list(dict.fromkeys(_header_folders(environ or os.environ)))
    found = [headers for headers in map(_headers_in, places) if headers]
    for parts in (2, 1):
        wanted = version.split(".")[:parts]
        for headers in found:
            if headers.version.split(".")[:parts] == wanted:
                return headers
    major = version.partition(".")[0]
    hint = f"pip install 'cuda-toolkit[cudart,crt,cccl]=={version.rpartition('.')[0]}.*', or set CUDA_HOME"
    if found:
        there = ", ".join(f"{h.version} in {h.folders[0]}" for h in found)
        raise SetupError(f"nvrtc {version} needs the headers of CUDA {major}; found {there}", hint=hint)
    raise SetupError(f"CUDA's headers not found: tried {', '.join(map(str, places))}", hint=hint)


def _has_suffix(compiler: CudaCompiler, suffix: str) -> bool:
    """Whether `compiler` has architecture-specific (a, CUDA 12.0) or family-specific (f, 12.9) targets."""
    version = tuple(int(n) for n in compiler.version.split(".")[:2])
    return version >= {"": (0,), "a": (12, 0), "f": (12, 9)}[suffix]


def check_arch(compiler: CudaCompiler, arch: str) -> None:
    """Raise SetupError where `compiler` cannot compile for `arch` (`sm_90a`)."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise SetupError(f"{arch!r} is not a GPU architecture", hint="write it like sm_90 or sm_90a")
    base = f"sm_{match[1]}"
    if (
        not compiler.archs
        or arch in compiler.archs
        or (base in compiler.archs and _has_suffix(compiler, match[2]))
    ):
        return
    known = sorted(compiler.archs, key=_number)
    wanted = _number(arch)
    if wanted >= _number(known[-1]):
        hint = f"install a newer CUDA toolkit than {compiler.version} ({compiler.path})"
    else:
        hint = "install the last CUDA toolkit that has it (12.9 for 5.0 to 7.2)"
    raise SetupError(
        f"{compiler.identity} cannot compile for compute capability {wanted // 10}.{wanted % 10} ({arch}): "
        f"it knows {known[0]} to {known[-1]}",
        hint=hint,
    )


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))
