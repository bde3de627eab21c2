"""What an export is made of: a configuration for each kernel, class, layout, device and shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.dtypes import DTYPES
from sweeper.expressions import Value

__all__ = ["TIMED", "Chosen", "Export", "Filters", "Price", "Provenance", "configuration_key"]

TIMED = ("confirmed", "measured", "replayed", "predicted")
"""Where a time comes from, the surest first: timed in turns after the search, by the search, recorded in another
table, or the static model's."""

_DTYPE_ORDER = {name: place for place, name in enumerate(DTYPES)}


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a row came about; what is not known is empty. `measured` is a date in UTC, `table` a name, no path."""

    device: str = ""
    driver: str = ""
    compiler: str = ""
    kernel_digest: str = ""
    measured: str = ""
    commit: str = ""
    table: str = ""

    def told(self) -> str:
        """`NVIDIA H200, driver 580.159.04, nvcc 13.0.88, source 4df8…, 2026-11-30, commit 218950bf8016`."""
        parts = (
            self.device or "device not recorded",
            f"driver {self.driver}" if self.driver else "",
            self.compiler,
            f"source {self.kernel_digest}" if self.kernel_digest else "",
            self.measured,
            f"commit {self.commit}" if self.commit else "",
            f"from {self.table}" if self.table else "",
        )
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Chosen:
    """One configuration at one shape, and what is known of it there.

    `time_ms`, with its 95 % interval, is what `timed` says (one of `TIMED`). `ratio` is the better library's time ÷
    `time_ms` (None: no library ran beside it), `verdict` what pairs of blocks say of it against that library.
    `named`: its study names it best. `best`: no other kernel is better at this shape. `slowdown` is its time ÷
    that of the shape's own best, above 1 where few configurations serve many shapes.
    """

    kernel: str
    dtype: str
    layout: str
    device: str
    dims: tuple[tuple[str, int], ...]
    params: Mapping[str, Value]
    time_ms: float
    timed: str
    time_low_ms: float | None = None
    time_high_ms: float | None = None
    ratio: float | None = None
    library: str = ""
    verdict: str = ""
    cache: str = "cold"
    shape: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    named: bool = True
    best: bool = False
    slowdown: float = 1.0

    @property
    def problem(self) -> tuple[str, ...]:
        """Equal for rows that answer the same question, whichever the kernel."""
        return self.dtype, self.layout, self.device, json.dumps(sorted(self.dims))

    @property
    def configuration(self) -> str:
        """Equal for equal parameters, whatever their order."""
        return configuration_key(self.params)

    @property
    def sizes(self) -> str:
        """`4096x4096x64`, with names where they are not M, N and K."""
        if [name for name, _ in self.dims] == ["M", "N", "K"]:
            return "x".join(str(size) for _, size in self.dims)
        return " ".join(f"{name}={size}" for name, size in self.dims) or "any size"

    def order(self) -> tuple[object, ...]:
        """What an export's rows are sorted by."""
        place = _DTYPE_ORDER.get(self.dtype, len(_DTYPE_ORDER))
        return self.kernel, self.device, place, self.dtype, self.layout, len(self.dims), self.dims


def configuration_key(params: Mapping[str, Value]) -> str:
    """The parameters as JSON in one order."""
    return json.dumps(dict(params), sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Price:
    """What it costs that `count` configurations of a kernel serve `shapes` shapes.

    `price` is the geometric mean over the shapes of time ÷ time of the shape's own best, `worst` the greatest.
    """

    kernel: str
    dtype: str
    layout: str
    count: int
    shapes: int
    price: float
    worst: float

    def told(self) -> str:
        """In a line."""
        where = " ".join(filter(None, (self.kernel, self.dtype, self.layout)))
        many = "configuration serves" if self.count == 1 else "configurations serve"
        return (
            f"{where}: {self.count} {many} {self.shapes} shapes, {100 * (self.price - 1):.2f} % slower in the"
            f" geometric mean than with one each, {100 * (self.worst - 1):.2f} % at worst"
        )


@dataclass(frozen=True, slots=True)
class Filters:
    """Which part of the results is meant; empty: all of it."""

    kernel: str = ""
    dtype: str = ""
    device: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Export:
    """The rows, sorted, and what it cost that there are no more configurations."""

    rows: Sequence[Chosen]
    prices: Sequence[Price] = ()

    @property
    def kernels(self) -> list[str]:
        """Names, in the order of the rows."""
        return list(dict.fromkeys(row.kernel for row in self.rows))

    @property
    def provenances(self) -> list[Provenance]:
        """Each once, in the order of the rows."""
        return list(dict.fromkeys(row.provenance for row in self.rows))

    def origins(self) -> list[str]:
        """A line for each provenance: which kernels it is of, and all of it."""
        kernels: dict[Provenance, dict[str, None]] = {}
        for row in self.rows:
            kernels.setdefault(row.provenance, {})[row.kernel] = None
        return [f"{', '.join(names)}: {one.told()}" for one, names in kernels.items()]
