"""A kernel's description against its declaration: template and argument lists, and the block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sweeper.source.cxx_integer import integer_constants, integer_value
from sweeper.source.includes import SourceTree
from sweeper.source.signature import EntrySignature, canonical_ctype, find_entry, kernel_names, may_declare

__all__ = [
    "EntrySignature",
    "block_problem",
    "check_arguments",
    "find_entry",
    "kernel_names",
    "may_declare",
]


def check_arguments(
    signature: EntrySignature, arguments: Sequence[tuple[str, bool, str]], template_args: int
) -> tuple[str, ...]:
    """How the description's arguments, (name, is an array, C++ type) each, differ from the source's.

    `template_args` is how many template arguments the description gives. Empty where they agree as
    far as tokens tell.
    """
    where = f"{signature.file}:{signature.line}: {signature.name}"
    problems = list(_template_problems(signature, template_args, where))
    if len(arguments) != len(signature.params):
        has = ", ".join(p.name or "?" for p in signature.params)
        problems.append(
            f"{where} takes {len(signature.params)} arguments ({has}), the description gives {len(arguments)}"
        )
        return tuple(problems)
    for i, ((name, is_array, ctype), param) in enumerate(
        zip(arguments, signature.params, strict=True), start=1
    ):
        if is_array != param.is_pointer and (is_array or param.ctype is not None):
            wants, gives = ("an array", "a scalar") if param.is_pointer else ("a scalar", "an array")
            problems.append(
                f"{where}: argument {i} ({param.name}) is {wants}, the description gives {gives} {name}"
            )
        elif param.ctype is not None and canonical_ctype(ctype) != param.ctype:
            problems.append(
                f"{where}: argument {i} ({param.name}) is {param.ctype}, the description's {name} is {ctype}"
            )
    return tuple(problems)


def _template_problems(signature: EntrySignature, given: int, where: str) -> Iterator[str]:
    params = signature.template
    required = sum(not p.has_default and not p.is_pack for p in params)
    most = given if any(p.is_pack for p in params) else len(params)
    if required <= given <= most:
        return
    if not params:
        yield f"{where} is not a template, the description gives {given} template arguments"
    elif not given:
        names = ", ".join(p.name or "?" for p in params)
        yield f"{where} is a template ({names}), the description has no `template`"
    else:
        yield f"{where} has {len(params)} template parameters, the description gives {given}"


def block_problem(
    signature: EntrySignature, threads: int, values: Mapping[str, int], tree: SourceTree
) -> str | None:
    """How a block of `threads` contradicts the source's `__launch_bounds__`, or None.

    `values` are what template parameters and macros stand for at a point. A bound made of those is
    the block that the source is written for; a bare number is only a limit.
    """
    if not signature.launch_bounds:
        return None
    words = signature.launch_bounds[0]
    bound = integer_value(words, values, integer_constants([f.tokens for f in tree.files]))
    if bound is None or bound == threads:
        return None
    follows = any(word in values for word in words)
    if threads < bound and not follows:
        return None
    text = " ".join(words)
    value = "" if text == str(bound) else f" = {bound}"
    return (
        f"the block has {threads} threads, but {signature.file}:{signature.line} declares "
        f"__launch_bounds__({text}){value}"
    )
