"""Kernel Tuner on the kernel and the space of a recording, on the GPU: `python bench/kernel_tuner_live.py TABLE SEED`.

    python bench/kernel_tuner_live.py results/h200/spaces/warp_tile-2048.csv.gz 0 --strategy adaptive_tabu_greywolf

Tells what it measured as it goes: a line of JSON a valid configuration, `{"params": …, "time_ms": …}`. It tunes the
recording's own kernel: the same source, whose template arguments are constants in front of it, since the entry has
to have a name that C knows. Threads and blocks are worked out from the parameters, so that Kernel Tuner searches
the same parameters as we do and none beside them. It compiles with nvcc through PyCUDA, one after the other, times
seven launches each and verifies nothing, as it does by default.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.build.source import translation_unit
from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.model import KernelSpec, Point, Role
from sweeper.problem import resolve
from sweeper.problem.arguments import ResolvedScalar
from sweeper.recording import read_recorded
from sweeper.resources.geometry import launch_of

__all__ = ["main", "plain_source"]

_HEADER = re.compile(r"template <([^>]*)>\s*__global__ void")


def plain_source(spec: KernelSpec, point: Point) -> tuple[str, list[str]]:
    """The kernel at `point` under its own name, without a template, and the compiler's options for it.

    Raises ValueError where the entry is no template of one list of parameters.
    """
    unit = translation_unit(spec, point)
    header = _HEADER.search(unit.text)
    if header is None:
        raise ValueError(f"{spec.name}: no template in front of the kernel")
    names = [part.strip().rsplit(" ", 1) for part in header.group(1).split(",")]
    lines = [
        f"using {name} = {value};" if kind == "typename" else f"constexpr {kind} {name} = {value};"
        for (kind, name), value in zip(names, unit.template_args, strict=True)
    ]
    text = (
        unit.text[: header.start()]
        + "\n".join(lines)
        + '\nextern "C" __global__ void'
        + unit.text[header.end() :]
    )
    return text, ["-std=c++17", *(f"-I{folder}" for folder in unit.include_dirs)]


def _arguments(spec: KernelSpec, dims: Mapping[str, int]) -> list[Any]:
    """Arrays of random numbers, and sizes, in the kernel's order."""
    rng = np.random.default_rng(0)
    given: list[Any] = []
    for argument in resolve(spec, dims, spec.default_point, seed=0).args:
        if isinstance(argument, ResolvedScalar):
            given.append(argument.value)
        elif argument.is_output:
            given.append(np.zeros(argument.size, argument.dtype.storage))
        else:
            numbers = rng.standard_normal(argument.size, dtype=np.float32).astype(argument.dtype.storage)
            # PyCUDA passes bytes: a class that NumPy has no name for goes as integers of its size.
            given.append(numbers.view(np.uint16) if numbers.dtype.kind == "V" else numbers)
    return given


def main(given: Sequence[str] | None = None) -> int:
    """Tune until the budget is spent or somebody ends the process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("--strategy", default="adaptive_tabu_greywolf")
    parser.add_argument("--budget", type=int, default=400)
    chosen = parser.parse_args(given)

    import kernel_tuner
    from kernel_tuner import util

    rows = [row for row in read_recorded(chosen.table) if row.role is Role.CANDIDATE]
    names = list(rows[0].params)
    dims = dict(rows[0].dims)
    with Composer() as composer:
        spec, _ = composer.compose([f"kernel={rows[0].kernel}", f"kernel.dtype={rows[0].dtype}"])
    allowed = {tuple(row.params[name] for name in names) for row in rows}
    limits = target("h200")

    def point(params: Mapping[str, Any]) -> Point:
        return Point(tuple((name, int(params[name])) for name in names))

    def threads(params: Mapping[str, Any], _: object = None) -> tuple[int, ...]:
        return launch_of(spec, point(params), dims, limits).block

    util.get_thread_block_dimensions = threads

    # Not a lambda, whose text Kernel Tuner would parse.
    def recorded(params: Mapping[str, Any]) -> bool:
        return tuple(params[name] for name in names) in allowed

    options = plain_source(spec, spec.default_point)[1]

    def tell(result: Mapping[str, Any]) -> float:
        said = {"params": point(result).params, "time_ms": float(result["time"])}
        print(json.dumps(said), flush=True)
        return float(result["time"])

    random.seed(chosen.seed)
    np.random.seed(chosen.seed)
    kernel_tuner.tune_kernel(
        spec.entry,
        lambda params: plain_source(spec, point(params))[0],
        lambda params: tuple(launch_of(spec, point(params), dims, limits).grid),
        _arguments(spec, dims),
        {name: sorted({row.params[name] for row in rows}) for name in names},
        grid_div_x=[],
        grid_div_y=[],
        restrictions=recorded,
        smem_args={"size": lambda params: launch_of(spec, point(params), dims, limits).shared_bytes},
        lang="PYCUDA",
        compiler_options=options,
        strategy=chosen.strategy,
        strategy_options={"max_fevals": chosen.budget},
        metrics={"told": tell},
        seed=chosen.seed,
        quiet=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
