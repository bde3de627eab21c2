"""Programs that launch a kernel with a known bug, or its right twin: their text, nvcc on them, and what both need."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

from bugs.corpus import Array, Bug, Size  # noqa: E402

__all__ = ["REPETITIONS", "Ended", "SetUpError", "bounded", "compile_all", "device_arch", "stem", "tool_path"]

COMPILE_TIMEOUT_S = 120.0
REPETITIONS = 3
"""Launches of a program whose results are wanted: what a bug does may differ from one to the next."""
CPP_TYPES = {"float32": "float", "float16": "__half", "int32": "int"}


class SetUpError(Exception):
    """Something that this needs is not there; the message says what."""


MAIN = """\
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "{source}"

static unsigned long long state = 1;
static float uniform() {{
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<float>(state >> 40) / (1 << 23) - 1.0f;
}}
template <class T> static void fill(std::vector<T>& data, const char* how) {{
  for (size_t i = 0; i < data.size(); ++i) {{
    float value = 0;
    if (!strcmp(how, "uniform")) value = uniform();
    if (!strcmp(how, "whole")) value = static_cast<float>(static_cast<int>(4.99f * uniform()));
    if (!strcmp(how, "counting")) value = static_cast<float>(i);
    data[i] = static_cast<T>(value);
  }}
}}
static int failed(cudaError_t error) {{
  if (error == cudaSuccess) return 0;
  printf("failed: %s\\n", cudaGetErrorName(error));
  fflush(stdout);
  return 1;
}}

// Without a file for the results nothing is written to an output before the launch nor read after it, so that
// what a tool says concerns the kernel alone.
int main(int argc, char** argv) {{
  const char* results = argc > 1 ? argv[1] : nullptr;
  const int repetitions = results ? {repetitions} : 1;
  FILE* file = results ? fopen(results, "wb") : nullptr;
{allocations}
  for (int repetition = 0; repetition < repetitions; ++repetition) {{
    state = 1;
{fills}
    kernel<<<dim3({grid}), dim3({block}), {shared_bytes}>>>({arguments});
    if (failed(cudaGetLastError()) || failed(cudaDeviceSynchronize())) return 1;
{copies}
  }}
  if (file) fclose(file);
  return 0;
}}
"""


def three(sizes: Size) -> str:
    return ", ".join(str(n) for n in (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3])


def program(bug: Bug, *, fixed: bool) -> str:
    """The text of a program that launches `bug`'s kernel, or its right twin."""
    launch = bug.fixed if fixed and bug.fixed else bug.launch
    names = {array.name for array in bug.arrays}
    allocations, fills, copies = [], [], []
    for array in bug.arrays:
        kind, size = CPP_TYPES[array.dtype], int(np.prod(array.shape))
        host, bytes_of = f"host_{array.name}", f"{size} * sizeof({kind})"
        allocations += [
            f"  std::vector<{kind}> {host}({size});",
            f"  {kind}* {array.name};",
            f"  if (failed(cudaMalloc(&{array.name}, {bytes_of}))) return 1;",
        ]
        upload = f"cudaMemcpy({array.name}, {host}.data(), {bytes_of}, cudaMemcpyHostToDevice)"
        if array.fill in names:
            fills.append(f"    {host} = host_{array.fill}; {upload};")
        elif array.read:
            fills.append(f'    fill({host}, "{array.fill}"); {upload};')
        else:
            fills.append(f"    if (file) cudaMemset({array.name}, 0xFF, {bytes_of});")
        if array.written:
            copies.append(
                f"    if (file) {{ cudaMemcpy({host}.data(), {array.name}, {bytes_of}, cudaMemcpyDeviceToHost);"
                f" fwrite({host}.data(), sizeof({kind}), {size}, file); }}"
            )
    arguments = [a.name if isinstance(a, Array) else f"{CPP_TYPES[a.dtype]}({a.value})" for a in bug.args]
    return MAIN.format(
        source=bug.path,
        repetitions=REPETITIONS,
        allocations="\n".join(allocations),
        fills="\n".join(fills),
        copies="\n".join(copies),
        grid=three(launch.grid),
        block=three(launch.block),
        shared_bytes=launch.shared_bytes,
        arguments=", ".join(arguments),
    )


def compile_program(bug: Bug, folder: Path, *, fixed: bool, nvcc: str, arch: str) -> str:
    """Compile into `folder`; the compiler's complaint, or nothing."""
    executable = folder / stem(bug, fixed=fixed)
    source = executable.with_suffix(".cu")
    source.write_text(program(bug, fixed=fixed), encoding="utf-8")
    defines = ["-DFIXED"] if fixed else []
    command = [nvcc, "-std=c++17", f"-arch={arch}", "-lineinfo", "-w", *defines, "-o", executable, source]
    done = bounded([str(part) for part in command], COMPILE_TIMEOUT_S)
    return "" if done.code == 0 else f"{bug.name}: {done.output.strip() or 'nvcc did not finish'}"


def stem(bug: Bug, *, fixed: bool) -> str:
    return f"{bug.name}_fixed" if fixed else bug.name


def compile_all(bugs: Sequence[Bug], folder: Path, *, nvcc: str, arch: str, jobs: int) -> None:
    """Raises SetUpError with the first complaints."""
    start = time.monotonic()
    wanted = [(bug, fixed) for bug in bugs for fixed in (False, True)]
    with ThreadPoolExecutor(jobs) as threads:
        said = threads.map(
            lambda job: compile_program(job[0], folder, fixed=job[1], nvcc=nvcc, arch=arch), wanted
        )
        failed = [text for text in said if text]
    if failed:
        raise SetUpError("nvcc refuses some programs:\n" + "\n".join(failed[:3]))
    print(f"{len(wanted)} programs compiled for {arch} in {time.monotonic() - start:.0f} s", flush=True)


@dataclass(frozen=True)
class Ended:
    """How a process ended: `code` is None where the time was up."""

    code: int | None
    output: str


def bounded(command: Sequence[str], timeout_s: float) -> Ended:
    """Run `command` until `timeout_s`, then kill all that it started."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Ended(127, f"{command[0]}: {error.strerror}")
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return Ended(code, output.read(1 << 20).decode(errors="replace"))


def device_arch() -> str:
    """`sm_90` of the first GPU. Raises SetUpError where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise SetUpError(
            "there is no CUDA driver here: a GPU is needed (--ours-only and --compile-only go without)"
        ) from None
    count, device = ctypes.c_int(0), ctypes.c_int(0)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise SetUpError("the CUDA driver finds no GPU (--ours-only and --compile-only go without)")
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    digits = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        value = ctypes.c_int(0)
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        digits.append(str(value.value))
    return "sm_" + "".join(digits)


def tool_path(name: str) -> str:
    """A program of the CUDA toolkit. Raises SetUpError where it is nowhere."""
    found = shutil.which(name)
    if found:
        return found
    for pattern in ("usr/local/cuda*/bin", "usr/local/cuda*/compute-sanitizer", "opt/nvidia/*"):
        for folder in sorted(Path("/").glob(pattern), reverse=True):
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    raise SetUpError(f"there is no {name} here: install the CUDA toolkit, or put it on PATH")
