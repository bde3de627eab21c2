"""One row of a recorded table, whichever file it came from."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.expressions import Value
from sweeper.model import Energy, Role, Stage, Status

__all__ = ["Recorded"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded of one configuration, or of a library's kernel beside it.

    `build_s` and `measure_s` are the seconds that compiling, and verifying and timing took; None where the table
    does not tell. `registers` a thread are the compiler's. `layout` is empty where no operand is transposed.
    """

    role: Role
    kernel: str
    dtype: str
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    status: Status
    stage: Stage
    reason: str
    samples_ms: tuple[float, ...]
    time_source: str
    method: str
    cache: str
    device: str
    device_uuid: str
    driver: str
    energy: Energy | None = None
    build_s: float | None = None
    measure_s: float | None = None
    registers: int | None = None
    layout: str = ""

    @property
    def time_ms(self) -> float | None:
        """The median of the samples."""
        return statistics.median(self.samples_ms) if self.samples_ms else None

    @property
    def usable_ms(self) -> float | None:
        """The median of the samples of a configuration that may rank."""
        return self.time_ms if self.status is Status.OK else None
