"""Cubins and an nvcc that need no CUDA: for tests of what reads the one and runs the other.

    cubin({"matmul": Figures(registers=32)})          # bytes of an ELF file that reads as a cubin
    fake_nvcc(folder, version="13.0.88")              # an executable `nvcc`, told what to do by its input

The fake obeys comments of the source it is given: `// fake: kernels a b` (which kernels come out),
`// fake: error` (two errors), `// fake: megabyte` (1 MB of them), `// fake: hang` (never ends, nor does
its child), `// fake: die` (killed by a signal), `// fake: full` (no space left), `// fake: junk` (writes
something that is no cubin).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figures:
    registers: int = 32
    shared_bytes: int = 0
    frame_bytes: int = 0


def cubin(
    kernels: Mapping[str, Figures], *, reserved: bool = False, functions: tuple[str, ...] = ()
) -> bytes:
    """An ELF64 file with the sections and symbols that a cubin has for `kernels`.

    `reserved`: laid out as for sm_90, where 1024 bytes of shared memory are the system's own;
    `functions` are device functions, which no one can launch.
    """
    names = [*kernels, *functions, *([".nv.reservedSmem.offset0"] if reserved else [])]
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols = bytes(24)
    information = b""
    position = 1
    for index, name in enumerate(names, start=1):
        kind, other = (0x12, 0x10) if name in kernels else (0x12, 0) if name in functions else (0x21, 0)
        symbols += struct.pack("<IBBHQQ", position, kind, other, 0, 0, 0)
        position += len(name) + 1
        if name in kernels:
            for attribute, value in ((0x2F, kernels[name].registers), (0x11, kernels[name].frame_bytes)):
                information += struct.pack("<BBHII", 4, attribute, 8, index, value)
            information += struct.pack("<BBH", 3, 0x1B, 255)
    sections = [("", b"", 0), (".strtab", strings, 0), (".symtab", symbols, 1), (".nv.info", information, 2)]
    for name, figures in kernels.items():
        sections.append((f".text.{name}", b"\0" * 16, 2))
        size = figures.shared_bytes + (1024 if reserved else 0)
        if size:
            sections.append((f".nv.shared.{name}", b"\0" * size, 0))
    return _elf(sections)


def _elf(sections: list[tuple[str, bytes, int]]) -> bytes:
    table = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections[1:]) + b".shstrtab\0"
    sections = [*sections, (".shstrtab", table, 0)]
    body, headers, offset, name_at = b"", b"", 64, 1
    for i, (name, content, link) in enumerate(sections):
        at = name_at if i else 0
        headers += struct.pack("<IIQQQQIIQQ", at, int(i > 0), 0, 0, offset, len(content), link, 0, 1, 0)
        body += content
        offset += len(content)
        name_at += len(name) + 1 if i else 0
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    fixed = struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, offset, 0, 64, 0, 0, 64, len(sections), len(sections) - 1
    )
    return ident + fixed + body + headers


_FAKE = """#!{python}
import os, re, signal, subprocess, sys, time
sys.path.insert(0, {tests!r})
arguments = sys.argv[1:]
with open({folder!r} + "/calls", "a") as calls:
    print(os.getpid(), *arguments, file=calls)
if "--version" in arguments:
    print("Cuda compilation tools, release {release}, V{version}")
elif "--list-gpu-code" in arguments:
    print("{archs}")
else:
    from cubins import Figures, cubin
    source = open(arguments[-1], encoding="utf-8").read()
    told = dict(re.findall(r"// fake: (\\w+)(.*)", source))
    if "error" in told:
        sys.exit('tiled.cu(12): error: identifier "x" is undefined\\ntiled.cu(13): error: expected a ";"')
    if "megabyte" in told:
        print("noise about templates\\n" * 20000, file=sys.stderr)
        sys.exit("tiled.cu(7): error: no instance of overloaded function\\n" + "tiled.cu(8): error: more\\n" * 30000)
    if "full" in told:
        sys.exit("fatal   : write of kernel.cubin failed: No space left on device")
    if "hang" in told:
        child = subprocess.Popen(["sleep", "1000"])
        with open({folder!r} + "/hanging", "w") as file:
            file.write(f"{{os.getpid()}} {{child.pid}} ")
        child.wait()
    if "die" in told:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "slow" in told:
        time.sleep(0.3)
    if "junk" in told:
        content = b"not a cubin"
    else:
        content = cubin({{name: Figures() for name in told.get("kernels", "matmul").split()}})
    with open("kernel.cubin", "wb") as file:
        file.write(content)
    for name in told.get("kernels", "matmul").split():
        print("ptxas info    : Function properties for " + name, file=sys.stderr)
        print("    8 bytes stack frame, 24 bytes spill stores, 16 bytes spill loads", file=sys.stderr)
"""


def fake_nvcc(folder: Path, *, version: str = "13.0.88", archs: str = "sm_75 sm_80 sm_90 sm_100") -> Path:
    """An executable `nvcc` in `folder`; each call adds a line to the file `calls` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvcc"
    release = ".".join(version.split(".")[:2])
    facts = {"python": sys.executable, "tests": str(HERE), "folder": str(folder)}
    text = _FAKE.format(release=release, version=version, archs="\\n".join(archs.split()), **facts)
    path.write_text(text)
    path.chmod(0o755)
    return path
