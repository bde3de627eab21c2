"""What compute-sanitizer says of the kernels with a known bug, beside what the emulator's check mode says.

    python -m bench.sanitizer_verdicts                     on a GPU machine: everything, about three minutes
    python -m bench.sanitizer_verdicts --ours-only         without a GPU: the emulator's verdicts, to a CSV
    python -m bench.sanitizer_verdicts --ours FILE         on a GPU machine, with those verdicts
    python -m bench.sanitizer_verdicts --compile-only      without a GPU: does every program compile?

Each kernel of tests/emulation/bugs becomes two programs, as it is and with its bug fixed. The first runs
plainly and under memcheck, racecheck, initcheck and synccheck, a process each; then the fixed ones do, to see
who calls a right kernel wrong. Writes sanitizer_verdicts.csv and sanitizer_verdicts.md. Exit codes: 0 done,
2 usage, 3 no GPU, compiler or compute-sanitizer.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

from bugs.corpus import BUGS, Array, Bug, Size  # noqa: E402
from bugs.running import Verdict, compile_bug, run  # noqa: E402

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLAIN_TIMEOUT_S, TOOL_TIMEOUT_S, COMPILE_TIMEOUT_S = 15.0, 25.0, 120.0
REPETITIONS = 3
FOUND_EXIT = 86
SET_UP_FAILED = 3
CPP_TYPES = {"float32": "float", "float16": "__half", "int32": "int"}


class SetUpError(Exception):
    """Something that this needs is not there; the message says what."""


# ------------------------------------------------------------------------------------------------
# Programs: a kernel with a main() of its own.

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


# ------------------------------------------------------------------------------------------------
# Running them.


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


@dataclass(frozen=True)
class Says:
    """What one tool says of one program: `found`, `clean`, `hangs` (until the time was up), `not run`, or how
    the program failed without a word of the tool's; and the tool's first words."""

    verdict: str
    words: str = ""


_COUNT = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
_WORDS = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)$", re.MULTILINE)
_FAILED = re.compile(r"^failed: (\w+)", re.MULTILINE)


def under_tool(executable: Path, tool: str, sanitizer: str) -> Says:
    """Run `executable` under one of compute-sanitizer's tools."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND_EXIT), "--print-limit", "5"]
    ended = bounded([*command, str(executable)], TOOL_TIMEOUT_S)
    counts = [int(one or other) for one, other in _COUNT.findall(ended.output)]
    words = next((line.strip() for line in _WORDS.findall(ended.output)), "")
    failed = _FAILED.search(ended.output)
    if any(counts) or ended.code == FOUND_EXIT:
        return Says("found", words)
    if ended.code is None:
        return Says("hangs", words)
    if not counts:
        return Says("tool failed", words or ended.output.strip()[:200])
    return Says(failed[1] if failed else "clean", words)


def plainly(executable: Path, folder: Path) -> tuple[Says, bytes]:
    """Run `executable` by itself; the results of all its repetitions."""
    results = folder / f"{executable.name}.results"
    ended = bounded([str(executable), str(results)], PLAIN_TIMEOUT_S)
    if ended.code is None:
        return Says("hangs"), b""
    failed = _FAILED.search(ended.output)
    if failed or ended.code != 0:
        return Says(failed[1] if failed else f"exit code {ended.code}"), b""
    return Says("right"), results.read_bytes()


def judged(bug: Bug, says: Says, got: bytes, want: bytes) -> Says:
    """`says` of a plain run, once its results are held against the fixed kernel's."""
    if says.verdict != "right" or not want:
        return says
    each = len(got) // REPETITIONS
    if any(got[:each] != got[i * each : (i + 1) * each] for i in range(1, REPETITIONS)):
        return Says("differs from run to run")
    return says if _close(bug, got[:each], want[:each]) else Says("wrong numbers")


def _close(bug: Bug, got: bytes, want: bytes) -> bool:
    at = 0
    for array in bug.arrays:
        if array.written:
            kind, count = np.dtype(array.dtype), int(np.prod(array.shape))
            one, other = (np.frombuffer(data, kind, count, at).astype(np.float64) for data in (got, want))
            if not np.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True):
                return False
            at += kind.itemsize * count
    return True


@dataclass
class Row:
    """All verdicts on one kernel: of the tools, on the kernel and on its right twin, and ours."""

    bug: Bug
    plain: Says = Says("not run")
    tools: dict[str, Says] = field(default_factory=dict)
    twin: dict[str, Says] = field(default_factory=dict)
    ours: Mapping[str, str] = field(default_factory=dict)


def run_all(
    rows: Sequence[Row], folder: Path, *, sanitizer: str, at_once: int, until: float, twins: bool
) -> None:
    """Fill `rows` in, as far as the time goes."""

    def plain(row: Row) -> None:
        if time.monotonic() < until:
            says, got = plainly(folder / stem(row.bug, fixed=False), folder)
            _, want = plainly(folder / stem(row.bug, fixed=True), folder)
            row.plain = judged(row.bug, says, got, want)

    def tool(job: tuple[Row, str, bool]) -> None:
        row, name, fixed = job
        late = time.monotonic() >= until
        says = Says("not run") if late else under_tool(folder / stem(row.bug, fixed=fixed), name, sanitizer)
        (row.twin if fixed else row.tools)[name] = says

    variants = (False, True) if twins else (False,)
    jobs = [(row, name, fixed) for fixed in variants for row in rows for name in TOOLS]
    # What hangs holds its place for as long as the time limit: it goes first.
    jobs.sort(key=lambda job: (job[2], "deadlock" not in job[0].bug.name))
    start = time.monotonic()
    with ThreadPoolExecutor(at_once) as threads:
        for _ in threads.map(plain, rows):
            pass
        print(f"plain runs: {time.monotonic() - start:.0f} s", flush=True)
        for done, _ in enumerate(threads.map(tool, jobs), start=1):
            if done % 40 == 0 or done == len(jobs):
                print(f"{done} of {len(jobs)} runs under tools: {time.monotonic() - start:.0f} s", flush=True)


# ------------------------------------------------------------------------------------------------
# Ours.


def our_verdicts(bugs: Sequence[Bug], jobs: int) -> dict[str, dict[str, str]]:
    """What check mode and fast mode find in each kernel and in its twin."""
    from sweeper.emulation import find_compiler, launcher_path

    compiler = find_compiler()
    launcher_path(compiler)
    with tempfile.TemporaryDirectory(prefix="sweeper-verdicts-") as name:
        folder = Path(name)

        def verdict(bug: Bug, *, fixed: bool, checked: bool) -> Verdict:
            module = compile_bug(bug, folder, compiler, fixed=fixed, checked=checked)
            return run(bug, module, compiler, fixed=fixed, checked=checked)

        def both(bug: Bug) -> tuple[str, dict[str, str]]:
            check, fast = (verdict(bug, fixed=False, checked=checked) for checked in (True, False))
            twin = [verdict(bug, fixed=True, checked=checked) for checked in (True, False)]
            return bug.name, {
                "check": str(check),
                "fast": str(fast),
                "twin": "clean" if all(v.clean for v in twin) else "; ".join(str(v) for v in twin),
            }

        with ThreadPoolExecutor(jobs) as threads:
            return dict(threads.map(both, bugs))


OUR_COLUMNS = ("check", "fast", "twin")


def write_ours(verdicts: Mapping[str, Mapping[str, str]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("bug", *OUR_COLUMNS))
        writer.writerows([name, *(says[c] for c in OUR_COLUMNS)] for name, says in verdicts.items())


def read_ours(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row.pop("bug"): row for row in csv.DictReader(file)}


# ------------------------------------------------------------------------------------------------
# Tables.


def kinds_of(bug: Bug) -> str:
    """What is wrong with it, in the words of the findings."""
    return " or ".join(sorted(bug.kinds)) or (
        "not deterministic" if bug.nondeterministic else "wrong numbers"
    )


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    columns = ["bug", "what is wrong", "plain run", *TOOLS, "check", "fast"]
    table = [
        [
            row.bug.name,
            kinds_of(row.bug),
            row.plain.verdict,
            *(row.tools.get(tool, Says("not run")).verdict for tool in TOOLS),
            row.ours.get("check", ""),
            row.ours.get("fast", ""),
        ]
        for row in rows
    ]
    with (folder / "sanitizer_verdicts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, *(f"{t} says" for t in TOOLS), *(f"twin {t}" for t in TOOLS), "twin ours"])
        for row, cells in zip(rows, table, strict=True):
            says = [row.tools.get(tool, Says("")).words for tool in TOOLS]
            twin = [row.twin.get(tool, Says("not run")).verdict for tool in TOOLS]
            writer.writerow([*cells, *says, *twin, row.ours.get("twin", "")])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(cells) + " |" for cells in table]
    lines += ["", *summary(rows)]
    text = "\n".join(lines) + "\n"
    (folder / "sanitizer_verdicts.md").write_text(text, encoding="utf-8")
    print(text)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    ran = [row for row in rows if row.tools]
    for tool in TOOLS:
        found = sum(row.tools[tool].verdict == "found" for row in ran)
        twins = sum(row.twin.get(tool, Says("")).verdict == "found" for row in ran)
        yield f"- {tool}: found in {found} of {len(ran)}, in {twins} right twins"
    any_tool = sum(any(says.verdict == "found" for says in row.tools.values()) for row in ran)
    yield f"- any of the four: {any_tool} of {len(ran)}"
    plain = sum(row.plain.verdict != "right" for row in ran)
    yield f"- a plain run shows something: {plain} of {len(ran)}"
    for mode in ("check", "fast"):
        found = sum(row.ours.get(mode, "nothing") != "nothing" for row in rows)
        yield f"- the emulator, mode {mode}: {found} of {len(rows)}"
    yield f"- the emulator, right twins: {sum(row.ours.get('twin') not in ('clean', None) for row in rows)}"


# ------------------------------------------------------------------------------------------------
# Set-up.


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


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/runs/sanitizer_verdicts"))
    parser.add_argument("--ours", type=Path, help="our verdicts, as --ours-only wrote them")
    parser.add_argument("--ours-only", action="store_true", help="our verdicts only; needs no GPU")
    parser.add_argument("--compile-only", action="store_true", help="compile every program; needs no GPU")
    parser.add_argument("--only", nargs="+", metavar="BUG", help="these kernels")
    parser.add_argument("--no-twins", action="store_true", help="leave the fixed kernels out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    parser.add_argument("--at-once", type=int, default=6, help="programs on the GPU at a time")
    parser.add_argument("--budget-s", type=float, default=170.0, help="begin no run after this long")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    start = time.monotonic()
    options = parsed(arguments)
    bugs = [bug for bug in BUGS if not options.only or bug.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if options.ours_only:
            write_ours(our_verdicts(bugs, options.jobs), options.out / "ours.csv")
            print(f"wrote {options.out / 'ours.csv'}")
            return 0
        arch = "sm_90" if options.compile_only else device_arch()
        nvcc = tool_path("nvcc")
        sanitizer = "" if options.compile_only else tool_path("compute-sanitizer")
        with tempfile.TemporaryDirectory(prefix="sweeper-sanitizer-") as name:
            folder = Path(name)
            compile_all(bugs, folder, nvcc=nvcc, arch=arch, jobs=options.jobs)
            if options.compile_only:
                return 0
            rows = [Row(bug) for bug in bugs]
            run_all(
                rows,
                folder,
                sanitizer=sanitizer,
                at_once=options.at_once,
                until=start + options.budget_s,
                twins=not options.no_twins,
            )
        ours = read_ours(options.ours) if options.ours else {}
        for row in rows:
            row.ours = ours.get(row.bug.name, {})
        write_tables(rows, options.out)
    except SetUpError as error:
        print(f"error: {error}", file=sys.stderr)
        return SET_UP_FAILED
    print(f"{time.monotonic() - start:.0f} s; tables in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
