"""`best`: which configuration to take for a shape, from recorded tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.api.composing import own_hydra
from sweeper.errors import ConfigError, NoValidConfiguration, StorageError, did_you_mean
from sweeper.expressions import Value
from sweeper.model import Point
from sweeper.paths import checkout_root

if TYPE_CHECKING:
    from sweeper.dispatch import Answer, Dispatcher

__all__ = ["Choice", "best"]

_DIMS = ("M", "N", "K")


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel and configuration to take at `dims`. Printed, it says what that rests on."""

    answer: Answer
    """All that the dispatcher says: docs/dispatch.md."""
    config_dirs: tuple[Path, ...] = field(default=(), repr=False)
    """Where kernels of one's own are described."""

    @property
    def kernel(self) -> str:
        return self.answer.kernel

    @property
    def params(self) -> dict[str, Value]:
        return dict(self.answer.params)

    @property
    def dtype(self) -> str:
        return self.answer.dtype

    @property
    def layout(self) -> str:
        return self.answer.layout

    @property
    def dims(self) -> dict[str, int]:
        return dict(self.answer.dims)

    @property
    def exact(self) -> bool:
        """It was measured at this very shape, not at one like it."""
        return self.answer.tuned

    @property
    def confirmed(self) -> bool:
        """It was timed in turns with its rivals, after the search that chose it."""
        return self.answer.confirmed

    @property
    def time_ms(self) -> float:
        """Milliseconds a launch at `dims`: measured where `exact`, else what is expected."""
        expected = self.answer.predicted_ms
        return self.answer.time_ms if self.exact or expected is None else expected

    @property
    def how(self) -> str:
        """What it rests on, in a line."""
        return self.answer.how

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return self.answer.record()

    def __str__(self) -> str:
        from sweeper.cli.terminal import format_ms

        answer = self.answer
        shape = "x".join(map(str, self.dims.values())) + (f" {self.layout}" if "t" in self.layout else "")
        time = format_ms(self.time_ms) if self.exact else f"about {format_ms(self.time_ms)} expected"
        interval = ""
        if self.exact and answer.time_low_ms is not None and answer.time_high_ms is not None:
            interval = f" ({format_ms(answer.time_low_ms)} to {format_ms(answer.time_high_ms)})"
        return (
            f"{self.kernel} with {Point.of(self.params)} for {shape} {self.dtype} on {answer.device}: {time}{interval};"
            f" {self.how}"
        )


def best(
    shape: str | Mapping[str, int] | Sequence[int],
    dtype: str = "float32",
    device: str | None = None,
    *,
    kernel: str | None = None,
    layout: str | None = None,
    results: Path | str | Sequence[Path | str] | None = None,
    config_dir: Path | str | Sequence[Path | str] = (),
) -> Choice:
    """What to take for `shape` (`"4096x4096x64"`, `(M, N, K)`, or sizes by name) in a precision class.

    `device` names the GPU (default: the one of the tables), `kernel` allows that one only, `layout` has a letter an
    operand, n or t. `results` are folders or tables of measured rows, by default those that this checkout ships;
    they are read once a process and again when they change. No GPU is needed. Raises ConfigError for what is unknown,
    NoValidConfiguration where the tables have nothing that can run there, StorageError where there are none.
    """
    paths = _paths(results)
    folders = _listed(config_dir)
    dispatcher = _dispatcher(paths, folders, kernel, _state(paths))
    # Kernels are composed as they are needed.
    with own_hydra():
        answer = dispatcher.best(_shape(shape), dtype, layout or "", device or "")
    return Choice(answer, folders)


def _shape(shape: str | Mapping[str, int] | Sequence[int]) -> str | dict[str, int]:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, Mapping):
        return {str(name).upper(): int(size) for name, size in shape.items()}
    if not isinstance(shape, Sequence) or len(shape) != len(_DIMS):
        raise ConfigError(f"shape = {shape!r} is not M, N and K", hint="such as (4096, 4096, 64)")
    return dict(zip(_DIMS, map(int, shape), strict=True))


def _listed(given: Path | str | Sequence[Path | str]) -> tuple[Path, ...]:
    listed = [given] if isinstance(given, str | Path) else given
    return tuple(Path(one).expanduser().absolute() for one in listed)


def _paths(results: Path | str | Sequence[Path | str] | None) -> tuple[Path, ...]:
    if results is not None:
        return _listed(results)
    root = checkout_root()
    shipped = root / "results" / "h200" if root is not None else None
    if shipped is None or not shipped.is_dir():
        raise StorageError(
            "no recorded tables come with an installed package",
            hint="say where they are: best(…, results='results/runs/…')",
        )
    return (shipped,)


def _state(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """What changes where a table does: the files' times and sizes."""
    found = []
    for path in paths:
        inner = [path]
        if path.is_dir():
            inner = [*path.glob("*.csv"), *path.glob("*.db"), *path.glob("*/*.csv"), *path.glob("*/*.db")]
        for file in inner:
            if file.is_file():
                seen = file.stat()
                found.append((str(file), seen.st_mtime_ns, seen.st_size))
    return tuple(sorted(found))


@lru_cache(maxsize=16)
def _dispatcher(
    paths: tuple[Path, ...],
    folders: tuple[Path, ...],
    kernel: str | None,
    state: tuple[tuple[str, int, int], ...],
) -> Dispatcher:
    del state
    from sweeper.dispatch import Dispatcher

    dispatcher = Dispatcher(paths, folders)
    if kernel is not None:
        known = dict.fromkeys(entry.kernel for entry in dispatcher.entries)
        dispatcher.entries = [entry for entry in dispatcher.entries if entry.kernel == kernel]
        if not dispatcher.entries:
            raise NoValidConfiguration(
                f"the tables have no configuration of kernel {kernel}{did_you_mean(kernel, known)}",
                hint=f"they have {', '.join(known)}",
            )
    return dispatcher
