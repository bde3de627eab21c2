"""`python -m sweeper.check`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.check.compose import Composer, expand, kernel_dims
from sweeper.check.junit import write_junit
from sweeper.check.options import ALL, HELP, Options, own_keys
from sweeper.check.plan import GpuOnly, make_plan
from sweeper.check.progress import LiveCases
from sweeper.check.report import Report
from sweeper.check.run import Settings, run_plan
from sweeper.cli.command_line import Arguments, normalise
from sweeper.cli.terminal import console
from sweeper.commands import ended, warn
from sweeper.device import target
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.paths import conf_dir

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(given):
        print(HELP, end="")  # noqa: T201
        return 0
    return ended(lambda: _checked(given))


def _checked(given: Sequence[str]) -> int:
    options, rest = own_keys(given)
    return _run(options, _normalised(rest))


def _normalised(rest: Sequence[str]) -> Arguments:
    groups = [p.name for p in conf_dir().iterdir() if p.is_dir()]
    return normalise(rest, groups=groups, default_root=Path.cwd())


def _run(options: Options, arguments: Arguments) -> int:
    overrides = _overrides(arguments)
    out = console()
    reports: list[Report] = []
    code = 0
    with Composer(arguments.config_dirs, arguments.shapes) as composer:
        for path in composer.hidden:
            warn(f"warning: {path} is hidden by the shipped kernel={path.stem}; give it another name")
        for job in _jobs(_with_kernels(overrides, options.kernels, composer)):
            try:
                reports.append(_check(composer, job, options, out))
            except GpuOnly as error:
                warn(f"left out: {error}")
            except (ConfigError, NoValidConfiguration) as error:
                # One kernel that cannot be checked is no reason to leave out the others.
                warn(f"error: {error}")
                code = max(code, error.exit_code)
    if options.junit is not None:
        write_junit(reports, options.junit)
    if len(reports) > 1:
        for report in reports:
            out.print(report.summary(), markup=False)
    return max(code, _verdict(reports))


def _with_kernels(overrides: Sequence[str], kernels: str, composer: Composer) -> list[str]:
    """`overrides` with what `kernels=…` asks for in place of `kernel=…`."""
    if not kernels:
        return list(overrides)
    names = ",".join(composer.own_kernels or composer.kernels) if kernels == ALL else kernels
    return [f"kernel={names}", *(o for o in overrides if not o.startswith("kernel="))]


def _verdict(reports: Sequence[Report]) -> int:
    found = any(report.defects for report in reports)
    nothing = not any(report.checked for report in reports)
    return NoValidConfiguration.exit_code if found or nothing else 0


def _overrides(arguments: Arguments) -> list[str]:
    """What is left for Hydra to compose: no flags, and nothing about folders that are never made."""
    unwanted = ("hydra.run.dir=", "hydra.sweep.dir=", "++results_dir=")
    rest = iter(arguments.hydra)
    kept = []
    for argument in rest:
        if argument in ("--config-dir", "-cd"):
            next(rest)
        elif not argument.startswith(("-", *unwanted)):
            kept.append(argument)
    return kept


@dataclass(frozen=True, slots=True)
class _Job:
    """A kernel's overrides, and the shapes asked for: one composition each."""

    overrides: tuple[str, ...]
    shapes: tuple[str, ...]


def _jobs(overrides: Sequence[str]) -> list[_Job]:
    shapes = tuple(
        shape for job in expand([o for o in overrides if o.startswith("+shape=")]) for shape in job
    )
    rest = expand([o for o in overrides if not o.startswith("+shape=")])
    return [_Job(tuple(job), shapes) for job in rest]


def _check(composer: Composer, job: _Job, options: Options, out: Console) -> Report:
    composed = [composer.compose([*job.overrides, shape]) for shape in job.shapes]
    spec, config = composed[0] if composed else composer.compose(job.overrides)
    given = [kernel_dims(spec, c) for _, c in composed or [(spec, config)] if c.shape.sizes]
    limits = target(config.backend.target)
    plan = make_plan(spec, limits, configurations=options.configurations, shapes=options.shapes, given=given)
    settings = Settings(
        mode=options.mode,
        workers=options.workers,
        seed=config.seed,
        launch_deadline_s=options.deadline_s,
        build_deadline_s=config.build.deadline_s,
        cache=config.build.cache,
        allow_nondeterministic=config.measure.allow_nondeterministic,
    )
    with LiveCases(out, plan) as live:
        report = run_plan(plan, limits, settings, live.finished)
    out.print(str(report), markup=False)
    return report
