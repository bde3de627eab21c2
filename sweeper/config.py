"""The typed schema of `conf/` and the strict check of a composed configuration against it.

Hydra accepts `+shpe=large` without a word; here every key must be known and every value of its type,
and what is not is listed with the nearest right name.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.backend.base import MeasureProtocol
from sweeper.device.clocks import why_no_clock
from sweeper.errors import ConfigError, did_you_mean
from sweeper.report import Pitfall, why_no_report
from sweeper.search import REGISTRY, why_not_several
from sweeper.statistics import CRITERIA, LEAST_FOR_ENTROPY
from sweeper.table.objective import OBJECTIVES

__all__ = [
    "BackendConfig",
    "BuildConfig",
    "Config",
    "MeasureConfig",
    "SearchConfig",
    "ShapeConfig",
    "validate",
]


MOST_FINALISTS = 64
# Two-sided 95 % for five comparisons at once takes 8 signs that agree: 5 · 2 / 2⁸ < 0.05.
LEAST_BLOCKS = 8
MOST_BLOCKS = 1000
LEAST_ENERGY_S, MOST_ENERGY_S = 0.05, 30.0


@dataclass(frozen=True, slots=True)
class ShapeConfig:
    """The problem's sizes by lower-case name; `name` is None for one-off sizes."""

    name: str | None
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """`budget` distinct configurations (None: all), asked in an order that `seed` fixes.

    `lookahead` configurations are asked before the first of them is told, so that they build side
    by side; it changes what a model-guided sampler knows, so it does not follow the machine's size.
    A search whose order no result changes (grid, random) is asked as far ahead as the machine can use.
    With `default_first` the kernel's default configuration is asked before all others.
    """

    name: str = "tpe"
    budget: int | None = 50
    seed: int = 0
    lookahead: int = 8
    objective: str = "time_ms"
    direction: str | None = None
    default_first: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasureConfig(MeasureProtocol):
    """A named measuring protocol.

    A configuration found to be `stop_factor` times slower than the best so far is not sampled any further,
    since it cannot become the best (None: all are sampled alike).

    After a search the best `confirm` configurations, the kernel's default one and the libraries are timed
    once more, in `confirm_blocks` blocks of random order (0: not). A difference below `least_effect`,
    relative, is none that anybody would act on.
    """

    name: str = "default"
    stop_factor: float | None = None
    confirm: int = 4
    confirm_blocks: int = 12
    least_effect: float = 0.01

    def conditions(self) -> dict[str, Any]:
        """What the result of a single configuration depends on: all but how finalists are compared.

        Of energy there is a word only where it is measured.
        """
        left_out = {"confirm", "confirm_blocks", "least_effect"}
        if self.objective == "time":
            left_out |= {"objective", "energy_seconds"}
        values = {**dataclasses.asdict(self), "stop_factor": self.stops_at}
        return {name: value for name, value in values.items() if name not in left_out}

    @property
    def stops_at(self) -> float | None:
        """`stop_factor` where times alone rank: a slower configuration may well use less energy."""
        return self.stop_factor if self.objective == "time" else None


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """Where kernels run: `device` is a GPU's index, `target` the GPU assumed where there is none.

    `devices` lets several serve one search: their indices, or `all`. They must be of one kind, unless
    `mixed_devices` says that times of different products may stand side by side. A GPU that others are
    using is refused unless `allow_shared`.
    """

    name: str = "auto"
    device: int = 0
    devices: str | tuple[int, ...] | None = None
    mixed_devices: bool = False
    target: str = "h200"
    path: str | None = None
    allow_shared: bool = False


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """How configurations are compiled: `workers` 0 means one a processor."""

    compiler: str = "auto"
    workers: int = 0
    deadline_s: float = 120.0
    cache: bool = True


@dataclass(frozen=True, slots=True)
class Config:
    """A whole run's configuration, checked. `kernel` is the description's node, checked by `kernel.load`."""

    kernel: Mapping[str, Any]
    shape: ShapeConfig
    search: SearchConfig = SearchConfig()
    measure: MeasureConfig = MeasureConfig()
    backend: BackendConfig = BackendConfig()
    build: BuildConfig = BuildConfig()
    baseline: tuple[str, ...] = ()
    results_dir: str | None = None
    resume: bool = True
    seed: int = 42
    fail_fast: bool = False
    dry_run: bool = False
    report: str | None = None
    pitfalls: tuple[Pitfall, ...] = ()


def validate(node: Mapping[str, Any]) -> Config:
    """The configuration in `node` (plain containers, as composed), or ConfigError listing all that is wrong."""
    known = {f.name for f in dataclasses.fields(Config)}
    kernel = node.get("kernel")
    params = kernel.get("params", {}) if isinstance(kernel, Mapping) else {}
    problems = [f"unknown key {k!r}{_nearest(str(k), known, params)}" for k in node if k not in known]
    if not isinstance(kernel, Mapping):
        problems.append(f"kernel = {kernel!r} is not a kernel's description")
    values: dict[str, Any] = {"kernel": kernel, "shape": _shape(node.get("shape"), kernel, problems)}
    for f in dataclasses.fields(Config):
        if f.name in node and f.name not in values:
            values[f.name] = _value(typing.get_type_hints(Config)[f.name], node[f.name], f.name, problems)
    problems.extend(_contradictions(values))
    if not problems:
        problems.extend(why_no_report(values.get("report"), values.get("pitfalls", ())))
    if problems:
        raise ConfigError("configuration: " + "\n  ".join(problems))
    return Config(**values)


def _nearest(key: str, known: set[str], params: Mapping[str, Any]) -> str:
    """The nearest top-level key, or the nearest parameter of the kernel by its full name."""
    full = {**{k: k for k in known}, **{str(p): f"kernel.params.{p}" for p in params}}
    hint = did_you_mean(key, full)
    for short, name in full.items():
        hint = hint.replace(f"'{short}'", f"'{name}'")
    return hint


def _shape(node: Any, kernel: Any, problems: list[str]) -> ShapeConfig:
    if not isinstance(node, Mapping):
        problems.append(
            f"shape = {node!r} is not a shape: write shape=large, shape=256x512x64 or shape.m=256"
        )
        return ShapeConfig(None, {})
    dims = kernel.get("dims") if isinstance(kernel, Mapping) else None
    listed = dims if isinstance(dims, list) else [dims] if isinstance(dims, Mapping) else []
    named = {str(n).lower() for item in listed for n in (item if isinstance(item, Mapping) else [item])}
    known = {"name", "m", "n", "k"} | named
    sizes = {}
    for key, value in node.items():
        if key not in known:
            problems.append(f"unknown key shape.{key}{did_you_mean(str(key), known)}")
        elif key != "name" and value is not None:
            if named and key not in named and not node.get("name"):
                problems.append(f"shape.{key}: the kernel has no size {key}, only {', '.join(sorted(named))}")
            sizes[str(key)] = _value(int, value, f"shape.{key}", problems)
            if isinstance(value, int) and value < 1:
                problems.append(f"shape.{key} = {value}: a size is at least 1")
    return ShapeConfig(node.get("name"), sizes)


def _value(kind: Any, value: Any, key: str, problems: list[str]) -> Any:
    """`value` as `kind`; a problem is noted where it is something else."""
    if isinstance(kind, types.UnionType):
        return None if value is None else _one_of(kind, value, key, problems)
    origin = typing.get_origin(kind)
    if origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(
                _value(typing.get_args(kind)[0], v, f"{key}[{i}]", problems) for i, v in enumerate(value)
            )
        problems.append(f"{key} = {value!r} is not a list: write {key}=[a,b]")
        return ()
    if origin is not None and issubclass(origin, Mapping):
        return (
            dict(value)
            if isinstance(value, Mapping)
            else problems.append(f"{key} = {value!r} is not a mapping")
        )
    if dataclasses.is_dataclass(kind):
        return _section(typing.cast(type, kind), value, key, problems)
    return _scalar(kind, value, key, problems)


def _one_of(kind: types.UnionType, value: Any, key: str, problems: list[str]) -> Any:
    """`value` as one of the kinds of a union."""
    inner = [k for k in typing.get_args(kind) if k is not type(None)]
    if set(inner) == {str, int} and isinstance(value, str | int) and not isinstance(value, bool):
        return value
    if len(inner) > 1 and not isinstance(value, str | list | tuple):
        problems.append(f"{key} = {value!r} is neither text nor a list: write {key}=[{value}]")
        return None
    # Of text and a list, the one that is written.
    return _value(inner[-1] if isinstance(value, list | tuple) else inner[0], value, key, problems)


def _section(kind: type, value: Any, key: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{key} = {value!r} is not a section of the configuration")
        return kind()
    hints = typing.get_type_hints(kind)
    chosen = {}
    for name, item in value.items():
        if name not in hints:
            problems.append(f"unknown key {key}.{name}{did_you_mean(str(name), hints)}")
        else:
            chosen[name] = _value(hints[name], item, f"{key}.{name}", problems)
    return kind(**chosen) if not problems else kind()


_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _scalar(kind: Any, value: Any, key: str, problems: list[str]) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind in (int, float) and isinstance(value, bool)):
        problems.append(f"{key} = {value!r} is not {_SAID[kind]}{_plain_form(kind, value)}")
    return value


def _plain_form(kind: Any, value: Any) -> str:
    """`: write 100` where a number was written in a form that could mean something else."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return f": write {int(value)}"
    if kind is int and isinstance(value, str):
        text = value.replace("_", "")
        if re.fullmatch(r"[+-]?\d+", text):
            return f": write {int(text)}"
        if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
            return f": write {int(text, 16)}"
    return ""


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    """What is of the right type and still cannot be meant."""
    problems = []
    search, measure = values.get("search"), values.get("measure")
    if isinstance(search, SearchConfig):
        directions = {"time_ms": "minimize", "gflops": "maximize"}
        if search.objective not in directions:
            problems.append(f"search.objective = {search.objective!r} is none of {', '.join(directions)}")
        elif search.direction not in (None, directions[search.objective]):
            problems.append(
                f"search.direction = {search.direction!r} contradicts search.objective = {search.objective}:"
                f" leave it out, or write {directions[search.objective]}"
            )
        if search.name not in REGISTRY:
            known = ", ".join(REGISTRY)
            problems.append(
                f"search.name = {search.name!r} is none of {known}{did_you_mean(search.name, REGISTRY)}"
            )
        if search.budget is not None and search.budget < 1:
            problems.append(f"search.budget = {search.budget}: at least 1, or null for every configuration")
        if not 1 <= search.lookahead <= 1024:
            problems.append(f"search.lookahead = {search.lookahead} is not between 1 and 1024")
    if isinstance(measure, MeasureConfig):
        problems.extend(_wrong_measures(measure))
        problems.extend(_wrong_finals(measure))
        problems.extend(_wrong_objective(measure, search))
    backend = values.get("backend")
    if isinstance(backend, BackendConfig):
        problems.extend(_wrong_devices(backend.devices))
    return problems


def _wrong_measures(measure: MeasureConfig) -> list[str]:
    problems = []
    if not 1 <= measure.min_samples <= measure.max_samples:
        problems.append(
            f"measure.min_samples = {measure.min_samples} and measure.max_samples = {measure.max_samples}:"
            " at least 1, and the first no larger than the second"
        )
    if measure.cache not in ("cold", "warm", "both"):
        problems.append(f"measure.cache = {measure.cache!r} is none of cold, warm, both")
    if measure.stopping not in CRITERIA:
        known = ", ".join(CRITERIA)
        problems.append(
            f"measure.stopping = {measure.stopping!r} is none of {known}{did_you_mean(measure.stopping, CRITERIA)}"
        )
    if measure.stopping in ("entropy", "both") and measure.max_samples < LEAST_FOR_ENTROPY:
        problems.append(
            f"measure.stopping = {measure.stopping} takes {LEAST_FOR_ENTROPY} samples to say anything, and"
            f" measure.max_samples = {measure.max_samples}"
        )
    return problems + _wrong_limits(measure)


def _wrong_limits(measure: MeasureConfig) -> list[str]:
    problems = []
    if not measure.entropy_bits > 0:
        problems.append(f"measure.entropy_bits = {measure.entropy_bits}: more than 0")
    if measure.graph_below_ms < 0:
        problems.append(f"measure.graph_below_ms = {measure.graph_below_ms}: 0 for never, or more")
    if measure.clock_tolerance is not None and not 0 < measure.clock_tolerance < 1:
        problems.append(
            f"measure.clock_tolerance = {measure.clock_tolerance}: between 0 and 1, or null for any clock"
        )
    if measure.recovery_s < 0:
        problems.append(f"measure.recovery_s = {measure.recovery_s}: 0 or more")
    if wrong := why_no_clock(measure.lock_clocks):
        problems.append(f"measure.lock_clocks = {measure.lock_clocks!r}: {wrong}")
    if measure.stop_factor is not None and measure.stop_factor <= 1:
        problems.append(f"measure.stop_factor = {measure.stop_factor}: more than 1, or null for never")
    return problems


def _wrong_objective(measure: MeasureConfig, search: SearchConfig | None) -> list[str]:
    problems = []
    objective = measure.objective
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        problems.append(
            f"measure.objective = {objective!r} is none of {known}{did_you_mean(objective, OBJECTIVES)}"
        )
    if not LEAST_ENERGY_S <= measure.energy_seconds <= MOST_ENERGY_S:
        problems.append(
            f"measure.energy_seconds = {measure.energy_seconds}: {LEAST_ENERGY_S} to {MOST_ENERGY_S}; the"
            " device's meter moves every few tens of milliseconds"
        )
    if isinstance(search, SearchConfig) and objective != "time" and search.objective == "gflops":
        problems.append(f"search.objective = gflops ranks by time, and measure.objective = {objective}")
    if isinstance(search, SearchConfig) and objective == "both" and search.name in REGISTRY:
        why_not = why_not_several(search.name)
        if why_not:
            problems.append(f"measure.objective = both: {why_not}")
    return problems


def _wrong_finals(measure: MeasureConfig) -> list[str]:
    problems = []
    if not 0 <= measure.confirm <= MOST_FINALISTS:
        problems.append(f"measure.confirm = {measure.confirm}: 0 to {MOST_FINALISTS} configurations; 0: none")
    if not LEAST_BLOCKS <= measure.confirm_blocks <= MOST_BLOCKS:
        problems.append(
            f"measure.confirm_blocks = {measure.confirm_blocks}: {LEAST_BLOCKS} to {MOST_BLOCKS}; with fewer"
            " blocks no difference could be told from chance"
        )
    if not 0 < measure.least_effect < 1:
        problems.append(f"measure.least_effect = {measure.least_effect}: between 0 and 1; 0.01 is 1 %")
    return problems


def _wrong_devices(devices: str | tuple[int, ...] | None) -> list[str]:
    if isinstance(devices, str) and devices != "all":
        return [f"backend.devices = {devices!r}: a list such as [0,1], or all"]
    indices = [d for d in devices or () if isinstance(d, int)]
    if isinstance(devices, tuple) and (len(set(indices)) < len(devices) or min(indices, default=-1) < 0):
        return [f"backend.devices = {list(devices)}: at least one device, each once, counted from 0"]
    return []
