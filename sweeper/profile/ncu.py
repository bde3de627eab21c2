"""NVIDIA Nsight Compute's command line: where it is, how it is run, and what its refusals mean.

Clocks are left as they are (`--clock-control none`): fixing them is a change of the device's settings,
and counters of work do not depend on them. Error texts are those of Nsight Compute 2025.3 and of NVIDIA's
page on ERR_NVGPUCTRPERM.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.errors import SetupError, SweeperError, TrialFailed
from sweeper.model import Stage, Status

__all__ = ["Finished", "find_ncu", "known_refusal", "refusal", "run_ncu", "unknown_metric", "version_of"]

_PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
)
_VERSION_S = 30.0
_WHERE_TO_GET_IT = (
    "it comes with the CUDA toolkit, or alone from https://developer.nvidia.com/nsight-compute;"
    " put it on PATH or name it with --ncu PATH"
)
_PERMISSION = (
    "run as root, or let every user read them: put"
    " 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/nvidia-profiling.conf and"
    " reboot; a container needs --cap-add=SYS_ADMIN"
    " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)
# What ncu says, what that means, what to do. The first that is found holds.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (r"ERR_NVGPUCTRPERM", "this user may not read the GPU's performance counters", _PERMISSION),
    (
        r"driver resource was unavailable",
        "another tool holds the GPU's performance counters",
        "end other profilers; of DCGM: dcgmi profiling --pause, and --resume afterwards",
    ),
    (
        r"InterprocessLockFailed|nsight-compute-lock",
        "another user's ncu left a lock that this one cannot take",
        "remove /tmp/nsight-compute-lock, or set TMPDIR to a folder of your own",
    ),
    (
        r"LibraryNotLoaded|[Ff]ailed to initialize the profiler",
        "ncu cannot reach the driver's profiling interface",
        "ncu must be no older than the driver's CUDA version, and a sandboxed container may hide it",
    ),
    (
        r"not supported on (this )?device|[Pp]rofiling is not supported",
        "ncu cannot profile this GPU",
        "it needs compute capability 7.0 or above and, on a virtual GPU, a host that allows profiling",
    ),
    (
        r"not compatible with Nsight Compute|[Cc]uda driver is not compatible",
        "this ncu does not work with the installed driver",
        "install the Nsight Compute of the driver's CUDA version, and name it with --ncu PATH",
    ),
)
_UNKNOWN = re.compile(r"^==ERROR== *Failed to find metric (.+)$", re.MULTILINE)
_ERRORS = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run of ncu ended: its table and messages (`log`), and the end of what the program printed."""

    status: int
    log: str
    printed: str


def find_ncu(named: Path | None = None) -> Path:
    """`named`, else the ncu on PATH, else the newest in NVIDIA's own places. Raises SetupError."""
    if named is not None:
        if not (named.is_file() and os.access(named, os.X_OK)):
            raise SetupError(f"--ncu {named} is no program", hint=_WHERE_TO_GET_IT)
        return named
    on_path = shutil.which("ncu")
    if on_path:
        return Path(on_path)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    for place in (*([f"{home}/bin/ncu"] if home else []), *_PLACES):
        found = [p for p in Path("/").glob(place.lstrip("/")) if os.access(p, os.X_OK)]
        if found:
            return max(found, key=_version_key)
    raise SetupError("ncu (NVIDIA Nsight Compute) is not installed here", hint=_WHERE_TO_GET_IT)


def _version_key(path: Path) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", path.parent.name))


def version_of(ncu: Path) -> str:
    """`2025.3.1.0`; empty where ncu does not say. Raises SetupError where it cannot be run."""
    try:
        asked = subprocess.run(
            [str(ncu), "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{ncu} cannot be run: {error}", hint=_WHERE_TO_GET_IT) from None
    found = re.search(r"[Vv]ersion (\d[\d.]*)", asked.stdout)
    return found[1] if found else ""


def run_ncu(
    ncu: Path,
    metrics: Sequence[str],
    program: Sequence[str],
    *,
    cold: bool,
    timeout_s: float,
    env: Mapping[str, str],
) -> Finished:
    """Profile what `program` launches between cuProfilerStart and cuProfilerStop.

    `cold` empties the caches before every pass, else they stay as the pass before left them. Raises
    TrialFailed after `timeout_s`, when ncu and all it started have been killed, SetupError where it cannot
    be started.
    """
    with tempfile.TemporaryDirectory(prefix="sweeper-ncu-") as folder:
        log, printed = Path(folder) / "log", Path(folder) / "printed"
        command = [
            *(str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
            *("--clock-control", "none", "--cache-control", "all" if cold else "none"),
            *("--profile-from-start", "off", "--metrics", ",".join(metrics), *program),
        ]
        # In the C locale numbers have no separators; Python's own text stays UTF-8.
        environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "1", **env}
        with printed.open("wb") as out:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise SetupError(f"{ncu} cannot be run: {error}", hint=_WHERE_TO_GET_IT) from None
            status = _wait(process, timeout_s)
        finished = Finished(status if status is not None else -1, _text(log), _text(printed)[-4000:])
    if status is None:
        raise TrialFailed(
            Status.TIMEOUT,
            Stage.MEASURE,
            f"ncu did not finish within {timeout_s:g} s: it repeats a launch for every group of counters,"
            " --timeout SECONDS gives it longer",
        )
    return finished


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit status; None after `timeout_s`. Nothing of the process's group is left."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def unknown_metric(finished: Finished, metrics: Sequence[str]) -> str | None:
    """The one of `metrics` for which ncu gave up; None where that was not the reason.

    A name with a suffix (`.sum`) that it does not know is left out of the table without a word; one without
    ends the run.
    """
    found = _UNKNOWN.search(finished.log)
    if found is None:
        return None
    named = found[1].strip()
    return next((name for name in metrics if name == named or named.startswith(f"regex:^{name}")), None)


def known_refusal(finished: Finished) -> SetupError | None:
    """Why ncu cannot profile here at all, in what it says itself; None where it says nothing of the kind."""
    said = _said(finished)
    for pattern, meaning, remedy in _REFUSALS:
        if re.search(pattern, said):
            return SetupError(meaning, hint=remedy)
    return None


def refusal(finished: Finished, *, answered: bool) -> SweeperError:
    """Why ncu gave no launch: what it knows to say of it, else its own words.

    A SetupError where no job could be profiled; TrialFailed (crash) where the program ended before it
    `answered`.
    """
    known = known_refusal(finished)
    if known is not None:
        return known
    errors = [words.strip() for words in _ERRORS.findall(_said(finished))]
    last = next((line.strip() for line in reversed(finished.printed.splitlines()) if line.strip()), "")
    if not answered:
        how = f"by signal {-finished.status}" if finished.status < 0 else f"with {finished.status}"
        cause = "; ".join(filter(None, (errors[0] if errors else "", last[:300])))
        reason = f"the profiled process ended {how} before its launch was done"
        return TrialFailed(Status.CRASH, Stage.LAUNCH, f"{reason}: {cause}" if cause else reason)
    if errors:
        return SetupError(f"ncu ended with {finished.status}: {errors[0]}")
    return SetupError(
        "ncu saw no launch between cuProfilerStart and cuProfilerStop",
        hint="another profiler may be loaded into the process: look at CUDA_INJECTION64_PATH and LD_PRELOAD",
    )


def _said(finished: Finished) -> str:
    """ncu's own lines: its log, and what it prints before there is one."""
    return "\n".join(
        [finished.log, *(line for line in finished.printed.splitlines() if line.startswith("=="))]
    )
