"""What a compiler said: its first error in one line, and the figures that ptxas reports."""

from __future__ import annotations

import re

__all__ = ["first_error", "spill_bytes"]

_LINE_LIMIT = 500

# In order of preference: a message about the source, a tool's own, anything that says "error".
_ERRORS = (
    re.compile(r"^\S.*?(?:\(\d+\)|:\d+(?::\d+)?): (?:fatal |catastrophic )?error\b.*", re.MULTILINE),
    re.compile(r"^(?:ptxas|nvcc|nvlink|cicc|cudafe\+\+|fatbinary)\b.*\b(?:error|fatal)\b.*", re.MULTILINE),
    re.compile(r"^.*\b(?:error|fatal|Segmentation fault|Killed|No space left)\b.*", re.MULTILINE),
)
_TEMPORARY = re.compile(r"\S*/tmpxft_\w+-\d+_")
_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def first_error(log: str) -> str:
    """The first line of `log` that says what is wrong; its last line where none says so."""
    for pattern in _ERRORS:
        if match := pattern.search(log):
            return _tidy(match.group())
    lines = [line for line in log.splitlines() if line.strip()]
    return _tidy(lines[-1]) if lines else ""


def _tidy(line: str) -> str:
    """One line without the names of temporary files, of bounded length."""
    line = " ".join(_TEMPORARY.sub("", line).split())
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"


def spill_bytes(log: str, symbol: str) -> int | None:
    """Bytes of register spill stores and loads that ptxas -v reports for `symbol`, None if it does not."""
    _, found, after = log.partition(f"Function properties for {symbol}\n")
    match = _SPILL.match(after.partition("stack frame, ")[2]) if found else None
    return int(match[1]) + int(match[2]) if match else None
