"""A kernel's description: YAML and a .cu become a `KernelSpec`, everything checked before any compile.

The description is data. Expressions are parsed by `sweeper.expressions`, names are matched against a
fixed list of keys, and nothing in it is ever evaluated by Python.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.dtypes import DType, dtype
from sweeper.errors import KernelError, did_you_mean
from sweeper.expressions import Expression, Value, parse
from sweeper.kernel.agreement import check_source
from sweeper.kernel.layout import KEYS as LAYOUT_KEYS
from sweeper.kernel.layout import laid_out, without_default
from sweeper.kernel.tensor_maps import map_rules, tensor_maps
from sweeper.kernel.trip import trip, trip_expressions
from sweeper.model import (
    ArraySpec,
    Direction,
    KernelSpec,
    LaunchSpec,
    ParamSpec,
    ReferenceSpec,
    Requires,
    ScalarSpec,
    WorkModel,
    canonical_json,
)
from sweeper.paths import kernels_dir, start_folder
from sweeper.source.includes import read_tree

__all__ = ["load"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*")
_NUMBER_LIKE = re.compile(r"[+-]?[0-9.]")
_FILLS = ("uniform", "normal", "integers", "zeros", "ones")
_SCRATCH_FILLS = ("zeros", "none")
_WORK_KEYS = ("flops", "global_bytes", "shared_traffic_bytes", "registers", "steps")


def load(node: Mapping[str, Any], path: Path) -> KernelSpec:
    """The kernel described by `node`, the content of the YAML file at `path`.

    A source is looked for beside the YAML, then among the shipped kernels, then in the folder that the
    command was started in. Raises KernelError for anything missing, misspelt, of the wrong type, or at
    odds with the source.
    """
    reader = _Reader(node, f"{path.name}: kernel")
    reader.only(
        "name", "description", "source", "entry", "template", "dtype", "dtypes", *LAYOUT_KEYS, "dims",
        "params", "default", "constraints", "launch", "args", "tensor_maps", "requires", "reference",
        "defines", "options", "tolerance", "model", "flops", "forbid_spills", "trip",
    )  # fmt: skip
    name = reader.text("name", pattern=_NAME)
    given = without_default(node)
    node, layout = laid_out(node, f"{path.name}: kernel {name}")
    where = _Reader(node, f"{path.name}: kernel {name}")
    precision, precisions = _dtypes(where)
    source = _find_file(where.text("source"), path, where)
    params = _params(where)
    tree = read_tree(source, (source.parent,))
    dims, optional_dims = _dims(where)
    args = _args(where, precision)
    maps = tensor_maps(where.sequence("tensor_maps", ()), args, where=f"{where.where}.tensor_maps")
    template = tuple(
        "T" if item == "T" else parse(item, where=f"{where.where}.template")
        for item in where.sequence("template", ())
    )
    spec = KernelSpec(
        name=name,
        path=path,
        source=source,
        entry=where.text("entry", pattern=_ENTRY),
        template=template,
        dtype=precision,
        dtypes=precisions,
        dims=dims,
        params=params,
        constraints=(*where.expressions("constraints"), *map_rules(maps, args)),
        launch=_launch(where.child("launch")),
        args=args,
        requires=_requires(where),
        reference=_reference(where, path),
        defines=where.expression_map("defines"),
        options=tuple(where.texts("options")),
        tolerance=where.number("tolerance", 6.0),
        model=_work_model(where),
        work_flops=where.expression_or_none("flops"),
        digest=tree.digest[:16],
        description=where.text("description", ""),
        node_json=canonical_json(json.loads(json.dumps(_ordered(given)))),
        forbid_spills=where.switch("forbid_spills"),
        optional_dims=optional_dims,
        layout=layout,
        tensor_maps=maps,
        trip=trip(
            node.get("trip"),
            dims,
            args,
            uncuttable="tensor maps"
            if maps
            else "clusters"
            if "cluster" in where.child("launch").node
            else "",
            where=f"{where.where}.trip",
        ),
    )
    _check_names(spec, where.where)
    check_source(spec, tree, where=where.where)
    return spec


@dataclass(frozen=True)
class _Reader:
    """A mapping of the description, with its place for error messages."""

    node: Mapping[str, Any]
    where: str

    def error(self, key: str, problem: str, hint: str | None = None) -> KernelError:
        return KernelError(f"{self.where}.{key}: {problem}", hint=hint)

    def only(self, *known: str) -> None:
        for key in self.node:
            if key not in known:
                raise self.error(
                    str(key), f"unknown key{did_you_mean(str(key), known)}", "known: " + ", ".join(known)
                )

    def child(self, key: str) -> _Reader:
        value = self.node.get(key)
        if not isinstance(value, Mapping):
            raise self.error(key, "missing, or not a mapping")
        return _Reader(value, f"{self.where}.{key}")

    def text(self, key: str, default: str | None = None, *, pattern: re.Pattern[str] | None = None) -> str:
        value = self.node.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is not text")
        if pattern is not None and not pattern.fullmatch(value):
            raise self.error(key, f"{value!r} is not a valid name", f"a name matches {pattern.pattern}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.node.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(key, f"{value!r} is not a positive number")
        return float(value)

    def switch(self, key: str) -> bool:
        value = self.node.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r} is neither true nor false")
        return value

    def sequence(self, key: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self.node.get(key, default)
        if value is None or isinstance(value, str) or not isinstance(value, Sequence):
            raise self.error(key, "missing, or not a list")
        return value

    def texts(self, key: str) -> list[str]:
        values = list(self.sequence(key, ()))
        if not all(isinstance(v, str) for v in values):
            raise self.error(key, f"{values!r} holds something that is not text")
        return values

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.node.get(key, {})
        if not isinstance(value, Mapping):
            raise self.error(key, f"{value!r} is not a mapping")
        return value

    def expression(self, key: str, default: Any = None) -> Expression:
        value = self.node.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        return parse(value, where=f"{self.where}.{key}")

    def expression_or_none(self, key: str) -> Expression | None:
        return self.expression(key) if self.node.get(key) is not None else None

    def expressions(self, key: str) -> list[Expression]:
        return [
            parse(item, where=f"{self.where}.{key}[{i}]") for i, item in enumerate(self.sequence(key, ()))
        ]

    def expression_map(self, key: str) -> dict[str, Expression]:
        for name in self.mapping(key):
            if not _IDENTIFIER.fullmatch(str(name)):
                raise self.error(key, f"{name!r} is not an identifier")
        return {str(n): parse(v, where=f"{self.where}.{key}.{n}") for n, v in self.mapping(key).items()}


def _dtypes(reader: _Reader) -> tuple[DType, tuple[DType, ...]]:
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


def _dims(reader: _Reader) -> tuple[dict[str, int | None], dict[str, Expression]]:
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


def _ordered(node: Mapping[str, Any]) -> dict[str, Any]:
    """`node`, its sizes in a form whose order does not depend on that of a mapping."""
    dims = node.get("dims")
    if not isinstance(dims, Mapping) or len(dims) < 2:
        return dict(node)
    return {**node, "dims": [name if size is None else {name: size} for name, size in dims.items()]}


def _params(reader: _Reader) -> tuple[ParamSpec, ...]:
    defaults = reader.mapping("default")
    params = []
    for name, value in reader.mapping("params").items():
        if not _IDENTIFIER.fullmatch(str(name)):
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


def _level(value: Any, key: str, reader: _Reader) -> Value:
    if isinstance(value, str) and _NUMBER_LIKE.match(value):
        raise reader.error(key, f"{value!r} is not a plain number", "write 16, not 016, 0x10 or 1e1")
    if isinstance(value, str) and not _IDENTIFIER.fullmatch(value):
        raise reader.error(key, f"{value!r} is neither a number nor an identifier")
    if not isinstance(value, bool | int | float | str):
        raise reader.error(key, f"{value!r} is not a number, a truth value or an identifier")
    return value


def _launch(reader: _Reader) -> LaunchSpec:
    reader.only("block", "grid", "cluster", "shared_bytes", "static_shared_bytes")
    return LaunchSpec(
        block=_three(reader, "block"),
        grid=_three(reader, "grid"),
        shared_bytes=reader.expression("shared_bytes", 0),
        static_shared_bytes=reader.expression("static_shared_bytes", 0),
        cluster=_three(reader, "cluster") if "cluster" in reader.node else None,
    )


def _three(reader: _Reader, key: str) -> tuple[Expression, Expression, Expression]:
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


def _args(reader: _Reader, precision: DType) -> tuple[ArraySpec | ScalarSpec, ...]:
    args = []
    for i, node in enumerate(reader.sequence("args")):
        if not isinstance(node, Mapping):
            raise reader.error(f"args[{i}]", f"{node!r} is not a mapping")
        args.append(_argument(_Reader(node, f"{reader.where}.args[{i}]"), precision))
    names = [a.name for a in args]
    if len(set(names)) != len(names):
        raise reader.error("args", f"a name is used twice in {names}")
    if not any(isinstance(a, ArraySpec) and a.direction in (Direction.OUT, Direction.INOUT) for a in args):
        raise reader.error(
            "args", "no array is written, so nothing can be proved right", "give one direction: out"
        )
    return tuple(args)


def _argument(reader: _Reader, precision: DType) -> ArraySpec | ScalarSpec:
    name = reader.text("name", pattern=_IDENTIFIER)
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


def _arg_dtype(reader: _Reader, key: str, precision: DType) -> DType:
    """`T` is the kernel's class, `accumulator` what it sums in, `output` what it stores."""
    name = reader.text(key, "T")
    if name == "T":
        return precision
    if name == "accumulator":
        return dtype(precision.accumulator)
    return precision.result if name == "output" else dtype(name, where=f"{reader.where}.{key}")


def _requires(reader: _Reader) -> Requires:
    child = _Reader(reader.mapping("requires"), f"{reader.where}.requires")
    child.only("min_cc", "conditions")
    match = re.fullmatch(r"(\d{1,2})\.(\d)(a?)", str(child.node.get("min_cc", "0.0")))
    if match is None:
        raise child.error(
            "min_cc", f"{child.node['min_cc']!r} is not a compute capability", 'write "8.0" or "9.0a"'
        )
    return Requires((int(match[1]), int(match[2])), bool(match[3]), tuple(child.expressions("conditions")))


def _reference(reader: _Reader, path: Path) -> ReferenceSpec:
    child = reader.child("reference")
    if "contraction" in child.node:
        child.only("contraction")
        return ReferenceSpec("contraction", child.text("contraction").replace(" ", ""))
    if "kernel" in child.node:
        child.only("kernel", "launch")
        entry = child.text("kernel", pattern=_ENTRY)
        return ReferenceSpec("kernel", entry, launch=_launch(child.child("launch")))
    child.only("python", "function")
    file = _find_file(child.text("python"), path, child, key="python")
    function = child.text("function", "reference", pattern=_IDENTIFIER)
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return ReferenceSpec("python", function, path=file, digest=content)


def _work_model(reader: _Reader) -> WorkModel:
    child = _Reader(reader.mapping("model"), f"{reader.where}.model")
    child.only(*_WORK_KEYS)
    return WorkModel(**{key: child.expression_or_none(key) for key in _WORK_KEYS})


def _find_file(name: str, path: Path, reader: _Reader, key: str = "source") -> Path:
    folders = (path.parent, kernels_dir(), start_folder())
    for folder in folders:
        candidate = folder / name
        # What no file system takes for a name is no file either.
        with contextlib.suppress(OSError, ValueError):
            if candidate.is_file():
                return candidate.absolute()
    raise reader.error(key, f"no file {name!r}", "looked in " + " and ".join(str(f) for f in folders))


def _check_names(spec: KernelSpec, where: str) -> None:
    """Every name in an expression is a parameter, a size, or one of the given ones."""
    given = {"elem_bytes", "warp_size", "max_threads", "max_shared_bytes", "sm_count", "cc"}
    geometry = {
        *(f"{kind}_{axis}" for kind in ("block", "grid") for axis in "xyz"),
        "threads", "shared_bytes", "static_shared_bytes",
    }  # fmt: skip
    # What reaches a compiler may follow from the parameters alone, or every shape would be a build of its own.
    compiled = {p.name for p in spec.params} | {"elem_bytes"}
    dims = set(spec.dims) | set(spec.optional_dims)
    known = compiled | dims | given
    for text, expressions, names in (
        # Before the constraints, some of which come from it.
        ("tensor_maps", tuple(m.choice for m in spec.tensor_maps if m.choice is not None), compiled | dims),
        ("constraints", spec.constraints, known | geometry),
        ("requires.conditions", spec.requires.conditions, dims | given),
        ("launch", (*spec.launch.block, *spec.launch.grid, *(spec.launch.cluster or ())), known),
        ("launch", (spec.launch.shared_bytes, spec.launch.static_shared_bytes), known | geometry),
        ("template", tuple(t for t in spec.template if isinstance(t, Expression)), compiled),
        ("defines", tuple(spec.defines.values()), compiled | {"T"}),
        ("args", _argument_expressions(spec), compiled | dims),
        ("tensor_maps", tuple(e for m in spec.tensor_maps for e in m.compiled_expressions), compiled),
        ("flops", () if spec.work_flops is None else (spec.work_flops,), dims),
        ("trip", trip_expressions(spec), known),
        (
            "model",
            tuple(e for k in _WORK_KEYS if (e := getattr(spec.model, k)) is not None),
            known | geometry,
        ),
    ):
        for expression in expressions:
            for name in sorted(expression.names - names):
                raise KernelError(
                    f"{where}.{text}: unknown name {name!r} in {expression.text!r}{did_you_mean(name, names)}",
                    hint="known: " + ", ".join(sorted(names)),
                )


def _argument_expressions(spec: KernelSpec) -> tuple[Expression, ...]:
    found: list[Expression] = []
    for argument in spec.args:
        if isinstance(argument, ScalarSpec):
            found.append(argument.value)
            continue
        found.extend(argument.shape)
        found.extend(() if argument.pitch is None else (argument.pitch,))
    return tuple(found)
