"""A kernel's declaration as its source has it: template parameters, arguments, launch bounds.

This reads tokens and gives up, with None, where they do not settle a question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeper.source.cxx import SourceText, Token
from sweeper.source.includes import SourceTree

__all__ = [
    "EntryParam",
    "EntrySignature",
    "TemplateParam",
    "canonical_ctype",
    "find_entry",
    "kernel_names",
    "may_declare",
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
    "__nv_bfloat16": "__nv_bfloat16", "nv_bfloat16": "__nv_bfloat16", "__nv_fp8_e4m3": "__nv_fp8_e4m3",
    "signed char": "signed char", "int8_t": "signed char", "char": "signed char",
}  # fmt: skip

_BUILTIN_WORDS = frozenset({"int", "long", "char", "unsigned", "signed", "short", "float", "double"})


def canonical_ctype(ctype: str) -> str:
    """This project's spelling of a C++ type; what is not known stays as it is."""
    return _CANONICAL.get(ctype, ctype)


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


def _matching(tokens: Sequence[Token], start: int) -> int | None:
    """The index of the bracket that closes `tokens[start]`, a parenthesis or an angle bracket."""
    opening = tokens[start].text
    closing = {"(": ")", "<": ">"}[opening]
    depth = parentheses = 0
    for i in range(start, len(tokens)):
        text = tokens[i].text
        if opening == "<":
            parentheses += (text == "(") - (text == ")")
        if parentheses == 0:
            depth += (text == opening) - (text == closing)
        if depth == 0 and parentheses == 0:
            return i
    return None


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside every kind of bracket. Inside others, < and > compare."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    for token in tokens:
        text = token.text
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if depth == 0:
            angles += (text == "<") - (text == ">")
        if text == "," and depth == 0 and angles == 0:
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
    close = _matching(head, 1)
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
    array = next((i for i, t in enumerate(words) if t.text == "["), len(words))
    words, name = words[:array], ""
    last = words[-1] if len(words) > 1 else None
    if last and last.kind == "name" and words[-2].text != "::" and last.text not in _BUILTIN_WORDS:
        words, name = words[:-1], last.text
    spelled = " ".join(t.text for t in words).replace(" :: ", "::")
    ctype = None if spelled in type_names else _CANONICAL.get(spelled)
    first_star = next((i for i, t in enumerate(tokens) if t.text == "*"), len(tokens))
    is_const = any(t.text == "const" for t in tokens[:first_star])
    return EntryParam(name, is_pointer, is_const, ctype)


def _bounds(head: Sequence[Token]) -> tuple[tuple[str, ...], ...]:
    for i, token in enumerate(head):
        if token.text == "__launch_bounds__" and i + 1 < len(head):
            close = _matching(head, i + 1)
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
        close = _matching(tokens, i + 1)
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


def may_declare(tree: SourceTree, entry: str) -> bool:
    """Whether the files declare kernel `entry`, or a macro of theirs may do so."""
    name = entry.rsplit("::", 1)[-1]
    if name in kernel_names(tree):
        return True
    defines = (d for f in tree.files for d in f.tokens.directives if d.name == "define")
    return name in tree.names and any(t.text == "__global__" for d in defines for t in d.tokens)


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
