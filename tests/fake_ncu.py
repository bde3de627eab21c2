"""An executable `ncu` that profiles nothing: it answers as a real one did, and keeps its command lines.

    ncu = fake_ncu(folder, {"tiled": "tiled"})     # kernel tiled: the recorded table tests/recorded/ncu/tiled.csv
    ncu = fake_ncu(folder, {"tiled": "permission"})

It plays the profiled program's part as well, whose request and reply are the last two arguments: `answers`
says by kernel (a library's by its name) what happens, `*` for all others. A name of WORDS stands for that
message of ncu; `without NAME` fails as long as the metric NAME is asked for; `hang` never ends, nor does its
child; `crash` leaves no reply, `cut off` a part of one; `out of memory`, `no pycuda` and `permission and a
failed launch` are failures that the program replies with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "ncu"

WORDS = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance"
    " Counters on the target device 0. For instructions on enabling permissions and to get more information see"
    " https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    "busy": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like"
    " DCGM) is concurrently collecting profiling data.",
    "lock": "==ERROR== InterprocessLockFailed: /tmp/nsight-compute-lock",
    "no library": "==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
    "no launch": "==WARNING== No kernels were profiled.",
}

_PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys
sys.path[:0] = [{tests!r}, {package!r}]
folder, arguments = pathlib.Path({folder!r}), sys.argv[1:]
if "--version" in arguments:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion {version} (build 36398880) (public-release)")
    sys.exit()
from fake_ncu import RECORDED, WORDS
request, reply = (pathlib.Path(a) for a in arguments[-2:])
asked = json.loads(request.read_text())
with open(folder / "calls", "a") as calls:
    print(json.dumps({{"arguments": arguments, "request": asked}}), file=calls)
log = pathlib.Path(arguments[arguments.index("--log-file") + 1])
answers = json.loads((folder / "answers").read_text())
name = asked["library"] or json.loads(asked["kernel"])["name"]
answer = answers.get(name, answers.get("*"))
asked_for = arguments[arguments.index("--metrics") + 1].split(",")
if answer.startswith("without "):
    unknown, answer = answer.removeprefix("without "), "tiled"
    if unknown in asked_for:
        words = f"regex:^{{unknown}}" + r"\\.(sum|min|max|avg|pct|ratio|max_rate)$"
        log.write_text("==PROF== Connected to process 7\\n==ERROR== Failed to find metric " + words + "\\n")
        sys.exit(9)
if answer == "hang":
    child = subprocess.Popen(["sleep", "1000"])
    (folder / "hanging").write_text(f"{{os.getpid()}} {{child.pid}}")
    child.wait()
if answer == "crash":
    log.write_text("==PROF== Connected to process 7\\n==ERROR== The application returned an error code (139).\\n")
    print("Fatal Python error: Segmentation fault")
    sys.exit(139)
if answer == "out of memory":
    held = dict(error="4096 B of device memory wanted, 0 B free", kind="TrialFailed")
    reply.write_text(json.dumps(dict(held, status="out_of_memory", stage="load")))
    log.write_text("==ERROR== The application returned an error code (3).\\n")
    sys.exit(3)
if answer == "no pycuda":
    reply.write_text(json.dumps(dict(error="PyCUDA cannot be used: no", kind="SetupError", hint="install it")))
    log.write_text("==ERROR== The application returned an error code (3).\\n")
    sys.exit(3)
if answer == "permission and a failed launch":
    failed = dict(error="unknown error; the context is lost", kind="TrialFailed", status="crash", stage="launch")
    reply.write_text(json.dumps(failed))
    log.write_text(WORDS["permission"] + "\\n")
    sys.exit(3)
if answer == "cut off":
    reply.write_text('{{"device": "NVID')
    sys.exit(9)
reply.write_text(json.dumps(dict(device="NVIDIA H200")))
if answer in WORDS:
    log.write_text("==PROF== Connected to process 7\\n" + WORDS[answer] + "\\n")
    sys.exit(0 if WORDS[answer].startswith("==WARNING==") else 1)
print("what the program prints", '"ID","is no table"', sep="\\n")
table = (RECORDED / (answer + ".csv")).read_text()
note = "==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be"
log.write_text(note + " inconsistent.\\n==PROF== Connected to process 7\\n" + table)
"""


def fake_ncu(folder: Path, answers: Mapping[str, str], *, version: str = "2025.3.1.0") -> Path:
    """The program's path; see this module for `answers`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers").write_text(json.dumps(dict(answers)))
    program = folder / "ncu"
    text = _PROGRAM.format(
        python=sys.executable, tests=str(HERE), package=str(HERE.parent), folder=str(folder), version=version
    )
    program.write_text(text)
    program.chmod(0o755)
    return program


def calls(program: Path) -> list[dict[str, object]]:
    """What the program was asked, in order: its `arguments` and the profiled process's `request`."""
    path = program.parent / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
