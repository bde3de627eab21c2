"""`python -m sweeper.profile`: the command line, what it prints, and the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.cli.terminal import console
from sweeper.commands import Parser, ended, warn
from sweeper.errors import NoValidConfiguration
from sweeper.profile.choose import choose, jobs_of, parse_params, store_path
from sweeper.profile.files import CSV_NAME, JSON_NAME, write_profiles
from sweeper.profile.job import Job
from sweeper.profile.profile import Profile
from sweeper.profile.report import show
from sweeper.profile.run import Failed, Profiler, Settings
from sweeper.store.stored import read_store

__all__ = ["main"]

_LIBRARIES = ("cublas", "cublaslt")
_EPILOG = """\
Needs a GPU, PyCUDA and ncu (NVIDIA Nsight Compute). Clocks are left as they are. Adds profile.csv and
profile.json to RESULTS; docs/profile.md says what each column means.

exit codes
  0 all profiled, 1 nothing to profile or a configuration failed, 2 usage, 3 no ncu, GPU or permission,
  4 RESULTS cannot be read or written, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    return ended(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sweeper.profile",
        description="Hardware counters of the best configurations of a results folder: what explains their times.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="the folder that a run named in its last line")
    add("--top", type=_positive, default=1, metavar="N", help="of every kernel, class and shape (default 1)")
    add("--kernel", action="append", default=[], metavar="NAME", help="only this kernel; may be repeated")
    add(
        "--shape", action="append", default=[], metavar="NAME", help="only this shape, by name or 512x512x512"
    )
    add("--params", metavar="A=1,B=2", help="only configurations with these parameters")
    add("--library", choices=_LIBRARIES, help="profile this library's kernel for each problem, too")
    add(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where your own kernels are",
    )
    add("--ncu", type=Path, metavar="PATH", help="the ncu to use (default: on PATH, then NVIDIA's places)")
    add("--device", type=int, default=0, metavar="I", help="GPU, in PCI order (default 0)")
    add("--allow-shared", action="store_true", help="use a GPU that other processes are on")
    add("--compiler", choices=("auto", "nvcc", "nvrtc"), default="auto", help="as build.compiler of a sweep")
    add(
        "--timeout",
        type=_positive,
        default=300,
        metavar="S",
        help="seconds for one configuration (default 300)",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    path = store_path(options.results)
    stored = read_store(path)
    chosen = choose(
        stored.trials,
        top=options.top,
        params=parse_params(options.params) if options.params is not None else None,
        kernels=options.kernel,
        shapes=options.shape,
    )
    jobs = with_library(jobs_of(chosen, stored.runs, options.config_dir), options.library or "")
    for note in dict.fromkeys(f"{job.title}: {job.note}" for job in jobs if job.note):
        warn(f"warning: {note}")
    settings = Settings(
        ncu=options.ncu,
        device=options.device,
        allow_shared=options.allow_shared,
        compiler=options.compiler,
        timeout_s=options.timeout,
    )
    return _profile(jobs, settings, path.parent)


def with_library(jobs: Sequence[Job], library: str) -> list[Job]:
    """`jobs`, each problem's followed by the library's job for it."""
    if not library:
        return list(jobs)
    problems: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        problems.setdefault(job.problem[1:], []).append(job)
    return [
        job
        for group in problems.values()
        for job in (*group, replace(group[0], library=library, number=0, time_ms=None, note=""))
    ]


def _profile(jobs: Sequence[Job], settings: Settings, folder: Path) -> int:
    out = console()
    done: list[Profile] = []
    failed = False
    with Profiler(settings) as profiler:
        try:
            for result in profiler.run(jobs, say=warn):
                if isinstance(result, Failed):
                    failed = True
                    warn(f"error: {result.job.title}: {result.reason}")
                else:
                    done.append(result)
        finally:
            # What was counted before an interrupt or a fault is kept.
            if done:
                write_profiles(folder, done, ncu=profiler.version)
    if not done:
        raise NoValidConfiguration("nothing could be profiled")
    show(done, out)
    print(f"results: {folder / CSV_NAME} and {JSON_NAME}")  # noqa: T201
    return NoValidConfiguration.exit_code if failed else 0
