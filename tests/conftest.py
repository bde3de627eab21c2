"""What all tests share.

Generated examples are the same in every run, so that a failure can be repeated. Ctrl-C works for the programs
that tests start, also where the tests themselves were started in the background, which ignores it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what Python compiles in a folder of the run, where it may not be written beside the sources.

    Hundreds of commands and workers would each compile the package anew, a fifth of their time. Not worth its own
    cost for a few tests in one process.
    """
    if config.getoption("numprocesses", None) and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="sweeper-tests-compiled-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
