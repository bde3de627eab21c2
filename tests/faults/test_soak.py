"""A long night in small: many configurations of which a fifth fail, in one process that does not grow."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_rig import PretendedGpu, kernel_in, rows

from sweeper.store import Store

PAGE = os.sysconf("SC_PAGE_SIZE")
# `make faults` asks for two thousand.
NIGHT = int(os.environ.get("SWEEPER_TEST_NIGHT", "400"))
# Crashes and time-outs cost a process each: they are the fewest.
STATUSES = {0: "ok", 1: "wrong_result", 2: "launch_error", 3: "out_of_memory", 4: "crash", 5: "timeout"}


def memory_bytes() -> int:
    """What of this process is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_a_night_in_which_a_fifth_fails_leaves_memory_and_files_as_they_were(
    here: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {0: 1600, 1: 180, 2: 150, 3: 50, 4: 15, 5: 5}
    counts = {fate: max(1, share * NIGHT // 2000) for fate, share in shares.items()}
    kernel = kernel_in(
        here,
        params={"fate": list(counts), "number": list(range(1, counts[0] + 1))},
        constraints=[" or ".join(f"fate == {fate} and number <= {most}" for fate, most in counts.items())],
        launch={
            "block": [16, 16],
            "grid": ["ceil(N / 16)", "ceil(M / 16)"],
            "shared_bytes": "0 * fate * number",
        },
    )
    seen: list[tuple[int, int]] = []
    whole = Store.add

    def watched(store: Store, *given: Any) -> Any:
        seen.append((memory_bytes(), len(os.listdir("/proc/self/fd"))))
        return whole(store, *given)

    monkeypatch.setattr(Store, "add", watched)
    command = [*kernel, "search=grid", "search.budget=null", "measure.deadline_s=1", "measure.confirm=0"]
    assert gpu.sweep(*command, "results_dir=out") == 0
    table = rows(here / "out")
    told = Counter((json.loads(row["params"])["fate"], row["status"]) for row in table)
    assert told == {(fate, STATUSES[fate]): count for fate, count in counts.items()}
    assert len({row["params"] for row in table}) == len(table) == len(seen)
    crashed = {row["reason"] for row in table if row["status"] == "crash"}
    assert crashed == {"the cuda worker was killed by SIGSEGV"}, "and not what it was told to do before"
    warm, end = seen[len(seen) // 4], seen[-1]
    assert end[1] <= warm[1] + 2, "no file is left open"
    least = 8 << 20
    assert end[0] - warm[0] < least + NIGHT * (20 << 10), "memory stays flat but for the rows themselves"
