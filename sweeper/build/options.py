"""Compiler options a kernel's description may ask for: an allow-list, normalised to one spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sweeper.errors import ConfigError

__all__ = ["normalize_options", "option_warnings"]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VALUE = r"[A-Za-z0-9_.+-]*"
_SWITCH = r"(?:true|false)"

_FORMS: tuple[tuple[str, str], ...] = (
    ("-use_fast_math", r"--?use_fast_math"),
    ("-maxrregcount=N", r"--?maxrregcount=\d{1,3}"),
    ("-lineinfo", r"-lineinfo|--generate-line-info"),
    ("-G", r"-G|--device-debug"),
    ("-Xptxas=-O0…-O3", r"-Xptxas=-O[0-3]"),
    ("-Xptxas=-v", r"-Xptxas=-v"),
    ("-Xptxas=-dlcm=ca|cg|cs|cv", r"-Xptxas=-d[ls]cm=(?:ca|cg|cs|cv|wb|wt)"),
    ("-std=c++14|17|20", r"--?std=c\+\+(?:11|14|17|20|23)"),
    ("-O0…-O3", r"-O[0-3]"),
    ("--fmad=true|false", rf"--?fmad={_SWITCH}"),
    ("--ftz=true|false", rf"--?ftz={_SWITCH}"),
    ("--prec-div=true|false", rf"--?prec-div={_SWITCH}"),
    ("--prec-sqrt=true|false", rf"--?prec-sqrt={_SWITCH}"),
    ("--extra-device-vectorization", r"--?extra-device-vectorization"),
    ("-DNAME, -DNAME=value", rf"-D{_NAME}(?:={_VALUE})?"),
    ("-UNAME", rf"-U{_NAME}"),
)
_ALLOWED = re.compile("|".join(f"(?:{pattern})" for _, pattern in _FORMS))
_TAKES_VALUE = {
    "-Xptxas": "-Xptxas=",
    "--ptxas-options": "-Xptxas=",
    "-maxrregcount": "-maxrregcount=",
    "--maxrregcount": "-maxrregcount=",
    "-std": "-std=",
    "--std": "-std=",
    "-D": "-D",
    "-U": "-U",
}


def _words(options: Sequence[str]) -> list[str]:
    words = []
    for option in options:
        if not isinstance(option, str) or not option.isprintable():
            raise ConfigError(f"compiler option {option!r} is not plain text", hint=_hint())
        words += option.split()
    return words


def _hint() -> str:
    return "allowed: " + "; ".join(name for name, _ in _FORMS)


def normalize_options(options: Sequence[str]) -> tuple[str, ...]:
    """`options` with each value joined to its option, in the order given.

    Raises ConfigError, listing what is allowed, for any other option: one that names a file, another
    compiler or a plug-in could run or overwrite what it likes.
    """
    normal: list[str] = []
    words = iter(_words(options))
    for word in words:
        joined = word.replace("--ptxas-options=", "-Xptxas=")
        if word in _TAKES_VALUE:
            joined = _TAKES_VALUE[word] + next(words, "")
        if not _ALLOWED.fullmatch(joined):
            raise ConfigError(f"compiler option {joined!r} is not allowed", hint=_hint())
        normal.append(joined)
    return tuple(normal)


def option_warnings(options: Sequence[str]) -> tuple[str, ...]:
    """What a reader of timings must know about `options` (as `normalize_options` gives them)."""
    warnings = []
    if any(o in ("-G", "--device-debug") for o in options):
        warnings.append("-G compiles device code without optimisation: its times say nothing of the kernel")
    if "-Xptxas=-O0" in options or "-Xptxas=-O1" in options:
        warnings.append("-Xptxas lowers the optimisation of device code: its times are not comparable")
    return tuple(warnings)
