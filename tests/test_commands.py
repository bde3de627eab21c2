"""How the command lines beside the main one end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sweeper.commands import Parser, ended
from sweeper.errors import ConfigError, StorageError


def test_an_error_of_ours_is_a_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise StorageError("there: no such file", hint="name another")

    assert ended(fails) == StorageError.exit_code
    assert capsys.readouterr().err == "error: there: no such file\n  name another\n"


def test_an_interrupt_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert ended(interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_refused_arguments_are_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="unrecognized arguments: --most"):
        Parser(prog="it").parse_args(["--most"])


@pytest.mark.parametrize("lines", [1, 100_000], ids=["little", "more than a pipe holds"])
def test_a_reader_who_has_seen_enough_ends_the_command_without_a_word(lines: int) -> None:
    program = (
        f"from sweeper.commands import ended; raise SystemExit(ended(lambda: print('x\\n' * {lines}) or 0))"
    )
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, stdout=writes, stderr=subprocess.PIPE, text=True
    )
    os.close(writes)
    assert (done.stderr, done.returncode) == ("", 141)
