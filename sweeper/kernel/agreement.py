"""Whether a kernel's description and its source agree, told before any compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sweeper.device import target
from sweeper.errors import ExpressionError, KernelError, did_you_mean
from sweeper.expressions import Expression, Value
from sweeper.kernel.trip import trip_expressions
from sweeper.model import ArraySpec, KernelSpec, ScalarSpec
from sweeper.source.entry import EntrySignature, block_problem, check_arguments, find_entry, kernel_names
from sweeper.source.includes import SourceTree
from sweeper.source.names import SourceProblem, check_names
from sweeper.source.stride import BlockStride, block_strides

__all__ = ["check_source"]


def check_source(spec: KernelSpec, tree: SourceTree, *, where: str) -> None:
    """Raise KernelError where names, arguments or the block of `spec` contradict the source in `tree`."""
    signature = _entry(spec, spec.entry, tree, where)
    if spec.reference.kind == "kernel":
        _entry(spec, spec.reference.text, tree, where)
    problems = [_text(problem, spec) for problem in _name_problems(spec, tree)]
    if signature is not None:
        arguments = [(a.name, isinstance(a, ArraySpec), _ctype(spec, a)) for a in spec.args]
        arguments += [(m.name, False, "a tensor map") for m in spec.tensor_maps]
        problems += check_arguments(signature, arguments, len(spec.template))
        problems += _block_problems(spec, signature, tree)
    if problems:
        raise KernelError(f"{where} and its source do not agree:\n  " + "\n  ".join(problems))


def _text(problem: SourceProblem, spec: KernelSpec) -> str:
    others = [p.name for p in spec.params if p.name != problem.name]
    near = did_you_mean(problem.name, others) if problem.kind == "unused" else ""
    return f"{problem.message} ({problem.hint}){near}"


def _entry(spec: KernelSpec, entry: str, tree: SourceTree, where: str) -> EntrySignature | None:
    name = entry.rsplit("::", 1)[-1]
    names = kernel_names(tree)
    if name not in names:
        found = ", ".join(names) or "none"
        raise KernelError(
            f"{where}.entry: {spec.source.name} has no kernel {entry!r}{did_you_mean(name, names)}",
            hint=f"kernels found: {found}",
        )
    return find_entry(tree, entry)


def _ctype(spec: KernelSpec, argument: ArraySpec | ScalarSpec) -> str:
    return (argument.dtype or spec.dtype).ctype


def _name_problems(spec: KernelSpec, tree: SourceTree) -> tuple[SourceProblem, ...]:
    templated = {n for t in spec.template if isinstance(t, Expression) for n in t.names}
    used: set[str] = set()
    for expression in (
        *spec.launch.block,
        *spec.launch.grid,
        spec.launch.shared_bytes,
        *(spec.launch.cluster or ()),
        *(e for m in spec.tensor_maps for e in m.compiled_expressions),
        *(m.choice for m in spec.tensor_maps if m.choice is not None),
        *spec.defines.values(),
        *(e for a in spec.arrays for e in a.shape),
        *(a.pitch for a in spec.arrays if a.pitch is not None),
        *(a.value for a in spec.args if isinstance(a, ScalarSpec)),
        *trip_expressions(spec),
    ):
        used |= expression.names
    return check_names(
        tree,
        params=[p.name for p in spec.params],
        templated=templated,
        defined=list(spec.defines),
        used_elsewhere=used,
    )


def _block_problems(spec: KernelSpec, signature: EntrySignature, tree: SourceTree) -> list[str]:
    """The block against `__launch_bounds__` and against the indices that the kernel computes.

    Looked at are the default point and those that differ from it in one parameter, where the block
    follows from parameters and the constraints on parameters hold; the first contradiction is told.
    """
    limits = target("h200").limits()
    strides = block_strides(signature, tree)
    for point in _points(spec):
        scope: dict[str, Value] = {"elem_bytes": spec.dtype.bytes, **limits, **point}
        try:
            sizes = [e.evaluate_int(scope, what="block") for e in spec.launch.block]
            meanings = _meanings(spec, signature, scope)
            if not _holds(spec.constraints, scope):
                continue
        except ExpressionError:
            continue
        values = {k: v for k, v in {**point, **meanings}.items() if isinstance(v, int)}
        values["elem_bytes"] = spec.dtype.bytes
        problem = block_problem(signature, sizes[0] * sizes[1] * sizes[2], values, tree)
        problem = problem or _stride_problem(spec, strides, sizes, values)
        if problem:
            return [problem]
    return []


def _points(spec: KernelSpec) -> Iterator[dict[str, Value]]:
    default = spec.default_point.params
    yield default
    for param in spec.params:
        yield from ({**default, param.name: level} for level in param.levels if level != param.default)


def _meanings(spec: KernelSpec, signature: EntrySignature, scope: dict[str, Value]) -> dict[str, Value]:
    """What template parameters and macros of the description stand for. Raises ExpressionError."""
    given = [t.evaluate(scope) if isinstance(t, Expression) else t for t in spec.template]
    named = {p.name: v for p, v in zip(signature.template, given, strict=False) if p.name}
    return {**{name: e.evaluate(scope) for name, e in spec.defines.items() if e.text != "T"}, **named}


def _holds(constraints: Sequence[Expression], scope: Mapping[str, Value]) -> bool:
    """Whether those constraints hold that the problem's size is no part of."""
    return all(c.evaluate(scope) for c in constraints if c.names <= set(scope))


def _stride_problem(
    spec: KernelSpec, strides: Sequence[BlockStride], sizes: Sequence[int], values: Mapping[str, int]
) -> str | None:
    """How blocks of `sizes` overlap or leave holes where the kernel puts them `strides` apart, or None."""
    block = sizes[0] * sizes[1] * sizes[2]
    for stride in strides:
        threads, apart = sizes[stride.axis], values.get(stride.name)
        told = {value for name, value in values.items() if name != stride.name and name in stride.known}
        if apart in (None, threads) or threads in told or block in told or stride.allows(threads, block):
            continue
        axis = "xyz"[stride.axis]
        return (
            f"{stride.file}:{stride.line}: neighbouring blocks are {stride.name} = {apart} elements apart, but "
            f"launch.block[{stride.axis}] = {spec.launch.block[stride.axis].text} gives a block {threads} threads "
            f"along {axis}: they would {'overlap' if threads > (apart or 0) else 'leave holes'}"
        )
    return None
