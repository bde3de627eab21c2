"""Kernel Tuner's strategies on a recorded space, by its own simulation mode.

Kernel Tuner is a tool of the benchmark, not of the package: it is imported where it is installed. Which
configurations it looked at, and in which order, is taken from its simulation runner; those that it visits again cost
it nothing, failed ones count as they do for every search.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.benchmark.recorded_space import RecordedSpace
from sweeper.benchmark.replayed import Replayed, replay_rows
from sweeper.errors import SetupError
from sweeper.model import Point, Role, Stage, Status
from sweeper.recording import Recorded, write_cache

__all__ = ["simulate", "why_no_kernel_tuner"]


def why_no_kernel_tuner() -> str:
    """Why Kernel Tuner cannot be used; empty where it can."""
    return "" if importlib.util.find_spec("kernel_tuner") else "the package kernel_tuner is not installed"


def simulate(recorded: RecordedSpace, strategy: str, seed: int, evaluations: int) -> Replayed:
    """Kernel Tuner's search called `strategy` on `recorded`. Raises SetupError where it is missing or fails."""
    missing = why_no_kernel_tuner()
    if missing:
        raise SetupError(missing, hint="pip install kernel_tuner, or leave its strategies out")
    from kernel_tuner import interface
    from kernel_tuner.runners import simulation

    visited: list[int] = []
    seen: set[int] = set()
    names = recorded.space.names

    class Recording(simulation.SimulationRunner):  # type: ignore[misc]
        def run(self, parameter_space: Any, tuning_options: Any) -> Any:
            elements = [tuple(element) for element in parameter_space]
            for element in elements:
                row = recorded.space.row(Point(tuple(zip(names, map(_plain, element), strict=True))))
                if row is not None and row not in seen:
                    seen.add(row)
                    visited.append(row)
            return super().run(elements, tuning_options)

    # Most of its strategies use the global generators, whatever seed they are given.
    random.seed(seed)
    np.random.seed(seed)
    original = simulation.SimulationRunner
    simulation.SimulationRunner = Recording
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cache = Path(folder) / "cache.json"
            write_cache(cache, _rows(recorded))
            options = {"max_fevals": min(evaluations, len(recorded.space))}
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                interface.tune_cache(
                    str(cache), strategy=strategy, strategy_options=options, seed=seed, quiet=True
                )
    except Exception as error:
        if not visited:
            raise SetupError(f"Kernel Tuner's {strategy}: {type(error).__name__}: {error}") from error
    finally:
        simulation.SimulationRunner = original
    return replay_rows(recorded, visited[:evaluations])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _rows(recorded: RecordedSpace) -> list[Recorded]:
    rows = []
    for row, (time, seconds) in enumerate(zip(recorded.times_ms, recorded.seconds, strict=True)):
        failed = bool(np.isnan(time))
        rows.append(
            Recorded(
                role=Role.CANDIDATE,
                kernel="recorded",
                dtype="",
                dims={},
                params=recorded.space.point(row).params,
                status=Status.LAUNCH_ERROR if failed else Status.OK,
                stage=Stage.LAUNCH if failed else Stage.DONE,
                reason="",
                samples_ms=() if failed else (float(time),),
                time_source="",
                method="",
                cache="",
                device="recorded",
                device_uuid="",
                driver="",
                measure_s=None if np.isnan(seconds) else float(seconds),
            )
        )
    return rows
