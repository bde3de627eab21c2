"""One run of `bench_throughput.py` in a process of its own: `python bench/throughput_one.py PART POINTS SIZE …`.

The process that will own the GPU starts first, as it does in a command, and loads beside this one's modules.
Prints the result as one line of JSON, the last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from sweeper.worker.spare import drop_spare, keep_spare

__all__ = ["main"]


def main(given: Sequence[str] | None = None) -> int:
    """Do the one run that `given` (the command line) names, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part")
    parser.add_argument("points", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("backend")
    parser.add_argument("workers", type=int)
    chosen = parser.parse_args(given)
    theirs = chosen.part == "kt"
    try:
        if not theirs and chosen.backend == "cuda":
            for _ in range(2 if chosen.part.endswith("2") else 1):
                keep_spare("cuda")
        # Only now, for it takes as long as the worker's own start.
        from bench_throughput import run_kernel_tuner, run_ours

        if theirs:
            found = run_kernel_tuner(chosen.points, chosen.size)
        else:
            found = run_ours(chosen.part, chosen.points, chosen.size, chosen.backend, chosen.workers)
    finally:
        drop_spare()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
