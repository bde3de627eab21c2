"""CUDA C++ kernels on the CPU: the same `.cu`, compiled by the host's compiler behind headers of its own.

    compiler = find_compiler()
    compile_module(ModuleSource("tiled.cu", text, ("tiled<16>",)), Path("tiled.so"), compiler=compiler, …)
    a, c = Buffer.of("A", data), Buffer("C", (512, 512), np.float32, writable=True)
    report = launch(launcher_path(compiler), Path("tiled.so"), [a, c, Scalar("n", np.int32(512))], geometry)

Every CUDA thread is a fiber; a block's threads run until each has come to a barrier. `include/` is what a
kernel sees of CUDA, `runtime/` the program that runs it, built once and kept in the user's cache.

With `checked=True` at both, the module tells of every access and `report.findings` says what is wrong, with
both sides' thread, block and line; `findings` has the kinds and what they leave out.

What it cannot do: inline PTX (a kernel may go another way under `#ifdef __SWEEPER_EMULATOR__`, and
kernels/common/ptx.cuh has that way for the commonest instructions), wgmma, TMA, clusters, `cuda::barrier`, and
blocks that wait for blocks after them, since a block runs to its end before its worker takes another.
"""

from __future__ import annotations

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.compiler import HostCompiler, cpu_identity, find_compiler
from sweeper.emulation.elf import static_shared_bytes
from sweeper.emulation.findings import Finding, FindingKind, Place
from sweeper.emulation.geometry import Geometry, Limits, Order
from sweeper.emulation.launcher import launch
from sweeper.emulation.module_source import ModuleSource, host_options
from sweeper.emulation.modules import Compilation, compile_digest, compile_module
from sweeper.emulation.native import headers_digest, launcher_path, runtime_digest
from sweeper.emulation.report import Argument, Fault, LaunchReport, Scalar

__all__ = [
    "Argument",
    "Buffer",
    "Compilation",
    "Fault",
    "Finding",
    "FindingKind",
    "Geometry",
    "HostCompiler",
    "LaunchReport",
    "Limits",
    "ModuleSource",
    "Order",
    "Place",
    "Scalar",
    "compile_digest",
    "compile_module",
    "cpu_identity",
    "find_compiler",
    "headers_digest",
    "host_options",
    "launch",
    "launcher_path",
    "runtime_digest",
    "static_shared_bytes",
]
