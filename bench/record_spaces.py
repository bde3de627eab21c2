"""Records whole spaces on a GPU: `python bench/record_spaces.py INTO [NAME…] [--seconds S] [--list]`.

Every feasible configuration of a space is compiled, proved right and timed by one protocol: five samples of a cold
L2, no early stop. What comes out, a file a space, replays without a GPU (`backend=replay backend.path=…`). They
are asked in random order, so that a recording which ran out of `--seconds` is a fair sample of its space, and says
so. With NVRTC and 16 cores an H200 records some 25 to 40 configurations a second.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.model import Role
from sweeper.recording import read_recorded, write_compact

PROTOCOL = (
    "search=random", "search.budget=null", "measure=quick", "measure.max_samples=5", "measure.stop_factor=null",
    "backend=cuda", "build.compiler=nvrtc", "build.workers=16", "baseline=[cublas]", "resume=false",
)  # fmt: skip

TILES = "[16,32,48,64,96,128]"
SUMS = "[2,3,4,6,8]"
REGISTER_TILES = (
    "kernel=register_tile", f"kernel.params.bm={TILES}", "kernel.params.bn=[16,32,48,64,96,128,192,256]",
    f"kernel.params.tm={SUMS}", f"kernel.params.tn={SUMS}",
)  # fmt: skip
WARP_TILES = ("kernel=warp_tile", "kernel.params.bk=[8,16]")
PIPELINES = (
    "kernel=async_pipeline", "kernel.params.bm=[64,128,256]", "kernel.params.bn=[64,128,256]",
    "kernel.params.bk=[16,32]", "kernel.params.tm=[4,8,16]", "kernel.params.tn=[4,8,16]",
    "kernel.params.stages=[2,3,4]", "kernel.params.group=[8]", "kernel.params.unroll=[2]",
    "kernel.params.bursts=[1]", "kernel.params.blocks=[1]",
)  # fmt: skip

FRAGMENTS = (
    "kernel=mma_sync", "kernel.params.bk=[32,64]", "kernel.params.stages=[2,3,4,5]", "kernel.params.group=[8]",
    "kernel.params.blocks=[1,2]",
)  # fmt: skip
WARPGROUPS = (
    "kernel=wgmma_persistent", "kernel.params.bm=[128,256]", "kernel.params.bn=[128,192,256]",
    "kernel.params.bk=[64]", "kernel.params.stages=[3,4,5]", "kernel.params.cluster_m=[1,2]",
    "kernel.params.cluster_n=[1,2]", "kernel.params.group=[4,16]", "kernel.params.order=[0,1,2]",
    "kernel.params.store=[0,2]", "kernel.params.buffers=[1,2]", "kernel.params.hint=[0,3]",
    "kernel.params.blocks=[1]", "kernel.params.defer=[0]",
)  # fmt: skip

SPACES: Mapping[str, Sequence[str]] = {
    "tiled-2048": ("kernel=tiled", "kernel.params.tile=[4,8,16,32]", "shape=2048x2048x2048"),
    "tiled-4096": ("kernel=tiled", "kernel.params.tile=[4,8,16,32]", "shape=4096x4096x4096"),
    "tiled-odd": ("kernel=tiled", "kernel.params.tile=[4,8,16,32]", "shape=1000x900x77"),
    "register_tile-2048": (*REGISTER_TILES, "shape=2048x2048x2048"),
    "register_tile-1024x3072x2048": (
        *REGISTER_TILES, "kernel.params.bm=[32,64,96,128]", "kernel.params.bn=[32,64,96,128,192,256]",
        "shape=1024x3072x2048",
    ),
    "register_tile-2048-float16": (*REGISTER_TILES, "kernel.dtype=float16", "shape=2048x2048x2048"),
    "vector_loads-1536x2048x1024": (
        "kernel=vector_loads", "kernel.params.pad=[4]", "kernel.params.bk=[8,16,32]", "shape=1536x2048x1024",
    ),
    "warp_tile-2048": (*WARP_TILES, "shape=2048x2048x2048"),
    "warp_tile-1024x4096x1024": (*WARP_TILES, "shape=1024x4096x1024"),
    "async_pipeline-2048": (*PIPELINES, "shape=2048x2048x2048"),
    "mma_sync-4096": (*FRAGMENTS, "shape=4096x4096x4096"),
    "mma_sync-2048x6144x4096": (*FRAGMENTS, "shape=2048x6144x4096"),
    "wgmma_persistent-4096": (*WARPGROUPS, "shape=4096x4096x4096"),
    "async_pipeline-1024x4096x2048": (*PIPELINES, "shape=1024x4096x2048"),
}  # fmt: skip


def record(name: str, into: Path, seconds: float) -> bool:
    """Record the space called `name` for at most `seconds`; whether anything came of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SWEEPER_CACHE": f"{folder}/cache"}
        command = [sys.executable, "-m", "sweeper", *SPACES[name], *PROTOCOL, f"results_dir={folder}/run"]
        with (Path(folder) / "log").open("w+") as log:
            run = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            whole = _ended(run, seconds)
            log.seek(0)
            said = log.read().strip().splitlines()
        try:
            rows = read_recorded(Path(folder) / "run" / "study.db")
            path = into / f"{name}.csv.gz"
            write_compact(path, rows, _notes(SPACES[name], whole and run.returncode == 0))
        except SweeperError as error:
            print(f"{name}: {error}", *said[-5:], sep="\n  ", flush=True)
            return False
    candidates = [row for row in rows if row.role is Role.CANDIDATE]
    valid = [row.usable_ms for row in candidates if row.usable_ms is not None]
    spent = time.monotonic() - began
    statuses = ", ".join(f"{n} {s}" for s, n in Counter(row.status.value for row in candidates).most_common())
    print(
        f"{name}: {len(candidates)} configurations ({statuses}) in {spent:.1f} s, best {min(valid, default=0):.4f} ms,"
        f" {'whole' if whole else 'CUT OFF'}, {path.stat().st_size / 1024:.0f} KiB; {said[0] if said else ''}",
        flush=True,
    )
    return True


def _ended(run: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the run came to its own end within `seconds`; one that has not is interrupted and keeps its rows."""
    try:
        run.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
        try:
            run.wait(20)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        return False


def _notes(overrides: Sequence[str], whole: bool) -> dict[str, object]:
    return {
        "whole": whole,
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m sweeper", *overrides, *PROTOCOL]),
    }


def main(given: Sequence[str] | None = None) -> None:
    """Record the spaces that `given`, a command line, names (all of them) into its folder, until the time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("into", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=3600, help="for all of them together")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(given)
    unknown = set(chosen.names) - set(SPACES)
    if chosen.list or unknown:
        print(*SPACES, sep="\n")
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}" if unknown else 0)
    until = time.monotonic() + chosen.seconds
    for name in chosen.names or SPACES:
        record(name, chosen.into, max(5.0, until - time.monotonic()))


if __name__ == "__main__":
    main()
