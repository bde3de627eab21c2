"""What a kernel's source does with names: which it declares, which it needs, which nobody uses.

This reads tokens, not C++. Where tokens do not settle a question it reports nothing: a compiler will
say it later, and a false alarm would stop a kernel that works.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sweeper.source.cxx import Directive, SourceText
from sweeper.source.cxx_names import CAPITALS, Sight, called_names, sights, type_names
from sweeper.source.includes import SourceTree

__all__ = ["SourceProblem", "check_names", "declared_types", "self_defined"]

_KNOWN_MACROS = re.compile(
    r"CUDA.*|CUDART_.*|CU_.*|CUBLAS.*|NV_.*|NVCC.*|WMMA.*|GLIBC.*|POSIX.*"
    r"|(?:U?INT|UINTPTR|INTPTR|SIZE|S?CHAR|UCHAR|U?SHRT|U?LONG|U?LLONG|WCHAR|PTRDIFF|RAND)[A-Z0-9_]*_(?:MAX|MIN|C)"
    r"|(?:FLT|DBL|LDBL|FP|M|HUGE)_.*|MATH_.*|CHAR_BIT|INFINITY|NAN|NULL|EOF|BUFSIZ|HUGE_VALF?|EXIT_(?:SUCCESS|FAILURE)"
    r"|CLOCKS_PER_SEC|FILE|FE_.*|SEEK_.*|STD.*|TRUE|FALSE|NDEBUG|DEBUG"
)

_KNOWN_HEADERS = re.compile(
    r"(?:c?assert|c?float|c?limits|c?math|c?stdint|c?stdio|c?stdlib|c?string|c?stddef|c?time)(?:\.h)?"
    r"|algorithm|array|chrono|cstdarg|functional|initializer_list|iomanip|iostream|limits|memory|numeric|ostream"
    r"|random|string|tuple|type_traits|utility|vector"
    r"|cuda\.h|cuda_.*\.h|device_.*\.h|cooperative_groups(?:/.*)?(?:\.h)?|mma\.h|math_constants\.h|vector_.*\.h"
    r"|crt/.*|cuda/(?:barrier|pipeline|ptx|std/.*|atomic|cmath)|sm_.*\.h|nv/target|nvtx3/.*|cuComplex\.h"
)


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A name on which the description and the source do not agree.

    `kind` is `undefined` (the source needs it, nothing gives it), `unused` (a parameter that nothing
    reads) or `redefined` (a parameter that the source fixes itself).
    """

    kind: str
    name: str
    file: str
    line: int

    @property
    def message(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        return place + {
            "undefined": f"{self.name} is used, but neither the source nor the description defines it",
            "unused": f"parameter {self.name} is never used: not in {self.file}, nor in the description",
            "redefined": f"{self.name} is a parameter, but the source sets it itself",
        }.get(self.kind, self.name)

    @property
    def hint(self) -> str:
        return {
            "undefined": f"add {self.name} to `params` or `defines`, or #define it in the source",
            "unused": f"remove {self.name} from `params`, or use it in the source",
            "redefined": f"guard it with `#ifndef {self.name}`, or pass it as a template argument",
        }[self.kind]


def declared_types(tree: SourceTree) -> frozenset[str]:
    """Names that the files declare as types (or namespaces)."""
    return frozenset().union(*(type_names(f.tokens) for f in tree.files))


def _guarded(directive: Directive) -> bool:
    """A `#define X` that gives way to one from outside."""
    name = directive.tokens[0].text
    condition = directive.condition.replace("(", " ").replace(")", " ").split()
    return condition in (["ifndef", name], ["if", "!", "defined", name])


def _definitions(text: SourceText) -> Iterator[Directive]:
    return (d for d in text.directives if d.name == "define" and d.tokens)


def self_defined(tree: SourceTree) -> frozenset[str]:
    """Macros that the files define whatever is given from outside (no `#ifndef` around them)."""
    definitions = (d for f in tree.files for d in _definitions(f.tokens))
    return frozenset(d.tokens[0].text for d in definitions if not d.conditional and not _guarded(d))


def _foreign_headers(tree: SourceTree) -> bool:
    """Whether a header is included whose macros are not known here."""
    for file in tree.files:
        reached = {spelling for spelling, _ in file.includes}
        for directive in file.tokens.directives:
            if directive.name != "include":
                continue
            spelling = "".join(t.text for t in directive.tokens).strip('"<>')
            if spelling not in reached and not _KNOWN_HEADERS.fullmatch(spelling):
                return True
    return False


def _undefined(tree: SourceTree, given: Collection[str], types: Collection[str]) -> Iterator[SourceProblem]:
    if _foreign_headers(tree):
        return
    known = set(given) | set(types)
    uses: dict[str, tuple[str, int]] = {}
    for file in tree.files:
        for token, sight in sights(file.tokens, types):
            if sight is not Sight.USE:
                known.add(token.text)
            elif CAPITALS.fullmatch(token.text) and not _KNOWN_MACROS.fullmatch(token.text):
                uses.setdefault(token.text, (file.path.name, token.line))
        known |= called_names(file.tokens.tokens)
    yield from (SourceProblem("undefined", n, f, line) for n, (f, line) in uses.items() if n not in known)


def _redefined(tree: SourceTree, macros: Collection[str], types: Collection[str]) -> Iterator[SourceProblem]:
    for file in tree.files:
        for directive in _definitions(file.tokens):
            name = directive.tokens[0].text
            if name in macros and not directive.conditional and not _guarded(directive):
                yield SourceProblem("redefined", name, file.path.name, directive.line)
        for token, sight in sights(file.tokens, types):
            if token.text in macros and sight is Sight.DECLARATION:
                yield SourceProblem("redefined", token.text, file.path.name, token.line)


def check_names(
    tree: SourceTree,
    *,
    params: Collection[str],
    templated: Collection[str] = (),
    defined: Collection[str] = (),
    used_elsewhere: Iterable[str] = (),
) -> tuple[SourceProblem, ...]:
    """Names on which the source and the description disagree, each once, in source order.

    `params` are the tunable parameters, `templated` those that reach the source as template
    arguments (the others do as macros of their own names), `defined` the description's own macros,
    and `used_elsewhere` names used in its expressions (launch, shapes, defines). Only names in
    capitals can be `undefined`: others might be anything a header declares.
    """
    types = declared_types(tree)
    macros = (set(params) | set(defined)) - set(templated)
    problems = list(_redefined(tree, macros, types))
    problems += _undefined(tree, [*params, *defined, "T"], types)
    elsewhere = set(used_elsewhere) | set(templated)
    unused = [p for p in params if p not in elsewhere and p not in tree.names]
    problems += [SourceProblem("unused", name, tree.source.path.name, 0) for name in unused]
    first = {(p.kind, p.name): p for p in reversed(problems)}
    return tuple(p for p in problems if first[p.kind, p.name] is p)
