"""`python -m sweeper --help`: what a newcomer needs, in 100 columns; with `kernel=NAME`, that kernel's parameters."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.cli.catalogue import described, groups, kernel_node, options, read_yaml, shipped_defaults
from sweeper.cli.keys import FLAGS, KEYS
from sweeper.errors import ConfigError, did_you_mean

__all__ = ["help_text"]

_WIDTH = 100
_HEAD = """\
sweeper sweeps and tunes CUDA kernels. It compiles every promising configuration of a kernel, proves
each one right against a reference, times it, and writes a table that says which one is best, how
sure that is, and how far it stands from the library and from the hardware's limit. Without a GPU
the same kernels run in an emulator, and times are predicted.

  python -m sweeper [GROUP=OPTION]… [KEY=VALUE]… [FLAG]…
"""
_EXAMPLES = (
    ("shape=large", "search the default kernel at 4096³"),
    ("kernel=tiled kernel.params.tile=16 shape=512x256x64", "one configuration at sizes of your own"),
    ("-m kernel=tiled kernel.params.tile=8,16,32 shape=small,odd", "a sweep: a job each, one table"),
    ("experiment=ladder shape=large", "the whole course, and what each rung gains"),
    ("--config-dir DIR kernel=mine", "a kernel of your own: DIR/mine.yaml and its .cu"),
)
_VALUES = """\
  kernel.params.NAME=16 pins a parameter, kernel.params.NAME=[8,16] searches these levels, and with
  -m 8,16 is a job each. shape.m=, shape.n= and shape.k= set single sizes. key=value, +key=value and
  ++key=value mean the same; a key that does not exist is an error that names the nearest.
"""
_GROUPS = ("kernel", "shape", "search", "measure", "backend", "experiment")
_SISTERS = {
    "check": "races, accesses out of bounds and uninitialised reads, in the emulator",
    "doctor": "what of this machine a search can use, and how to mend what it cannot",
    "report": "results as one HTML page: verdicts, figures, tables",
    "compare": "two results row by row: faster, slower, the same, not told",
    "export": "the best of each shape as a C++ header, JSON, Python or a table",
    "dispatch": "which configuration to take for a shape",
    "portfolio": "the few configurations that serve many shapes",
    "profile": "hardware counters of the best, under NVIDIA's ncu",
    "importance": "which parameters matter, and which do not",
    "reproduce": "measure a published table again, and say what agrees",
    "collect": "many results folders as one",
}
_EXIT = """\
  0 done    1 no valid configuration    2 configuration or usage    3 device or set-up
  4 storage    130 interrupted; what was measured is kept
"""


def help_text(argv: Sequence[str], config_dirs: Sequence[Path] = ()) -> str:
    """The page for the command line `argv`: of the kernel or the experiment it names, else of everything.

    Raises ConfigError for a kernel or an experiment that there is not.
    """
    named = dict(word.lstrip("+").split("=", 1) for word in argv if "=" in word and not word.startswith("-"))
    if "kernel" in named:
        return _kernel_page(named, _file("kernel", named["kernel"], config_dirs), config_dirs)
    if "experiment" in named:
        return _experiment_page(named["experiment"], _file("experiment", named["experiment"], config_dirs))
    return "\n".join(_whole(config_dirs)) + "\n"


def _file(group: str, name: str, config_dirs: Sequence[Path]) -> Path:
    known = options(group, config_dirs)
    if name not in known:
        raise ConfigError(f"{group}={name}: there is none{did_you_mean(name, known)}", hint="see --help")
    return known[name]


def _whole(config_dirs: Sequence[Path]) -> Iterator[str]:
    yield _HEAD
    yield "Examples"
    for text, about in _EXAMPLES:
        yield f"  {about}"
        yield f"    python -m sweeper {text}"
    yield f"\nValues\n{_VALUES}"
    defaults = shipped_defaults()
    for group in [*_GROUPS, *(g for g in groups() if g not in (*_GROUPS, "problem"))]:
        default = defaults.get(group) or defaults.get(f"{group}.name")
        note = f", {default} unless you say otherwise" if default else ""
        yield f"{group}={'NAME' if group != 'shape' else 'NAME or MxNxK'}{note}"
        yield from _columns(
            [(name, _told(group, path)) for name, path in options(group, config_dirs).items()]
        )
        yield ""
    yield "Keys, with their defaults (all of them: docs/sweeps.md, or --cfg job)"
    shown = [key for key in KEYS if key.everyday]
    yield from _columns(
        [
            (f"{k.name}={_value(defaults.get(k.name, k.default))}", _meaning(k.meaning, k.choices))
            for k in shown
        ]
    )
    yield "\nFlags, which may stand anywhere"
    yield from _columns(list(FLAGS.items()))
    yield "\nOther commands, each with a --help of its own: python -m sweeper.NAME"
    root = Path(__file__).parents[1]
    there = [(name, about) for name, about in _SISTERS.items() if (root / name).is_dir()]
    yield from _columns(there)
    yield f"\nExit codes\n{_EXIT}"
    yield "A kernel's parameters: --help kernel=tiled. What an experiment does: --help experiment=ladder."


def _told(group: str, path: Path) -> str:
    if group != "shape":
        return described(path)
    node = read_yaml(path)
    return f"{' × '.join(str(node.get(size)) for size in 'mnk')}{_after(described(path), ': ')}"


def _after(text: str, separator: str) -> str:
    return f"{separator}{text}" if text else ""


def _meaning(meaning: str, choices: Sequence[str]) -> str:
    if not choices or set(choices) <= {"true", "false"} or any(choice in meaning for choice in choices):
        return meaning
    return f"{meaning}: {', '.join(choices)}"


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _columns(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Rows of a name and a line about it, cut to the page."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, about in rows:
        yield f"  {name:{width}}  {textwrap.shorten(about, _WIDTH - width - 4, placeholder=' …')}".rstrip()


def _experiment_page(name: str, path: Path) -> str:
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            comment.append(line.removeprefix("#").removeprefix(" "))
    node = read_yaml(path)
    swept = ((node.get("hydra") or {}).get("sweeper") or {}).get("params") or {}
    lines = [f"experiment={name}", "", *_wrapped(comment)]
    if swept:
        lines += ["", "A job for every combination of"]
        for key, value in swept.items():
            lines += _listed(f"  {str(key).lstrip('+')}=", str(value).split(","))
    return "\n".join(lines) + "\n"


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Prose as wide as the page; commands, which are indented, as they are."""
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.startswith(" ") or not line:
            yield from textwrap.wrap(" ".join(paragraph), _WIDTH)
            paragraph = []
            if line:
                yield from textwrap.wrap(
                    line,
                    _WIDTH,
                    initial_indent=line[: len(line) - len(line.lstrip())],
                    subsequent_indent="      ",
                )
        else:
            paragraph.append(line)


def _listed(head: str, items: Sequence[str]) -> list[str]:
    return textwrap.wrap(
        ", ".join(items),
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
    )


def _kernel_page(named: Mapping[str, str], path: Path, config_dirs: Sequence[Path]) -> str:
    from sweeper.kernel import load

    node = kernel_node(path)
    spec = load({**node, **({"dtype": named["kernel.dtype"]} if "kernel.dtype" in named else {})}, path)
    count = math.prod(len(param.levels) for param in spec.params)
    about = _after(str(node.get("description", "")), ": ")
    lines = [*textwrap.wrap(f"kernel={path.stem}{about}", _WIDTH, subsequent_indent="  "), ""]
    lines += _listed("  source          ", [f"{spec.source.name}, {spec.entry}"])
    lines += _listed("  precision       ", [f"kernel.dtype={spec.dtype.name} of {_names(spec.dtypes)}"])
    lines += _listed("  sizes           ", [_size(name, value) for name, value in spec.dims.items()])
    if spec.optional_dims:
        lines += _listed("  unless given    ", [f"{name} = {text}" for name, text in _optional(node, spec)])
    lines += ["", f"Parameters: {count:,} combinations; dry_run=true says how many of them are feasible"]
    rows = [
        (f"kernel.params.{param.name}={param.default}", ", ".join(_value(v) for v in param.levels))
        for param in spec.params
    ]
    width = max((len(name) for name, _ in rows), default=0)
    for name, levels in rows:
        lines += _listed(f"  {name:{width}}  ", [levels])
    constraints = [str(text) for text in _as_list(node.get("constraints"))]
    if constraints:
        lines += ["", "Constraints, beside the device's own limits"]
        for text in constraints:
            lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    needs = node.get("requires")
    if isinstance(needs, Mapping):
        lines += ["", "Needs"]
        for key, value in needs.items():
            lines += textwrap.wrap(
                f"{key}: {_value(value)}", _WIDTH, initial_indent="  ", subsequent_indent="    "
            )
    own = "".join(f"--config-dir {folder} " for folder in config_dirs)
    size = " shape=small" if {"M", "N", "K"} <= set(spec.dims) else ""
    lines += ["", "For example", f"  python -m sweeper {own}kernel={path.stem}{size}"]
    first = next(iter(spec.params), None)
    if first is not None:
        levels = ",".join(_value(v) for v in first.levels[:3])
        lines.append(
            f"  python -m sweeper -m {own}kernel={path.stem} kernel.params.{first.name}={levels}{size}"
        )
    return "\n".join(lines) + "\n"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _names(dtypes: Iterable[Any]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def _size(name: str, value: int | None) -> str:
    return f"shape.{name.lower()}={512 if value is None else value}"


def _optional(node: Mapping[str, Any], spec: Any) -> Iterator[tuple[str, str]]:
    dims = node.get("dims")
    told = {str(k): v for item in _as_list(dims) if isinstance(item, Mapping) for k, v in item.items()}
    for name in spec.optional_dims:
        yield f"shape.{name.lower()}", str(told.get(name, ""))
