"""What a compiler's messages come to: one line that says what is wrong, and what of it is a GPU's alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeper.emulation.compiler import CompilerRun
from sweeper.emulation.findings import Finding, FindingKind, Place
from sweeper.emulation.module_source import ModuleSource
from sweeper.emulation.translate import ENTRIES_FILE

__all__ = ["first_error", "not_emulable", "only_for_gpus"]

_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_ANY_ERROR = re.compile(r"^.*\b(?:[Ee]rror|undefined reference|undefined symbol)\b.*$", re.MULTILINE)
# Headers of CUDA's that wrap instructions, and how ours say that something is only for GPUs.
_GPU_HEADER = re.compile(r"\b((?:cuda|cute|cutlass)/[\w./]+|cudaTypedefs\.h)\b.*(?:No such file|not found)")
_NOT_EMULABLE = re.compile(r"not emulable: [^\"\]]*")
_OTHER_WAY = "give the kernel another way under #ifdef __SWEEPER_EMULATOR__"
# What an assembler or compiler says of instructions and operands that are a GPU's.
_PTX = re.compile(
    r"no such instruction|invalid instruction mnemonic|unrecognized instruction|too many memory references|constraint\b"
)
_LINE_LIMIT = 500


def first_error(run: CompilerRun, log: str, source: ModuleSource) -> str:
    """The first error in one line: `tiled.cu:12: expected ';'`."""
    if run.ok or run.code is None:
        return ""
    return _shorten(next(_error_lines(log, source), f"the compiler ended with code {run.code}"))


def _error_lines(log: str, source: ModuleSource) -> Iterator[str]:
    for match in _ERROR.finditer(log):
        if match["file"] == ENTRIES_FILE:
            entry = source.entries[min(int(match["line"]), len(source.entries)) - 1]
            yield f"{source.name}: no kernel {entry}: {match['text']}"
        else:
            yield f"{Path(match['file']).name}:{match['line']}: {match['text']}"
    for match in _ANY_ERROR.finditer(log):
        yield match.group().strip()


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"


def only_for_gpus(error: str, log: str, assembly: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What of the kernel made the compilation fail that only a GPU has, if that is why it failed."""
    if not error:
        return ()
    if assembly and _PTX.search(log):
        return assembly
    for match in _ERROR.finditer(log):
        header, named = _GPU_HEADER.search(match["text"]), _NOT_EMULABLE.search(match["text"])
        message = f"not emulable: <{header[1]}> is for GPUs" if header else named[0] if named else ""
        if message:
            place = Place(Path(match["file"]).name, int(match["line"]))
            return (Finding(FindingKind.NOT_EMULABLE, message, place),)
    return ()


def not_emulable(findings: Sequence[Finding]) -> str:
    first = findings[0]
    return f"{first.first}: {first.message} ({_OTHER_WAY})"
