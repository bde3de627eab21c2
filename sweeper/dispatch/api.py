"""The dispatcher: tables read once, any number of questions answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweeper.device import Target, target
from sweeper.dispatch.choose import Guess, at_shape, guesses
from sweeper.dispatch.entry import Entry
from sweeper.dispatch.feasible import Feasibility
from sweeper.dispatch.read import read_entries
from sweeper.dtypes import dtype as precision_class
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.expressions import Value
from sweeper.kernel.sizes import parse_shape

__all__ = ["Answer", "Dispatcher", "best"]

_USUAL_LAYOUT = "nn"


@dataclass(frozen=True, slots=True)
class Answer:
    """The kernel and configuration to take at `dims`, and what that rests on.

    `tuned`: it was measured at this very shape; else at `recorded_dims`, `distance` doublings away, and
    `predicted_ms` is what it is thought to take here. `time_ms`, with its 95 % interval, and `ratio`, the better
    library's time ÷ ours, were measured at `recorded_dims`. `how` says all of it in a line.
    """

    kernel: str
    params: Mapping[str, Value]
    dtype: str
    layout: str
    dims: Mapping[str, int]
    tuned: bool
    confirmed: bool
    recorded_dims: Mapping[str, int]
    time_ms: float
    time_low_ms: float | None
    time_high_ms: float | None
    ratio: float | None
    library: str
    device: str
    table: str
    predicted_ms: float | None = None
    distance: float = 0.0
    by_model: bool = False

    @property
    def how(self) -> str:
        """`tuned, confirmed in turns`, or `nearest: 4096x4096x4100 …`."""
        timed = "confirmed in turns" if self.confirmed else "the best of a search"
        if self.tuned:
            return f"tuned: {timed} at this shape"
        ruler = "the static model" if self.by_model else "its operations"
        return (
            f"nearest: {_text(self.recorded_dims)} ({timed} there), {self.distance:.2f} doublings away,"
            f" scaled by {ruler}"
        )

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        maps = {name: dict(values[name]) for name in ("params", "dims", "recorded_dims")}
        return {**values, **maps, "how": self.how}


class Dispatcher:
    """Answers from the tables in `results` (folders, or files), with kernels of `folders` and the shipped ones.

    Raises StorageError where there is nothing to answer from.
    """

    def __init__(self, results: Sequence[Path | str], folders: Sequence[Path] = ()) -> None:
        self.entries = read_entries(results)
        self._feasibility = Feasibility(folders)

    def best(
        self,
        shape: str | Mapping[str, int],
        dtype: str = "float32",
        layout: str = "",
        device: str = "",
    ) -> Answer:
        """What to take for `shape` (`4096x4096x64`, `4096x4096x64-nt`, or sizes by name) in a precision class.

        `layout` has a letter an operand, n or t (default: the shape's, else nn); `device` names a GPU (default:
        the one of the tables). Its answer is feasible there: constraints, limits and compute capability are
        those of the kernel's description now. Raises ConfigError for what is unknown, NoValidConfiguration where
        the tables have nothing for the class, layout and device, or nothing that can run.
        """
        dims, named = parse_shape(shape) if isinstance(shape, str) else (dict(shape), "")
        layout = layout or named or _USUAL_LAYOUT
        limits = self._limits(device)
        entries = self._matching(precision_class(dtype, where="dtype").name, layout, limits)

        def judge(entry: Entry, sizes: Mapping[str, int]) -> tuple[str | None, float | None]:
            return self._feasibility.judge(entry, sizes, limits)

        for entry in at_shape(entries, dims):
            why_not, _ = judge(entry, dims)
            if why_not is None:
                return _answer(self._complete(entry), dims)
        ranked = guesses(entries, dims, judge)
        if not ranked:
            raise self._nothing(entries, dims, limits)
        return _answer(self._complete(ranked[0].entry), dims, ranked[0])

    def _complete(self, entry: Entry) -> Entry:
        """`entry`, which can run, with every parameter that its kernel has now."""
        spec = self._feasibility.kernel(entry)
        return entry if isinstance(spec, str) else replace(entry, params=spec.point_of(entry.params).params)

    def _limits(self, device: str) -> Target:
        if device:
            return target(device)
        names = list(dict.fromkeys(entry.device for entry in self.entries if entry.device))
        if len(names) != 1:
            raise ConfigError(
                f"the tables are of {len(names)} kinds of device: {', '.join(names) or 'none is named'}",
                hint="say which is meant, with --device h200",
            )
        return target(names[0])

    def _matching(self, dtype: str, layout: str, limits: Target) -> list[Entry]:
        """The entries in that class and layout on that device. Raises NoValidConfiguration."""
        found = self.entries
        for what, wanted, of in (
            ("device", limits.name, lambda entry: _device_name(entry.device)),
            ("precision class", dtype, lambda entry: entry.dtype),
            ("layout", layout, lambda entry: entry.layout),
        ):
            has = dict.fromkeys(map(of, found))
            found = [entry for entry in found if of(entry) == wanted]
            if not found:
                raise NoValidConfiguration(
                    f"the tables have no configuration of {what} {wanted}; they have {', '.join(has)}"
                )
        return found

    def _nothing(
        self, entries: Sequence[Entry], dims: Mapping[str, int], limits: Target
    ) -> NoValidConfiguration:
        """Why none of `entries` will do: the reason of the one measured at the nearest shape."""
        reasons = [why for entry in entries if (why := self._feasibility.judge(entry, dims, limits)[0])]
        first = f"; the first: {entries[0].kernel}: {reasons[0]}" if reasons else ""
        return NoValidConfiguration(
            f"none of {len(entries)} recorded configurations can run at {_text(dims)} on {limits.name}{first}"
        )


def best(
    results: Sequence[Path | str],
    shape: str | Mapping[str, int],
    dtype: str = "float32",
    layout: str = "",
    device: str = "",
    folders: Sequence[Path] = (),
) -> Answer:
    """One question: see `Dispatcher.best`."""
    return Dispatcher(results, folders).best(shape, dtype, layout, device)


@lru_cache(maxsize=256)
def _device_name(name: str) -> str:
    """The name that the table of devices has for it, or its own."""
    try:
        return target(name).name
    except ConfigError:
        return name


def _answer(entry: Entry, dims: Mapping[str, int], guess: Guess | None = None) -> Answer:
    return Answer(
        kernel=entry.kernel,
        params=dict(entry.params),
        dtype=entry.dtype,
        layout=entry.layout,
        dims=dict(dims),
        tuned=guess is None,
        confirmed=entry.confirmed,
        recorded_dims=dict(entry.dims),
        time_ms=entry.time_ms,
        time_low_ms=entry.time_low_ms,
        time_high_ms=entry.time_high_ms,
        ratio=entry.ratio,
        library=entry.library,
        device=entry.device,
        table=entry.table,
        predicted_ms=guess.time_ms if guess is not None else None,
        distance=guess.distance if guess is not None else 0.0,
        by_model=guess.by_model if guess is not None else False,
    )


def _text(dims: Mapping[str, int]) -> str:
    return "x".join(map(str, dims.values()))
