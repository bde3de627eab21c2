"""How often a difference is claimed where there is none, on one GPU: python bench/bench_confirm.py [--quick]

A/A: a configuration against itself, in as many blocks as a run confirms with; 5 % of the comparisons may
claim a difference. Null tuner: searches over 25 configurations that are one and the same machine code, the
kernel's default among them; each ends with `best of 25 against the default`, once by the least time of the
search, once by its medians, and once confirmed. All of it is what a run does: the same loop, worker and
protocol, but for fewer samples. Writes confirm.csv, confirm.json and confirm.md into FOLDER. Ends with 3
where there is no GPU, and with 1 where too much is claimed.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sweeper.backend.base import Finalist, Rounds
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device.present import why_no_gpu
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.description import load
from sweeper.model import Confirmed, KernelSpec, Point, Role, Trial
from sweeper.problem import resolve
from sweeper.provenance import run_record, write_json
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.statistics import Verdict, paired_log_ratio, verdict
from sweeper.table.row import time_ms
from sweeper.table.standings import winner_of
from sweeper.tune import Study, Tally, confirm, tune

SOURCE = """extern "C" __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
  C[i * N + j] = sum;
}
"""
ALIKE = 25
BLOCKS = 12
FINALISTS = 4
LEAST_EFFECT = 0.01
MOST_CLAIMED = 0.05
SAMPLES = 7
CHANGED = (Verdict.FASTER, Verdict.SLOWER)
COLUMNS = (
    "part", "number", "ratio", "low", "high", "verdict", "ratio_by_minimum", "ratio_by_median", "winner", "blocks",
)  # fmt: skip


def kernel(folder: Path) -> KernelSpec:
    """A plain product with one parameter that changes nothing: 0 times it is part of the launch."""
    (folder / "product.cu").write_text(SOURCE, encoding="utf-8")
    sizes = [{"name": size, "scalar": "int32", "value": size} for size in "MNK"]
    node = {
        "name": "product",
        "source": "product.cu",
        "entry": "product",
        "dtype": "float32",
        "dims": ["M", "N", "K"],
        "params": {"ALIKE": list(range(ALIKE))},
        "launch": {"block": ["16 + 0 * ALIKE", 16], "grid": ["ceil(N / 16)", "ceil(M / 16)"]},
        "args": [
            {"name": "A", "shape": ["M", "K"]},
            {"name": "B", "shape": ["K", "N"]},
            {"name": "C", "shape": ["M", "N"], "direction": "out"},
            *sizes,
        ],
        "reference": {"contraction": "mk,kn->mn"},
    }
    return load(node, folder / "product.yaml")


class Memory:
    """Keeps nothing on the disk: recorder, keeper and listener of one search."""

    def find(self, params: Mapping[str, Any], role: Role) -> None:
        """Nothing was measured before."""

    def add(self, trial: Trial) -> Trial:
        return trial

    def finished(self, trial: Trial, *, reused: bool) -> None:
        """Nobody listens."""

    def confirmed(self) -> list[Confirmed]:
        return []

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        """What counts is what `confirm` gives."""


class Bench:
    """One open GPU, with the problem prepared. Stops where `ends_s` of the monotonic clock has come."""

    def __init__(
        self, world: LiveEvaluator, spec: KernelSpec, size: int, measure: MeasureConfig, ends_s: float
    ) -> None:
        self.world = world
        self.spec = spec
        self.measure = measure
        self.ends_s = ends_s
        self.dims = {"M": size, "N": size, "K": size}
        self.problem = resolve(self.spec, self.dims, self.spec.default_point, seed=42)
        world.prepare(self.spec, self.dims, 42)
        world.ready()
        self.space = feasible_space(self.spec, self.dims, world.target)
        self.rows: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        return time.monotonic() > self.ends_s

    def against_itself(self, count: int) -> None:
        (built,) = self.world.finalists([self.spec.default_point])
        if not isinstance(built, Finalist):
            raise built
        for number in range(count):
            if self.over:
                return
            answer = self.world.confirm([built, built], Rounds(BLOCKS, seed=number))
            if answer is None:
                raise AssertionError("a GPU has a clock")
            first, second = answer[0]
            if first.reason or second.reason:
                raise SystemExit(f"A/A {number}: {first.reason or second.reason}")
            ratio = paired_log_ratio(first.times_ms, second.times_ms)
            self.rows.append(
                {
                    "part": "A/A",
                    "number": number,
                    "ratio": ratio.ratio,
                    "low": ratio.low,
                    "high": ratio.high,
                    "verdict": verdict(ratio, LEAST_EFFECT).value,
                    "ratio_by_minimum": min(first.times_ms) / min(second.times_ms),
                    "ratio_by_median": statistics.median(first.times_ms) / statistics.median(second.times_ms),
                    "blocks": ratio.blocks,
                }
            )

    def null_tuner(self, count: int) -> None:
        for number in range(count):
            if self.over:
                return
            problem = self.problem
            protocol = self.measure.conditions()
            study = Study(
                self.spec, self.dims, "null", number, problem.flops, problem.bytes, self.world, protocol
            )
            memory = Memory()
            strategy = partial(make, "random", self.space, number)
            tally = tune(study, self.space, strategy, memory, memory, budget=ALIKE, lookahead=ALIKE)
            self.rows.append({"part": "null tuner", "number": number, **self._claim(study, tally, memory)})

    def _claim(self, study: Study, tally: Tally, memory: Memory) -> dict[str, Any]:
        """The best of the search against the default, naively and confirmed."""
        timed = {t.point.key: t for t in tally.trials if t.timing is not None}
        if len(timed) < ALIKE:
            raise SystemExit(f"null tuner: {next(t.reason for t in tally.trials if t.reason)}")
        default = timed[self.spec.default_point.key]
        confirmation = confirm(
            study,
            self.space,
            tally,
            memory,
            finalists=FINALISTS,
            blocks=BLOCKS,
            least_effect=LEAST_EFFECT,
        )
        winner = winner_of(confirmation.confirmed)
        if winner is None:
            raise SystemExit(f"null tuner: nobody finished: {confirmation.why_not}")
        against = (winner.against or {}).get("default")
        return {
            "ratio": against.ratio.ratio if against else 1.0,
            "low": against.ratio.low if against else 1.0,
            "high": against.ratio.high if against else 1.0,
            "verdict": against.verdict.value if against else "the default",
            "ratio_by_minimum": min(map(least, timed.values())) / least(default),
            "ratio_by_median": min(map(middle, timed.values())) / middle(default),
            "winner": Point.of(dict(winner.confirmed.params)).params["ALIKE"],
            "blocks": len(winner.confirmed.blocks_ms),
        }


def least(trial: Trial) -> float:
    return min(trial.timing.samples_ms) if trial.timing else math.inf


def middle(trial: Trial) -> float:
    return time_ms(trial) or math.inf


def claims(rows: Sequence[Mapping[str, Any]], part: str) -> dict[str, Any]:
    """How many of `part` claim a difference, and how many would by the numbers of the search."""
    own = [row for row in rows if row["part"] == part]
    wanted = CHANGED if part == "A/A" else (Verdict.FASTER,)
    widths = [math.log(row["high"] / row["low"]) / 2 for row in own if row["high"] > row["low"]]
    return {
        "count": len(own),
        "claimed": sum(row["verdict"] in {each.value for each in wanted} for row in own),
        "leaves_out_1": sum(not row["low"] <= 1 <= row["high"] for row in own),
        "same": sum(row["verdict"] in ("same", "the default") for row in own),
        "unsure": sum(row["verdict"] == "unsure" for row in own),
        "faster_by_minimum": sum(row["ratio_by_minimum"] < 1 for row in own),
        "faster_by_median": sum(row["ratio_by_median"] < 1 for row in own),
        "median_gain_by_minimum": 1 - statistics.median(row["ratio_by_minimum"] for row in own)
        if own
        else None,
        "half_width": statistics.median(widths) if widths else None,
    }


def summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    titles = [
        "", "comparisons", "a difference claimed, confirmed", "the interval leaves out 1", "same", "unsure",
        "faster by the least time", "faster by the median", "half width of the interval",
    ]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for part, c in found.items():
        if not c["count"]:
            continue
        shares = [
            f"{c[name]} ({100 * c[name] / c['count']:.1f} %)"
            for name in ("claimed", "leaves_out_1", "same", "unsure", "faster_by_minimum", "faster_by_median")
        ]
        width = "" if c["half_width"] is None else f"±{100 * c['half_width']:.2f} %"
        lines.append(f"| {part} | {c['count']} | {' | '.join(shares)} | {width} |")
    return "\n".join(lines) + "\n"


def run(chosen: argparse.Namespace) -> int:
    started, began = datetime.now(UTC), time.monotonic()
    measure = MeasureConfig(
        name="null", warmup_ms=5.0, min_samples=SAMPLES, max_samples=SAMPLES, verify_launches=1
    )
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=measure,
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler=chosen.compiler),
    )
    with tempfile.TemporaryDirectory() as folder, closing(LiveEvaluator("cuda", config, print)) as world:
        bench = Bench(world, kernel(Path(folder)), chosen.size, measure, began + chosen.seconds)
        marks = [time.monotonic()]
        bench.against_itself(chosen.comparisons)
        marks.append(time.monotonic())
        bench.null_tuner(chosen.repetitions)
        marks.append(time.monotonic())
        device = asdict(world.identity)
    rows = bench.rows
    found = {part: claims(rows, part) for part in ("A/A", "null tuner")}
    seconds = [marks[0] - began, marks[1] - marks[0], marks[2] - marks[1]]
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    with (out / "confirm.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)
    record = run_record(
        # Where the results are put is the machine's own affair.
        command=["python", "bench/bench_confirm.py", *_without_out(sys.argv[1:])],
        config={
            "size": chosen.size, "alike": ALIKE, "finalists": FINALISTS, "blocks": BLOCKS,
            "least_effect": LEAST_EFFECT, "search": asdict(measure),
        },
        started=started,
        facts={"device": device, "claims": found, "seconds": dict(zip(("start", "A/A", "null"), seconds, strict=True))},
    )  # fmt: skip
    write_json(record, out / "confirm.json")
    (out / "confirm.md").write_text(summary(found), encoding="utf-8")
    print(summary(found))
    print(f"start {seconds[0]:.1f} s, A/A {seconds[1]:.1f} s, null tuner {seconds[2]:.1f} s; results: {out}")
    return int(any(c["claimed"] > MOST_CLAIMED * c["count"] for c in found.values()))


def _without_out(arguments: Sequence[str]) -> list[str]:
    pairs = zip(arguments, ["", *arguments], strict=False)
    return [word for word, before in pairs if not word.startswith("--out") and before != "--out"]


def main(given: Sequence[str] | None = None) -> int:
    """Measure and write what `given`, a command line, asks for. Gives the exit code, 3 where there is no GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=85.0, help="begin nothing more after these")
    parser.add_argument("--compiler", default="nvrtc")
    parser.add_argument("--quick", action="store_true", help="a fifth of it")
    parser.add_argument("--out", type=Path, default=Path("results/h200/confirm"))
    chosen = parser.parse_args(given)
    if chosen.quick:
        chosen = argparse.Namespace(
            **{
                **vars(chosen),
                "comparisons": max(1, chosen.comparisons // 5),
                "repetitions": max(1, chosen.repetitions // 5),
            }
        )
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: noise is measured on a GPU", file=sys.stderr)
        return 3
    return run(chosen)


if __name__ == "__main__":
    sys.exit(main())
