"""One profiled job: its figures, why its warps wait, what its fullest unit is, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.model import Build
from sweeper.profile.advice import advise
from sweeper.profile.evidence import Advice, Evidence, busiest
from sweeper.profile.expected import Expected
from sweeper.profile.figures import Counted, figures_of, stalls_of
from sweeper.profile.job import Job
from sweeper.profile.metrics import combined
from sweeper.profile.raw_csv import Launched

__all__ = ["Profile", "profile_of"]

# What tensor cores multiply at many times the rate of the other pipes.
_TENSOR_CLASSES = ("float16", "bfloat16", "tf32", "float8_e4m3", "int8")


@dataclass(frozen=True, slots=True)
class Profile:
    """What the counters of one job say.

    `figures` by the names of FIGURES, without those that could not be had; `stalls` by reason, in percent,
    the commonest first; `bound` names the unit that is fullest, or latency; `kernels` are the names that
    ncu printed, more than one where a library launched several; `metrics` its numbers in base units.
    """

    job: Job
    device: str
    expected: Expected
    figures: Mapping[str, float]
    stalls: Mapping[str, float]
    bound: str
    advice: tuple[Advice, ...]
    kernels: tuple[str, ...]
    metrics: Mapping[str, float]
    registers: int | None = None
    spill_bytes: int | None = None

    def __getitem__(self, name: str) -> float | None:
        """The figure called `name`, or the metric of ncu; None where it could not be had."""
        return self.figures.get(name, self.metrics.get(name))


def profile_of(
    job: Job, device: str, expected: Expected, build: Build | None, launches: Sequence[Launched]
) -> Profile:
    """The profile of `job` from its launches, at least one."""
    counted = Counted(combined(launches), expected)
    figures, stalls = figures_of(counted), stalls_of(counted)
    multiplies = job.spec.reference.kind == "contraction" and job.spec.dtype.name in _TENSOR_CLASSES
    evidence = Evidence(
        figures,
        stalls,
        occupancy_limit=expected.occupancy_limit,
        tensor_class=job.spec.dtype.name if multiplies else "",
    )
    return Profile(
        job=job,
        device=device,
        expected=expected,
        figures=figures,
        stalls=stalls,
        bound=busiest(figures),
        advice=advise(evidence),
        kernels=tuple(launched.kernel for launched in launches),
        metrics=counted.metrics,
        registers=build.registers if build else None,
        spill_bytes=build.spill_bytes if build else None,
    )
