"""Times and energies as people read them: four significant digits, and the unit that suits."""

from __future__ import annotations

from sweeper.model import Trial
from sweeper.table.objective import objective_of

__all__ = ["format_joules", "format_ms", "format_seconds", "format_value"]


def format_joules(value: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µJ`, `2.683 mJ`."""
    for factor, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e9:.4g} nJ"


def format_ms(value: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µs`, `2.683 ms`."""
    for factor, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} ns"


def format_value(value: float, trial: Trial) -> str:
    """The value that `trial` is ranked by, with its unit."""
    return format_joules(value) if objective_of(trial) == "energy" else format_ms(value)


def format_seconds(value: float) -> str:
    """A wait, as coarse as it is known: `8 s`, `3 min`, `2.5 h`."""
    if value < 90:
        return f"{max(1, round(value))} s"
    return f"{round(value / 60)} min" if value < 90 * 60 else f"{value / 3600:.1f} h"
