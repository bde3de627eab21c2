"""Profiles for people: a table for each problem, a column for each configuration, then what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweeper.cli.terminal import format_ms
from sweeper.profile.profile import Profile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["show"]

_MOST_COLUMNS = 5
_MOST_ADVICE = 3
_MOST_STALLS = 3

Line = tuple[str, Callable[[Profile], str]]


def show(profiles: Sequence[Profile], out: Console) -> None:
    """Print them, problem by problem in the order given."""
    problems: dict[tuple[str, ...], list[Profile]] = {}
    for profile in profiles:
        problems.setdefault(profile.job.problem[1:], []).append(profile)
    for (dtype, shape, sizes), group in problems.items():
        named = shape if shape == sizes else f"{shape} ({sizes})"
        for start in range(0, len(group), _MOST_COLUMNS):
            shown = group[start : start + _MOST_COLUMNS]
            numbers = range(start + 1, start + 1 + len(shown))
            out.print(f"\n{dtype} {named} on {shown[0].device}")
            for number, profile in zip(numbers, shown, strict=True):
                out.print(f"  {number}: {profile.job.title}{_noted(profile)}")
            out.print(_table(shown, numbers))
            for number, profile in zip(numbers, shown, strict=True):
                _explain(number, profile, out)


def _explain(number: int, profile: Profile, out: Console) -> None:
    waits = [f"{reason} {share:.0f} %" for reason, share in list(profile.stalls.items())[:_MOST_STALLS]]
    if waits:
        out.print(f"{number}: warps wait: {', '.join(waits)}")
    for advice in profile.advice[:_MOST_ADVICE]:
        out.print(f"{number}: {advice.text}")


def _noted(profile: Profile) -> str:
    return f" ({profile.job.note})" if profile.job.note else ""


def _table(profiles: Sequence[Profile], numbers: Sequence[int]) -> Table:
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column("", no_wrap=True)
    for number in numbers:
        out.add_column(str(number), justify="right", no_wrap=True)
    for title, cell in _LINES:
        cells = [cell(profile) for profile in profiles]
        if any(cells):
            out.add_row(title, *cells)
    return out


def _number(name: str, form: str = ".0f", unit: str = "") -> Callable[[Profile], str]:
    def cell(profile: Profile) -> str:
        value = profile.figures.get(name)
        return "" if value is None else f"{value:{form}}{unit}"

    return cell


def _pair(first: str, second: str, form: str) -> Callable[[Profile], str]:
    """`4.0/4.0`; a dash for one that could not be had."""

    def cell(profile: Profile) -> str:
        values = [profile.figures.get(name) for name in (first, second)]
        if all(value is None for value in values):
            return ""
        return "/".join("–" if value is None else f"{value:{form}}" for value in values)

    return cell


def _amount(value: float | None) -> str:
    """Bytes with the unit that suits, in powers of ten as bandwidths are."""
    if value is None:
        return ""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def _time(profile: Profile) -> str:
    """What the sweep measured; what ncu saw where no sweep did."""
    if profile.job.time_ms is not None:
        return format_ms(profile.job.time_ms)
    seen = profile.figures.get("profiled_ms")
    return "" if seen is None else format_ms(seen)


def _dram(profile: Profile) -> str:
    read, written = profile.figures.get("dram_read_bytes"), profile.figures.get("dram_write_bytes")
    return "" if read is None or written is None else _amount(read + written)


_LINES: tuple[Line, ...] = (
    ("time", _time),
    ("busiest unit", lambda profile: profile.bound),
    ("DRAM traffic", _dram),
    ("  / compulsory", _number("dram_per_compulsory", ".2f", "×")),
    ("  / static model", _number("dram_per_model", ".2f", "×")),
    ("  of peak rate", _number("dram_percent", ".0f", " %")),
    ("FLOP / DRAM byte", _number("flop_per_byte", ".1f")),
    ("L2 traffic", lambda profile: _amount(profile.figures.get("l2_bytes"))),
    ("  / static model", _number("l2_per_model", ".2f", "×")),
    ("  of peak rate", _number("l2_percent", ".0f", " %")),
    ("hits in L1/L2, %", _pair("l1_hit_percent", "l2_hit_percent", ".0f")),
    ("sectors, load/store", _pair("load_sectors", "store_sectors", ".1f")),
    ("  bytes used of 32", _pair("load_bytes_per_sector", "store_bytes_per_sector", ".1f")),
    ("shared waves, load/store", _pair("shared_load_ways", "shared_store_ways", ".2f")),
    ("  by bank conflicts", _number("bank_conflict_percent", ".1f", " %")),
    ("L1 and shared, of peak", _number("l1_percent", ".0f", " %")),
    ("active lanes of 32", _number("threads_per_instruction", ".1f")),
    ("divergent branches", _number("divergent_percent", ".1f", " %")),
    ("occupancy achieved", _number("occupancy_percent", ".0f", " %")),
    ("  theoretical", _number("occupancy_limit_percent", ".0f", " %")),
    ("  limited by", lambda profile: profile.expected.occupancy_limit),
    ("blocks an SM/waves", _pair("blocks_per_sm", "waves", ".2f")),
    ("issue slots used", _number("issue_percent", ".0f", " %")),
    ("  by multiply-adds", _number("fma_percent", ".0f", " %")),
    ("fp32 pipe", _number("fma_pipe_percent", ".0f", " %")),
    ("fp64 pipe", _number("fp64_pipe_percent", ".0f", " %")),
    ("tensor cores", _number("tensor_pipe_percent", ".0f", " %")),
)
