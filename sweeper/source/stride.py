"""How far apart a kernel puts neighbouring blocks: the index that it computes from block and thread.

`blockIdx.x * TILE + threadIdx.x` is right where a block has TILE threads along x. With fewer there are
holes, with more the blocks overlap, unless the kernel knows of the other number and deals with it. This
reads tokens: a kernel that mentions its number of threads in any way is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeper.source.cxx import SourceText, Token
from sweeper.source.includes import SourceTree
from sweeper.source.signature import EntrySignature

__all__ = ["BlockStride", "block_strides"]

_AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class BlockStride:
    """The kernel computes blockIdx.`axis` * `name` + threadIdx.`axis`.

    `known` are all whole numbers and names by which it may know how many threads there are; `divided` is
    whether it divides `name`, `guarded` whether it compares the thread's index with it.
    """

    axis: int
    name: str
    file: str
    line: int
    known: frozenset[str]
    divided: bool
    guarded: bool

    def allows(self, threads: int, block: int) -> bool:
        """Whether the kernel may be right with `threads` along the axis, `block` in all."""
        told = {"blockDim", str(threads), str(block)} | ({"warpSize"} if threads == 32 else set())
        return threads == 1 or self.divided or self.guarded or bool(told & self.known)


def block_strides(signature: EntrySignature, tree: SourceTree) -> tuple[BlockStride, ...]:
    """Every such index in the body of the kernel that `signature` declares, each axis and name once."""
    found: dict[tuple[int, str], BlockStride] = {}
    for file in tree.files:
        if file.path.name != signature.file:
            continue
        for name, start, end in _kernels(file.tokens):
            if name == signature.name:
                body = file.tokens.tokens[start:end]
                for axis, stride, line in _indices(body):
                    known = frozenset(_known(signature, tree, stride))
                    found.setdefault((axis, stride), _stride(axis, stride, line, signature.file, body, known))
    return tuple(found.values())


def _stride(
    axis: int, name: str, line: int, file: str, body: Sequence[Token], known: frozenset[str]
) -> BlockStride:
    texts = [t.text for t in body]
    after = {texts[i + 1] for i, text in enumerate(texts[:-1]) if text == name}
    thread = _aliases(texts, "threadIdx", axis)
    guarded = any(
        texts[i] == "<" and texts[i + 1] == name and _ends_with(texts[:i], thread)
        for i in range(len(texts) - 1)
    )
    compared = any(
        texts[i : i + 2] == [">", "="] and texts[i + 2 : i + 3] == [name] for i in range(len(texts))
    )
    return BlockStride(axis, name, file, line, known, bool(after & {"/", ">", "%"}), guarded or compared)


def _ends_with(texts: Sequence[str], spellings: Sequence[Sequence[str]]) -> bool:
    return any(list(texts[-len(s) :]) == list(s) for s in spellings)


def _known(signature: EntrySignature, tree: SourceTree, stride: str) -> Iterator[str]:
    """Names and whole numbers of all files, but those of other kernels' bodies and of a default for `stride`."""
    for file in tree.files:
        spans = [(a, b) for name, a, b in _kernels(file.tokens) if name != signature.name]
        code = [t for i, t in enumerate(file.tokens.tokens) if not any(a <= i < b for a, b in spans)]
        lines = (
            d.tokens
            for d in file.tokens.directives
            if [d.name, *(t.text for t in d.tokens[:1])] != ["define", stride]
        )
        for token in (*code, *(t for line in lines for t in line)):
            yield token.text.rstrip("uUlL") if token.kind == "number" else token.text


def _kernels(text: SourceText) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of the body of each `__global__` function."""
    tokens = text.tokens
    for at, token in enumerate(tokens):
        if token.text != "__global__":
            continue
        names: list[str] = []
        depth = 0
        for i in range(at + 1, len(tokens)):
            mark = tokens[i].text
            if mark == "(" and depth == 0 and tokens[i - 1].kind == "name":
                names.append(tokens[i - 1].text)
            depth += (mark == "(") - (mark == ")")
            if depth == 0 and mark in ("{", ";"):
                if mark == "{" and names:
                    yield names[-1], i, _closing(tokens, i)
                break


def _closing(tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i].text == "{") - (tokens[i].text == "}")
        if depth == 0:
            return i + 1
    return len(tokens)


def _aliases(texts: Sequence[str], builtin: str, axis: int) -> list[list[str]]:
    """Spellings of `builtin`.`axis`: itself, and variables that hold nothing else."""
    full = [builtin, ".", _AXES[axis]]
    places = (i for i in range(2, len(texts) - 3) if list(texts[i : i + 3]) == full)
    return [full, *([texts[i - 2]] for i in places if texts[i - 1] == "=" and texts[i + 3] in (",", ";"))]


def _indices(body: Sequence[Token]) -> Iterator[tuple[int, str, int]]:
    """(axis, name, line) of each blockIdx.a * name + threadIdx.a, whatever the order of its parts."""
    kept = [t for t in body if t.text not in ("(", ")")]
    texts = [t.text for t in kept]
    for axis in range(3):
        threads = _aliases(texts, "threadIdx", axis)
        for block in _aliases(texts, "blockIdx", axis):
            for i in range(1, len(texts)):
                name, end = _product(texts, i, block)
                if name and _added(texts, i, end, threads):
                    yield axis, name, kept[i].line


def _product(texts: Sequence[str], start: int, block: Sequence[str]) -> tuple[str, int]:
    """The factor of blockIdx.a in the product that begins at `start`, and where the product ends."""
    size = len(block)
    if texts[start : start + size + 1] == [*block, "*"]:
        name, end = "".join(texts[start + size + 1 : start + size + 2]), start + size + 2
    elif texts[start + 1 : start + size + 2] == ["*", *block]:
        name, end = texts[start], start + size + 2
    else:
        return "", start
    before, after = texts[start - 1], "".join(texts[end : end + 1])
    alone = (
        name.isidentifier() and before not in ("*", "/", "%", "-", ".") and after not in ("*", "/", "%", ".")
    )
    return (name, end) if alone else ("", start)


def _added(texts: Sequence[str], start: int, end: int, threads: Sequence[Sequence[str]]) -> bool:
    """Whether exactly the thread's index is added before or behind the product at `start` to `end`."""
    for thread in threads:
        size = len(thread)
        behind = texts[end : end + 1] == ["+"] and list(texts[end + 1 : end + 1 + size]) == list(thread)
        if behind and "".join(texts[end + 1 + size : end + 2 + size]) not in ("*", "/", "%", "."):
            return True
        first = start - 1 - size
        ahead = texts[start - 1] == "+" and first > 0 and list(texts[first : start - 1]) == list(thread)
        if ahead and texts[first - 1] not in ("*", "/", "%", "-", "."):
            return True
    return False
