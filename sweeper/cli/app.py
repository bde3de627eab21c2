"""`python -m sweeper`: normalise the command line, compose, validate, run, and end with the exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper import __version__
from sweeper.cli.command_line import Arguments, config_dirs, gpus_named, launches, normalise
from sweeper.errors import INTERRUPTED, SweeperError
from sweeper.paths import START_VARIABLE, conf_dir
from sweeper.worker.spare import drop_spare, keep_spare, may_need_gpu

if TYPE_CHECKING:
    from sweeper.cli.jobs import Jobs

__all__ = ["main"]

# The packages of what Hydra's launchers hand jobs to.
_LAUNCHERS = ("joblib", "ray", "submitit")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if "--version" in given:
        print(f"sweeper {__version__}")  # noqa: T201
        return 0
    try:
        told = _told(given)
        if told is not None:
            sys.stdout.write(told)
            return 0
        arguments = normalise(given, groups=_groups(), default_root=Path.cwd() / "results" / "runs")
        with _workers_on_their_way(arguments):
            return _planned(arguments, given) if arguments.plan else _run(arguments, given)
    except SweeperError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED


def _told(given: Sequence[str]) -> str | None:
    """What a command line prints that asks for help or for the shell's completion: neither needs Hydra."""
    if "-h" in given or "--help" in given:
        from sweeper.cli.help_text import help_text

        return help_text(given, config_dirs(given))
    if any(word.startswith(("-sc", "--shell-completion")) for word in given):
        from sweeper.cli.completion import completion, wanted

        return completion(wanted(given) or "")
    return None


def _groups() -> list[str]:
    return [p.name for p in conf_dir().iterdir() if p.is_dir()]


@contextlib.contextmanager
def _workers_on_their_way(arguments: Arguments) -> Iterator[None]:
    """Let the processes that will own the GPUs load while this one loads and composes the configuration."""
    try:
        if not arguments.shows and may_need_gpu():
            for _ in range(gpus_named(arguments.hydra)):
                keep_spare("cuda")
        yield
    finally:
        drop_spare()


def _planned(arguments: Arguments, given: Sequence[str]) -> int:
    from sweeper.cli.planning import Plans, aside

    with aside(arguments) as quiet:
        return _run(quiet, given, Plans(quiet, given))


def _run(arguments: Arguments, given: Sequence[str], jobs: Jobs | None = None) -> int:
    import hydra
    from hydra.errors import HydraException

    from sweeper.cli.apart import run_job, set_runner
    from sweeper.cli.jobs import Jobs

    jobs = Jobs(arguments, given) if jobs is None else jobs
    main = hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
    before = sys.argv, signal.signal(signal.SIGTERM, _interrupt)
    sys.argv = ["sweeper", *arguments.hydra]
    os.environ[START_VARIABLE] = str(Path.cwd())
    set_runner(jobs.run)
    try:
        with jobs.registered(), _whole_errors(arguments):
            main(run_job)()
    except SystemExit as stop:
        jobs.stopped(stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1)
    except HydraException as error:
        # Hydra prints and ends for itself, except under a debugger or a coverage tracer.
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        jobs.stopped(1)
    except SweeperError as error:
        if not launches(arguments.hydra):
            raise
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        jobs.ended(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; what was measured is kept", file=sys.stderr)  # noqa: T201
        jobs.ended(INTERRUPTED)
    except Exception as error:
        if not launches(arguments.hydra):
            raise
        _launcher_failed(error)
        jobs.stopped(1)
    finally:
        set_runner(None)
        sys.argv = before[0]
        signal.signal(signal.SIGTERM, before[1])
        del os.environ[START_VARIABLE]
    return jobs.close()


@contextlib.contextmanager
def _whole_errors(arguments: Arguments) -> Iterator[None]:
    """Have Hydra raise what a launcher raises: by itself it prints a trace, which says nothing to the user."""
    name = "HYDRA_FULL_ERROR"
    if name in os.environ or not launches(arguments.hydra):
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _launcher_failed(error: Exception) -> None:
    """A launcher that gives up says so in a line; a fault of a job of ours is shown whole."""
    from concurrent.futures import BrokenExecutor

    if isinstance(error, BrokenExecutor) or type(error).__module__.partition(".")[0] in _LAUNCHERS:
        print(f"error: the launcher has given up: {str(error).splitlines()[0]}", file=sys.stderr)  # noqa: T201
    else:
        traceback.print_exception(error)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
