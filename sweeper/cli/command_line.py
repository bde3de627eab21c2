"""The command line as people write it, turned into the one Hydra understands.

Hydra wants `+shape=large` where a group has no default and refuses `shape=large`; wants flags before
overrides; refuses `+key=…` where the key exists and `key=…` where it does not. None of that is the
user's concern: here groups keep their form, and every value override becomes `++key=value`, so that
the strict check of the composed configuration is the only judge of a key, whatever its prefix.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.errors import ConfigError, did_you_mean

__all__ = ["Arguments", "config_dirs", "gpus_named", "launches", "normalise"]

_WITH_VALUE = {
    "-cd", "--config-dir", "-cn", "--config-name", "-cp", "--config-path", "-c", "--cfg", "-p", "--package",
    "--experimental-rerun", "-sc", "--shell-completion",
}  # fmt: skip
_SHOWS = {
    "-c",
    "--cfg",
    "-h",
    "--help",
    "--hydra-help",
    "--version",
    "-i",
    "--info",
    "-sc",
    "--shell-completion",
}
# What others call an option and is a key here.
_SWITCHES = {"--dry-run": "dry_run=true", "--fail-fast": "fail_fast=true", "--plan": "plan=true"}
# A plan is a section of the configuration; whether there is one is all that most people say of it.
_PLANS = {"true": "text", "json": "json", "false": None, "null": None}
# All three say where results go; the last one given counts.
_FOLDER_KEYS = ("results_dir", "hydra.run.dir", "hydra.sweep.dir")
_OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[^=\s]+?)=(?P<value>.*)", re.DOTALL)
_ONE_OFF = re.compile(r"\d+(?:x\d+)+")
_SIZES = ("m", "n", "k")


@dataclass(frozen=True, slots=True)
class Arguments:
    """`hydra` is what Hydra gets; `folder` where results go; `shapes` one-off shapes by name.

    `shows` is true where the command prints something (help, configuration) instead of running;
    `earlier` holds the folders of earlier runs that may be answered from, None where a folder was named. `plan` is
    the form, `text` or `json`, in which the command is only planned; None where it runs.
    """

    hydra: tuple[str, ...]
    folder: Path
    multirun: bool
    shows: bool
    config_dirs: tuple[Path, ...]
    shapes: dict[str, dict[str, int]]
    earlier: Path | None
    plan: str | None = None


def normalise(
    argv: Sequence[str], *, groups: Iterable[str], default_root: Path, now: str | None = None
) -> Arguments:
    """`argv` (without the program's name) as Hydra takes it.

    `groups` are the configuration groups; `default_root` holds the folders of runs that name none, and
    `now` replaces the time in such a folder's name. Raises ConfigError for forms that Hydra would
    misread without a word or refuse without saying where.
    """
    flags, overrides = _split(argv)
    known = set(groups)
    shapes: dict[str, dict[str, int]] = {}
    kept: list[str] = []
    folder: Path | None = None
    plan: str | None = None
    for override in overrides:
        match = _OVERRIDE.fullmatch(override)
        if match is None:
            kept.append(override)
            continue
        key, value = match["key"], match["value"]
        if key in _FOLDER_KEYS and match["prefix"] != "~":
            folder = _folder(key, value)
        elif key in ("plan", "plan.form"):
            plan = _plan(value)
            kept.append(f"++plan.form={plan or 'null'}")
        elif key == "shape":
            kept.append(f"+shape={_shape_value(value, shapes)}")
        elif key.startswith(("hydra.", "hydra/")) or match["prefix"] == "~":
            _check_hydra_key(key)
            kept.append(override)
        elif _group(key) in known:
            kept.append(f"{key}={value}")
        else:
            kept.append(f"++{key}={value}")
            if key in {f"shape.{s}" for s in _SIZES}:
                kept.append("++shape.name=null")
    _check_grammar(kept)
    multirun = any(f in ("-m", "--multirun") for f in flags)
    earlier = None if folder else default_root
    folder = folder or default_root / _folder_name(overrides, now)
    where = str(folder).replace("'", r"\'")
    kept += [f"hydra.run.dir='{where}'", f"hydra.sweep.dir='{where}'", f"++results_dir='{where}'"]
    return Arguments(
        hydra=(*flags, *dict.fromkeys(kept)),
        folder=folder,
        multirun=multirun,
        shows=any(f.split("=")[0] in _SHOWS for f in flags),
        config_dirs=tuple(config_dirs(flags)),
        shapes=shapes,
        earlier=earlier,
        plan=plan,
    )


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags (each followed by its value, if any) and overrides, each in the order given."""
    flags: list[str] = []
    overrides: list[str] = []
    rest = iter(argv)
    for argument in rest:
        if not argument.startswith("-") or argument in _SWITCHES:
            overrides.append(_SWITCHES.get(argument, argument))
            continue
        flags.append(argument)
        if argument in _WITH_VALUE:
            value = next(rest, None)
            if value is None:
                raise ConfigError(f"{argument} needs a value")
            flags.append(value)
    return flags, overrides


def config_dirs(words: Sequence[str]) -> list[Path]:
    """The folders that a command line names with `--config-dir` or `-cd`, in order."""
    named = [after for word, after in itertools.pairwise(words) if word in ("-cd", "--config-dir")]
    named += [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return [Path(name).absolute() for name in named]


def _group(key: str) -> str:
    """`kernel` of `kernel`, `kernel@_global_`; nothing of `kernel.params.tile`."""
    return key.partition("@")[0]


def _check_hydra_key(key: str) -> None:
    """Raise ConfigError for a key under `hydra.` that Hydra does not have; with a + it takes any."""
    from hydra.conf import HydraConf

    kind: Any = HydraConf
    place, *parts = key.split(".")
    for part in parts if place == "hydra" else ():
        # A launcher or sweeper of one's own brings keys of its own.
        if not dataclasses.is_dataclass(kind):
            return
        known = typing.get_type_hints(kind)
        if part not in known:
            raise ConfigError(f"unknown key {place}.{part}{did_you_mean(part, known)}")
        kind, place = known[part], f"{place}.{part}"


def _check_grammar(overrides: Iterable[str]) -> None:
    """Raise ConfigError, naming the argument, for one that Hydra's grammar does not take."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    for override in overrides:
        try:
            parser.parse_override(override)
        except HydraException as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"{override.lstrip('+')}: {reason}",
                hint="a value with = ( ) { } : or spaces needs quotes of its own: \"key='a=(1,2)'\"",
            ) from None


def _folder(key: str, value: str) -> Path | None:
    text = value.strip("'\"")
    if text == "null":
        return None
    if not text or "," in text or "${" in text:
        raise ConfigError(f"{key}={value!r} is not one folder", hint="write results_dir=PATH")
    return Path(text).expanduser().absolute()


def _plan(value: str) -> str | None:
    told = value.strip("'\"").lower()
    form = told if told in _PLANS.values() else _PLANS.get(told, "")
    if form == "":
        raise ConfigError(f"plan={value} is none of true, json, false")
    return form


def _shape_value(value: str, shapes: dict[str, dict[str, int]]) -> str:
    """A comma list of named and one-off shapes; one-off ones are noted in `shapes`."""
    text = value.strip("'\"")
    names = []
    for item in _items(text):
        triple = re.fullmatch(r"\[(\d+),(\d+),(\d+)\]", item)
        name = "x".join(triple.groups()) if triple else item
        if _ONE_OFF.fullmatch(name):
            sizes = [int(s) for s in name.split("x")]
            if len(sizes) != len(_SIZES):
                raise ConfigError(
                    f"shape={item} has {len(sizes)} sizes", hint="write MxNxK, such as shape=256x512x64"
                )
            shapes[name] = dict(zip(_SIZES, sizes, strict=True))
        elif name.isdigit():
            raise ConfigError(
                f"shape={value}: {name} alone is not a shape",
                hint=f"write MxNxK, such as shape={name}x{name}x{name}, or shape.m={name}",
            )
        elif name.startswith("["):
            raise ConfigError(
                f"shape={value} would take only the last of the list",
                hint="write -m shape=a,b for one job a shape, or shape=[M,N,K] with three whole numbers",
            )
        names.append(name)
    return ",".join(names)


def _items(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    return [item.strip() for item in re.split(r",(?![^\[]*\])", text)]


def _folder_name(overrides: Sequence[str], now: str | None) -> str:
    """`20300101-120000-123456-tiled-large`: sortable, and unique for runs started in one second."""
    stamp = now
    if stamp is None:
        seconds = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds)) + f"-{int(seconds % 1 * 1e6):06d}"
    words = []
    for override in overrides:
        match = _OVERRIDE.fullmatch(override)
        if match and match["key"] in ("kernel", "shape", "experiment"):
            words.append(re.sub(r"[^A-Za-z0-9_.]+", "+", match["value"])[:40])
    return "-".join([stamp, *words])


def gpus_named(overrides: Iterable[str]) -> int:
    """How many GPUs `overrides` speak of, as far as that can be told before anything is composed.

    0 where nothing will run on one, or a shared one will, or other processes will run the jobs; 1 where nothing is
    said, or `all`.
    """
    overrides = tuple(overrides)
    if launches(overrides):
        return 0
    count = 1
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key in ("backend", "backend.name") and value not in ("auto", "cuda"):
            return 0
        if key in ("dry_run", "backend.allow_shared") and value.lower() == "true":
            return 0
        if key == "plan.form" and value != "null":
            return 0
        if key in ("engine", "engine.name") and value != "local":
            return 0
        if key == "backend.devices":
            count = max(1, len(re.findall(r"\d+", value)))
    return count


def launches(overrides: Iterable[str]) -> bool:
    """Whether `overrides` name a launcher that runs jobs in processes of their own."""
    return any(o.startswith("hydra/launcher=") and o != "hydra/launcher=basic" for o in overrides)
