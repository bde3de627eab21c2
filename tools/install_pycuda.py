"""Build PyCUDA and install it into the environment of the Python that runs this.

    python tools/install_pycuda.py               use the CUDA toolkit that is there, else fetch one
    python tools/install_pycuda.py --fetch-toolkit
    python tools/install_pycuda.py --toolkit /opt/cuda-13.0

PyCUDA has no wheels: it is compiled (about a minute and a half) against a CUDA toolkit's headers and
the driver's library. Without a toolkit NVIDIA's packages from PyPI serve as one. Without a driver a
stand-in for its library satisfies the linker and is thrown away with the build's folder: the installed
PyCUDA asks for `libcuda.so.1` by name only, and finds the driver's when there is one.

Only the standard library is used, so that this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TOOLKIT_PACKAGE = "cuda-toolkit[nvcc,cudart,crt,nvvm,cccl,profiler]==13.0.*"
PYCUDA = "pycuda>=2025.1"


class InstallError(Exception):
    """Something needed is missing; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        install(options.toolkit, fetch_toolkit=options.fetch_toolkit, requirement=options.pycuda)
    except InstallError as error:
        print(f"install_pycuda: {error}", file=sys.stderr)
        return 3
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build and install PyCUDA into this Python's environment.")
    parser.add_argument(
        "--toolkit", type=Path, help="root of a CUDA toolkit (holds bin/nvcc and include/cuda.h)"
    )
    parser.add_argument(
        "--fetch-toolkit",
        action="store_true",
        help="install NVIDIA's packages from PyPI even if a toolkit is there",
    )
    parser.add_argument("--pycuda", default=PYCUDA, help=f"what to build (default: {PYCUDA})")
    return parser.parse_args(arguments)


def install(toolkit: Path | None, *, fetch_toolkit: bool, requirement: str) -> None:
    """Build and install PyCUDA. Raises InstallError."""
    compiler = _require_build_tools()
    root = None if fetch_toolkit else find_toolkit(toolkit)
    if root is None:
        root = _install_toolkit()
    print(f"CUDA toolkit: {root}")
    with tempfile.TemporaryDirectory(prefix="pycuda-build-") as folder:
        build = Path(folder)
        source = _download(requirement, build)
        present = _driver_folder(root)
        driver = present or make_stub(root, build / "link-only", compiler)
        print(f"driver library for the linker: {driver}")
        (source / "siteconf.py").write_text(siteconf(root, driver), encoding="utf-8")
        print("building PyCUDA (a minute or two) …")
        environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
        # PyCUDA uses NumPy without declaring it.
        _pip(["install", "--no-cache-dir", "--force-reinstall", "--no-deps", str(source)], environment)
        _pip(["install", str(source.name.replace("-", "==", 1)), "numpy"], environment)
        _check_installed(None if present else driver)


def _require_build_tools() -> str:
    """The C++ compiler. Raises InstallError where it, Python's headers or pip are missing."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler.split()[0]) is None:
        raise InstallError(f"no C++ compiler ({compiler}): install g++ (apt-get install g++), or set CXX")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise InstallError(
            f"{headers}/Python.h is missing: install Python's headers (apt-get install python3-dev)"
        )
    if subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
    ).returncode:
        raise InstallError(f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip` first")
    return compiler


def toolkit_candidates(environ: Mapping[str, str], site: Path) -> Iterator[Path]:
    """Folders that may be a toolkit's root, the likeliest first."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        if environ.get(variable):
            yield Path(environ[variable])
    nvcc = shutil.which("nvcc", path=environ.get("PATH", ""))
    if nvcc:
        yield Path(nvcc).resolve().parent.parent
    yield Path("/usr/local/cuda")
    yield from sorted((site / "nvidia").glob("cu[0-9]*"), reverse=True)


def is_toolkit(root: Path) -> bool:
    """Whether `root` has what a build of PyCUDA needs. The folder above an nvcc may be no toolkit: it
    may hold a script that starts an nvcc elsewhere."""
    return (root / "bin" / "nvcc").is_file() and (root / "include" / "cuda.h").is_file()


def find_toolkit(named: Path | None, *, environ: Mapping[str, str] | None = None) -> Path | None:
    """The toolkit `named`, or the first one found. Raises InstallError where the named one is none."""
    if named is not None:
        if not is_toolkit(named):
            raise InstallError(f"{named} is no CUDA toolkit: bin/nvcc or include/cuda.h is missing")
        return named.resolve()
    site = Path(sysconfig.get_path("purelib"))
    candidates = toolkit_candidates(os.environ if environ is None else environ, site)
    return next((root.resolve() for root in candidates if is_toolkit(root)), None)


def _install_toolkit() -> Path:
    print(f"installing {TOOLKIT_PACKAGE} from PyPI (about 270 MB) …")
    _pip(["install", TOOLKIT_PACKAGE], os.environ)
    nvidia = Path(sysconfig.get_path("purelib")) / "nvidia"
    for root in sorted(nvidia.glob("cu[0-9]*"), reverse=True):
        if is_toolkit(root):
            return root
    raise InstallError(f"the packages were installed, but there is no toolkit in {nvidia}")


def _pip(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run pip quietly; its output is shown where it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, env=dict(environ), capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise InstallError(f"pip {' '.join(arguments)} failed:\n{tail}")


def _download(requirement: str, folder: Path) -> Path:
    """PyCUDA's source, unpacked below `folder`."""
    _pip(["download", "--no-deps", "--no-binary", "pycuda", "--dest", str(folder), requirement], os.environ)
    archives = list(folder.glob("pycuda-*.tar.gz"))
    if not archives:
        raise InstallError(f"pip downloaded no source of {requirement}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return folder / archives[0].name.removesuffix(".tar.gz")


def _driver_folder(root: Path) -> Path | None:
    """A folder with a `libcuda.so` to link against: the toolkit's own stub, or the driver's."""
    places = [root / lib / "stubs" for lib in ("lib64", "lib")]
    places += [
        Path(p) for p in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
    ]
    return next((p for p in places if (p / "libcuda.so").exists()), None)


def driver_functions(preprocessed_header: str) -> list[str]:
    """The driver functions that a preprocessed cuda.h declares (with their `_v2` names, as linked)."""
    return sorted(set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", preprocessed_header)))


def make_stub(root: Path, folder: Path, compiler: str) -> Path:
    """A `libcuda.so` in `folder` that defines every driver function: for the linker, never for running.

    A library that defines none of the needed names would be dropped by the linker, and with it the
    note that PyCUDA needs libcuda.so.1.
    """
    folder.mkdir()
    include = root / "include"
    headers = [str(include / name) for name in ("cuda.h", "cudaProfiler.h") if (include / name).is_file()]
    header = "".join(
        _run([*compiler.split(), "-E", "-x", "c++", "-I", str(include), path]) for path in headers
    )
    functions = driver_functions(header)
    if not functions:
        raise InstallError(f"{root}/include/cuda.h declares no driver function")
    source = folder / "stub.c"
    # 100 is CUDA_ERROR_NO_DEVICE.
    source.write_text(
        "".join(f"int {name}(void) {{ return 100; }}\n" for name in functions), encoding="utf-8"
    )
    library = folder / "libcuda.so"
    _run(
        [
            *compiler.split(), "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
            "-o", str(library), str(source),
        ]
    )  # fmt: skip
    return folder


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise InstallError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def siteconf(root: Path, driver: Path) -> str:
    """PyCUDA's build configuration."""
    has_curand = (root / "include" / "curand.h").is_file() and any(
        (root / lib / "libcurand.so").exists() for lib in ("lib64", "lib")
    )
    settings = {
        "CUDA_ROOT": str(root),
        "CUDA_INC_DIR": [str(root / "include")],
        "CUDA_ENABLE_CURAND": has_curand,
        "CUDADRV_LIB_DIR": [str(driver)],
        "CUDADRV_LIBNAME": ["cuda"],
    }
    return "".join(f"{name} = {value!r}\n" for name, value in settings.items())


def _check_installed(stub: Path | None) -> None:
    """Raise InstallError where the installed PyCUDA cannot be imported, or would load the stand-in."""
    where = _run([sys.executable, "-c", "import pycuda.compiler; print(pycuda.__file__)"]).strip()
    folder = Path(where).parent
    for library in folder.glob("*.so"):
        if stub and os.fsencode(stub) in library.read_bytes():
            raise InstallError(f"{library} would look for the driver's library in {stub}")
    version = _run([sys.executable, "-c", "import pycuda; print(pycuda.VERSION_TEXT)"]).strip()
    print(f"PyCUDA {version} is installed in {folder}")
    driver = subprocess.run(
        [sys.executable, "-c", "import pycuda.driver as d; d.init(); print(d.Device(0).name())"],
        capture_output=True,
        text=True,
        check=False,
    )
    if driver.returncode == 0:
        print(f"it works on {driver.stdout.strip()}")
        return
    said = driver.stderr.strip().splitlines()
    print("no GPU can be used here" + (f": {said[-1]}" if said else ""))


if __name__ == "__main__":
    sys.exit(main())
