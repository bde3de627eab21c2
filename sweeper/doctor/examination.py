"""Everything that is looked at, in the order in which one thing rests on another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweeper.device import target
from sweeper.doctor import machine, software
from sweeper.doctor.attempt import attempt
from sweeper.doctor.finding import Finding, State, looked_at
from sweeper.errors import SweeperError

__all__ = ["Examination", "examine"]

_WITHOUT_GPU = "h200"


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found; `able` says whether a search could run here as it is."""

    findings: tuple[Finding, ...]
    able: bool


def examine(results: Path) -> Examination:
    """Look at all of this machine that a search with its results in `results` would use.

    Takes a few seconds, most of them for a kernel that is built, launched and proved right.
    """
    findings = list(_findings(results))
    by_name = {finding.what: finding for finding in findings}
    runs = by_name.get("gpu run") or by_name["emulator run"]
    needed = (runs, by_name["python"], by_name["packages"], by_name["results"])
    return Examination(tuple(findings), all(one.works for one in needed))


def _findings(results: Path) -> Iterator[Finding]:
    yield looked_at("python", software.python)
    yield looked_at("packages", software.packages)
    gpus = looked_at("gpu", machine.gpus)
    here = gpus.state is not State.ABSENT
    first, arch, bus = _first(gpus) if here else (gpus, target(_WITHOUT_GPU).arch, "")
    yield first
    yield looked_at("pycuda", lambda: software.pycuda(gpu=here))
    yield looked_at("nvcc", lambda: software.nvcc(arch), otherwise=State.ABSENT)
    nvrtc = looked_at("nvrtc", lambda: software.nvrtc(arch), otherwise=State.ABSENT)
    yield nvrtc
    yield looked_at("cublas", lambda: software.cublas(gpu=here))
    yield looked_at("host compiler", software.host_compiler, otherwise=State.ABSENT if here else State.BROKEN)
    yield looked_at("ncu", software.ncu, otherwise=State.ABSENT)
    if here:
        # Who else is there is asked before this has a context of its own.
        if bus:
            yield from machine.nvml(bus)
            yield looked_at("other processes", lambda: machine.others(bus))
        yield _run_on_gpu(other_compiler=nvrtc.works)
    else:
        yield looked_at("emulator run", lambda: attempt("emulator", "auto"))
    yield looked_at("results", lambda: machine.results(results))
    yield looked_at("build cache", machine.cache, otherwise=State.NOTE)


def _first(gpus: Finding) -> tuple[Finding, str, str]:
    """The first GPU by name, its architecture and PCI bus id."""
    try:
        limits, device = machine.first_gpu()
    except SweeperError as error:
        broken = Finding(gpus.what, State.BROKEN, error.message, error.hint or gpus.mend)
        return broken, target(_WITHOUT_GPU).arch, ""
    text = f"{gpus.text}, the first an {device.name} ({limits.arch}), CUDA {device.cuda_driver}"
    return Finding(gpus.what, gpus.state, text), limits.arch, device.pci_bus_id


def _run_on_gpu(*, other_compiler: bool) -> Finding:
    found = looked_at("gpu run", lambda: attempt("cuda", "auto"))
    if found.works or not other_compiler:
        return found
    again = looked_at("gpu run", lambda: attempt("cuda", "nvrtc"))
    mend = "build.compiler=nvrtc works here; or mend nvcc" if again.works else found.mend
    return Finding(found.what, found.state, found.text, mend)
