"""What preprocessing leaves of a kernel, made into host C++.

Almost all of CUDA's syntax is macros in `include/`. Two things need more: an `extern __shared__` array
becomes a pointer to the launch's dynamic shared memory, and the entries' table of contents is appended.
Lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["ENTRIES_FILE", "translate"]

# What messages name the appended table: line n of it is entry n.
ENTRIES_FILE = "<entries>"

_STORAGE = re.compile(r"\bthread_local\b")
_LINE_MARKER = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_UNROLL = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+(?:GCC[ \t]+)?unroll\b[^\n]*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\b(?:__attribute__|alignas)\s*\(")
_SPECIFIER = re.compile(r"\b(?:extern|thread_local)\b")
_ARRAY = re.compile(
    r"(?P<element>.*\S)\s*\b(?P<name>[A-Za-z_]\w*)\s*\[\s*\](?P<extents>(?:\s*\[[^\[\]]*\])*)\s*", re.DOTALL
)

# Whatever may hold a brace that is none, and the braces.
_TOKENS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*|[{}]', re.MULTILINE
)
_OPENS_NAMESPACE = re.compile(r'(?:\bnamespace\b[^;{}()]*|\bextern\s*"[^"\n]*"\s*)$')
_LOOK_BACK = 200


_TABLE = """
# 1 "{file}"
namespace {{ const simt::Kernel simt_kernels[] = {{{kernels}}}; }}
extern "C" __attribute__((visibility("default"))) const simt::Module simt_module =
    {{simt::kAbi, {count}, simt_kernels, {checked}}};
"""


def translate(text: str, entries: Sequence[str], *, checked: bool = False) -> str:
    """The preprocessed `text` of a kernel as host C++ with `entries` (`mm<float, 16>`) callable."""
    kernels = ",\n".join(f"simt::Entry<&{entry}>::kernel()" for entry in entries)
    if checked:
        # Unrolled code has as many calls of checks more, and takes as much longer to compile.
        text = _UNROLL.sub("", text)
    return _with_pointers(text) + _TABLE.format(
        file=ENTRIES_FILE, kernels=kernels, count=len(entries), checked=str(checked).lower()
    )


@dataclass(frozen=True, slots=True)
class _DynamicArray:
    """`extern __shared__ element name[]extents;` at text[start:end]."""

    start: int
    end: int
    element: str
    name: str
    extents: str

    def as_local(self) -> str:
        """A variable of the function, so that two instances of a template may differ in its type."""
        declared, kind = f"{self.element}* const {self.name}", f"{self.element}*"
        if self.extents:
            declared = f"{self.element} (*const {self.name}){self.extents}"
            kind = f"{self.element} (*){self.extents}"
        return f"{declared} = ({kind})simt_dynamic_shared;"

    def as_global(self) -> str:
        """One more name for the launcher's own pointer, of which each OS thread has one."""
        declared = f"(*{self.name}){self.extents}" if self.extents else f"*{self.name}"
        model = '__attribute__((tls_model("initial-exec")))'
        return f'extern __thread {self.element} {declared} __asm__("simt_dynamic_shared") {model};'


def _with_pointers(text: str) -> str:
    """`text` with every `extern __shared__` array as a pointer of the same name."""
    arrays = list(_dynamic_arrays(text))
    if not arrays:
        return text
    inside = _in_functions(text, [a.start for a in arrays])
    parts, last = [], 0
    for array, local in zip(arrays, inside, strict=True):
        lines = "\n" * text.count("\n", array.start, array.end)
        parts += [text[last : array.start], array.as_local() if local else array.as_global(), lines]
        last = array.end
    return "".join([*parts, text[last:]])


def _dynamic_arrays(text: str) -> Iterator[_DynamicArray]:
    end = 0
    for word in _STORAGE.finditer(text):
        if word.start() < end:
            continue
        start = max(text.rfind(c, 0, word.start()) for c in ";{}") + 1
        end = text.find(";", word.end()) + 1
        statement = _LINE_MARKER.sub(lambda m: " " * len(m.group()), text[start:end])
        if not end or "extern" not in statement or '"' in statement:
            continue
        start += len(statement) - len(statement.lstrip())
        match = _ARRAY.fullmatch(_SPECIFIER.sub("", _without_attributes(statement.rstrip(";"))))
        if match:
            element, extents = (" ".join(match[g].split()) for g in ("element", "extents"))
            yield _DynamicArray(start, end, element, match["name"], extents)


def _without_attributes(statement: str) -> str:
    while match := _ATTRIBUTE.search(statement):
        depth, i = 1, match.end()
        while depth and i < len(statement):
            depth += {"(": 1, ")": -1}.get(statement[i], 0)
            i += 1
        statement = statement[: match.start()] + " " + statement[i:]
    return statement


def _in_functions(text: str, positions: Sequence[int]) -> list[bool]:
    """For each of the ascending `positions`, whether braces other than a namespace's surround it."""
    answers: list[bool] = []
    opened: list[bool] = []
    for token in _TOKENS.finditer(text):
        while len(answers) < len(positions) and positions[len(answers)] < token.start():
            answers.append(any(opened))
        if token.group() == "{":
            before = text[max(0, token.start() - _LOOK_BACK) : token.start()]
            opened.append(_OPENS_NAMESPACE.search(before) is None)
        elif token.group() == "}" and opened:
            opened.pop()
    return answers + [any(opened)] * (len(positions) - len(answers))
