"""From the record of a run to a job that does the same: its kernel, sizes, protocol, backend and points."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.check.compose import Composer
from sweeper.compare import Row
from sweeper.config import Config, MeasureConfig, validate
from sweeper.errors import ConfigError, KernelError
from sweeper.kernel import load
from sweeper.kernel.layout import layout_of
from sweeper.model import KernelSpec, ParamSpec, Point, Role, TimeSource
from sweeper.paths import conf_dir
from sweeper.reproduce.choose import Published, seed_of

__all__ = ["Options", "Work", "narrowed", "work_of"]

_BACKENDS = {TimeSource.MEASURED: "cuda", TimeSource.PREDICTED: "emulator", TimeSource.REPLAYED: "replay"}
_SOURCES = {name: source for source, name in _BACKENDS.items()}
# What a run is told beside what a row depends on: none of it is done again.
_NOT_AGAIN = {"report", "pitfalls", "benchmark", "search", "results_dir", "dry_run", "fail_fast", "resume"}


@dataclass(frozen=True, slots=True)
class Options:
    """How to reproduce: `backend` other than the record's own (blank: that), the GPU's index, `table` to replay from
    instead of the recorded path, `folders` where kernels are."""

    backend: str = ""
    device: int = 0
    allow_shared: bool = False
    table: Path | None = None
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One study to be done again. `points` are its configurations, `libraries` the baselines beside them; `notes`
    say what of the record could not be taken as it is, and `silent` are the settings of `measure` that it leaves to
    the defaults, which are those of now."""

    published: Published
    spec: KernelSpec
    config: Config
    seed: int
    points: tuple[Point, ...]
    libraries: tuple[str, ...]
    notes: tuple[str, ...]
    silent: tuple[str, ...] = ()

    @property
    def dims(self) -> Mapping[str, int]:
        return self.published.first.dims

    @property
    def shape(self) -> str:
        return self.published.first.shape


def work_of(published: Published, options: Options) -> Work:
    """The job that does `published` again.

    Raises ConfigError where the record cannot be taken by this version or times would not compare, KernelError
    where there is no such kernel any more.
    """
    row = published.first
    spec, notes = _kernel(published, options.folders)
    candidates = [one for one in published.rows if one.role == Role.CANDIDATE.value]
    points = tuple(_point(spec, one) for one in candidates)
    if points:
        spec = narrowed(spec, points)
    config, silent = _config(published, options)
    return Work(
        published,
        spec,
        config,
        seed_of(row, published.run),
        points,
        tuple(one.kernel for one in published.rows if one.role == Role.BASELINE.value),
        tuple(notes),
        tuple(silent),
    )


def _kernel(published: Published, folders: Sequence[Path]) -> tuple[KernelSpec, list[str]]:
    """The kernel as the run described it, with the source as it is now; as it is described now where they disagree."""
    node = _in_order(published.run["config"]["kernel"], published.first)
    name = str(node.get("name"))
    file = f"{name}.yaml"
    places = [path for folder in folders for path in (folder / file, folder / "kernel" / file)]
    beside = next((path for path in places if path.is_file()), conf_dir() / "kernel" / file)
    try:
        return load(node, beside), []
    except KernelError as error:
        spec = _as_it_is_now(published.first, name, folders)
        if spec is None:
            raise KernelError(
                f"{name} cannot be reproduced: {error.message}",
                hint="name the folder of the kernel with --config-dir, or check out the commit that made these results",
            ) from None
        return spec, [f"{name}: its description has changed with its source; it is taken as it is now"]


def _in_order(node: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """The recorded description with its sizes and parameters in the order that the row has them in.

    A record's keys are sorted, and the order of the sizes is a part of what a kernel is.
    """
    ordered = dict(node)
    candidate = row.role == Role.CANDIDATE.value
    for key, order in (("dims", row.dims), ("params", row.params if candidate else {})):
        values = node.get(key)
        if isinstance(values, Mapping):
            names = [name for name in order if name in values]
            ordered[key] = {name: values[name] for name in dict.fromkeys((*names, *values))}
    return ordered


def _as_it_is_now(row: Row, name: str, folders: Sequence[Path]) -> KernelSpec | None:
    """The kernel of that name as it is described now, if it has all of the row's parameters."""
    composer = Composer(folders)
    if name not in composer.kernels:
        return None
    layout = layout_of(row.shape)
    named = [f"++kernel.layout={layout}"] if layout else []
    with composer, contextlib.suppress(ConfigError):
        spec = composer.compose([f"kernel={name}", f"++kernel.dtype={row.dtype}", *named])[0]
        if row.role == Role.BASELINE.value or set(row.params) <= set(spec.default_point.params):
            return spec
    return None


def _point(spec: KernelSpec, row: Row) -> Point:
    """The row's parameters in the kernel's order. Raises KernelError where the kernel has no such parameter."""
    try:
        return spec.point_of(row.params)
    except ValueError as error:
        raise KernelError(f"the row of {row.kernel} cannot be reproduced: {error}") from None


def narrowed(spec: KernelSpec, points: Sequence[Point]) -> KernelSpec:
    """`spec` with the levels of `points` alone."""
    found = []
    for param in spec.params:
        levels = tuple(dict.fromkeys(point.params[param.name] for point in points))
        found.append(ParamSpec(param.name, levels, param.default if param.default in levels else levels[0]))
    return replace(spec, params=tuple(found))


def _config(published: Published, options: Options) -> tuple[Config, list[str]]:
    """The run's configuration without what is not done again, and the settings of `measure` it says nothing of."""
    recorded = published.run["config"]
    node = {name: value for name, value in recorded.items() if name not in _NOT_AGAIN}
    row = published.first
    backend = dict(node.get("backend") or {})
    backend |= {"name": _backend(row, options), "device": options.device, "devices": None}
    backend["allow_shared"] = options.allow_shared
    if options.table is not None:
        backend["path"] = str(options.table)
    sizes = {name.lower(): size for name, size in row.dims.items()}
    node |= {"backend": backend, "shape": {"name": None, **sizes}, "resume": False, "baseline": []}
    try:
        config = validate(node)
    except ConfigError as error:
        raise ConfigError(
            f"{published.source}: the record of its run is not one of this version: {error.message}",
            hint="reproduce it with the version that made it",
        ) from None
    told = recorded.get("measure") or {}
    silent = [f.name for f in dataclasses.fields(MeasureConfig) if f.name not in told]
    return config, [name for name in silent if name in config.measure.conditions()]


def _backend(row: Row, options: Options) -> str:
    """The backend whose times compare with the row's. Raises ConfigError for one whose times do not."""
    own = _BACKENDS[TimeSource(row.source)]
    chosen = options.backend or own
    if "emulator" in (chosen, own) and chosen != own:
        raise ConfigError(
            f"--backend {chosen}: these times are {row.source}, and {chosen} gives {_SOURCES[chosen].value} ones,"
            " which do not compare",
            hint="leave out --backend",
        )
    return chosen
