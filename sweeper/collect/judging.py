"""Of two rows of one key, which one stays.

A key is a study and context, a configuration and a role. The order is a total one and takes nothing but the rows
themselves: whatever is collected first, the same row stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sweeper.model import Status, digest
from sweeper.record import FIELDS

__all__ = ["content", "key_of", "order"]

Row = Mapping[str, Any]

# Wrong once is wrong: a race or a device that errs, which no second try excuses. What was right and timed can be
# built and launched, whatever else says otherwise; what a compiler or driver refuses it will refuse again; and the
# rest may have been the machine's doing.
_STAYS_BEFORE = {
    Status.WRONG_RESULT.value: 0,
    Status.OK.value: 1,
    Status.INFEASIBLE.value: 2,
    Status.BUILD_ERROR.value: 2,
    Status.LAUNCH_ERROR.value: 2,
}
_LAST = 3
_CONTENT = tuple(name for name in FIELDS if name != "number")


def key_of(row: Row) -> tuple[str, str, str, str]:
    """Equal for rows of which one is to stay."""
    return row["study"], row["context"], row["role"], row["params_key"]


def content(row: Row) -> tuple[Any, ...]:
    """All of a row but the number that its store gave it."""
    return tuple(row[name] for name in _CONTENT)


def order(row: Row) -> tuple[int, str, int, str]:
    """The row with the least of these stays.

    By status; then all from one GPU, so that a study is not patched together from several; then by the number of
    samples; and of equals any, but always the same.
    """
    rank = _STAYS_BEFORE.get(row["status"], _LAST)
    return rank, row["device_uuid"] or "", -_samples(row), digest([str(value) for value in content(row)])


def _samples(row: Row) -> int:
    return len(json.loads(row["timing"])["samples_ms"]) if row["timing"] else 0
