"""The whole benchmark: every strategy on every space with every seed, in several processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from glob import glob
from multiprocessing import get_context
from pathlib import Path

from sweeper.benchmark.figures import Curves, summarise
from sweeper.benchmark.kernel_tuner import simulate, why_no_kernel_tuner
from sweeper.benchmark.plan import KERNEL_TUNER, BenchmarkConfig
from sweeper.benchmark.recorded_space import RecordedSpace, load_space
from sweeper.benchmark.replayed import Replayed, replay_search
from sweeper.errors import ConfigError, SetupError
from sweeper.search import REGISTRY, why_missing

__all__ = ["benchmark", "find_spaces"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def find_spaces(patterns: Sequence[str]) -> list[Path]:
    """The files that `patterns` name, each once. Raises ConfigError for one that names none."""
    found: list[Path] = []
    for pattern in patterns:
        paths = sorted(Path(path) for path in glob(os.path.expanduser(pattern)))
        if not paths:
            raise ConfigError(f"benchmark.spaces: {pattern} names no file", hint="give recorded tables")
        found += [path for path in paths if path not in found]
    if not found:
        raise ConfigError("benchmark.spaces is empty", hint="give recorded tables: benchmark.spaces=[PATH,…]")
    return found


def benchmark(config: BenchmarkConfig, say: Callable[[str], object]) -> Iterator[Sequence[Curves]]:
    """The curves of each space, as soon as all strategies are through with it.

    `say` hears which strategies are left out, and why. Raises ConfigError for an unknown strategy, StorageError for
    a file that is no recorded table.
    """
    strategies = _usable(config.strategies, say)
    paths = find_spaces(config.spaces)
    workers = config.workers or os.cpu_count() or 1
    # Several processes with several threads each would wait for each other.
    kept = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for path in paths:
                yield _on_space(path, strategies, config, pool, say)
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _on_space(
    path: Path,
    strategies: Sequence[str],
    config: BenchmarkConfig,
    pool: ProcessPoolExecutor,
    say: Callable[[str], object],
) -> list[Curves]:
    recorded = _loaded(path)
    futures = {
        pool.submit(_one, path, strategy, seed, config.evaluations, config.lookahead): (strategy, seed)
        for seed in range(config.seeds)
        for strategy in strategies
    }
    found: dict[str, dict[int, Replayed]] = {strategy: {} for strategy in strategies}
    for future in as_completed(futures):
        strategy, seed = futures[future]
        try:
            found[strategy][seed] = future.result()
        except SetupError as error:
            say(f"{recorded.name}: {strategy}, seed {seed}: {error.message}")
    return [
        summarise(recorded, strategy, [runs[seed] for seed in sorted(runs)], config.evaluations)
        for strategy, runs in found.items()
        if runs
    ]


def _one(path: Path, strategy: str, seed: int, evaluations: int, lookahead: int) -> Replayed:
    recorded = _loaded(path)
    if strategy.startswith(KERNEL_TUNER):
        return simulate(recorded, strategy.removeprefix(KERNEL_TUNER), seed, evaluations)
    return replay_search(recorded, strategy, seed, evaluations, lookahead=lookahead)


@functools.lru_cache(maxsize=4)
def _loaded(path: Path) -> RecordedSpace:
    return load_space(path)


def _usable(strategies: Sequence[str], say: Callable[[str], object]) -> list[str]:
    usable = []
    for name in dict.fromkeys(strategies):
        if name.startswith(KERNEL_TUNER):
            missing = why_no_kernel_tuner()
        elif name in REGISTRY:
            missing = why_missing(name)
        else:
            known = ", ".join([*REGISTRY, f"{KERNEL_TUNER}NAME"])
            raise ConfigError(f"benchmark.strategies: {name!r} is none of {known}")
        if missing:
            say(f"{name} is left out: {missing}")
        else:
            usable.append(name)
    if not usable:
        raise ConfigError("benchmark.strategies: none of them can be used here")
    return usable
