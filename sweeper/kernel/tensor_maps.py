"""The tensor maps of a description: what the kernel's TMA copies are boxes of.

    tensor_maps:
      - {name: a_map, array: A, box: [BM, BK], swizzle: 4 * BK}
      - {name: b_map, array: [B, b_copy], choice: "min(1, LDB % 4)", box: [BK, BN]}

What the hardware asks of them becomes constraints, so a configuration or a leading dimension that breaks one
is infeasible before anything is built (CUDA Driver API, "Tensor Map Object Management").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.errors import KernelError, did_you_mean
from sweeper.expressions import Expression, parse
from sweeper.model import ArraySpec, ScalarSpec, TensorMapSpec

__all__ = ["map_rules", "tensor_maps"]

_KEYS = ("name", "array", "choice", "box", "swizzle", "fill")
_FILLS = ("zeros", "nan")
_MOST_AXES = 5
_MOST_BOX = 256
_ALIGNMENT = 16
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def tensor_maps(
    nodes: Sequence[Any], args: Sequence[ArraySpec | ScalarSpec], *, where: str
) -> tuple[TensorMapSpec, ...]:
    """The tensor maps that `nodes` describe, of arrays among `args`. Raises KernelError."""
    arrays = {a.name: a for a in args if isinstance(a, ArraySpec)}
    maps = tuple(_map(node, arrays, f"{where}[{i}]") for i, node in enumerate(nodes))
    names = [*(a.name for a in args), *(m.name for m in maps)]
    if len(set(names)) != len(names):
        raise KernelError(f"{where}: a name is used twice in {names}")
    return maps


def _map(node: Any, arrays: Mapping[str, ArraySpec], where: str) -> TensorMapSpec:
    if not isinstance(node, Mapping):
        raise KernelError(f"{where}: {node!r} is not a mapping")
    for key in node:
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise KernelError(
                f"{where}.{key}: unknown key{did_you_mean(str(key), _KEYS)}", hint=f"known: {known}"
            )
    name, fill = node.get("name"), node.get("fill", _FILLS[0])
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise KernelError(f"{where}.name: {name!r} is not an identifier")
    choices = _choices(node, arrays, where)
    if fill not in _FILLS:
        raise KernelError(f"{where}.fill: {fill!r} is none of {', '.join(_FILLS)}")
    box: Any = node.get("box")
    for array in choices:
        _require_fit(array, box, fill, where)
    sizes = tuple(parse(size, where=f"{where}.box[{i}]") for i, size in enumerate(box))
    swizzle = parse(node.get("swizzle", 0), where=f"{where}.swizzle")
    choice = parse(node["choice"], where=f"{where}.choice") if "choice" in node else None
    return TensorMapSpec(name, tuple(a.name for a in choices), sizes, swizzle, fill, choice)


def _choices(node: Mapping[Any, Any], arrays: Mapping[str, ArraySpec], where: str) -> list[ArraySpec]:
    """The one array of a map, or those that its `choice` is among."""
    of = node.get("array")
    names: list[Any] = list(of) if isinstance(of, list | tuple) else [of]
    for name in names:
        if not isinstance(name, str) or name not in arrays:
            raise KernelError(f"{where}.array: {name!r} is no array of args{did_you_mean(str(name), arrays)}")
    if (len(names) > 1) != ("choice" in node) or not names:
        raise KernelError(
            f"{where}: array names {len(names)}, and choice is {'' if 'choice' in node else 'not '}given",
            hint="several arrays need a choice among them, counted from 0, and one needs none",
        )
    found = [arrays[name] for name in names]
    if len({array.dtype for array in found}) > 1:
        raise KernelError(f"{where}.array: {', '.join(names)} are not of one precision class")
    return found


def _require_fit(array: ArraySpec, box: Any, fill: str, where: str) -> None:
    axes = len(array.shape)
    if not isinstance(box, Sequence) or isinstance(box, str) or len(box) != axes:
        raise KernelError(
            f"{where}.box: {box!r} does not give a size for each of the {axes} axes of {array.name}",
            hint="in the order of its shape, such as box: [BM, BK]",
        )
    if axes > _MOST_AXES:
        raise KernelError(f"{where}.array: {array.name} has {axes} axes, a tensor map at most {_MOST_AXES}")
    if fill == "nan" and array.dtype is not None and array.dtype.is_integer:
        raise KernelError(f"{where}.fill: the integers of {array.name} have no NaN", hint="write fill: zeros")


def map_rules(
    maps: Sequence[TensorMapSpec], args: Sequence[ArraySpec | ScalarSpec]
) -> tuple[Expression, ...]:
    """What must hold for `maps` to be made: constraints over parameters and sizes."""
    arrays = {a.name: a for a in args if isinstance(a, ArraySpec)}
    texts: list[str] = []
    for made in maps:
        choices = [arrays[name] for name in made.arrays]
        size = "elem_bytes" if choices[0].dtype is None else str(choices[0].dtype.bytes)
        row = f"({made.box[-1].text}) * {size}"
        if made.choice is not None:
            texts.append(f"0 <= ({made.choice.text}) < {len(choices)}")
        for number, array in enumerate(choices):
            if len(array.shape) > 1:
                pitch = array.pitch or array.shape[-1]
                unless = "" if made.choice is None else f"({made.choice.text}) != {number} or "
                texts.append(f"{unless}({pitch.text}) * {size} % {_ALIGNMENT} == 0")
        texts += [f"1 <= {box.text} <= {_MOST_BOX}" for box in made.box]
        texts.append(f"{row} % {_ALIGNMENT} == 0")
        if made.swizzle.text != "0":
            swizzle = made.swizzle.text if made.swizzle.text.isalnum() else f"({made.swizzle.text})"
            texts.append(f"{swizzle} in (0, 32, 64, 128) and ({swizzle} == 0 or {row} <= {swizzle})")
    return tuple(parse(text, where="a rule of tensor maps") for text in dict.fromkeys(texts))
