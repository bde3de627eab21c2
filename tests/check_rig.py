"""Small kernels compiled with checks, and the places in them that a finding should name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation_rig import Rig, Sizes, three

from sweeper.emulation import (
    Argument,
    Buffer,
    Finding,
    FindingKind,
    Geometry,
    HostCompiler,
    LaunchReport,
    ModuleSource,
    Place,
    find_compiler,
    launch,
    static_shared_bytes,
)

FILE = "kernel.cu"
_ENTRY = re.compile(r"__global__ void (\w+)")


def compilers() -> list[HostCompiler]:
    """g++ and clang++ where they are, else whatever there is."""
    found = [find_compiler({"CXX": name}) for name in ("g++", "clang++") if shutil.which(name)]
    return found or [find_compiler()]


with_every_compiler = pytest.fixture(
    scope="module", params=compilers(), ids=lambda compiler: f"{compiler.kind}"
)


class Kernels:
    """Every `__global__` function of one text, compiled together with checks.

    A comment `//name` at a line's end gives the line a name.
    """

    def __init__(
        self, compiler: HostCompiler, folder: Path, text: str, entries: Sequence[str] = (), **fields: Any
    ) -> None:
        self.text = text
        self.rig = Rig(compiler, folder)
        self.names = list(entries) or _ENTRY.findall(text)
        self.module = folder / f"checked-{compiler.kind}.so"
        source = ModuleSource(FILE, f'#line 1 "{FILE}"\n{text}', tuple(self.names), **fields)
        done = self.rig.compile(source, self.module, checked=True)
        assert done.ok, done.error + done.log

    @property
    def tells_returns(self) -> bool:
        """Clang leaves every function at its end, whichever `return` leads there."""
        return self.rig.compiler.kind != "clang"

    def run(
        self,
        name: str,
        *arguments: Argument,
        grid: Sizes = 1,
        block: Sizes = 1,
        shared_bytes: int = 0,
        **how: Any,
    ) -> LaunchReport:
        geometry = Geometry(three(grid), three(block), shared_bytes, static_shared_bytes(self.module))
        number = self.names.index(name)
        return launch(self.rig.launcher, self.module, arguments, geometry, kernel=number, checked=True, **how)

    def findings(self, name: str, *arguments: Argument, **how: Any) -> tuple[Finding, ...]:
        return self.run(name, *arguments, **how).findings

    def only(self, name: str, *arguments: Argument, **how: Any) -> Finding:
        """The one thing that is wrong."""
        found = self.findings(name, *arguments, **how)
        assert len(found) == 1, "\n".join(str(finding) for finding in found)
        return found[0]

    def place(self, mark: str, thread: Sizes = 0, block: Sizes = 0) -> Place:
        """The line named `mark`, with the indices of who runs it."""
        lines = [i for i, line in enumerate(self.text.split("\n"), 1) if line.endswith(f"//{mark}")]
        assert len(lines) == 1, mark
        return Place(FILE, lines[0], index(thread), index(block))


def index(sizes: Sizes) -> tuple[int, int, int]:
    x, y, z = (*([sizes] if isinstance(sizes, int) else sizes), 0, 0)[:3]
    return x, y, z


def kinds(findings: Sequence[Finding]) -> set[FindingKind]:
    return {finding.kind for finding in findings}


def out(shape: Sizes = 64, dtype: Any = np.float32, name: str = "C") -> Buffer:
    shape = shape if isinstance(shape, Sequence) else (shape,)
    buffer = Buffer(name, shape, dtype, writable=True)
    buffer.array[...] = 0
    return buffer


def given(shape: Sizes = 64, dtype: Any = np.float32, name: str = "A") -> Buffer:
    shape = shape if isinstance(shape, Sequence) else (shape,)
    return Buffer.of(name, np.ones(shape, dtype))
