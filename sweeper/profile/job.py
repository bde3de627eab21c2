"""What is to be profiled: one configuration of a kernel at one size, or a library's kernel in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.expressions import Value
from sweeper.model import KernelSpec, Point

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """`spec` at `point` and `dims`, with the inputs of `seed`.

    With a `library` that library's kernel for the same problem takes the configuration's place. `shape`
    names the sizes; `study` and `number` say which stored row it is, `time_ms` what that row measured;
    they are empty, 0 and None for a job of no row. `cold` empties the caches before the launch. `note`
    says what a reader should know of it.
    """

    spec: KernelSpec
    point: Point
    dims: Mapping[str, int]
    seed: int = 42
    library: str = ""
    shape: str = ""
    study: str = ""
    number: int = 0
    time_ms: float | None = None
    cold: bool = True
    note: str = ""

    @property
    def kernel(self) -> str:
        """What runs: the kernel's name, or the library's."""
        return self.library or self.spec.name

    @property
    def params(self) -> dict[str, Value]:
        """The parameters of what runs; none of a library's."""
        return {} if self.library else self.point.params

    @property
    def title(self) -> str:
        return self.library or f"{self.spec.name} {self.point}"

    @property
    def problem(self) -> tuple[str, str, str, str]:
        """Equal where jobs answer the same problem: of one kernel, precision class, shape and sizes."""
        sizes = "x".join(str(size) for size in self.dims.values())
        return self.spec.name, self.spec.dtype.name, self.shape or sizes, sizes
