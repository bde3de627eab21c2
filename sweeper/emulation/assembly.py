"""Inline assembly in a kernel's preprocessed text: PTX, which has no meaning on a CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sweeper.emulation.findings import Finding, FindingKind, Place
from sweeper.emulation.native import INCLUDE_DIR

__all__ = ["find_assembly"]

# A line marker with the file's name and flags, of which 3 is a system header (The C Preprocessor, "Preprocessor
# Output"); what may hold the word without meaning it; and the word.
_TOKENS = re.compile(
    r'^[ \t]*#[ \t]*(?:line[ \t]+)?(?P<line>\d+)[ \t]+"(?P<file>(?:\\.|[^"\\\n])*)"(?P<flags>[ \t\d]*)$'
    r"|^[ \t]*#[^\n]*"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'"
    r"|(?P<asm>\b(?:asm|__asm|__asm__)\b)"
    r"|(?P<end>\n)",
    re.MULTILINE,
)
# A barrier for the compiler, which is an instruction nowhere.
_EMPTY = re.compile(r'(?:\s|\b(?:volatile|__volatile__|inline)\b)*\(\s*(?:""\s*)+[:)]')
_TEMPLATE = re.compile(r'\(\s*(?P<text>"(?:\\.|[^"\\\n])*")')
_SHOWN = 60


def find_assembly(text: str) -> tuple[Finding, ...]:
    """Every statement of inline assembly that is neither the system's nor ours."""
    return tuple(_found(text))


def _found(text: str) -> Iterator[Finding]:
    file, line, foreign = "", 1, False
    for token in _TOKENS.finditer(text):
        if token["line"]:
            # The marker's own end of line counts as one.
            file, line = token["file"], int(token["line"]) - 1
            foreign = "3" in token["flags"].split() or file.startswith(str(INCLUDE_DIR))
        elif token["end"]:
            line += 1
        elif token["asm"] and not foreign and not _EMPTY.match(text, token.end()):
            shown = _TEMPLATE.search(text, token.end(), token.end() + 200)
            what = shown["text"][:_SHOWN] if shown else ""
            message = f"inline PTX has no meaning on a CPU: asm({what})"
            yield Finding(FindingKind.NOT_EMULABLE, message, Place(Path(file).name, line))
