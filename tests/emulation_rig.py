"""Small kernels compiled once a session and launched on NumPy arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.emulation import (
    Argument,
    Buffer,
    Compilation,
    Geometry,
    HostCompiler,
    LaunchReport,
    ModuleSource,
    Scalar,
    compile_module,
    launch,
    launcher_path,
    static_shared_bytes,
)

Sizes = int | Sequence[int]


class Rig:
    """Compiles kernels, keeps the modules, launches them."""

    def __init__(self, compiler: HostCompiler, folder: Path) -> None:
        self.compiler = compiler
        self.launcher = launcher_path(compiler)
        self.folder = folder
        self._modules: dict[ModuleSource, Path] = {}

    def compile(self, source: ModuleSource, output: Path | None = None, **how: Any) -> Compilation:
        """One compilation, failed or not."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            output = output or Path(folder) / "module.so"
            how = {"compiler": self.compiler, "deadline_s": 60.0, **how}
            return compile_module(source, output, folder=Path(folder), **how)

    def module(self, text: str, *entries: str, name: str = "kernel.cu", **fields: Any) -> Path:
        """The module of `text`; its kernels are `entries` (default: `kernel`)."""
        source = ModuleSource(name, f'#line 1 "{name}"\n{text}', entries or ("kernel",), **fields)
        if source not in self._modules:
            path = self.folder / f"module{len(self._modules)}.so"
            done = self.compile(source, path)
            assert done.ok, done.error + done.log
            self._modules[source] = path
        return self._modules[source]

    def run(
        self,
        module: Path,
        *arguments: Argument,
        grid: Sizes = 1,
        block: Sizes = 1,
        shared_bytes: int = 0,
        **how: Any,
    ) -> LaunchReport:
        """One launch, whatever comes of it."""
        geometry = Geometry(three(grid), three(block), shared_bytes, static_shared_bytes(module))
        return launch(how.pop("launcher", self.launcher), module, arguments, geometry, **how)

    def out(
        self,
        module: Path,
        shape: Sizes,
        dtype: Any = np.float32,
        *,
        inputs: Mapping[str, np.ndarray] | None = None,
        scalars: Mapping[str, np.generic] | None = None,
        fill: Any = 0,
        **how: Any,
    ) -> np.ndarray:
        """What a launch that must succeed wrote to its first argument, given `inputs` and `scalars` after it."""
        result = Buffer("out", shape if isinstance(shape, Sequence) else (shape,), dtype, writable=True)
        result.array[...] = fill
        arguments: list[Argument] = [result]
        arguments += [Buffer.of(name, array) for name, array in (inputs or {}).items()]
        arguments += [Scalar(name, value) for name, value in (scalars or {}).items()]
        report = self.run(module, *arguments, **how)
        assert report.ok, report.message
        return result.array.copy()


def three(sizes: Sizes) -> tuple[int, int, int]:
    """Sizes along x, y and z, the missing ones 1."""
    x, y, z = (*([sizes] if isinstance(sizes, int) else sizes), 1, 1)[:3]
    return x, y, z
