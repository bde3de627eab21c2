"""From a results folder to the configurations to profile: the best of every kernel, precision class and shape."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.check.compose import Composer
from sweeper.errors import ConfigError, KernelError, NoValidConfiguration, StorageError, did_you_mean
from sweeper.expressions import Value
from sweeper.kernel import load
from sweeper.kernel.layout import chosen_layout, layout_of, shape_suffix
from sweeper.model import KernelSpec, Role, Status, Trial
from sweeper.paths import conf_dir
from sweeper.profile.job import Job
from sweeper.table.row import time_ms

__all__ = ["Choice", "choose", "jobs_of", "parse_params", "store_path"]

Choice = Mapping[str, Value]
"""Parameters that a configuration must have; those not named may be any."""


def store_path(results: Path) -> Path:
    """The store of a results folder, or `results` itself where it is a file. Raises StorageError."""
    path = results / "study.db" if results.is_dir() else results
    if not path.is_file():
        raise StorageError(
            f"{results} is no results folder: there is no {path.name if results.is_dir() else 'such path'}",
            hint="give the folder that a run named in its last line, results: FOLDER",
        )
    return path


def parse_params(text: str) -> dict[str, Value]:
    """`tile=16,order=rows` as values: whole numbers, numbers, true and false, else names. Raises ConfigError."""
    params: dict[str, Value] = {}
    for item in text.replace(",", " ").split():
        name, equals, value = item.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--params: {item!r} is not NAME=VALUE", hint="write --params tile=16,unroll=2")
        params[name.removeprefix("kernel.params.")] = _value(value)
    if not params:
        raise ConfigError("--params names no parameter", hint="write --params tile=16,unroll=2")
    return params


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def choose(
    trials: Sequence[Trial],
    *,
    top: int = 1,
    params: Choice | None = None,
    kernels: Sequence[str] = (),
    shapes: Sequence[str] = (),
) -> list[Trial]:
    """The `top` fastest valid configurations of every kernel, precision class and shape, in stored order of these.

    Narrowed to `kernels`, `shapes` (by name, or sizes) and configurations with `params`. A configuration
    that was measured more than once counts once, with its latest row. Raises ConfigError for a name that
    the results do not have, NoValidConfiguration where nothing is left.
    """
    valid = [t for t in trials if t.role is Role.CANDIDATE and t.status is Status.OK and _ranks(t)]
    if not valid:
        raise NoValidConfiguration("no valid configuration to profile in these results")
    _require_known("--kernel", kernels, [t.kernel for t in valid])
    _require_known("--shape", shapes, [name for t in valid for name in (t.shape, _sizes(t))])
    wanted = [
        t
        for t in valid
        if (not kernels or t.kernel in kernels) and (not shapes or t.shape in shapes or _sizes(t) in shapes)
    ]
    if params:
        _require_known("--params", list(params), [name for t in wanted for name in t.params])
        wanted = [t for t in wanted if all(t.params.get(name) == value for name, value in params.items())]
    if not wanted:
        asked = " ".join(f"{n}={v}" for n, v in (params or {}).items())
        raise NoValidConfiguration(
            f"no valid configuration {f'with {asked} ' if asked else ''}of those kernels and shapes"
        )
    return [trial for group in _grouped(wanted) for trial in sorted(group, key=_time)[:top]]


def jobs_of(
    chosen: Sequence[Trial], runs: Sequence[Mapping[str, Any]], folders: Sequence[Path] = ()
) -> list[Job]:
    """The chosen rows with their kernels, as the runs that measured them described them.

    A kernel's source is looked for beside its description in `folders`, then among the shipped ones.
    Raises ConfigError for a row whose run left no description and that no folder describes, and
    KernelError as `load` does.
    """
    specs: dict[str, KernelSpec] = {}
    jobs = []
    for trial in chosen:
        key = f"{trial.study} {trial.kernel} {trial.dtype}"
        if key not in specs:
            specs[key] = _spec(trial, runs, folders)
        spec = specs[key]
        changed = bool(trial.kernel_digest) and spec.digest != trial.kernel_digest
        jobs.append(
            Job(
                spec=spec,
                point=trial.point,
                dims=trial.dims,
                seed=trial.seed,
                shape=trial.shape,
                study=trial.study,
                number=trial.number,
                time_ms=time_ms(trial) if trial.timing is not None else None,
                cold=trial.timing is None or trial.timing.cache != "warm",
                note="the kernel's source has changed since this row was measured" if changed else "",
            )
        )
    return jobs


def _spec(trial: Trial, runs: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> KernelSpec:
    """The kernel of `trial`, from the latest run that described it: of its own study first."""
    described = [run for run in runs if _describes(run, trial)]
    described.sort(key=lambda run: run.get("study") == trial.study)
    if not described:
        raise ConfigError(
            f"no run in these results describes kernel {trial.kernel} ({trial.dtype})",
            hint="run the sweep again into this folder",
        )
    node = described[-1]["config"]["kernel"]
    file = f"{trial.kernel}.yaml"
    places = [path for folder in folders for path in (folder / file, folder / "kernel" / file)]
    beside = next((path for path in places if path.is_file()), conf_dir() / "kernel" / file)
    try:
        return load(node, beside)
    except KernelError as error:
        return _as_it_is_now(trial, folders, error)


def _as_it_is_now(trial: Trial, folders: Sequence[Path], error: KernelError) -> KernelSpec:
    """The kernel of that name as it is described now, for a source that the stored description no longer fits.

    Raises `error` where there is none, or where it has other parameters.
    """
    composer = Composer(folders)
    if trial.kernel in composer.kernels:
        with composer, contextlib.suppress(ConfigError):
            layout = layout_of(trial.shape)
            named = [f"++kernel.layout={layout}"] if layout else []
            spec = composer.compose([f"kernel={trial.kernel}", f"++kernel.dtype={trial.dtype}", *named])[0]
            if set(spec.default_point.params) == set(trial.params):
                return spec
    raise KernelError(
        error.message, hint="the kernel has changed since these results were measured: run the sweep again"
    )


def _describes(run: Mapping[str, Any], trial: Trial) -> bool:
    config = run.get("config")
    node = config.get("kernel") if isinstance(config, Mapping) else None
    if not isinstance(node, Mapping) or node.get("name") != trial.kernel:
        return False
    layout = shape_suffix(chosen_layout(node))
    return str(node.get("dtype", "float32")) == trial.dtype and layout == shape_suffix(layout_of(trial.shape))


def _ranks(trial: Trial) -> bool:
    value = time_ms(trial)
    return value is not None and math.isfinite(value) and value > 0


def _time(trial: Trial) -> tuple[float, int]:
    return time_ms(trial) or math.inf, trial.number


def _sizes(trial: Trial) -> str:
    return "x".join(str(size) for size in trial.dims.values())


def _grouped(trials: Sequence[Trial]) -> list[list[Trial]]:
    """By kernel, precision class, sizes and layout; of one configuration's rows the latest."""
    groups: dict[tuple[str, str, str, str], dict[str, Trial]] = {}
    for trial in trials:
        key = (trial.kernel, trial.dtype, _sizes(trial), layout_of(trial.shape))
        group = groups.setdefault(key, {})
        group[trial.point.key] = trial
    return [list(group.values()) for group in groups.values()]


def _require_known(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    has = list(dict.fromkeys(known))
    for name in names:
        if name not in has:
            raise ConfigError(
                f"{option}: these results have no {name!r}{did_you_mean(name, has)}",
                hint=f"they have {', '.join(has[:12])}",
            )
