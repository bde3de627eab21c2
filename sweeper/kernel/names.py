"""Every name in an expression of a description is one that has a value there."""

from __future__ import annotations

from sweeper.errors import KernelError, did_you_mean
from sweeper.expressions import Expression
from sweeper.kernel.keys import WORK_KEYS
from sweeper.kernel.trip import trip_expressions
from sweeper.model import KernelSpec, ScalarSpec

__all__ = ["check_names"]


def check_names(spec: KernelSpec, where: str) -> None:
    """Every name in an expression is a parameter, a size, or one of the given ones. Raises KernelError."""
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
            tuple(e for k in WORK_KEYS if (e := getattr(spec.model, k)) is not None),
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
