"""Compilers, libraries and packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import tempfile
from pathlib import Path

import sweeper
from sweeper.backend.cuda import cublas_loading
from sweeper.build.cache import BuildCache
from sweeper.build.toolkit import CudaCompiler, check_arch, find_nvcc
from sweeper.doctor.finding import Finding, State
from sweeper.emulation.compiler import find_compiler
from sweeper.errors import SetupError
from sweeper.profile.ncu import find_ncu, version_of

__all__ = ["cublas", "host_compiler", "ncu", "nvcc", "nvrtc", "packages", "pycuda", "python"]

_NEEDED = (
    "numpy",
    "pandas",
    "hydra-core",
    "omegaconf",
    "optuna",
    "SQLAlchemy",
    "PyYAML",
    "rich",
    "ml_dtypes",
)
_INSTALL_PYCUDA = "python tools/install_pycuda.py builds and installs it"
_LEAST_PYTHON = (3, 11)


def python() -> Finding:
    """This Python and this package."""
    version = platform.python_version()
    text = f"Python {version} on {platform.system()}, sweeper {sweeper.__version__}"
    if platform.system() != "Linux":
        return Finding(
            "python", State.NOTE, f"{text}; kernels run on Linux only", "use Linux, or backend=replay"
        )
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST_PYTHON:
        return Finding(
            "python", State.BROKEN, f"{text}; 3.11 is the oldest that will do", "install a newer one"
        )
    return Finding("python", State.OK, text)


def packages() -> Finding:
    """What the package depends on."""
    versions, missing = [], []
    for name in _NEEDED:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding(
            "packages", State.BROKEN, f"{', '.join(missing)} missing", f"pip install {' '.join(missing)}"
        )
    return Finding("packages", State.OK, ", ".join(versions))


def pycuda(*, gpu: bool) -> Finding:
    """PyCUDA, which launches kernels; needed where there is a GPU."""
    if importlib.util.find_spec("pycuda") is not None:
        return Finding("pycuda", State.OK, f"PyCUDA {_version('pycuda')}")
    return Finding(
        "pycuda", State.BROKEN if gpu else State.ABSENT, "not installed", _INSTALL_PYCUDA if gpu else ""
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def nvcc(arch: str) -> Finding:
    """The toolkit's compiler, and whether it knows the GPU. Raises SetupError."""
    found = find_nvcc()
    return _against_gpu("nvcc", found, arch, f"nvcc {found.version} at {found.path}")


def nvrtc(arch: str) -> Finding:
    """The compiler in a library, and whether it knows the GPU. Raises SetupError."""
    from sweeper.build.nvrtc import NvrtcBuilder

    with tempfile.TemporaryDirectory(prefix="sweeper-doctor-") as folder:
        builder = NvrtcBuilder(BuildCache(Path(folder)))
        try:
            return _against_gpu("nvrtc", builder.nvrtc, arch, f"NVRTC {builder.nvrtc.version}")
        finally:
            builder.close()


def _against_gpu(what: str, compiler: CudaCompiler, arch: str, text: str) -> Finding:
    try:
        check_arch(compiler, arch)
    except SetupError as error:
        return Finding(what, State.BROKEN, error.message, error.hint or "")
    return Finding(what, State.OK, f"{text}, compiles for {arch}")


def host_compiler() -> Finding:
    """The C++ compiler that the emulator needs. Raises SetupError."""
    found = find_compiler()
    return Finding("host compiler", State.OK, f"{found.identity}: kernels can run in the emulator")


def ncu() -> Finding:
    """NVIDIA's profiler, for `python -m sweeper.profile`. Raises SetupError."""
    found = find_ncu()
    return Finding("ncu", State.OK, f"Nsight Compute {version_of(found)} at {found}")


def cublas(*, gpu: bool) -> Finding:
    """The libraries that results are compared with."""
    missing = [stem for stem in ("libcublas", "libcublasLt") if cublas_loading.load(stem) is None]
    if not missing:
        return Finding("cublas", State.OK, "cuBLAS and cuBLASLt can be loaded")
    text = f"{' and '.join(missing)} cannot be loaded: no percent of the library in tables"
    return Finding(
        "cublas", State.NOTE if gpu else State.ABSENT, text, "pip install nvidia-cublas" if gpu else ""
    )
