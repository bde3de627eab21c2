"""One GPU's process: reads shapes from its input, a JSON line each, and answers with their rows.

    {"shape": "4096x4096x4096", "seeds": [[kernel, dims, params], …], "limit_s": 60}
    @{"row": {…}, "rungs": [{…}, …], "searched": [{…}, …]}

All else that it prints is for people. Its end is that of its input, or a device that is lost (exit code 3).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

from shapes_data import FAMILIES
from shapes_results import rung_rows, searched_rows, shape_row, warm_columns
from shapes_search import Bench
from shapes_seeds import Seed

from sweeper.check.compose import Composer
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.errors import SetupError, SweeperError
from sweeper.evaluate import LiveEvaluator

__all__ = ["MEASURE", "main"]

MEASURE = MeasureConfig(
    warmup_ms=5.0, min_samples=7, max_samples=15, max_seconds=0.15, stop_factor=1.1, verify_launches=1
)
"""A configuration is proved right before it is timed and after; finalists again in their confirmation."""


def _answered(bench: Bench, asked: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
    shape = str(asked["shape"])
    seeds = [Seed(kernel, dims, params) for kernel, dims, params in asked["seeds"]]
    try:
        result = bench.result(shape, seeds, float(asked["limit_s"]))
    except SetupError:
        raise
    except SweeperError as error:
        return {"row": {"shape": shape, "verdict": "failed", "note": error.message, **where}, "rungs": []}
    given = result.work, result.rungs, result.best
    row = shape_row(shape, *given)
    if result.best is not None:
        row |= warm_columns(result.warm, result.rungs[result.best].kernel, MEASURE.least_effect)
    row["seconds"] = result.seconds
    return {
        "row": {**row, **where},
        "rungs": [{**rung, **where} for rung in rung_rows(shape, *given)],
        "searched": [{**one, **where} for one in searched_rows(shape, result.work, result.rungs)],
    }


def main() -> int:
    """`shapes_worker.py DTYPE GPU BUILDERS SCALE`. Gives the exit code."""
    precision, gpu, builders, scale = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=MEASURE,
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler="nvrtc", workers=builders),
    )
    try:
        with Composer() as composer, closing(LiveEvaluator("cuda", config, print, devices=(gpu,))) as world:
            where = {"device": world.identity.name, "device_uuid": world.identity.uuid}
            print(
                "@" + json.dumps({"device": asdict(world.identity), "compiler": world.compiler}), flush=True
            )
            bench = Bench(world, composer, MEASURE, FAMILIES[precision], precision, scale)
            for line in sys.stdin:
                print("@" + json.dumps(_answered(bench, json.loads(line), where)), flush=True)
    except SetupError as error:
        print(f"GPU {gpu}: {error}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
