"""Builds with nvcc, in child processes that can be killed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from sweeper.build.cache import BuildCache
from sweeper.build.cubin import CompileRequest
from sweeper.build.cubin_builder import CubinBuilder
from sweeper.build.manifest import Recipe
from sweeper.build.source import TranslationUnit, cuda_text
from sweeper.build.toolkit import Nvcc, check_arch, find_nvcc

__all__ = ["NvccBuilder"]

# -v makes ptxas report spills, which the cubin does not tell.
_OWN_OPTIONS = ("-Xptxas=-v",)
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")


class NvccBuilder(CubinBuilder):
    """Compiles with nvcc, through PyCUDA where it can be loaded; nothing here imports PyCUDA."""

    kind = "nvcc"
    module = "sweeper.build.cubin"
    environment: ClassVar[Mapping[str, str]] = {
        "PYTHONUTF8": "1",  # PyCUDA writes the source in the locale's encoding
        "LC_ALL": "C.UTF-8",  # the host compiler's errors are looked for in English
        "LANGUAGE": "",
    }

    def __init__(self, cache: BuildCache, *, nvcc: Path | None = None) -> None:
        """Raises SetupError where there is no usable nvcc."""
        super().__init__(cache)
        self.nvcc: Nvcc = find_nvcc(nvcc)

    def identity(self) -> str:
        """The compiler and its version: `nvcc 13.0.88`."""
        return self.nvcc.identity

    def check(self, arch: str) -> None:
        """Raise SetupError, before any build, where nvcc cannot compile for `arch`."""
        check_arch(self.nvcc, arch)

    def recipe(self, arch: str) -> Recipe:
        """What a build's name depends on. Flags that nvcc takes from the environment count."""
        inherited = tuple(f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name))
        identity = self.identity()
        return Recipe(self.kind, arch, identity, identity, (*_OWN_OPTIONS, *inherited))

    def _request(self, unit: TranslationUnit, arch: str, folder: Path) -> dict[str, Any]:
        defines = (f"-D{name}={value}" for name, value in unit.defines)
        return asdict(
            CompileRequest(
                text=cuda_text(unit),
                nvcc=str(self.nvcc.path),
                arch=arch,
                options=(*unit.options, *defines, *_OWN_OPTIONS),
                include_dirs=tuple(str(d) for d in unit.include_dirs),
                folder=str(folder),
            )
        )
