"""A kernel's declaration as its source has it: template parameters, arguments, launch bounds.

Like `source_check` this reads tokens and gives up, with None, where they do not settle a question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sweeper.cxx import SourceText, Token
from sweeper.cxx_integer import integer_constants, integer_value
from sweeper.includes import SourceTree

__all__ = [
    "EntryParam",
    "EntrySignature",
    "TemplateParam",
    "block_problem",
    "check_arguments",
    "find_entry",
    "kernel_names",
]

_QUALIFIERS = frozenset(
    {
        "const", "volatile", "__restrict__", "__restrict", "restrict", "__grid_constant__", "struct",
        "enum", "typename",
    }
)  # fmt: skip
_SPECIFIERS_WITH_VALUE = frozenset(
    {
        "__launch_bounds__", "__attribute__", "__cluster_dims__", "__maxnreg__", "__block_size__",
        "alignas", "__declspec",
    }
)  # fmt: skip

_CANONICAL = {
    "int": "int", "signed": "int", "signed int": "int", "int32_t": "int", "std::int32_t": "int",
    "unsigned": "unsigned int", "unsigned int": "unsigned int", "uint32_t": "unsigned int",
    "uint": "unsigned int",
    "long long": "long long", "long long int": "long long", "int64_t": "long long", "long": "long long",
    "long int": "long long", "ptrdiff_t": "long long", "std::int64_t": "long long", "ssize_t": "long long",
    "unsigned long long": "unsigned long long", "unsigned long": "unsigned long long",
    "uint64_t": "unsigned long long", "size_t": "unsigned long long", "std::size_t": "unsigned long long",
    "float": "float", "double": "double", "half": "__half", "__half": "__half",
    "__nv_bfloat16": "__nv_bfloat16", "nv_bfloat16": "__nv_bfloat16",
    "signed char": "signed char", "int8_t": "signed char", "char": "signed char",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TemplateParam:
    """`kind` is `type`, `value` or `template`; `name` may be empty."""

    kind: str
    name: str
    has_default: bool = False
    is_pack: bool = False


@dataclass(frozen=True, slots=True)
class EntryParam:
    """One argument. `ctype` is the C++ type (pointed to, for a pointer) in this project's spelling
    (`float`, `__half`, `long long`), or None where it is a template parameter or not a known type."""

    name: str
    is_pointer: bool
    is_const: bool
    ctype: str | None


@dataclass(frozen=True, slots=True)
class EntrySignature:
    """A `__global__` function. `launch_bounds` are its `__launch_bounds__` arguments as written."""

    name: str
    file: str
    line: int
    template: tuple[TemplateParam, ...]
    params: tuple[EntryParam, ...]
    launch_bounds: tuple[tuple[str, ...], ...] = ()


def _matching(tokens: Sequence[Token], start: int, opening: str, closing: str) -> int | None:
    """The index of the bracket that closes `tokens[start]`."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].text == opening:
            depth += 1
        elif tokens[i].text == closing:
            depth -= 1
            if depth == 0:
                return i
    return None


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside every kind of bracket."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{", "<")) - (token.text in (")", "]", "}", ">"))
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _head_start(tokens: Sequence[Token], end: int) -> int:
    """Where the declaration that ends at `end` begins."""
    for i in range(end - 1, -1, -1):
        if tokens[i].text in (";", "{", "}"):
            return i + 1
    return 0


def _template_params(head: Sequence[Token]) -> tuple[TemplateParam, ...] | None:
    """The head's template parameter list; empty for a plain function, None for one this cannot read."""
    if not head or head[0].text != "template":
        return ()
    if len(head) < 2 or head[1].text != "<":
        return None
    close = _matching(head, 1, "<", ">")
    if close is None:
        return None
    return tuple(_template_param(part) for part in _split(head[2:close]))


def _template_param(tokens: Sequence[Token]) -> TemplateParam:
    texts = [t.text for t in tokens]
    has_default = "=" in texts
    declared = tokens[: texts.index("=")] if has_default else tokens
    kind = {"typename": "type", "class": "type", "template": "template"}.get(texts[0], "value")
    minimum = 1 if kind == "type" else 2
    named = len(declared) >= minimum + (kind == "type") and declared[-1].kind == "name"
    return TemplateParam(kind, declared[-1].text if named else "", has_default, "..." in texts)


def _param(tokens: Sequence[Token], type_names: Sequence[str]) -> EntryParam:
    texts = [t.text for t in tokens]
    tokens = tokens[: texts.index("=")] if "=" in texts else tokens
    is_pointer = any(t.text in ("*", "[") for t in tokens)
    words = [t for t in tokens if t.text not in _QUALIFIERS and t.text not in ("*", "&")]
    name = ""
    array = next((i for i, t in enumerate(words) if t.text == "["), len(words))
    words = words[:array]
    if len(words) > 1 and words[-1].kind == "name" and words[-2].text != "::":
        name, words = words[-1].text, words[:-1]
        if _is_builtin_word(name):
            name, words = "", [*words, words[-1]]
    spelled = " ".join(t.text for t in words).replace(" :: ", "::")
    ctype = None if spelled in type_names else _CANONICAL.get(spelled)
    first_star = next((i for i, t in enumerate(tokens) if t.text == "*"), len(tokens))
    is_const = any(t.text == "const" for t in tokens[:first_star])
    return EntryParam(name, is_pointer, is_const, ctype)


def _is_builtin_word(text: str) -> bool:
    return text in ("int", "long", "char", "unsigned", "signed", "short", "float", "double")


def _bounds(head: Sequence[Token]) -> tuple[tuple[str, ...], ...]:
    for i, token in enumerate(head):
        if token.text == "__launch_bounds__" and i + 1 < len(head):
            close = _matching(head, i + 1, "(", ")")
            if close is not None:
                return tuple(tuple(t.text for t in part) for part in _split(head[i + 2 : close]))
    return ()


def _declarations(text: SourceText, file: str) -> Iterator[tuple[bool, EntrySignature]]:
    """(is a definition, signature) of each `__global__` function declared in the file."""
    tokens = text.tokens
    for i, token in enumerate(tokens[:-1]):
        if token.kind != "name" or tokens[i + 1].text != "(" or token.text in _SPECIFIERS_WITH_VALUE:
            continue
        head = tokens[_head_start(tokens, i) : i]
        if not any(t.text == "__global__" for t in head) or _inside_brackets(head):
            continue
        close = _matching(tokens, i + 1, "(", ")")
        template = _template_params(head)
        if close is None or template is None:
            continue
        types = [p.name for p in template if p.kind == "type"]
        parts = _split(tokens[i + 2 : close])
        params = (
            () if [t.text for p in parts for t in p] == ["void"] else tuple(_param(p, types) for p in parts)
        )
        is_definition = close + 1 < len(tokens) and tokens[close + 1].text == "{"
        yield is_definition, EntrySignature(token.text, file, token.line, template, params, _bounds(head))


def _inside_brackets(head: Sequence[Token]) -> bool:
    """Whether the head ends inside an open `(`: a name within somebody's specifier or argument."""
    return sum((t.text == "(") - (t.text == ")") for t in head) != 0


def kernel_names(tree: SourceTree) -> tuple[str, ...]:
    """The names of every `__global__` function that the files declare, in order, each once."""
    found = (signature.name for f in tree.files for _, signature in _declarations(f.tokens, f.path.name))
    return tuple(dict.fromkeys(found))


def find_entry(tree: SourceTree, entry: str) -> EntrySignature | None:
    """The declaration of kernel `entry` (a namespace in front of it is not compared).

    None where it is not found, or where overloads or branches of a condition declare it differently.
    `kernel_names` tells the two apart.
    """
    name = entry.rsplit("::", 1)[-1]
    found = [(d, s) for f in tree.files for d, s in _declarations(f.tokens, f.path.name) if s.name == name]
    definitions = [s for is_definition, s in found if is_definition] or [s for _, s in found]
    if not definitions:
        return None
    first = definitions[0]
    if any(_shape(s) != _shape(first) for s in definitions[1:]):
        return None
    bounds = first.launch_bounds or next((s.launch_bounds for _, s in found if s.launch_bounds), ())
    return EntrySignature(first.name, first.file, first.line, first.template, first.params, bounds)


def _shape(signature: EntrySignature) -> tuple[object, ...]:
    kinds = [(p.is_pointer, p.ctype) for p in signature.params]
    return (*kinds, *(p.kind for p in signature.template), signature.launch_bounds)


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
        elif param.ctype is not None and _CANONICAL.get(ctype, ctype) != param.ctype:
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
