"""The evaluator that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sweeper.config import Config
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.errors import ConfigError, SetupError, did_you_mean
from sweeper.evaluate.base import Evaluator
from sweeper.evaluate.energy import ENERGY_HINT, no_energy, require_times
from sweeper.evaluate.live import LiveEvaluator
from sweeper.evaluate.replay import ReplayEvaluator
from sweeper.worker.lane import Problem

__all__ = ["make_evaluator"]

_BACKENDS = ("auto", "cuda", "emulator", "replay")


def make_evaluator(config: Config, say: Callable[[str], object], problem: Problem | None = None) -> Evaluator:
    """The evaluator that `config.backend` names; `auto` takes a GPU where one can be used.

    `say` hears why there is none. `problem` (kernel, sizes, seed) is prepared at once. Raises SetupError
    where the named backend cannot be used.
    """
    name = config.backend.name
    if name not in _BACKENDS:
        known = ", ".join(_BACKENDS)
        raise ConfigError(f"backend.name = {name!r} is none of {known}{did_you_mean(name, _BACKENDS)}")
    if config.engine.name == "ray":
        from sweeper.evaluate.cluster import make_on_cluster

        return make_on_cluster(config, say, problem)
    objective = config.measure.objective
    if name == "replay":
        replay = ReplayEvaluator(config.backend, objective)
        if problem is not None:
            replay.prepare(*problem)
        return replay
    require_times(name, objective)
    if name != "auto":
        return LiveEvaluator(name, config, say, devices=_indices(name, config), problem=problem)
    missing = why_no_gpu(ask=False)
    if missing is None:
        try:
            return LiveEvaluator("cuda", config, say, devices=_indices("cuda", config), problem=problem)
        except SetupError:
            # Whether there is a GPU at all is asked only now: asking takes as long as opening one.
            missing = why_no_gpu(ask=True)
            if missing is None:
                raise
    if objective != "time":
        raise SetupError(no_energy(objective, missing), hint=ENERGY_HINT)
    say(f"{missing}: kernels run in the emulator, times are predicted for {config.backend.target}")
    return LiveEvaluator("emulator", config, say, devices=_indices("emulator", config), problem=problem)


def _indices(backend: str, config: Config) -> Sequence[int]:
    """The devices that serve: `backend.devices`, else the one of `backend.device`."""
    chosen = config.backend.devices
    if chosen is None:
        return (config.backend.device,)
    if chosen == "all":
        return range(count_gpus()) if backend == "cuda" else (0,)
    return tuple(int(index) for index in chosen)
