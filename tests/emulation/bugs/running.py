"""Running a kernel of the corpus in the emulator, and what there is to say of it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bugs.corpus import Array, Bug, Launch, Size

from sweeper.emulation import (
    Argument,
    Buffer,
    Finding,
    Geometry,
    HostCompiler,
    LaunchReport,
    ModuleSource,
    Order,
    Scalar,
    compile_module,
    launch,
    launcher_path,
    static_shared_bytes,
)

__all__ = ["Verdict", "compile_bug", "fill", "run"]

Data = dict[str, npt.NDArray[np.generic]]
_NAN_BITS = 0xFF


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of all launches of one kernel: `faults` of launches that failed, findings of checked ones."""

    findings: tuple[Finding, ...]
    faults: tuple[str, ...]
    wrong: bool
    nondeterministic: bool

    @property
    def clean(self) -> bool:
        return not (self.findings or self.faults or self.wrong or self.nondeterministic)

    def __str__(self) -> str:
        said = [str(kind) for kind in dict.fromkeys(f.kind for f in self.findings)]
        said += [fault.partition(":")[0] for fault in self.faults]
        said += ["wrong numbers"] * self.wrong + ["not deterministic"] * self.nondeterministic
        return ", ".join(dict.fromkeys(said)) or "nothing"


def fill(bug: Bug) -> Data:
    """What the arrays hold before a launch: the same at every call."""
    data: Data = {}
    for array in bug.arrays:
        data[array.name] = data[array.fill].copy() if array.fill in data else _values(array)
    return data


def _values(array: Array) -> npt.NDArray[np.generic]:
    if not array.read:
        return np.full(array.shape[0] if array.shape == () else array.shape, 0, array.dtype)
    seed = int.from_bytes(hashlib.sha256(array.name.encode()).digest()[:8], "little")
    rng = np.random.default_rng(seed)
    if array.fill == "uniform":
        return rng.uniform(-1, 1, array.shape).astype(array.dtype)
    if array.fill == "whole":
        return rng.integers(-4, 5, array.shape).astype(array.dtype)
    if array.fill == "counting":
        return np.arange(np.prod(array.shape)).reshape(array.shape).astype(array.dtype)
    return np.zeros(array.shape, array.dtype)


def compile_bug(bug: Bug, folder: Path, compiler: HostCompiler, *, fixed: bool, checked: bool) -> Path:
    """The module of the kernel, or of its right twin."""
    text = bug.path.read_text(encoding="utf-8")
    source = ModuleSource(
        bug.path.name,
        f'#line 1 "{bug.path.name}"\n{text}',
        ("kernel",),
        defines=(("FIXED", "1"),) if fixed else (),
    )
    output = folder / f"{bug.name}{'-fixed' * fixed}{'-checked' * checked}.so"
    inside = folder / f"{output.stem}.building"
    inside.mkdir(exist_ok=True)
    done = compile_module(source, output, compiler=compiler, folder=inside, deadline_s=120, checked=checked)
    if not done.ok:
        raise RuntimeError(f"{bug.path.name}: {done.error}\n{done.log}")
    return output


def run(bug: Bug, module: Path, compiler: HostCompiler, *, fixed: bool, checked: bool) -> Verdict:
    """Launch `module` with the threads of a block in three orders, and its blocks too."""
    sizes = bug.fixed if fixed and bug.fixed else bug.launch
    findings: dict[tuple[object, ...], Finding] = {}
    faults: dict[str, None] = {}
    results: list[Data] = []
    for order in Order:
        report, outputs = _once(bug, module, compiler, sizes, order, checked)
        for finding in report.findings:
            sides = sorted(place.line for place in (finding.first, finding.second) if place)
            findings.setdefault((finding.kind, *sides), finding)
        if report.ok:
            results.append(outputs)
        else:
            faults.setdefault(f"{report.kind}: {report.message}")
    return Verdict(
        tuple(findings.values()),
        tuple(faults),
        any(_wrong(bug, outputs) for outputs in results),
        any(not _alike(results[0], other) for other in results[1:]),
    )


def _once(
    bug: Bug, module: Path, compiler: HostCompiler, sizes: Launch, order: Order, checked: bool
) -> tuple[LaunchReport, Data]:
    grid, block = _three(sizes.grid), _three(sizes.block)
    geometry = Geometry(grid, block, sizes.shared_bytes, static_shared_bytes(module))
    blocks = None if order is Order.FORWARD else np.arange(geometry.blocks)[::-1]
    buffers = dict(_buffers(bug))
    arguments: list[Argument] = [
        buffers[a.name] if isinstance(a, Array) else Scalar(a.name, np.dtype(a.dtype).type(a.value))
        for a in bug.args
    ]
    report = launch(
        launcher_path(compiler),
        module,
        arguments,
        geometry,
        blocks=blocks,
        order=order,
        seed=1,
        strict=True,
        checked=checked,
        deadline_s=30.0,
    )
    outputs = {a.name: buffers[a.name].array.copy() for a in bug.arrays if a.written}
    for buffer in buffers.values():
        buffer.close()
    return report, outputs


def _three(sizes: Size) -> tuple[int, int, int]:
    x, y, z = (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3]
    return x, y, z


def _buffers(bug: Bug) -> Iterator[tuple[str, Buffer]]:
    data = fill(bug)
    for array in bug.arrays:
        buffer = Buffer(array.name, array.shape, array.dtype, writable=array.written)
        if array.read:
            buffer.array[...] = data[array.name]
        else:
            buffer.array.view(np.uint8)[...] = _NAN_BITS
        yield array.name, buffer


def _wrong(bug: Bug, outputs: Data) -> bool:
    """Whether an element is off by more than rounding can be."""
    for name, want in bug.expected(fill(bug)).items():
        got = outputs[name].astype(np.float64)
        if not np.allclose(
            got, want, rtol=1e-4, atol=1e-3 if "float16" in {a.dtype for a in bug.arrays} else 1e-5
        ):
            return True
    return False


def _alike(one: Data, other: Data) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)
