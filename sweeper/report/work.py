"""The operations and bytes of a problem: what the rows say, else what the kernel's description here says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sweeper.check.compose import Composer
from sweeper.errors import SweeperError
from sweeper.model import KernelSpec, Point, Role
from sweeper.problem import resolve

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["work_of"]


def work_of(tables: Sequence[pd.DataFrame]) -> tuple[float | None, float | None]:
    """Operations, and bytes of compulsory traffic, of the one problem that `tables` are of; None where unknown.

    A recorded space does not have them; a kernel of its name that is shipped tells them for the same sizes.
    """
    flops, moved = (_most(tables, name) for name in ("flops", "bytes"))
    if flops is not None or moved is not None:
        return flops, moved
    for table in tables:
        rows = table[(table["role"] == Role.CANDIDATE.value).to_numpy(dtype=bool)]
        found = _described(rows) if len(rows) else None
        if found is not None:
            return found
    return None, None


def _most(tables: Sequence[pd.DataFrame], name: str) -> float | None:
    values = np.concatenate([table[name].to_numpy(dtype=float, na_value=np.nan) for table in tables])
    values = values[np.isfinite(values)]
    return float(values.max()) if len(values) else None


def _described(rows: pd.DataFrame) -> tuple[float | None, float | None] | None:
    row = rows.iloc[0]
    try:
        spec = _kernel(str(row["kernel"]), str(row["dtype"]))
        if spec is None:
            return None
        point = Point.of(json.loads(row["params"]))
        problem = resolve(spec, json.loads(row["dims"]), point, seed=0)
    except (SweeperError, ValueError, TypeError, KeyError):
        return None
    return problem.flops, problem.bytes


@lru_cache(maxsize=64)
def _kernel(name: str, dtype: str) -> KernelSpec | None:
    composer = Composer(())
    if name not in composer.kernels:
        return None
    with composer:
        return composer.compose([f"kernel={name}", f"++kernel.dtype={dtype}"])[0]
