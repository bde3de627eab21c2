"""For tests of one's own: `assert_clean("mine.yaml")` fails with every defect of a kernel, and where it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.check.compose import Composer
from sweeper.check.plan import make_plan
from sweeper.check.report import Report
from sweeper.check.run import MODES, Settings, run_plan
from sweeper.device import target as known_target
from sweeper.errors import ConfigError
from sweeper.model import KernelSpec
from sweeper.problem.arguments import resolve_dims

__all__ = ["Shape", "assert_clean", "check_kernel"]

# No file has this name, so that a description may have that of a shipped one.
_CHOICE = "the-one-to-check"

Shape = Mapping[str, int] | Sequence[int]
"""Sizes by the names that the description gives them, or in its order."""


def check_kernel(
    path: str | Path,
    *,
    shapes: Iterable[Shape] | None = None,
    mode: str = "check",
    overrides: Sequence[str] = (),
    configurations: int = 24,
    shapes_each: int = 16,
    target: str = "h200",
    settings: Settings | None = None,
) -> Report:
    """Check the kernel that the YAML file at `path` describes, without a GPU.

    `shapes` replace the edge shapes; `overrides` are the command line's, such as `kernel.dtype=float64`.
    At most `configurations` of them are run, each at `shapes_each` edge shapes, within the limits of
    `target`. Raises ConfigError for what is wrong with the description, SetupError where there is no C++
    compiler, NoValidConfiguration where nothing can run.
    """
    if mode not in MODES:
        raise ConfigError(f"mode = {mode!r} is none of {', '.join(MODES)}")
    file = Path(path).absolute()
    if not file.is_file():
        raise ConfigError(f"{file}: no such file")
    spec = _load(file, overrides)
    limits = known_target(target)
    given = [_dims(spec, shape) for shape in shapes or ()]
    plan = make_plan(spec, limits, configurations=configurations, shapes=shapes_each, given=given)
    return run_plan(plan, limits, replace(settings or Settings(), mode=mode))


def assert_clean(
    path: str | Path,
    *,
    shapes: Iterable[Shape] | None = None,
    mode: str = "check",
    overrides: Sequence[str] = (),
    configurations: int = 24,
    shapes_each: int = 16,
) -> Report:
    """`check_kernel`, raising AssertionError with the whole report where it is not clean."""
    report = check_kernel(
        path,
        shapes=shapes,
        mode=mode,
        overrides=overrides,
        configurations=configurations,
        shapes_each=shapes_each,
    )
    if not report.clean:
        raise AssertionError(str(report))
    return report


def _load(file: Path, overrides: Sequence[str]) -> KernelSpec:
    composer = Composer()
    composer.add_kernel(_CHOICE, file)
    with composer:
        return composer.compose([f"kernel={_CHOICE}", *(f"++{o}" for o in overrides)])[0]


def _dims(spec: KernelSpec, shape: Shape) -> dict[str, int]:
    if not isinstance(shape, Mapping):
        if len(shape) != len(spec.dims):
            raise ConfigError(
                f"shape {tuple(shape)} has {len(shape)} sizes, kernel {spec.name} has {', '.join(spec.dims)}"
            )
        shape = dict(zip(spec.dims, shape, strict=True))
    return resolve_dims(spec.dims, shape, kernel=spec.name, optional=spec.optional_dims)
