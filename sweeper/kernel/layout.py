"""Layouts: which of a contraction's operands lie in memory transposed, as one letter an operand.

    layouts: [nn, nt, tn, tt]   # those that the source serves; without the key the first one, all n
    layout: nn                  # that of a run that names none

`n` is an operand as its `shape` says, row-major. `t` is one whose last two axes are exchanged in memory: its shape,
the letters of the contraction and the default of its leading dimension follow. So a layout is another description
of the same product, and nothing behind this module knows of it. Expressions may ask for it by transpose_a for A.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from sweeper.errors import KernelError, did_you_mean

__all__ = ["KEYS", "chosen_layout", "laid_out", "layout_of", "shape_suffix", "without_default"]

KEYS = ("layout", "layouts")
_NAMED = re.compile(r"\btranspose_([A-Za-z_][A-Za-z0-9_]*)\b")
_SUFFIX = re.compile(r"-([nt]*t[nt]*)$")
# What of a description is expressions.
_EXPRESSIONS = (
    *(
        "template",
        "constraints",
        "launch",
        "args",
        "tensor_maps",
        "requires",
        "defines",
        "model",
        "flops",
        "trip",
    ),
)


def laid_out(node: Mapping[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The description `node` in the layout that it chooses, as one without layouts; and the layout.

    The layout is empty where no operand has one: the reference is no contraction, or an array has fewer than
    two axes. Raises KernelError for a layout that is unknown or not served, and for what cannot be transposed.
    """
    operands = _operands(node)
    chosen, served = _chosen(node, operands, where)
    made = {key: value for key, value in node.items() if key not in KEYS}
    if not operands:
        return made, ""
    if chosen not in served:
        raise KernelError(
            f"{where}.layout: {chosen!r} is not among this kernel's layouts{did_you_mean(chosen, served)}",
            hint=f"it has {', '.join(served)}",
        )
    transposed = [letter == "t" for letter in chosen]
    if any(transposed):
        made = _transposed(made, operands, transposed, where)
    values = {name.lower(): int(t) for name, t in zip(operands, transposed, strict=True)}
    made |= {key: _told(made[key], values) for key in _EXPRESSIONS if key in made}
    return made, chosen


def without_default(node: Mapping[str, Any]) -> dict[str, Any]:
    """`node` without a layout that it would have anyway: naming it makes no other description."""
    usual = chosen_layout({key: value for key, value in node.items() if key != "layout"})
    return {key: value for key, value in node.items() if key != "layout" or value != usual}


def chosen_layout(node: Mapping[str, Any]) -> str:
    """The layout that the description `node` names or has anyway. Raises KernelError for one that is none."""
    return _chosen(node, _operands(node), str(node.get("name", "kernel")))[0]


def shape_suffix(layout: str) -> str:
    """What a shape's name says of a layout: nothing where no operand is transposed, else `-nt`."""
    return f"-{layout}" if "t" in layout else ""


def layout_of(shape: str) -> str:
    """The layout that a shape's name ends with, empty where it says nothing of one."""
    found = _SUFFIX.search(shape)
    return found[1] if found else ""


def _operands(node: Mapping[str, Any]) -> list[str]:
    """Names of the arrays that a layout has a letter for, in order; none where it has no meaning."""
    reference, args = node.get("reference"), node.get("args")
    if not isinstance(reference, Mapping) or not isinstance(reference.get("contraction"), str):
        return []
    if not isinstance(args, Sequence) or not all(isinstance(a, Mapping) for a in args):
        return []  # what is wrong with it is said where it is read
    read = [a for a in args if "scalar" not in a and a.get("direction", "in") == "in"]
    matrices = [a for a in read if isinstance(a.get("shape"), Sequence) and len(a["shape"]) >= 2]
    return [str(a.get("name")) for a in read] if read and len(matrices) == len(read) else []


def _chosen(node: Mapping[str, Any], operands: Sequence[str], where: str) -> tuple[str, list[str]]:
    """The layout of `node`, and those that it serves."""
    usual = "n" * len(operands)
    known = ["".join(letters) for letters in product("nt", repeat=len(operands))]
    listed = node.get("layouts", [usual])
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise KernelError(f"{where}.layouts: {listed!r} is not a list", hint=f"write [{', '.join(known)}]")
    served = [str(layout) for layout in listed]
    chosen = node.get("layout", usual if usual in served else served[0])
    for key, layouts in (("layouts", served), ("layout", [str(chosen)])):
        for layout in layouts if key in node else ():
            if not operands:
                raise KernelError(
                    f"{where}.{key}: only a contraction of arrays with two axes or more has layouts",
                    hint=f"leave out {key}",
                )
            if layout not in known:
                raise KernelError(
                    f"{where}.{key}: {layout!r} is no layout of {', '.join(operands)}"
                    f"{did_you_mean(layout, known)}",
                    hint=f"a letter each, n as it is described or t transposed: {', '.join(known)}",
                )
    return str(chosen), served


def _transposed(
    node: dict[str, Any], operands: Sequence[str], transposed: Sequence[bool], where: str
) -> dict[str, Any]:
    """`node` with the arrays that are `transposed` among `operands` as they then lie in memory."""
    text = node["reference"]["contraction"].replace(" ", "")
    left, arrow, out = text.partition("->")
    letters = left.split(",")
    if not arrow or len(letters) != len(operands):
        return node  # a contraction that does not fit: said where it is read
    turned = {name for name, t in zip(operands, transposed, strict=True) if t}
    letters = [_exchanged(one) if t else one for one, t in zip(letters, transposed, strict=True)]
    args, dims = [], node.get("dims")
    for argument in node["args"]:
        if argument.get("name") in turned and "scalar" not in argument:
            shape = list(argument["shape"])
            dims = _repitched(argument, dims, str(shape[-1]), str(shape[-2]), where)
            args.append({**argument, "shape": _exchanged(shape)})
        else:
            args.append(argument)
    reference = {**node["reference"], "contraction": ",".join(letters) + arrow + out}
    return {**node, "args": args, "reference": reference, **({} if dims is None else {"dims": dims})}


def _exchanged(axes: Any) -> Any:
    """A list or text with its last two items exchanged."""
    return axes[:-2] + axes[:-3:-1]


def _repitched(argument: Mapping[str, Any], dims: Any, width: str, height: str, where: str) -> Any:
    """`dims` with the default of the array's leading dimension as long as a row of the transposed array."""
    pitch = argument.get("pitch")
    if pitch is None:
        return dims
    defaults = _named(dims)
    if str(defaults.get(pitch)) != width:
        raise KernelError(
            f"{where}.layout: the pitch {pitch} of {argument['name']} is no size that follows from {width}, "
            "so it cannot be transposed",
            hint=f"give it a name of its own in dims, such as {{LDA: {width}}}, or only layouts without its t",
        )
    return {name: height if name == pitch else size for name, size in defaults.items()}


def _named(dims: Any) -> dict[str, Any]:
    """Sizes and their defaults, from either form of `dims`."""
    if isinstance(dims, Mapping):
        return dict(dims)
    items = dims if isinstance(dims, Sequence) and not isinstance(dims, str) else ()
    return {
        name: size
        for item in items
        for name, size in (item.items() if isinstance(item, Mapping) else ((item, None),))
    }


def _told(value: Any, values: Mapping[str, int]) -> Any:
    """`value` with every transpose_… in its texts as a number."""
    if isinstance(value, str):
        return _NAMED.sub(lambda found: str(values.get(found[1].lower(), found[0])), value)
    if isinstance(value, Mapping):
        return {key: _told(item, values) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_told(item, values) for item in value]
    return value
