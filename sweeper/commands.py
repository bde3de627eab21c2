"""What the command lines beside the main one share: how they refuse arguments, and how they end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from sweeper.errors import INTERRUPTED, ConfigError, SweeperError

__all__ = ["Parser", "ended", "warn"]


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are errors of ours, whose help keeps its line breaks, and that guesses no option."""

    def __init__(self, prog: str, description: str = "", epilog: str = "") -> None:
        super().__init__(
            prog=f"python -m {prog}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(message, hint="see --help")


def warn(text: str) -> None:
    """A line for standard error."""
    print(text, file=sys.stderr)  # noqa: T201


def ended(run: Callable[[], int]) -> int:
    """The exit code of `run`; an error of ours or an interrupt is told in a line.

    A reader who has seen enough (`… | head`) ends the command as it would any other.
    """
    try:
        code = run()
        sys.stdout.flush()
        return code
    except SweeperError as error:
        warn(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        warn("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered would raise again when the interpreter flushes it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
