"""What a program says when it runs plainly, and under each tool of compute-sanitizer."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "emulation")]

from bugs.corpus import Bug  # noqa: E402
from sanitizer_programs import REPETITIONS, bounded, stem  # noqa: E402

__all__ = ["TOOLS", "Row", "Says", "run_all"]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLAIN_TIMEOUT_S, TOOL_TIMEOUT_S = 15.0, 25.0
FOUND_EXIT = 86


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
