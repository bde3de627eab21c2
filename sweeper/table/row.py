"""One trial as one row of a results table: what is derived from a trial when it is read.

A row holds nothing that a path or, where its time is predicted, a clock wrote: two people who run the
same thing in two folders get the same row.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from sweeper.model import Role, Status, TimeSource, Timing, Trial
from sweeper.resources.roofline import gflops, percent_of_roofline
from sweeper.statistics.dependence import effective_samples, series_interval

__all__ = ["Cell", "library_times", "row", "time_ms", "without_paths"]

Cell = str | int | float | bool | None
Group = tuple[str, str, str, TimeSource | None]

# An absolute path of two parts or more, also behind -I, = or a quote; the last part is kept.
_PATH = re.compile(r"(?:(?<![\w./\\])|(?<=-I)|(?<=-L))/(?:[^\s/:;,'\"()<>|]+/)+(?=[^\s/:;,'\"()<>|])")
_INT64_MAX = 2**63 - 1


def row(trial: Trial, library: Mapping[Group, float]) -> dict[str, Cell]:
    """The cells of `trial` by column name; None is blank. `library` is what `library_times` gave."""
    return {
        **_identity(trial),
        **_performance(trial, library),
        **_energy(trial),
        **_transfers(trial),
        **_outcome(trial),
        **_resources(trial),
        **_check(trial),
        **_world(trial),
    }


def library_times(trials: Iterable[Trial]) -> dict[Group, float]:
    """The fastest valid library time in ms of each study, shape, precision class and source of time."""
    fastest: dict[Group, float] = {}
    for trial in trials:
        value = time_ms(trial)
        if trial.role is Role.BASELINE and trial.status is Status.OK and value is not None and value > 0:
            fastest[_group(trial)] = min(value, fastest.get(_group(trial), math.inf))
    return fastest


def time_ms(trial: Trial) -> float | None:
    """Median of the samples, else the predicted time of a valid trial; None where there is neither."""
    if trial.timing is not None:
        samples = _samples(trial.timing)
        return statistics.median(samples) if samples else None
    return trial.predicted_ms if trial.status is Status.OK else None


def without_paths(text: str) -> str:
    """`text` on one line, absolute paths cut to their last part."""
    return _PATH.sub("", _line(text))


def _group(trial: Trial) -> Group:
    return trial.study, trial.shape, trial.dtype, trial.time_source


def _samples(timing: Timing) -> tuple[float, ...]:
    """The samples, or none where one is no number."""
    return timing.samples_ms if all(math.isfinite(s) for s in timing.samples_ms) else ()


def _line(text: str) -> str:
    """`text` without line breaks and other control characters, which would break a row."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _integer(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= _INT64_MAX else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _identity(trial: Trial) -> dict[str, Cell]:
    return {
        "study": trial.study,
        "trial": trial.number,
        "role": trial.role.value,
        "kernel": trial.kernel,
        "dtype": trial.dtype,
        "shape": trial.shape,
        **{name.lower(): _integer(trial.dims.get(name)) for name in ("M", "N", "K")},
        "context": trial.context,
        "dims": _json(dict(trial.dims)),
        "params": _json(dict(trial.params)),
    }


def _performance(trial: Trial, library: Mapping[Group, float]) -> dict[str, Cell]:
    value = time_ms(trial)
    timing = trial.timing
    samples = _samples(timing) if timing else ()
    low, high = series_interval(samples) if samples else (None, None)
    rank = value if value is not None and math.isfinite(value) and value > 0 else None
    beside = library.get(_group(trial))
    return {
        "time_ms": value,
        "time_low_ms": low,
        "time_high_ms": high,
        "time_min_ms": min(samples) if samples else None,
        "samples": len(timing.samples_ms) if timing else None,
        "effective_samples": effective_samples(samples) if samples else None,
        "stopped_by": timing.stopped_by if timing else "",
        "discarded_samples": timing.discarded if timing else None,
        **_by_cache(timing, "cold"),
        **_by_cache(timing, "warm"),
        "gflops": gflops(trial.flops, rank) if rank and trial.flops is not None else None,
        "percent_of_library": 100 * beside / rank if rank and beside is not None else None,
        "percent_of_roofline": percent_of_roofline(rank, trial.details.get("roofline_ms")) if rank else None,
        "time_source": trial.time_source.value if trial.time_source else "",
        "method": timing.method if timing else "",
        "cache": timing.cache if timing else "",
        "sm_clock_mhz": timing.sm_clock_mhz if timing else None,
        "memory_clock_mhz": timing.memory_clock_mhz if timing else None,
        "power_w": timing.power_w if timing else None,
        "temperature_c": timing.temperature_c if timing else None,
        "locked_clock": timing.locked if timing else "",
    }


def _by_cache(timing: Timing | None, cache: str) -> dict[str, Cell]:
    """The median and its interval with that state of the L2 cache."""
    of_it = timing.of_cache(cache) if timing else None
    samples = _samples(of_it) if of_it else ()
    low, high = series_interval(samples) if samples else (None, None)
    middle = statistics.median(samples) if samples else None
    return {f"{cache}_ms": middle, f"{cache}_low_ms": low, f"{cache}_high_ms": high}


def _energy(trial: Trial) -> dict[str, Cell]:
    """What a launch takes of the power supply, where that was measured."""
    energy = trial.energy
    told = energy is not None and math.isfinite(energy.joules) and energy.joules > 0
    if energy is None or not told:
        empty: dict[str, Cell] = dict.fromkeys(
            ("energy_j", "energy_low_j", "energy_high_j", "energy_w", "gflops_per_w"), None
        )
        return {"objective": str(trial.details.get("objective", "")), **empty, "energy_source": ""}
    return {
        "objective": str(trial.details.get("objective", "")),
        "energy_j": energy.joules,
        "energy_low_j": energy.low,
        "energy_high_j": energy.high,
        "energy_w": energy.watts,
        "gflops_per_w": None if trial.flops is None else trial.flops / 1e9 / energy.joules,
        "energy_source": energy.source,
    }


def _transfers(trial: Trial) -> dict[str, Cell]:
    """What was measured once for the whole problem and stands beside each of its rows."""
    told = trial.details.get("transfers", {})
    columns = ("h2d_ms", "d2h_ms", "h2d_pinned_ms", "d2h_pinned_ms", "cpu_ms")
    return {**{name: told.get(name) for name in columns}, "cpu_note": str(told.get("cpu_note", ""))}


def _outcome(trial: Trial) -> dict[str, Cell]:
    timing = trial.timing
    notes = [str(trial.details.get("note", "")), timing.note if timing else ""]
    notes += [trial.energy.note] if trial.energy is not None else []
    if timing is not None and timing.beside is not None and timing.beside.note:
        notes.append(f"{timing.beside.cache}: {timing.beside.note}")
    return {
        "status": trial.status.value,
        "stage": trial.stage.value,
        "reason": without_paths(trial.reason),
        "exception": str(trial.details.get("exception", "")),
        "note": without_paths("; ".join(dict.fromkeys(n for n in notes if n))),
    }


def _resources(trial: Trial) -> dict[str, Cell]:
    build, launch = trial.build, trial.launch
    static = build.static_shared_bytes if build else None
    if static is None and launch is not None:
        static = launch.static_shared_bytes
    return {
        "registers": build.registers if build else None,
        "shared_bytes": launch.shared_bytes + (static or 0) if launch else static,
        "spill_bytes": build.spill_bytes if build else None,
        "local_bytes": build.local_bytes if build else None,
        "threads": launch.threads if launch else None,
        "blocks": _integer(launch.blocks) if launch else None,
        "occupancy": trial.occupancy,
        "limited_by": str(trial.details.get("limited_by") or ""),
        "compiler": without_paths(build.compiler) if build else "",
        "options": " ".join(without_paths(option) for option in build.options) if build else "",
    }


def _check(trial: Trial) -> dict[str, Cell]:
    check = trial.check
    where = check.error_index if check else None
    return {
        "error_ratio": check.error_ratio if check else None,
        "max_error": check.max_error if check else None,
        "error_index": "" if where is None else _json(list(where)),
        "wrong": check.wrong if check else None,
        "checked": check.checked if check else None,
        "check_note": without_paths(check.note) if check else "",
    }


def _world(trial: Trial) -> dict[str, Cell]:
    measured = trial.time_source is TimeSource.MEASURED
    return {
        "flops": _integer(trial.flops),
        "bytes": _integer(trial.bytes),
        "build_s": trial.build_s if measured else None,
        "measure_s": trial.measure_s if measured else None,
        "backend": trial.backend,
        "device": trial.device,
        "device_uuid": trial.device_uuid,
        "driver": trial.driver,
        "kernel_digest": trial.kernel_digest,
        "seed": _integer(trial.seed),
    }
