"""How far the float32 ladder stands from the better of cuBLAS and cuBLASLt, shape by shape.

    python bench/bench_shapes.py [--shapes 4096x4096x4096,…] [--seconds 100] [--out FOLDER] [--name NAME]

For each shape the rungs that suit it are searched over the levels below; then the best rung's finalists and both
libraries (cuBLASLt's is the best of its first 16 heuristics) are timed in turns, in blocks of random order, L2 cold.
The ratio is the better library's time over the confirmed winner's, from the pairs of a block: above 1 we are
faster. Every configuration and library is proved right. One process, one GPU; shapes that no time is left for
are said. Writes NAME.csv, .json and .md (fp32-shapes) into FOLDER (results/h200). Ends with 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sweeper.check.compose import Composer
from sweeper.cli.session import feasible_space
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device.present import why_no_gpu
from sweeper.errors import NoValidConfiguration, SweeperError
from sweeper.evaluate import LiveEvaluator
from sweeper.model import Confirmed, KernelSpec, Role, Trial
from sweeper.problem import resolve
from sweeper.provenance import run_record, write_json
from sweeper.search import make
from sweeper.store import Store
from sweeper.table.row import time_ms
from sweeper.table.standings import Standing, standings
from sweeper.tune import Study, Tally, confirm, tune

LIBRARIES = ("cublas", "cublaslt")
SHAPES = (
    "256x256x256", "512x512x512", "1024x1024x1024", "1536x1536x1536", "2048x2048x2048", "3072x3072x3072",
    "4096x4096x4096", "6144x6144x6144", "8192x8192x8192",
    "1000x1000x1000", "1023x1023x1023", "1025x1025x1025", "2047x2047x2047", "4095x4095x4095", "4097x4097x4097",
    "5000x5000x5000", "4096x4096x4100", "352x384x672",
    "1x4096x4096", "4x4096x4096", "8x4096x4096", "16x4096x4096", "64x4096x4096", "128x4096x4096", "256x4096x4096",
    "16x14336x4096", "128x28672x4096", "512x6144x4096",
    "64x64x65536", "128x128x65536", "256x256x16384", "4096x4096x64",
    "65536x128x128", "32768x64x1024", "32768x32x4096", "1408x3072x4096", "1536x3072x4096",
)  # fmt: skip
# Above this a configuration takes tens of milliseconds, and the search has to be short.
LARGE_FLOPS = 5e10
COLUMNS = (
    "shape", "kernel", "params", "evaluations", "time_ms", "tflops", "cublas_ms", "cublaslt_ms", "ratio", "ratio_low",
    "ratio_high", "verdict", "blocks", "seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A rung, the levels to search it over, and how many configurations for a small and a large problem."""

    kernel: str
    levels: Mapping[str, Sequence[int]]
    budgets: tuple[int, int]


TMA = Entry("tma_pipeline", {"bk": [16, 32], "stages": [4, 6], "group": [4, 8, 16]}, (20, 10))
PIPELINE = {"bk": [16, 32], "stages": [3], "group": [8], "unroll": [2]}
LARGE_TILES = {
    "bm": [64, 128], "bn": [128, 256], "wm": [32, 64], "wn": [64, 128], "tm": [8], "tn": [8, 16],
    "bursts": [1, 4], "paired": [0], "blocks": [1, 2],
}  # fmt: skip
SMALL_TILES = {
    "bm": [32, 64, 128], "bn": [32, 64, 128], "wm": [16, 32, 64], "wn": [32, 64], "tm": [4, 8], "tn": [4, 8],
    "bursts": [1], "paired": [0, 1], "blocks": [1, 2], "splits": [1, 2, 3, 4, 6, 8, 16, 32, 64, 128],
}  # fmt: skip
ASYNC = Entry("async_pipeline", {**PIPELINE, **LARGE_TILES}, (20, 10))
SPLIT = Entry("split_k", {**PIPELINE, **SMALL_TILES}, (64, 20))
GEMV = Entry(
    "gemv",
    {
        "vec": [2, 4],
        "across": [1, 2, 4],
        "down": [2, 4, 8],
        "unroll": [2, 4, 8, 16],
        "splits": [4, 8, 16, 32],
    },
    (48, 48),
)


def entries(m: int, n: int, k: int) -> list[Entry]:
    """The rungs that suit a shape, the likeliest last: it is the one whose problem is then prepared already."""
    if m <= 16:
        return [GEMV]
    tiles = math.ceil(m / 128) * math.ceil(n / 128)
    chosen = [SPLIT] if tiles < 400 else []
    if tiles >= 64:
        chosen.append(ASYNC)
    if tiles >= 64 and k % 4 == 0 and n % 4 == 0:
        chosen.append(TMA)
    return chosen


class Keeper:
    """A store's face for one study: every trial and confirmation is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0
        self.finals: Sequence[Confirmed] = ()

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        del params, role
        return None

    def add(self, trial: Trial) -> Trial:
        self._number += 1
        return self._store.add(replace(trial, number=self._number))

    def finished(self, trial: Trial, *, reused: bool) -> None:
        """Nobody listens."""

    def confirmed(self) -> list[Confirmed]:
        return []

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        self.finals = tuple(confirmed)


class Bench:
    """All shapes on one GPU."""

    def __init__(
        self, store: Store, world: LiveEvaluator, composer: Composer, measure: MeasureConfig
    ) -> None:
        self._store = store
        self._world = world
        self._composer = composer
        self._measure = measure

    def row(self, shape: str) -> dict[str, Any]:
        """The confirmed winner at `shape` beside the libraries."""
        began = time.monotonic()
        sizes = [int(size) for size in shape.split("x")]
        dims = dict(zip("MNK", sizes, strict=True))
        searched: list[tuple[float, Study, Any, Tally, KernelSpec]] = []
        suiting = entries(*sizes)
        for place, entry in enumerate(suiting):
            found = self._search(entry, dims, shape, libraries=place == len(suiting) - 1)
            if found is not None:
                searched.append(found)
        if not searched:
            return {"shape": shape, "verdict": "nothing ran"}
        baselines = [t for *_, tally, _ in searched for t in tally.trials if t.role is Role.BASELINE]
        best = min(searched, key=lambda one: one[0])
        _, study, space, tally, spec = best
        if best is not searched[-1]:
            self._world.prepare(spec, study.dims, study.seed)
            self._world.ready()
            tally.trials.extend(baselines)
        keeper = Keeper(self._store)
        confirm(study, space, tally, keeper, finalists=3, blocks=12, least_effect=self._measure.least_effect)
        count = sum(t.role is Role.CANDIDATE for *_, each, _ in searched for t in each.trials)
        seconds = time.monotonic() - began
        return {"shape": shape, "evaluations": count, "seconds": seconds, **_row(keeper.finals, sizes)}

    def _search(
        self, entry: Entry, dims: Mapping[str, int], shape: str, *, libraries: bool
    ) -> tuple[float, Study, Any, Tally, KernelSpec] | None:
        pins = [f"kernel.params.{name}={list(levels)}" for name, levels in entry.levels.items()]
        spec, _ = self._composer.compose([f"kernel={entry.kernel}", *pins])
        try:
            space = feasible_space(spec, dims, self._world.target)
        except NoValidConfiguration as error:
            print(f"  {entry.kernel}: {error}", flush=True)
            return None
        problem = resolve(spec, dims, spec.default_point, seed=42)
        self._world.prepare(spec, dims, 42)
        protocol = self._measure.conditions()
        study = Study(spec, problem.dims, shape, 42, problem.flops, problem.bytes, self._world, protocol)
        keeper = Keeper(self._store)
        small, large = entry.budgets
        tally = tune(
            study,
            space,
            partial(make, "bayes", space, 0),
            keeper,
            keeper,
            budget=large if (problem.flops or 0) > LARGE_FLOPS else small,
            lookahead=8,
            baselines=LIBRARIES if libraries else (),
        )
        times = [
            value
            for trial in tally.trials
            if trial.role is Role.CANDIDATE and (value := time_ms(trial)) is not None
        ]
        return min(times, default=math.inf), study, space, tally, spec


def _row(finals: Sequence[Confirmed], sizes: Sequence[int]) -> dict[str, Any]:
    """What a confirmation says of its winner and the libraries."""
    winner = next((one for one in standings(finals) if one.is_winner), None)
    if winner is None:
        return {"verdict": "nobody finished"}
    time_ms = _median(winner.confirmed.blocks_ms)
    found: dict[str, Any] = {
        "kernel": winner.confirmed.kernel,
        "params": json.dumps(dict(winner.confirmed.params), sort_keys=True),
        "time_ms": time_ms,
        "tflops": 2e-9 * math.prod(sizes) / time_ms,
        "blocks": len(winner.confirmed.blocks_ms),
        **{f"{one.kernel}_ms": _median(one.blocks_ms) for one in finals if one.role is Role.BASELINE},
    }
    return {**found, **_against_the_better(winner)}


def _against_the_better(winner: Standing) -> dict[str, Any]:
    against = {name: one for name, one in (winner.against or {}).items() if name in LIBRARIES}
    if not against:
        return {"verdict": "no library ran"}
    better = max(against.values(), key=lambda one: one.ratio.ratio)
    ratio = better.ratio
    return {
        "ratio": 1 / ratio.ratio,
        "ratio_low": 1 / ratio.high,
        "ratio_high": 1 / ratio.low,
        "verdict": better.verdict.value,
    }


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else math.nan


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table, and the geometric mean of the ratios."""
    lines = [
        "| M×N×K | rung | ms | TFLOP/s | cuBLAS, ms | cuBLASLt, ms | × the better library (95 %) | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shape = str(row["shape"]).replace("x", "×")
        if "ratio" not in row:
            lines.append(f"| {shape} | | | | | | | {row['verdict']} |")
            continue
        lines.append(
            f"| {shape} | {row['kernel']} | {row['time_ms']:.4g} | {row['tflops']:.1f}"
            f" | {row.get('cublas_ms', math.nan):.4g} | {row.get('cublaslt_ms', math.nan):.4g}"
            f" | {row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f}) | {row['verdict']} |"
        )
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines += ["", f"Geometric mean over {len(ratios)} shapes: {mean:.3f}; the least: {min(ratios):.3f}."]
    return "\n".join(lines) + "\n"


def save(rows: Sequence[Mapping[str, Any]], chosen: argparse.Namespace, facts: Mapping[str, Any]) -> None:
    """All there is so far: a run that is cut off leaves that much."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    with (chosen.out / f"{chosen.name}.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)
    command = ["python", "bench/bench_shapes.py"]
    record = run_record(
        command=command, config={"shapes": chosen.shapes}, started=facts["started"], facts=facts["of"]
    )
    write_json(record, chosen.out / f"{chosen.name}.json")
    (chosen.out / f"{chosen.name}.md").write_text(summary(rows), encoding="utf-8")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no shape after this long")
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    parser.add_argument("--name", default="fp32-shapes")
    chosen = parser.parse_args(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: shapes are measured on a GPU", file=sys.stderr)
        return 3
    measure = MeasureConfig(warmup_ms=5.0, min_samples=7, max_samples=15, max_seconds=0.2, stop_factor=1.2)
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=measure,
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler="nvrtc"),
    )
    started, began = datetime.now(UTC), time.monotonic()
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "study.db") as store,
        Composer() as composer,
        closing(LiveEvaluator("cuda", config, print)) as world,
    ):
        bench = Bench(store, world, composer, measure)
        facts = {"started": started, "of": {"device": asdict(world.identity), "compiler": world.compiler}}
        for shape in chosen.shapes.split(","):
            if time.monotonic() - began > chosen.seconds:
                rows.append({"shape": shape, "verdict": "no time was left"})
                continue
            try:
                rows.append(bench.row(shape))
            except SweeperError as error:
                rows.append({"shape": shape, "verdict": f"failed: {error}"})
            save(rows, chosen, facts)
            said = rows[-1]
            print(
                f"{shape:16s} {said.get('kernel', ''):15s} {said.get('ratio', math.nan):6.3f} {said['verdict']}"
                f"  {said.get('seconds', math.nan):.1f} s  {said.get('params', '')}",
                flush=True,
            )
        save(rows, chosen, facts)
    print("\n" + summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
