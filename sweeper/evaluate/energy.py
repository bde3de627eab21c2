"""What cannot be asked of a world without a power supply."""

from __future__ import annotations

from sweeper.errors import ConfigError

__all__ = ["ENERGY_HINT", "no_energy", "require_times"]

ENERGY_HINT = "run it on a GPU (backend=cuda), replay a table of such a run, or write measure.objective=time"


def no_energy(objective: str, why: str) -> str:
    """What is wrong with `objective` where there is no GPU, and `why` there is none."""
    return f"measure.objective = {objective} needs a GPU to measure: {why}"


def require_times(backend: str, objective: str) -> None:
    """Raise ConfigError where more than times is asked of the emulator."""
    if backend == "emulator" and objective != "time":
        raise ConfigError(no_energy(objective, "the emulator has no power supply"), hint=ENERGY_HINT)
