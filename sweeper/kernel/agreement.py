"""Whether a kernel's description and its source agree, told before any compile."""

from __future__ import annotations

from sweeper.device import target
from sweeper.errors import ExpressionError, KernelError, did_you_mean
from sweeper.expressions import Expression, Value
from sweeper.model import ArraySpec, KernelSpec, ScalarSpec
from sweeper.source.entry import EntrySignature, block_problem, check_arguments, find_entry, kernel_names
from sweeper.source.includes import SourceTree
from sweeper.source.names import SourceProblem, check_names

__all__ = ["check_source"]


def check_source(spec: KernelSpec, tree: SourceTree, *, where: str) -> None:
    """Raise KernelError where names, arguments or the block of `spec` contradict the source in `tree`."""
    signature = _entry(spec, spec.entry, tree, where)
    if spec.reference.kind == "kernel":
        _entry(spec, spec.reference.text, tree, where)
    problems = [p.message + (f" ({p.hint})" if p.hint else "") for p in _name_problems(spec, tree)]
    if signature is not None:
        arguments = [(a.name, isinstance(a, ArraySpec), _ctype(spec, a)) for a in spec.args]
        problems += check_arguments(signature, arguments, len(spec.template))
        problems += _block_problems(spec, signature, tree)
    if problems:
        raise KernelError(f"{where} and its source do not agree:\n  " + "\n  ".join(problems))


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
        *spec.defines.values(),
        *(e for a in spec.args if isinstance(a, ArraySpec) for e in a.shape),
        *(a.value for a in spec.args if isinstance(a, ScalarSpec)),
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
    """The block at the default point against `__launch_bounds__`, where the block follows from parameters."""
    scope: dict[str, Value] = {
        "elem_bytes": spec.dtype.bytes,
        **target("h200").limits(),
        **spec.default_point.params,
    }
    try:
        sizes = [e.evaluate_int(scope, what="block") for e in spec.launch.block]
        given = [t.evaluate(scope) if isinstance(t, Expression) else t for t in spec.template]
        defines = {name: e.evaluate(scope) for name, e in spec.defines.items() if e.text != "T"}
    except ExpressionError:
        return []
    named = {p.name: v for p, v in zip(signature.template, given, strict=False) if p.name}
    values = {k: v for k, v in {**scope, **defines, **named}.items() if isinstance(v, int)}
    for limit in target("h200").limits():
        values.pop(limit, None)
    problem = block_problem(signature, sizes[0] * sizes[1] * sizes[2], values, tree)
    return [problem] if problem else []
