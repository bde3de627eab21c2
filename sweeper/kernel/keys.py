"""The keys of a description, one function each: from what was written to what the model holds.

Each raises KernelError for anything missing, misspelt or of the wrong type.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.dtypes import DType, dtype
from sweeper.errors import did_you_mean
from sweeper.expressions import Expression, Value, parse
from sweeper.kernel.reader import IDENTIFIER, Reader
from sweeper.model import (
    ArraySpec,
    Direction,
    LaunchSpec,
    ParamSpec,
    ReferenceSpec,
    Requires,
    ScalarSpec,
    WorkModel,
    canonical_json,
)
from sweeper.paths import kernels_dir, start_folder

__all__ = [
    "ENTRY",
    "WORK_KEYS",
    "arguments",
    "chosen_dtypes",
    "find_file",
    "launch",
    "parameters",
    "reference",
    "requires",
    "sizes",
    "work_model",
]

ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*")
WORK_KEYS = ("flops", "global_bytes", "shared_traffic_bytes", "registers", "steps")
_NUMBER_LIKE = re.compile(r"[+-]?[0-9.]")
_FILLS = ("uniform", "normal", "integers", "zeros", "ones")
_SCRATCH_FILLS = ("zeros", "none")


def chosen_dtypes(reader: Reader) -> tuple[DType, tuple[DType, ...]]:
    """`dtype` and `dtypes`: the precision class that is chosen, and all that the kernel has."""
    chosen = dtype(reader.text("dtype", "float32"), where=f"{reader.where}.dtype")
    supported = tuple(
        dtype(n, where=f"{reader.where}.dtypes") for n in reader.sequence("dtypes", (chosen.name,))
    )
    if chosen not in supported:
        names = ", ".join(d.name for d in supported)
        raise reader.error(
            "dtype", f"{chosen.name} is not among this kernel's precision classes", f"it has {names}"
        )
    return chosen, supported


def sizes(reader: Reader) -> tuple[dict[str, int | None], dict[str, Expression]]:
    """The sizes with their defaults, and those whose default follows from other sizes."""
    value = reader.node.get("dims", ["M", "N", "K"])
    items = [value] if isinstance(value, Mapping) else reader.sequence("dims", value)
    named: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, Mapping | str):
            raise reader.error("dims", f"{item!r} is neither a name nor a mapping of names")
        named |= dict(item) if isinstance(item, Mapping) else {item: None}
    dims: dict[str, int | None] = {}
    optional: dict[str, Expression] = {}
    for name, size in named.items():
        if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,15}", str(name)):
            raise reader.error("dims", f"{name!r} is not an upper-case name such as M")
        if isinstance(size, str):
            optional[name] = parse(size, where=f"{reader.where}.dims.{name}")
        elif size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise reader.error("dims", f"{name} = {size!r} is not a whole number of at least 1")
        else:
            dims[name] = size
    for name, default in optional.items():
        for other in sorted(default.names - set(dims)):
            raise reader.error(
                "dims",
                f"{name} = {default.text!r} names {other!r}{did_you_mean(other, dims)}",
                "a default is over sizes that have none of this kind: " + ", ".join(dims),
            )
    return dims, optional


def parameters(reader: Reader) -> tuple[ParamSpec, ...]:
    """`params` and `default`: in the order written, a single value being a single level."""
    defaults = reader.mapping("default")
    params = []
    for name, value in reader.mapping("params").items():
        if not IDENTIFIER.fullmatch(str(name)):
            raise reader.error("params", f"{name!r} is not an identifier")
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        levels = tuple(_level(v, f"params.{name}", reader) for v in (value if listed else [value]))
        if not levels:
            raise reader.error(f"params.{name}", "no levels")
        if len({canonical_json(v) for v in levels}) != len(levels):
            raise reader.error(f"params.{name}", f"{list(levels)} lists a level twice")
        default = defaults.get(name, levels[0])
        params.append(ParamSpec(str(name), levels, default if default in levels else levels[0]))
    for name in defaults:
        if name not in {p.name for p in params}:
            known = [p.name for p in params]
            raise reader.error("default", f"{name!r} is not a parameter{did_you_mean(str(name), known)}")
    return tuple(params)


def _level(value: Any, key: str, reader: Reader) -> Value:
    if isinstance(value, str) and _NUMBER_LIKE.match(value):
        raise reader.error(key, f"{value!r} is not a plain number", "write 16, not 016, 0x10 or 1e1")
    if isinstance(value, str) and not IDENTIFIER.fullmatch(value):
        raise reader.error(key, f"{value!r} is neither a number nor an identifier")
    if not isinstance(value, bool | int | float | str):
        raise reader.error(key, f"{value!r} is not a number, a truth value or an identifier")
    return value


def launch(reader: Reader) -> LaunchSpec:
    """`launch`: block, grid and cluster as one to three sizes, shared memory in bytes."""
    reader.only("block", "grid", "cluster", "shared_bytes", "static_shared_bytes")
    return LaunchSpec(
        block=_three(reader, "block"),
        grid=_three(reader, "grid"),
        shared_bytes=reader.expression("shared_bytes", 0),
        static_shared_bytes=reader.expression("static_shared_bytes", 0),
        cluster=_three(reader, "cluster") if "cluster" in reader.node else None,
    )


def _three(reader: Reader, key: str) -> tuple[Expression, Expression, Expression]:
    value = reader.node.get(key)
    items: list[Any] = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if value is None or not 1 <= len(items) <= 3:
        raise reader.error(key, f"{value!r} is not a list of one to three sizes")
    parsed = [parse(item, where=f"{reader.where}.{key}[{i}]") for i, item in enumerate([*items, 1, 1][:3])]
    for i, size in enumerate(parsed):
        # A size without a name is the same at every point: wrong once, wrong everywhere.
        value = size.evaluate({}) if not size.names else 1
        if isinstance(value, str) or value != int(value) or value < 1:
            raise reader.error(f"{key}[{i}]", f"{value} is not a whole number of at least 1")
    return parsed[0], parsed[1], parsed[2]


def arguments(reader: Reader, precision: DType) -> tuple[ArraySpec | ScalarSpec, ...]:
    """`args`, in the order of the signature; `precision` is what `T` stands for."""
    args = []
    for i, node in enumerate(reader.sequence("args")):
        if not isinstance(node, Mapping):
            raise reader.error(f"args[{i}]", f"{node!r} is not a mapping")
        args.append(_argument(Reader(node, f"{reader.where}.args[{i}]"), precision))
    names = [a.name for a in args]
    if len(set(names)) != len(names):
        raise reader.error("args", f"a name is used twice in {names}")
    if not any(isinstance(a, ArraySpec) and a.direction in (Direction.OUT, Direction.INOUT) for a in args):
        raise reader.error(
            "args", "no array is written, so nothing can be proved right", "give one direction: out"
        )
    return tuple(args)


def _argument(reader: Reader, precision: DType) -> ArraySpec | ScalarSpec:
    name = reader.text("name", pattern=IDENTIFIER)
    if "scalar" in reader.node:
        reader.only("name", "scalar", "value")
        return ScalarSpec(name, _arg_dtype(reader, "scalar", precision), reader.expression("value"))
    if "value" in reader.node:
        raise reader.error("value", "a scalar needs its C type", f"add scalar: float32, int32 … to {name}")
    reader.only("name", "shape", "direction", "dtype", "fill", "pitch")
    direction = reader.text("direction", "in")
    if direction not in set(Direction):
        raise reader.error(
            "direction",
            f"{direction!r} is none of {', '.join(Direction)}{did_you_mean(direction, Direction)}",
        )
    scratch = direction == Direction.SCRATCH
    fills = _SCRATCH_FILLS if scratch else _FILLS
    fill = reader.text("fill", fills[0])
    if fill not in fills:
        raise reader.error("fill", f"{fill!r} is none of {', '.join(fills)}{did_you_mean(fill, fills)}")
    shape = tuple(reader.expressions("shape"))
    if not shape:
        raise reader.error("shape", "missing", "give the array's sizes, such as shape: [M, K]")
    pitch = reader.expression_or_none("pitch")
    if pitch is not None and scratch:
        raise reader.error("pitch", "a scratch array has none", "put it into its shape")
    precision_class = _arg_dtype(reader, "dtype", precision)
    return ArraySpec(name, precision_class, shape, Direction(direction), fill, pitch)


def _arg_dtype(reader: Reader, key: str, precision: DType) -> DType:
    """`T` is the kernel's class, `accumulator` what it sums in, `output` what it stores."""
    name = reader.text(key, "T")
    if name == "T":
        return precision
    if name == "accumulator":
        return dtype(precision.accumulator)
    return precision.result if name == "output" else dtype(name, where=f"{reader.where}.{key}")


def requires(reader: Reader) -> Requires:
    """`requires`: the least compute capability, `9.0a` being that one exactly, and conditions on the sizes."""
    child = Reader(reader.mapping("requires"), f"{reader.where}.requires")
    child.only("min_cc", "conditions")
    match = re.fullmatch(r"(\d{1,2})\.(\d)(a?)", str(child.node.get("min_cc", "0.0")))
    if match is None:
        raise child.error(
            "min_cc", f"{child.node['min_cc']!r} is not a compute capability", 'write "8.0" or "9.0a"'
        )
    return Requires((int(match[1]), int(match[2])), bool(match[3]), tuple(child.expressions("conditions")))


def reference(reader: Reader, path: Path) -> ReferenceSpec:
    """`reference`: a contraction, a plain kernel, or a function in a Python file beside the YAML at `path`."""
    child = reader.child("reference")
    if "contraction" in child.node:
        child.only("contraction")
        return ReferenceSpec("contraction", child.text("contraction").replace(" ", ""))
    if "kernel" in child.node:
        child.only("kernel", "launch")
        entry = child.text("kernel", pattern=ENTRY)
        return ReferenceSpec("kernel", entry, launch=launch(child.child("launch")))
    child.only("python", "function")
    file = find_file(child.text("python"), path, child, key="python")
    function = child.text("function", "reference", pattern=IDENTIFIER)
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return ReferenceSpec("python", function, path=file, digest=content)


def work_model(reader: Reader) -> WorkModel:
    """`model`: what the static model knows of a block."""
    child = Reader(reader.mapping("model"), f"{reader.where}.model")
    child.only(*WORK_KEYS)
    return WorkModel(**{key: child.expression_or_none(key) for key in WORK_KEYS})


def find_file(name: str, path: Path, reader: Reader, key: str = "source") -> Path:
    """The file `name`: beside the YAML at `path`, among the shipped kernels, or in the folder of the command."""
    folders = (path.parent, kernels_dir(), start_folder())
    for folder in folders:
        candidate = folder / name
        # What no file system takes for a name is no file either.
        with contextlib.suppress(OSError, ValueError):
            if candidate.is_file():
                return candidate.absolute()
    raise reader.error(key, f"no file {name!r}", "looked in " + " and ".join(str(f) for f in folders))
