"""Proof that a configuration is right, before it is timed and again after.

Before each checked launch the outputs are poisoned, so a launch that writes nothing, or a part, cannot
live on an earlier one's results. The launch after the timing has other inputs where the problem allows
it: a contraction is linear in each operand, so with one of them negated every output is negated, to the
last bit. A kernel that kept its first answer is found out.

A launch, its comparison and the digests of what it must leave alone are queued together and waited for once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.arrays import DeviceArray
from sweeper.backend.cuda.comparison import Comparison, Verdict
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.watch import Watch
from sweeper.errors import TrialFailed
from sweeper.model import Check, Direction, Stage, Status
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray

__all__ = ["Launcher", "Verification", "wrong_result"]

# Keeps the device busy until the launch behind it is queued.
_PAUSE_MS = 0.05

Launcher = Callable[[Arguments], None]
"""Queues one launch on the device's stream with the given arguments."""


class Verification:
    """Checks the launches of one configuration; its methods raise TrialFailed with what is wrong.

    `launch_ms` is what the last checked launch took; None where the host was late for it, as it is for the
    first one of a module that the driver loads only then.
    """

    def __init__(
        self,
        device: CudaDevice,
        arguments: Arguments,
        comparison: Comparison,
        watch: Watch,
        launch: Launcher,
    ) -> None:
        self._device = device
        self._arguments = arguments
        self._comparison = comparison
        self._watch = watch
        self._launch = launch
        self._differing = 0
        self.launch_ms: float | None = None

    @property
    def note(self) -> str:
        """That results differ from launch to launch, if they do."""
        if not self._differing:
            return ""
        return f"non-deterministic: {self._differing} elements differ between launches on the same inputs"

    def before_timing(self, launches: int) -> Check:
        """Check `launches` launches, at least one; the first one's check.

        Scratch is cleared before the first of them alone, and there are two at least where there is any: a
        kernel that does not leave it as it needs it again is found out.
        """
        self._comparison.forget()
        with self._device.doing(Stage.VERIFY):
            self._arguments.clear_scratch()
        launches = max(launches, 2 if self._arguments.scratch else 1)
        check = self._run(watched=True).check
        with self._device.doing(Stage.VERIFY):
            self._comparison.keep()
        for _ in range(1, launches):
            with _blaming(self._arguments.scratch):
                self._run()
        return check

    def after_timing(self) -> None:
        """One more launch, on inputs that no earlier launch has seen if there are such."""
        turned = _negatable(self._arguments.problem)
        self._run(self._arguments.arrays[turned.name] if turned else None, watched=True)

    def _run(self, turned: DeviceArray | None = None, *, watched: bool = False) -> Verdict:
        """One launch with everything around it; with `turned` that input is negated meanwhile."""
        stopwatch = self._device.stopwatch
        with self._device.doing(Stage.LAUNCH):
            with _negated(turned):
                self._arguments.reset()
                self._device.pause(_PAUSE_MS)
                stopwatch.start()
                self._launch(self._arguments)
                stopwatch.stop()
                late = stopwatch.started
            self._comparison.queue(negated=turned is not None)
            if watched:
                self._watch.queue()
            self._device.synchronize()
            elapsed_ms = stopwatch.wait_ms()
        self._device.heat.add(elapsed_ms)
        self.launch_ms = None if late else elapsed_ms
        with self._device.doing(Stage.VERIFY):
            verdict = self._comparison.read()
            if not verdict.check.passed:
                raise wrong_result(verdict.check, turned.array.name if turned else "")
            damage = list(map(str, verdict.gaps))
            damage += [*self._watch.damage(), *self._arguments.scratch_damage()] if watched else []
        if damage:
            raise TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, "; ".join(damage))
        self._differing = max(self._differing, verdict.differing)
        return verdict


@contextlib.contextmanager
def _blaming(scratch: Collection[str]) -> Iterator[None]:
    """A launch that fails after one that was right may have found its `scratch` in another state."""
    try:
        yield
    except TrialFailed as failure:
        if not scratch or failure.status is not Status.WRONG_RESULT:
            raise
        names = ", ".join(scratch)
        reason = f"{failure.reason} (in a later launch: the first was right, so see what it left in {names})"
        raise TrialFailed(failure.status, failure.stage, reason, details=failure.details) from None


@contextlib.contextmanager
def _negated(array: DeviceArray | None) -> Iterator[None]:
    """Negate on the device what comes before and after the block: to negate twice changes nothing."""
    if array is not None:
        array.negate()
    try:
        yield
    finally:
        if array is not None:
            array.negate()


def wrong_result(check: Check, negated: str = "") -> TrialFailed:
    """The failure that `check` found, its first wrong element in the reason; `negated` names an input that was."""
    reason = check.note or f"{check.wrong} of {check.checked} elements are wrong"
    if check.mismatches:
        m = check.mismatches[0]
        place = ", ".join(map(str, m.index))
        reason += f"; {m.array}[{place}] = {m.got:g}, expected {m.want:g} ± {m.bound:.2g}"
    if negated:
        reason += f" (with {negated} negated, after the timing)"
    return TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, reason, details={"check": check})


def _negatable(problem: Problem) -> ResolvedArray | None:
    """An input whose negation negates every output exactly; None where there is no such input.

    Rounding to nearest is symmetric about 0. Unsigned integers have no negative, and an output that is
    also read need not be linear.
    """
    if problem.contraction is None or any(a.direction is Direction.INOUT for a in problem.arrays):
        return None
    if any(a.dtype.storage.kind == "u" for a in problem.arrays):
        return None
    return next((a for a in problem.arrays if a.direction is Direction.IN), None)
