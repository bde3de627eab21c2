"""How far a family of kernels stands from the better of cuBLAS and cuBLASLt, shape by shape, in one precision class.

    python bench/bench_shapes.py [--dtype bfloat16] [--shapes 4096x4096x4096,…] [--gpus 0,1,2,3] [--seconds 600]

For each shape the rungs that suit it (`shapes_data.py`) are searched. The best of every rung that comes close is
then timed in turns with its rivals and both libraries (cuBLASLt's is the best of its first 16 heuristics), in blocks
of random order, L2 cold; the best of all and the libraries once more, L2 warm. A ratio is the better library's time
over ours, from the pairs of a block: above 1 we are faster. Every configuration and library is proved right.
A process for each GPU takes the next shape, the longest first; one that dies costs its shape.

Into FOLDER (results/h200) go, after each shape: NAME.csv, the best of all rungs a shape; NAME-rungs.csv, the best
configuration a shape and rung; NAME-searched.csv, every configuration that ran; NAME.md; NAME.json, the provenance.
NAME is fp32-shapes and the like. `--seeds` names NAME-rungs.csv of earlier runs, whose configurations are tried
first. Ends with 3 where there is no GPU, with 2 for a class or shape that is none.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shapes_data import FAMILIES, dims_of
from shapes_queue import Shared, longest_first, serve
from shapes_seeds import Seed
from shapes_table import read_seeds, save, seeds_of, summary

from sweeper.device.present import why_no_gpu
from sweeper.dtypes import dtype
from sweeper.errors import ConfigError
from sweeper.provenance import run_record


class Tables:
    """All rows so far, on the disk after each shape."""

    def __init__(self, chosen: argparse.Namespace, seeds: Sequence[Seed]) -> None:
        self._chosen = chosen
        self._earlier = list(seeds)
        self._started = datetime.now(UTC)
        self._order = {shape: place for place, shape in enumerate(chosen.shapes)}
        self._facts: dict[str, Any] = {"devices": [], "compiler": ""}
        self.rows: list[dict[str, Any]] = []
        self.rungs: list[dict[str, Any]] = []
        self.searched: list[dict[str, Any]] = []

    def started(self, facts: Mapping[str, Any]) -> None:
        """Hear of a GPU that is ready."""
        if facts["device"] not in self._facts["devices"]:
            self._facts["devices"].append(facts["device"])
        self._facts["compiler"] = facts["compiler"]

    def done(self, answer: Mapping[str, Any]) -> None:
        """Keep the rows of a shape."""
        row = answer["row"]
        self.rows.append({"dtype": self._chosen.dtype, **row})
        self.rungs += answer.get("rungs", [])
        self.searched += answer.get("searched", [])
        self.save()
        said = f"{row.get('ratio') or float('nan'):6.3f} {row.get('verdict', '')}"
        print(
            f"{row['shape']:16s} {row.get('kernel', ''):17s} {said:16s} {row.get('seconds', float('nan')):5.1f} s"
            f"  {row.get('params') or row.get('note', '')}",
            flush=True,
        )

    def seeds(self) -> list[list[Any]]:
        """What searches may begin with, as JSON."""
        known = [*seeds_of(self.rungs), *self._earlier]
        return [[seed.kernel, dict(seed.dims), dict(seed.params)] for seed in known]

    def save(self) -> None:
        """Write all of it, in the order of the shapes as given."""
        for rows in (self.rows, self.rungs, self.searched):
            rows.sort(key=lambda row: self._order[row["shape"]])
        chosen = self._chosen
        record = run_record(
            command=[
                "python",
                "bench/bench_shapes.py",
                "--dtype",
                chosen.dtype,
                "--gpus",
                str(len(chosen.gpus)),
            ],
            config={"dtype": chosen.dtype, "shapes": chosen.shapes},
            started=self._started,
            facts=self._facts,
        )
        save(chosen.out, chosen.name, self.rows, self.rungs, self.searched, record)


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line, checked; exits with 2 where something is wrong with it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--shapes", help="MxNxK,… (the family's own)")
    parser.add_argument("--gpus", default="0", help="indices of the GPUs to share the shapes")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no shape after this long")
    parser.add_argument(
        "--limit", type=float, default=45.0, help="seconds after which a shape begins no rung"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the budgets, such as 0.5")
    parser.add_argument("--builders", type=int, help="compilers a GPU (the processors, shared among GPUs)")
    parser.add_argument("--seeds", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    parser.add_argument("--name")
    chosen = parser.parse_args(given)
    try:
        chosen.dtype = dtype(chosen.dtype, where="--dtype").name
        if chosen.dtype not in FAMILIES:
            parser.error(f"--dtype {chosen.dtype}: no shapes for it; use one of {', '.join(FAMILIES)}")
        family = FAMILIES[chosen.dtype]
        chosen.shapes = chosen.shapes.split(",") if chosen.shapes else list(family.shapes)
        for shape in chosen.shapes:
            dims_of(shape)
        chosen.gpus = [int(index) for index in chosen.gpus.split(",")]
        chosen.known = [seed for path in chosen.seeds for seed in read_seeds(path)]
    except ConfigError as error:
        parser.error(str(error))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    chosen.name = chosen.name or f"{family.short}-shapes"
    chosen.builders = chosen.builders or max(2, (os.cpu_count() or 1) // len(chosen.gpus))
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Measure the shapes that `given` (the command line) names; 3 where there is no GPU."""
    chosen = parsed(given)
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: shapes are measured on a GPU", file=sys.stderr)
        return 3
    tables = Tables(chosen, chosen.known)
    shared = Shared(
        shapes=longest_first(chosen.shapes),
        ends_s=time.monotonic() + chosen.seconds,
        limit_s=chosen.limit,
        seeds=tables.seeds,
        done=tables.done,
        started=tables.started,
    )
    worker = str(Path(__file__).with_name("shapes_worker.py"))
    told = [str(chosen.builders), str(chosen.scale)]
    serve(shared, chosen.gpus, lambda gpu: [worker, chosen.dtype, str(gpu), *told])
    why = "no time was left" if time.monotonic() >= shared.ends_s else "no GPU was left"
    for shape in shared.shapes:
        tables.rows.append({"shape": shape, "dtype": chosen.dtype, "verdict": why})
    tables.save()
    print("\n" + summary(tables.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
