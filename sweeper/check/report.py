"""What was found out about a kernel: an outcome for every case, and a text that a person can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sweeper.check.plan import Case, Plan
from sweeper.emulation import Finding, Place
from sweeper.model import Point

__all__ = ["Defect", "Outcome", "Report", "Verdict"]


class Verdict(StrEnum):
    """Kinds of defects beside those of the emulator's findings."""

    WRONG_RESULT = "wrong_result"
    NON_DETERMINISTIC = "non_deterministic"
    BUILD_ERROR = "build_error"
    TIMEOUT = "timeout"
    LOCAL_MEMORY = "local_memory"
    ARGUMENT = "argument"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing wrong with one case.

    `kind` is a FindingKind's or a Verdict's value. `first` and `second` are the two sides of it, where
    they are known; `count` how often it happened there.
    """

    kind: str
    message: str
    first: Place | None = None
    second: Place | None = None
    count: int = 1

    @classmethod
    def of(cls, finding: Finding) -> Defect:
        message = finding.message
        if finding.memory and finding.memory not in message:
            message = f"{finding.memory}: {message}"
        # A launch that is refused has no place in the source.
        first = finding.first if finding.first.line else None
        return cls(str(finding.kind), message, first, finding.second, finding.count)

    @property
    def site(self) -> tuple[str, ...]:
        """Equal for the same mistake in the source, whoever made it at whatever shape."""
        places = {f"{p.file}:{p.line}" for p in (self.first, self.second) if p is not None}
        return (self.kind, self.message) if self.kind == Verdict.BUILD_ERROR else (self.kind, *sorted(places))

    def lines(self) -> list[str]:
        """The message, then each side on a line of its own."""
        sides = [str(place) for place in (self.first, self.second) if place is not None]
        if sides and self.count > 1:
            sides[-1] += f", {self.count} times"
        return [self.message, *sides]

    def __str__(self) -> str:
        return f"{self.kind}: " + "; ".join(self.lines())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case after `launches` launches; `skipped` says why nothing could be found out."""

    case: Case
    defects: tuple[Defect, ...] = ()
    launches: int = 0
    seconds: float = 0.0
    skipped: str = ""

    @property
    def right(self) -> bool:
        return not self.defects and not self.skipped


@dataclass(frozen=True, slots=True)
class Report:
    """All outcomes of one kernel, in the plan's order. `str` of it is what the command prints."""

    plan: Plan
    mode: str
    outcomes: tuple[Outcome, ...]
    seconds: float
    compiler: str = ""

    @property
    def kernel(self) -> str:
        return self.plan.spec.name

    @property
    def defects(self) -> tuple[Defect, ...]:
        return tuple(defect for outcome in self.outcomes for defect in outcome.defects)

    @property
    def checked(self) -> int:
        """Cases that were run."""
        return sum(not outcome.skipped for outcome in self.outcomes)

    @property
    def clean(self) -> bool:
        """Whether nothing was found. A report of no case at all is not clean."""
        return self.checked > 0 and not self.defects

    def __str__(self) -> str:
        return "\n".join([self.title(), *self._verdicts(), *self._explanations(), self.summary()])

    def title(self) -> str:
        spec = self.plan.spec
        return f"{spec.name} ({spec.dtype.name}), mode {self.mode}: {self.plan}"

    @property
    def mistakes(self) -> dict[tuple[str, ...], list[tuple[Case, Defect]]]:
        """The same defects together, by `Defect.site`, with the cases that have them; in order of appearance."""
        found: dict[tuple[str, ...], list[tuple[Case, Defect]]] = {}
        for outcome in self.outcomes:
            for defect in outcome.defects:
                found.setdefault(defect.site, []).append((outcome.case, defect))
        return found

    def _verdicts(self) -> Iterator[str]:
        """For each configuration the shapes at which it is right, and the numbers of mistakes at others."""
        numbers = {site: number for number, site in enumerate(self.mistakes, start=1)}
        own: dict[Point, dict[str, list[str]]] = {}
        for outcome in self.outcomes:
            marks = sorted({numbers[defect.site] for defect in outcome.defects})
            wrong = "wrong " + "".join(f"[{mark}]" for mark in marks)
            said = wrong if marks else f"not checked ({outcome.skipped})" if outcome.skipped else "right"
            own.setdefault(outcome.case.point, {}).setdefault(said, []).append(outcome.case.shape)
        for point, verdicts in own.items():
            for said, shapes in verdicts.items():
                yield f"  {point}: {said} at {' '.join(shapes)}"

    def _explanations(self) -> Iterator[str]:
        """Every mistake once, with the first case that has it."""
        for number, same in enumerate(self.mistakes.values(), start=1):
            case, defect = same[0]
            cases = len({other for other, _ in same})
            yield f"  [{number}] {defect.kind} in {cases} case{'s' * (cases > 1)}; with {case}:"
            yield from (f"      {line}" for line in defect.lines())

    def summary(self) -> str:
        """One line: how many cases are right, and how many cases each kind of defect is in."""
        wrong = sum(bool(outcome.defects) for outcome in self.outcomes)
        name = f"{self.kernel} ({self.plan.spec.dtype.name})"
        text = f"{name}: {self.checked - wrong} of {len(self.outcomes)} cases right"
        kinds = Counter(kind for outcome in self.outcomes for kind in {d.kind for d in outcome.defects})
        if kinds:
            text += f", {wrong} wrong (" + ", ".join(f"{k} in {n}" for k, n in sorted(kinds.items())) + ")"
        skipped = len(self.outcomes) - self.checked
        if skipped:
            text += f", {skipped} not checked"
        launches = sum(outcome.launches for outcome in self.outcomes)
        return f"{text}; {launches} launches in {self.seconds:.1f} s"
