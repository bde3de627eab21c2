"""Builds with NVRTC, in child processes that keep it loaded and can be killed.

NVRTC compiles device code alone and starts no other program, so that a build takes about a tenth of nvcc's
processor time. It is given the unit that nvcc is given; a template's instance is asked for by name, and
comes with its symbol, instead of by a host function that takes its address. Functions without an execution
space count as device functions (`--device-as-default-execution-space`): the toolkit's cuda.h, where
CUtensorMap comes from, is declared that way. Static shared memory has the opt-in limit, not 48 KB.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sweeper.build.cache import BuildCache
from sweeper.build.cubin_builder import CubinBuilder
from sweeper.build.manifest import Recipe
from sweeper.build.nvrtc_child import Compilation
from sweeper.build.nvrtc_headers import STANDARD_HEADERS
from sweeper.build.source import TranslationUnit
from sweeper.build.toolkit import CudaHeaders, Nvrtc, check_arch, find_headers
from sweeper.errors import SetupError
from sweeper.model import digest
from sweeper.process import ChildDied, ChildTimeout

__all__ = ["NvrtcBuilder", "nvrtc_options"]

_OWN_OPTIONS = ("--ptxas-options=-v", "--device-as-default-execution-space")
_FLAG_VARIABLES = ("NVRTC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS")
_START_S = 60.0
_INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc, in the versions of your CUDA toolkit; or build.compiler=nvcc"
# Options of the host's compiler, which takes no part.
_HOST_ONLY = ("-O0", "-O1", "-O2", "-O3")
_NO_SOURCE = "cannot open source file"


class NvrtcBuilder(CubinBuilder):
    """Compiles with the NVRTC that NVIDIA's Python bindings load."""

    kind = "nvrtc"
    module = "sweeper.build.nvrtc_child"

    def __init__(self, cache: BuildCache) -> None:
        """Raises SetupError where NVRTC or CUDA's headers are not there."""
        super().__init__(cache)
        try:
            self.nvrtc: Nvrtc = self._identified()
            self.headers: CudaHeaders = find_headers(self.nvrtc.version)
        except BaseException:
            self.close()
            raise
        self._standard_digest = digest(STANDARD_HEADERS)

    def _identified(self) -> Nvrtc:
        try:
            with self._child() as child:
                reply = child.request({"op": "identify"}, deadline_s=_START_S)
        except (ChildDied, ChildTimeout) as error:
            raise SetupError(f"NVRTC cannot be loaded: {error.message}", hint=_INSTALL) from None
        if reply["error"]:
            raise SetupError(f"NVRTC cannot be loaded: {reply['error']}", hint=_INSTALL)
        return Nvrtc(Path(reply["library"]), reply["version"], frozenset(reply["archs"]))

    def identity(self) -> str:
        """The compiler and its version: `nvrtc 13.0.88`."""
        return self.nvrtc.identity

    def check(self, arch: str) -> None:
        """Raise SetupError, before any build, where NVRTC cannot compile for `arch`."""
        check_arch(self.nvrtc, arch)

    def recipe(self, arch: str) -> Recipe:
        """What a build's name depends on: the headers' version and flags from the environment count."""
        inherited = tuple(f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name))
        flags = (*_OWN_OPTIONS, self.headers.version, self._standard_digest, *inherited)
        identity = self.identity()
        return Recipe(self.kind, arch, identity, identity, flags)

    def _request(self, unit: TranslationUnit, arch: str, folder: Path) -> dict[str, Any]:
        request = Compilation(
            text=unit.text,
            name=unit.name,
            options=nvrtc_options(unit, arch, self.headers),
            expression=unit.signature if unit.template_args else "",
            headers=STANDARD_HEADERS,
            folder=str(folder),
        )
        return {"op": "compile", **asdict(request)}

    def _explained(self, reason: str) -> str:
        if _NO_SOURCE not in reason:
            return reason
        return f"{reason}; nvrtc has no headers of the host's: build.compiler=nvcc finds them"


def nvrtc_options(unit: TranslationUnit, arch: str, headers: CudaHeaders) -> tuple[str, ...]:
    """`unit`'s options, macros and folders as NVRTC spells them, and our own."""
    own = [o.replace("-Xptxas=", "--ptxas-options=") for o in unit.options if o not in _HOST_ONLY]
    defines = [f"-D{name}={value}" for name, value in unit.defines]
    folders = [f"-I{folder}" for folder in (*unit.include_dirs, *headers.folders)]
    return (f"--gpu-architecture={arch}", *dict.fromkeys((*own, *_OWN_OPTIONS)), *defines, *folders)
