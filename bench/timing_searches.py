"""Two searches of one space that know nothing of each other: do they find the same best configurations?"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.errors import SetupError

__all__ = ["agreement", "search_times"]

ROOT = Path(__file__).resolve().parents[1]
SPACE = (
    "kernel.params.bm=[32,64,128]",
    "kernel.params.bn=[32,64,128]",
    "kernel.params.bk=[8,16]",
    "kernel.params.tm=[4,8]",
    "kernel.params.tn=[4,8]",
)
_LONGEST_S = 60
Times = dict[str, tuple[float, float, float]]


def search_times(seed: int, shape: str, measure: str) -> Times:
    """Median and interval of every configuration, asked in an order of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "sweeper", "kernel=register_tile", f"shape={shape}", *SPACE),
            *("search=random", f"search.seed={seed}", "search.budget=null", "baseline=[]", "resume=false"),
            *(f"measure={measure}", "measure.confirm=0", "build.compiler=nvrtc", f"results_dir={folder}/run"),
        ]
        done = _run(command)
        table = Path(folder) / "run" / "trials.csv"
        if done.returncode or not table.exists():
            raise SetupError(f"the search failed:\n{done.stdout[-1500:]}")
        with table.open(newline="") as file:
            rows = [
                row for row in csv.DictReader(file) if row["status"] == "ok" and row["role"] == "candidate"
            ]
    return {
        row["params"]: (
            float(row["time_ms"]),
            *(float(row[f"time_{end}_ms"] or "nan") for end in ("low", "high")),
        )
        for row in rows
    }  # type: ignore[return-value]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run it with its errors among its output. Raises SetupError where it takes minutes."""
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            status = process.wait(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(20)
            told.seek(0)
            raise SetupError(f"a search takes more than {_LONGEST_S} s:\n{told.read()[-1500:]}") from None
        told.seek(0)
        return subprocess.CompletedProcess(command, status, told.read())


def agreement(first: Times, second: Times, best: int = 20) -> dict[str, Any]:
    """How alike two searches rank what both have measured, over all and among the best of the first."""
    both = sorted(set(first) & set(second), key=lambda key: first[key][0])
    a = np.array([first[key][0] for key in both])
    b = np.array([second[key][0] for key in both])
    top_a = set(both[:best])
    top_b = set(sorted(both, key=lambda key: second[key][0])[:best])
    off = np.abs(b / a - 1)
    return {
        "configurations": len(both),
        "spearman": round(_spearman(a, b), 4),
        f"spearman_best_{best}": round(_spearman(a[:best], b[:best]), 4),
        f"overlap_best_{best}": round(len(top_a & top_b) / best, 4),
        "same_best": min(both, key=lambda k: first[k][0]) == min(both, key=lambda k: second[k][0]),
        "best_of_first_in_second_percent": round(100 * float(b[0] / b.min() - 1), 3),
        "difference_median_percent": round(100 * float(np.median(off)), 3),
        f"difference_median_best_{best}_percent": round(100 * float(np.median(off[:best])), 3),
        "difference_max_percent": round(100 * float(off.max()), 3),
    }


def _spearman(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The correlation of ranks, equal values sharing theirs."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]
