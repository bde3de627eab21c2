"""A kernel's source and every header it includes, as read: found before any compile, and digested.

The digest knows texts and the way includes spell each other, never where a folder lies: the same
files in two folders digest equally.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sweeper.errors import KernelError
from sweeper.source.cxx import Directive, SourceText, tokenize

__all__ = ["SourceFile", "SourceTree", "read_source", "read_tree"]

_QUOTED = re.compile(r'"([^"\n]+)"$')
_TOOLKIT_HEADERS = frozenset(
    {
        "assert.h", "cooperative_groups.h", "crt/host_defines.h", "cuComplex.h", "cublas_v2.h", "cuda.h",
        "cuda_awbarrier_primitives.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp4.h", "cuda_fp6.h",
        "cuda_fp8.h", "cuda_pipeline.h", "cuda_pipeline_primitives.h", "cuda_runtime.h",
        "cuda_runtime_api.h", "curand_kernel.h", "device_functions.h", "device_launch_parameters.h",
        "float.h", "limits.h", "math.h", "math_constants.h", "math_functions.h", "mma.h",
        "sm_61_intrinsics.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "vector_types.h",
    }
)  # fmt: skip
_TOOLKIT_FOLDERS = ("cooperative_groups/", "cub/", "cuda/", "nv/", "thrust/")


@dataclass(frozen=True)
class SourceFile:
    """One file; `includes` are (spelling, index into the tree's `files`) in order."""

    path: Path
    text: str
    includes: tuple[tuple[str, int], ...] = ()

    @cached_property
    def tokens(self) -> SourceText:
        return tokenize(self.text)


@dataclass(frozen=True)
class SourceTree:
    """The source (`files[0]`) and the headers it reaches, each once, in the order they are met."""

    files: tuple[SourceFile, ...]
    digest: str

    @property
    def source(self) -> SourceFile:
        return self.files[0]

    @property
    def headers(self) -> tuple[SourceFile, ...]:
        return self.files[1:]

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier in any of the files."""
        return frozenset().union(*(f.tokens.names for f in self.files))


def read_source(path: Path) -> str:
    """The text of a kernel's source or header, newlines as `\\n`, without a byte-order mark.

    Raises KernelError where it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise KernelError(f"{path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise KernelError(
            f"cannot read {path}: {reason}", hint="check `source` in the kernel's description"
        ) from None


def _is_toolkit_header(spelling: str) -> bool:
    return spelling in _TOOLKIT_HEADERS or spelling.startswith(_TOOLKIT_FOLDERS)


def _refuse_outside_link(path: Path) -> None:
    folder = path.parent.resolve()
    target = path.resolve()
    if not target.is_relative_to(folder):
        raise KernelError(
            f"{path} is a link to {target}, outside its folder",
            hint="copy the file, or name the real one as `source`",
        )


class _Reader:
    """Walks includes depth first. `trail` is the chain of files being read."""

    def __init__(self, include_dirs: Sequence[Path]) -> None:
        self.include_dirs = include_dirs
        self.files: list[SourceFile | None] = []
        self.index: dict[Path, int] = {}
        self.trail: list[Path] = []

    def read(self, path: Path) -> int:
        key = path.resolve()
        if key in self.trail:
            circle = [*self.trail[self.trail.index(key) :], key]
            chain = " -> ".join(p.name for p in circle)
            raise KernelError(
                f"headers include each other in a circle: {chain}",
                hint="move what both need into a third header",
            )
        if key in self.index:
            return self.index[key]
        number = self.index[key] = len(self.files)
        self.files.append(None)
        text = read_source(path)
        self.trail.append(key)
        includes = [
            (spelling, self.read(found))
            for directive in tokenize(text).directives
            if directive.name in ("include", "include_next")
            for spelling, found in self._target(path, directive)
        ]
        self.trail.pop()
        self.files[number] = SourceFile(path, text, tuple(includes))
        return number

    def _target(self, path: Path, directive: Directive) -> list[tuple[str, Path]]:
        """The spelling and file an include reaches; nothing for a header of the toolkit's or system's."""
        tokens = directive.tokens
        quoted = _QUOTED.match(tokens[0].text) if tokens else None
        if quoted:
            spelling, folders = quoted.group(1), (path.parent, *self.include_dirs)
        elif tokens and tokens[0].text == "<":
            spelling, folders = "".join(t.text for t in tokens[1:-1]), tuple(self.include_dirs)
        else:
            raise KernelError(
                f"{path.name}:{directive.line}: cannot follow `#include {directive.text}`",
                hint="write the header's name in quotes, so that a change of it is seen",
            )
        for folder in folders:
            if (folder / spelling).is_file():
                return [(spelling, folder / spelling)]
        if quoted and not directive.conditional and not _is_toolkit_header(spelling):
            searched = ", ".join(str(f) for f in dict.fromkeys(folders))
            raise KernelError(
                f'{path.name}:{directive.line}: header "{spelling}" not found', hint=f"searched in {searched}"
            )
        return []


def _digest(files: Sequence[SourceFile]) -> str:
    content = [[hashlib.sha256(f.text.encode()).hexdigest(), f.includes] for f in files]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()


def read_tree(source: Path, include_dirs: Sequence[Path] = ()) -> SourceTree:
    """Read `source` and, transitively, each header it includes in quotes, or in <> inside `include_dirs`.

    Raises KernelError, naming file and line, for a quoted header that is not there (unless inside a
    condition, or the toolkit's own), an include circle, an include of a macro, a source that is a
    link out of its folder, and text that is not UTF-8.
    """
    _refuse_outside_link(source)
    reader = _Reader(include_dirs)
    reader.read(source)
    files = tuple(f for f in reader.files if f is not None)
    return SourceTree(files, _digest(files))
