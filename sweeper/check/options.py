"""What the command understands of its own, beside the keys that Hydra composes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from sweeper.check.run import MODES
from sweeper.errors import ConfigError, did_you_mean

__all__ = ["ALL", "HELP", "Options", "own_keys"]

HELP = """\
Look for mistakes in CUDA kernels without a GPU: memory, races, barriers, wrong numbers.

    python -m sweeper.check kernel=tiled
    python -m sweeper.check kernel=mine --config-dir DIR
    python -m sweeper.check kernels=all --junit check.xml

Every kernel runs in the emulator: a representative set of its configurations (every level of every parameter,
then every pair of levels), each at sizes at which kernels go wrong (single rows, odd remainders, one beside
every tile).

which
  kernel=NAME[,NAME…]       kernels of conf/kernel or of --config-dir
  kernels=all               every one of them; of those in --config-dir where there are any
  --config-dir DIR          a folder with kernels of your own
  kernel.params.tile=8      pin a parameter; [8,16] leaves it those levels
  kernel.dtype=float64      another precision class
  shape=33x65x129,tiny      these shapes instead of the edge shapes; shape.n=1000 a size

how
  mode=check                instrumented: every access of memory is seen, hazards are faults; then three
                            orders of threads and blocks, whose results must have the same bits (default)
  mode=fast                 the three orders only, between inaccessible pages, shared memory filled with NaN
  check.configurations=24   at most this many configurations of a kernel
  check.shapes=16           at most this many shapes of a configuration
  check.workers=0           cases at a time; 0: one a processor
  check.deadline_s=20       seconds that one launch may take; after one that takes longer no more are begun
  measure.allow_nondeterministic=true   do not report results that depend on the order of threads
  backend.target=a100       whose limits hold
  seed=42                   of the inputs

what comes out
  --junit FILE              also as JUnit's XML; check.junit=FILE means the same
  a line for every configuration with the shapes at which it is right; every defect with both sides of it,
  thread, block and line; a summary

exit codes
  0 nothing found, 1 something found or nothing could be checked, 2 usage or configuration, 3 no C++ compiler,
  4 FILE cannot be written, 130 interrupted
"""


ALL = "all"
_FLAGS = {"-m", "--multirun", "--config-dir", "-cd"}
_OWN_KEY = re.compile(r"\+{0,2}(?:(?P<key>mode|kernels)|check\.(?P<name>[^=]*))=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Options:
    """The command's own keys: see its help."""

    mode: str = "check"
    kernels: str = ""
    configurations: int = 24
    shapes: int = 16
    workers: int = 0
    deadline_s: float = 20.0
    junit: Path | None = None


def own_keys(argv: Sequence[str]) -> tuple[Options, list[str]]:
    """The command's own options, and what is left of `argv` for Hydra."""
    options, rest = Options(), list[str]()
    given = iter(argv)
    for argument in given:
        flag, equals, value = argument.partition("=")
        if flag == "--junit":
            path = value if equals else next(given, "")
            options = _with(options, "junit", path)
        elif match := _OWN_KEY.fullmatch(argument):
            options = _with(options, match["key"] or match["name"], match["value"])
        elif argument.startswith("-") and flag not in _FLAGS:
            raise ConfigError(f"{argument} is no option of this command", hint="see --help")
        else:
            rest.append(argument)
    return options, rest


def _with(options: Options, name: str, text: str) -> Options:
    """`options` with one of them set to what `text` says."""
    known = [f.name for f in fields(Options)]
    place = name if name in ("mode", "kernels") else f"check.{name}"
    if name not in known:
        raise ConfigError(f"unknown key {place}{did_you_mean(name, known)}", hint="see --help")
    if name == "mode":
        if text not in MODES:
            raise ConfigError(f"mode = {text!r} is none of {', '.join(MODES)}{did_you_mean(text, MODES)}")
        return replace(options, mode=text)
    if name == "kernels":
        return replace(options, kernels=text)
    if name == "junit":
        if not text:
            raise ConfigError("--junit needs a file", hint="write --junit FILE")
        return replace(options, junit=Path(text).expanduser().absolute())
    if name == "deadline_s":
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) <= 0:
            raise ConfigError(f"{place} = {text!r} is not a number of seconds above 0")
        return replace(options, deadline_s=float(text))
    least = 0 if name == "workers" else 1
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{place} = {text!r} is not a whole number of at least {least}")
    changes = {name: int(text)}
    return replace(options, **changes)  # type: ignore[arg-type]
