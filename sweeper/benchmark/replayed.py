"""One search of one recorded space, from its first configuration to its budget."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.benchmark.recorded_space import RecordedSpace
from sweeper.search import make

__all__ = ["Replayed", "replay_rows", "replay_search"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Replayed:
    """What one search found: after each evaluation the percent of the best speed, and the seconds spent until then.

    Seconds are those that the recording took to compile, verify and time, one configuration after the other; NaN
    where the table does not tell. Failed configurations cost theirs, and find nothing (0 %).
    """

    percent: Floats
    seconds: Floats


def replay_rows(recorded: RecordedSpace, rows: Sequence[int]) -> Replayed:
    """What asking `rows` in that order finds."""
    times = recorded.times_ms[np.asarray(rows, dtype=np.int64)]
    best = np.minimum.accumulate(np.where(np.isnan(times), math.inf, times))
    seconds = np.cumsum(recorded.seconds[np.asarray(rows, dtype=np.int64)])
    return Replayed(100 * recorded.best_ms / best, seconds)


def replay_search(
    recorded: RecordedSpace,
    strategy: str,
    seed: int,
    evaluations: int,
    *,
    lookahead: int = 1,
    options: Mapping[str, Any] | None = None,
    estimates: Sequence[Floats] = (),
) -> Replayed:
    """The search called `strategy` on `recorded`. Raises ConfigError and SetupError as `search.make` does."""
    search = make(strategy, recorded.space, seed, options, estimates=estimates)
    limit = min(evaluations, len(recorded.space))
    asked: list[int] = []
    waiting: deque[int] = deque()
    while True:
        rows = search.ask(min(lookahead - len(waiting), limit - len(asked)))
        asked += rows
        waiting.extend(rows)
        if not waiting:
            return replay_rows(recorded, asked)
        row = waiting.popleft()
        time = float(recorded.times_ms[row])
        search.tell(row, None if math.isnan(time) else time)
