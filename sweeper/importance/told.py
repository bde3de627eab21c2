"""An analysis as lines of text, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sweeper.expressions import Value
from sweeper.importance.model import Importance, Level, Neighbour, Outcome, Parameter, Share
from sweeper.model import TimeSource

__all__ = ["told"]

_WIDTH = 100
_PAIRS, _LEAST_PAIR, _LEVELS, _NAME = 5, 0.01, 12, 24


def told(found: Importance) -> str:
    """Everything that a reader of a terminal wants first; `Importance.record` has the rest."""
    title = " ".join(filter(None, (found.kernel, found.dtype, found.shape)))
    where = f" on {found.device}" if found.device else ""
    source = f", {found.time_source}" if found.time_source else ""
    blocks = [
        [f"{title or found.study}{where}{source}", *_indented(_head(found))],
        _parameters(found),
        _pairs(found),
        _neighbours(found),
        _levels(found),
    ]
    return "\n\n".join("\n".join(line[:_WIDTH].rstrip() for line in block) for block in blocks if block)


def _head(found: Importance) -> Iterator[str]:
    failed = "".join(f", {count} {status}" for status, count in found.failed.items())
    yield f"{found.tried} configurations, {found.valid} valid{failed}"
    winner = found.winner
    if winner is not None:
        bounds = f" ({winner.low:.4g} to {winner.high:.4g})" if winner.low and winner.high else ""
        how = "won the confirmation" if winner.confirmed else "best"
        yield f"{how}: {winner.value:.4g} {found.unit}{bounds}"
        yield from _wrapped(f"{name}={_text(value)}" for name, value in winner.params.items())
    yield from _wrapped(f"{found.evaluator or 'no shares'}: {found.how}".split(" "))
    if found.fit is not None:
        yield f"the model predicts {max(0.0, found.fit):.0%} of the variance of what it has not seen"
    for note in found.notes:
        yield from _wrapped(f"note: {note}".split(" "))


def _parameters(found: Importance) -> list[str]:
    if not found.parameters:
        return []
    rows = [["parameter", "alone", "total", "best tenth", "valid or not"]]
    rows += [
        [
            parameter.name[:_NAME],
            *map(_share, (parameter.alone, parameter.total, parameter.top, parameter.validity)),
        ]
        for parameter in found.parameters
    ]
    some = any(parameter.alone and parameter.alone.low is not None for parameter in found.parameters)
    bounds = " (in brackets: 90 % of resampled trials)" if some else ""
    what = "energy" if found.unit == "J" else "time"
    return [
        f"Shares of the variance of log {what}{bounds}; best tenth: by PED-ANOVA",
        *_indented(_columns(rows)),
    ]


def _pairs(found: Importance) -> list[str]:
    shown = [pair for pair in found.pairs[:_PAIRS] if pair.share.value >= _LEAST_PAIR]
    if not shown:
        return []
    rows = [[f"{pair.first[:_NAME]} × {pair.second[:_NAME]}", _share(pair.share)] for pair in shown]
    return ["Pairs, beyond what each of them explains", *_indented(_columns(rows))]


def _neighbours(found: Importance) -> list[str]:
    if not found.neighbours:
        return []
    rows = [
        [one.parameter[:_NAME], f"{_text(one.own)} → {_text(one.value)}", *_cost(one)]
        for one in found.neighbours
    ]
    summary = found.robustness
    # A prediction is no measurement, and a replayed time was one.
    known = found.time_source if found.time_source == TimeSource.PREDICTED else TimeSource.MEASURED
    counts = f"{summary.failed} failed, {summary.not_measured} not {known}"
    if summary.median is not None and summary.worst is not None:
        end = (
            f"{summary.measured} {known}: {summary.median:.3f} × in the median, {summary.worst:.3f} × at worst,"
            f" {summary.within} within 5 %; {counts}"
        )
    else:
        end = f"none {known}; {counts}"
    value = "energy" if found.unit == "J" else "time"
    return [f"The best with one parameter changed, {value} ÷ its own", *_indented([*_columns(rows), end])]


def _cost(one: Neighbour) -> tuple[str, str]:
    if one.slowdown is not None:
        bounds = "" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
        return f"{one.slowdown:.3f}", bounds
    if one.outcome is Outcome.FAILED:
        return "failed", one.reason
    guess = "" if one.guess is None else f"guess of the model: {one.guess:.2f}"
    return one.outcome.value, guess


def _levels(found: Importance) -> list[str]:
    if not found.parameters:
        return []
    rows = [["parameter", "level", "valid", f"best, {found.unit}", f"median, {found.unit}", "÷ best"]]
    for parameter in found.parameters:
        rows += [_level(parameter, level) for level in islice(parameter.levels, _LEVELS)]
        more = len(parameter.levels) - _LEVELS
        if more > 0:
            rows.append([parameter.name[:_NAME], f"and {more} more", "", "", "", ""])
    return ["Each level, whatever the others (*: the best's)", *_indented(_columns(rows))]


def _level(parameter: Parameter, level: Level) -> list[str]:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    ratio = "–" if level.of_best is None else f"{level.of_best:.3f}"
    mark = " *" if level.winner else ""
    valid = f"{level.valid} of {level.tried}"
    return [
        parameter.name[:_NAME],
        _text(level.value) + mark,
        valid,
        number(level.best),
        number(level.median),
        ratio,
    ]


def _share(share: Share | None) -> str:
    if share is None:
        return "–"
    bounds = "" if share.low is None or share.high is None else f" ({share.low:.0%} to {share.high:.0%})"
    return f"{share.value:.1%}{bounds}"


def _text(value: Value | None) -> str:
    if value is None:
        return "–"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _wrapped(words: Iterable[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > _WIDTH - 2:
            yield line
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    yield line
