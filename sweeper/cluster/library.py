"""Ray itself, loaded where a cluster is asked for and nowhere else."""

from __future__ import annotations

import importlib
import logging
import os
import re
import secrets
from typing import Any

from sweeper.errors import SetupError

__all__ = ["load_ray", "own_token", "short"]

_LEAST = (2, 40)
_INSTALL = "pip install 'ray>=2.40'"


def load_ray() -> Any:
    """The module `ray`, from 2.40 on. Raises SetupError where it is not there."""
    # A search tells nobody that it runs, and tasks without a GPU see those of their node as any process does.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise SetupError(f"engine=ray needs Ray: {error}", hint=_INSTALL) from None
    version = tuple(int(n) for n in re.findall(r"\d+", str(ray.__version__))[:2])
    if version < _LEAST:
        raise SetupError(f"engine=ray needs Ray 2.40 or later, this is {ray.__version__}", hint=_INSTALL)
    return ray


def own_token() -> None:
    """See that a cluster of this command's own has a secret, in the environment and in no file."""
    # It asks for one by itself, and would say so.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    if not os.environ.get("RAY_AUTH_TOKEN") and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        # Ray reads it once a process, so that a second cluster of this process has to have the same.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def short(error: BaseException) -> str:
    """What is left of one of Ray's errors without its colours and stacks: the last line that says something."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0]}"[:400]
