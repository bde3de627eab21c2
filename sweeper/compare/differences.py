"""What two results were made with that is not the same: what is compared, when rows are matched."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sweeper.compare.row import Row
from sweeper.results import Results

__all__ = ["differences", "unlike_values"]

_MOST_NAMED = 3
_CLOCK_TOLERANCE = 0.02
# What a table says of all its rows, by the name that people have for it.
_SAID = {
    "device": "device",
    "driver": "driver",
    "compiler": "compiler",
    "time_source": "times",
    "seed": "seed",
    "locked_clock": "clock held",
    "objective": "objective",
}
# How finalists are compared, and which configurations there are, is no condition of a row.
_NO_CONDITION = {"confirm", "confirm_blocks", "least_effect"}


def differences(
    a: Sequence[Results], b: Sequence[Results], rows_a: Sequence[Row], rows_b: Sequence[Row]
) -> Iterator[str]:
    """A line for each thing that is not the same in A and B: `driver: 580.1 → 590.2`."""
    cells_a, cells_b = _cells(a, rows_a), _cells(b, rows_b)
    for column, said in _SAID.items():
        of, to = (_set(values for values in cells.get(column, [])) for cells in (cells_a, cells_b))
        if of and to and of != to:
            yield f"{said}: {_named(of)} → {_named(to)}"
    if _set(cells_a["device"]) == _set(cells_b["device"]):
        yield from _other_gpu(cells_a, cells_b)
    yield from _sources(rows_a, rows_b, cells_a, cells_b)
    yield from _clocks(cells_a, cells_b)
    yield from unlike_values("protocol", _protocols(a), _protocols(b))
    yield from _commits(a, b)
    yield from unlike_values("packages", _packages(a), _packages(b))


def _cells(side: Sequence[Results], rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The columns of the table, of the rows that are compared."""
    names = [*_SAID, "device_uuid", "kernel", "kernel_digest", "sm_clock_mhz", "status"]
    asked = {(row.study, row.trial) for row in rows}
    found: dict[str, list[Any]] = {name: [] for name in names}
    for one in side:
        table = one.trials
        keep = [key in asked for key in zip(table["study"], table["trial"], strict=True)]
        for name in names:
            if name in table.columns:
                column = table[name][keep]
                found[name] += [
                    None if gone else value
                    for value, gone in zip(column.astype(object), column.isna(), strict=True)
                ]
            else:
                found[name] += [None] * sum(keep)
    return found


def _set(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in values if value not in (None, "")}))


def _named(values: Sequence[str]) -> str:
    more = len(values) - _MOST_NAMED
    return ", ".join(values[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _other_gpu(a: Mapping[str, list[Any]], b: Mapping[str, list[Any]]) -> Iterator[str]:
    of, to = _set(a["device_uuid"]), _set(b["device_uuid"])
    if of and to and not set(of) & set(to):
        yield f"device: another {_named(_set(a['device']))} ({_named(_short(of))} → {_named(_short(to))})"


def _short(values: Sequence[str]) -> list[str]:
    return [value[:12] for value in values]


def _sources(
    rows_a: Sequence[Row],
    rows_b: Sequence[Row],
    a: Mapping[str, list[Any]],
    b: Mapping[str, list[Any]],
) -> Iterator[str]:
    """Kernels whose source is another one, by name."""
    of, to = _digests(a), _digests(b)
    changed = sorted(name for name in of.keys() & to.keys() if of[name] != to[name])
    if changed:
        told = [f"{name} {_named(of[name])} → {_named(to[name])}" for name in changed[:_MOST_NAMED]]
        more = len(changed) - len(told)
        yield f"source: {'; '.join(told)}" + (f"; and {more} more kernels" if more > 0 else "")
    kernels = [_set(row.kernel for row in rows if row.role == "candidate") for rows in (rows_a, rows_b)]
    if kernels[0] and kernels[1] and not set(kernels[0]) & set(kernels[1]):
        yield f"kernel: {_named(kernels[0])} → {_named(kernels[1])}"


def _digests(cells: Mapping[str, list[Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for kernel, digest in zip(cells["kernel"], cells["kernel_digest"], strict=True):
        if digest:
            found.setdefault(str(kernel), set()).add(str(digest)[:8])
    return {kernel: tuple(sorted(digests)) for kernel, digests in found.items()}


def _clocks(a: Mapping[str, list[Any]], b: Mapping[str, list[Any]]) -> Iterator[str]:
    """The SM clock while timing, where the two differ by more than a clock does by itself."""
    of, to = ([float(clock) for clock in cells["sm_clock_mhz"] if clock] for cells in (a, b))
    if of and to:
        one, other = statistics.median(of), statistics.median(to)
        if abs(other / one - 1) > _CLOCK_TOLERANCE:
            yield f"SM clock while timing: {one:.0f} MHz → {other:.0f} MHz"


def _protocols(side: Sequence[Results]) -> dict[str, tuple[str, ...]]:
    return _settings(run.get("config", {}).get("measure", {}) for one in side for run in one.runs)


def _settings(nodes: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        for name, value in node.items() if isinstance(node, Mapping) else ():
            if name not in _NO_CONDITION:
                found.setdefault(str(name), set()).add(_text(value))
    return {name: tuple(sorted(values)) for name, values in found.items()}


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _packages(side: Sequence[Results]) -> dict[str, tuple[str, ...]]:
    found = _settings(run.get("packages", {}) for one in side for run in one.runs)
    python = _set(run.get("python") for one in side for run in one.runs)
    return found | ({"python": python} if python else {})


def _commits(a: Sequence[Results], b: Sequence[Results]) -> Iterator[str]:
    of, to = (_set(_commit(run.get("git")) for one in side for run in one.runs) for side in (a, b))
    if of and to and of != to:
        yield f"commit: {_named(of)} → {_named(to)}"


def _commit(git: Any) -> str:
    if not isinstance(git, Mapping) or not git.get("commit"):
        return ""
    return f"{str(git['commit'])[:12]}{' with changes' if git.get('dirty') else ''}"


def unlike_values(
    what: str, a: Mapping[str, tuple[str, ...]], b: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """One line with everything that both name and that differs, if anything does."""
    told = [
        f"{name} {_named(a[name])} → {_named(b[name])}"
        for name in sorted(a.keys() & b.keys())
        if a[name] != b[name]
    ]
    if told:
        yield f"{what}: {', '.join(told)}"
