"""What a recorded table says of one configuration at one shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.expressions import Value
from sweeper.model import canonical_json

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A configuration that was measured right at `dims` on `device`, with a cold L2.

    `confirmed`: timed in turns with its rivals, after the search that chose it. `ratio` is the better library's
    time ÷ `time_ms`, from the same run (None: no library ran). `table` is where it stands, `verdict` what that
    table says of it against the library.
    """

    kernel: str
    dtype: str
    layout: str
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    time_ms: float
    confirmed: bool
    device: str
    time_low_ms: float | None = None
    time_high_ms: float | None = None
    ratio: float | None = None
    library: str = ""
    table: str = ""
    verdict: str = ""

    @property
    def configuration(self) -> str:
        """Equal for the same configuration of the same kernel, whatever the shape."""
        return canonical_json([self.kernel, dict(self.params)])
