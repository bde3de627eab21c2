"""Counters from Python: of a results folder, or of any configurations of any kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sweeper.check.compose import Composer
from sweeper.errors import ConfigError, did_you_mean
from sweeper.expressions import Value
from sweeper.model import KernelSpec, Point
from sweeper.problem.arguments import resolve_dims
from sweeper.profile.choose import choose, jobs_of, store_path
from sweeper.profile.job import Job
from sweeper.profile.profile import Profile
from sweeper.profile.run import Failed, Profiler, Settings
from sweeper.store.stored import read_store

__all__ = ["Configuration", "counters", "job_of"]

Kernel = KernelSpec | str | Path
"""A loaded kernel, the name of a shipped one, or the path of a description."""

Configuration = tuple[Kernel, Mapping[str, Value], Mapping[str, int]]
"""A kernel, parameters (those left out are the kernel's defaults) and sizes by upper-case name."""

# No file has this name, so that a description may have that of a shipped one.
_CHOICE = "the-one-to-profile"


def counters(
    what: Path | str | Iterable[Job | Configuration],
    *,
    top: int = 1,
    folders: Sequence[Path] = (),
    settings: Settings | None = None,
    profiler: Profiler | None = None,
) -> list[Profile | Failed]:
    """The counters of the best `top` of a results folder, or of each configuration given, in order.

        with Profiler() as profiler:
            for profile in counters([("tiled", {"tile": 16}, {"M": 512, "N": 512, "K": 512})], profiler=profiler):
                print(profile["load_sectors"], profile["bank_conflict_percent"])

    Kernels of a results folder are looked for in `folders`, then among the shipped ones. A `profiler` that is
    open already saves opening one. Raises SetupError where there is no ncu, GPU or
    permission, ConfigError for parameters or sizes that the kernel does not have, StorageError for a folder
    that holds no results. A configuration that fails is a `Failed` with its reason.
    """
    if isinstance(what, (str, Path)):
        jobs = _of_folder(Path(what), top, folders)
    else:
        jobs = [item if isinstance(item, Job) else job_of(*item) for item in what]
    if profiler is not None:
        return list(profiler.run(jobs))
    with Profiler(settings) as own:
        return list(own.run(jobs))


def job_of(
    kernel: Kernel,
    params: Mapping[str, Value] | None = None,
    dims: Mapping[str, int] | None = None,
    *,
    library: str = "",
    seed: int = 42,
) -> Job:
    """A job for `kernel`; parameters and sizes left out are the description's own. Raises ConfigError."""
    spec = kernel if isinstance(kernel, KernelSpec) else _described(kernel)
    known = spec.default_point.params
    for name in params or {}:
        if name not in known:
            raise ConfigError(
                f"kernel {spec.name} has no parameter {name!r}", hint=f"it has {', '.join(known)}"
            )
    point = Point.of({**known, **(params or {})})
    sizes = resolve_dims(spec.dims, dims or {}, kernel=spec.name, optional=spec.optional_dims)
    return Job(spec, point, sizes, seed=seed, library=library)


def _described(kernel: str | Path) -> KernelSpec:
    composer = Composer()
    name = str(kernel)
    if Path(kernel).suffix in (".yaml", ".yml"):
        file = Path(kernel).absolute()
        if not file.is_file():
            raise ConfigError(f"{file}: no such file")
        name = _CHOICE
        composer.add_kernel(name, file)
    elif name not in composer.kernels:
        raise ConfigError(f"no kernel {name!r}{did_you_mean(name, composer.kernels)}")
    with composer:
        return composer.compose([f"kernel={name}"])[0]


def _of_folder(results: Path, top: int, folders: Sequence[Path]) -> list[Job]:
    stored = read_store(store_path(results))
    return jobs_of(choose(stored.trials, top=top), stored.runs, folders)
