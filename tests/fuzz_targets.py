"""Readers of what a user or another program wrote, each to be fed anything at all.

A target returns, or ends with one of our own errors (SweeperError); whatever else it raises is a fault. They are
fed by Hypothesis in `tests/faults/test_fuzz.py` and, for as long as one likes, by `python tools/fuzz.py`.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from contract.store_contract import trial

from sweeper.errors import SweeperError
from sweeper.expressions import parse
from sweeper.kernel import description
from sweeper.recording.read import read_recorded
from sweeper.store import Store

__all__ = [
    "TARGETS",
    "described",
    "expression",
    "kernel_yaml",
    "saxpy_node",
    "store_bytes",
    "stored",
    "table",
]

SAXPY = Path(__file__).parents[1] / "docs" / "examples" / "saxpy" / "saxpy.yaml"
_SCOPE = {"M": 512, "N": 0, "tile": 16, "T": "float"}
_COLUMNS = {"M": np.array([1, 512]), "N": np.array([0, 3]), "tile": np.array([16, 2**40])}


def expression(data: bytes) -> None:
    """A constraint, evaluated on values and on columns."""
    with contextlib.suppress(SweeperError):
        found = parse(data.decode(errors="replace"), where="fuzz")
        with contextlib.suppress(SweeperError):
            found.evaluate(_SCOPE)
        found.evaluate_columns(_COLUMNS)


def kernel_yaml(data: bytes) -> None:
    """The text of a kernel's description, beside the example's source."""
    try:
        node = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, UnicodeError, RecursionError, OverflowError):
        # Hydra reads the file, and tells of what is no YAML.
        return
    if isinstance(node, Mapping):
        described({str(key): value for key, value in node.items()})


def described(node: Mapping[str, Any]) -> None:
    """A kernel's description as a node."""
    with contextlib.suppress(SweeperError):
        description.load(node, SAXPY)


def table(data: bytes) -> None:
    """A recorded table, whatever its format."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for suffix in (".csv", ".json", ".csv.gz"):
            path = Path(folder) / f"table{suffix}"
            path.write_bytes(data)
            with contextlib.suppress(SweeperError):
                read_recorded(path)


def stored(data: bytes) -> None:
    """The file of a store."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        path.write_bytes(data)
        with contextlib.suppress(SweeperError), Store(path, busy_s=0.2) as store:
            store.trials()
            store.runs()
            store.confirmed()
            store.begun_in_vain("c0ffee")


@cache
def store_bytes() -> bytes:
    """A whole store of a few trials, to begin from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        with Store(path) as store:
            for number in range(1, 6):
                store.add(trial(number))
        return path.read_bytes()


def saxpy_text() -> bytes:
    """The text of a whole description."""
    return SAXPY.read_bytes()


@cache
def saxpy_node() -> dict[str, Any]:
    """A whole description, to begin from."""
    node: dict[str, Any] = yaml.safe_load(SAXPY.read_text(encoding="utf-8"))
    return node


TARGETS: dict[str, Callable[[bytes], None]] = {
    "expression": expression,
    "kernel_yaml": kernel_yaml,
    "table": table,
    "stored": stored,
}
