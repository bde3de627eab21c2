"""The typed schema of `conf/`: what a configuration may say, and what it says where nothing is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.backend.base import MeasureProtocol
from sweeper.benchmark import BenchmarkConfig
from sweeper.cluster.settings import EngineConfig
from sweeper.lessons import Pitfall

__all__ = [
    "NEIGHBOURS",
    "BackendConfig",
    "BuildConfig",
    "Config",
    "EngineConfig",
    "MeasureConfig",
    "PlanConfig",
    "SearchConfig",
    "ShapeConfig",
]


NEIGHBOURS = "neighbours"
"""The word in `search.learn_from` for what the command itself has measured."""


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
    With `default_first` the kernel's default configuration is asked before all others. `learn_from` are tables
    of other shapes, precision classes or GPUs that a guided search begins with; the word `neighbours` among them stands
    for what the command itself has measured of the kernel at other sizes.
    """

    name: str = "guided"
    budget: int | None = 50
    seed: int = 0
    lookahead: int = 8
    objective: str = "time_ms"
    direction: str | None = None
    default_first: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    learn_from: tuple[str, ...] | None = None


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
class PlanConfig:
    """What `plan=true` prints instead of running anything: `form` is `text` or `json` (None: it runs).

    `rates` are results whose seconds a configuration are taken beside those of earlier runs; `devices` GPUs share the
    jobs (None: the jobs run one after another).
    """

    form: str | None = None
    rates: tuple[str, ...] | None = None
    devices: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole run's configuration, checked. `kernel` is the description's node, checked by `kernel.load`.

    `shapes` are the names of several problems that share the search's budget, in place of `shape`, and how much each
    counts. `store` says where rows go: a file in the results folder, or the server that the environment names.
    """

    kernel: Mapping[str, Any]
    shape: ShapeConfig
    shapes: Mapping[str, float] | None = None
    search: SearchConfig = SearchConfig()
    measure: MeasureConfig = MeasureConfig()
    backend: BackendConfig = BackendConfig()
    engine: EngineConfig = field(default_factory=EngineConfig)
    build: BuildConfig = BuildConfig()
    baseline: tuple[str, ...] = ()
    results_dir: str | None = None
    store: str = "sqlite"
    resume: bool = True
    seed: int = 42
    fail_fast: bool = False
    dry_run: bool = False
    plan: PlanConfig = PlanConfig()
    report: str | None = None
    pitfalls: tuple[Pitfall, ...] = ()
    benchmark: BenchmarkConfig | None = None
