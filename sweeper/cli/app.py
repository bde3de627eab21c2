"""`python -m sweeper`: normalise the command line, compose, validate, run, and end with the exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper import __version__
from sweeper.cli.command_line import Arguments, gpus_named, normalise
from sweeper.errors import INTERRUPTED, SweeperError
from sweeper.paths import START_VARIABLE, conf_dir
from sweeper.worker.spare import drop_spare, keep_spare, may_need_gpu

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if "--version" in given:
        print(f"sweeper {__version__}")  # noqa: T201
        return 0
    try:
        arguments = normalise(given, groups=_groups(), default_root=Path.cwd() / "results" / "runs")
        with _workers_on_their_way(arguments):
            return _run(arguments, given)
    except SweeperError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED


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


def _run(arguments: Arguments, given: Sequence[str]) -> int:
    import hydra
    from hydra.errors import HydraException

    from sweeper.cli.jobs import Jobs

    jobs = Jobs(arguments, given)

    @hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
    def job(node: DictConfig) -> None:
        jobs.run(node)

    before = sys.argv, signal.signal(signal.SIGTERM, _interrupt)
    sys.argv = ["sweeper", *arguments.hydra]
    os.environ[START_VARIABLE] = str(Path.cwd())
    try:
        with jobs.registered():
            job()
    except SystemExit as stop:
        jobs.stopped(stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1)
    except HydraException as error:
        # Hydra prints and ends for itself, except under a debugger or a coverage tracer.
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        jobs.stopped(1)
    except KeyboardInterrupt:
        print("interrupted; what was measured is kept", file=sys.stderr)  # noqa: T201
        jobs.ended(INTERRUPTED)
    finally:
        sys.argv = before[0]
        signal.signal(signal.SIGTERM, before[1])
        del os.environ[START_VARIABLE]
    return jobs.close()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
