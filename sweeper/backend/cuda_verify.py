"""Proof that a configuration is right, before it is timed and again after.

Before each checked launch the outputs are poisoned, so a launch that writes nothing, or a part, cannot
live on an earlier one's results. The launch after the timing has other inputs where the problem allows
it: a contraction is linear in each operand, so with one of them negated every output is negated, to the
last bit. A kernel that kept its first answer is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda_device import CudaDevice
from sweeper.backend.cuda_memory import Arguments
from sweeper.errors import TrialFailed
from sweeper.model import Check, Direction, Stage, Status
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.reference import ReferenceValues

__all__ = ["Launcher", "Verification", "wrong_result"]

Array = npt.NDArray[Any]

Launcher = Callable[[Arguments], None]
"""Queues one launch on the device's stream with the given arguments."""


class Verification:
    """Checks the launches of one configuration; its methods raise TrialFailed with what is wrong."""

    def __init__(
        self,
        device: CudaDevice,
        arguments: Arguments,
        reference: Mapping[str, ReferenceValues],
        launch: Launcher,
    ) -> None:
        self._device = device
        self._arguments = arguments
        self._reference = reference
        self._launch = launch
        self._first: dict[str, Array] = {}
        self._differing = 0

    @property
    def note(self) -> str:
        """That results differ from launch to launch, if they do."""
        if not self._differing:
            return ""
        return f"non-deterministic: {self._differing} elements differ between launches on the same inputs"

    def before_timing(self, launches: int) -> Check:
        """Check `launches` launches, at least one; the first one's check."""
        self._run()
        self._first = self._outputs()
        check = self._checked(self._first)
        self._require_clean()
        for _ in range(1, launches):
            self._run()
            self._compare(self._outputs())
        return check

    def after_timing(self) -> None:
        """One more launch, on inputs that no earlier launch has seen if there are such."""
        turned = _negatable(self._arguments.problem)
        if turned is None:
            self._run()
            self._compare(self._outputs())
        else:
            name, data = turned.name, self._arguments.inputs[turned.name]
            self._arguments.arrays[name].upload(np.negative(data))
            self._run()
            outputs = {key: np.negative(values) for key, values in self._outputs().items()}
            self._arguments.arrays[name].upload(data)
            self._compare_values(outputs)
        self._require_clean()

    def _run(self) -> None:
        with self._device.doing(Stage.LAUNCH):
            self._arguments.reset()
            self._launch(self._arguments)
            self._device.synchronize()

    def _outputs(self) -> dict[str, Array]:
        with self._device.doing(Stage.VERIFY):
            return self._arguments.outputs()

    def _require_clean(self) -> None:
        with self._device.doing(Stage.VERIFY):
            damage = self._arguments.damage()
        if damage:
            raise TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, "; ".join(damage))

    def _checked(self, outputs: Mapping[str, Array]) -> Check:
        check = self._arguments.problem.check(outputs, self._reference)
        if not check.passed:
            raise wrong_result(check)
        return check

    def _compare(self, outputs: Mapping[str, Array]) -> None:
        """Bit for bit with the first launch; where that differs, with the reference again."""
        differing = sum(_differing_bits(outputs[name], first) for name, first in self._first.items())
        if differing:
            self._checked(outputs)
            self._differing = max(self._differing, differing)

    def _compare_values(self, outputs: Mapping[str, Array]) -> None:
        # By value: the negative of a sum that cancels to +0 is again +0.
        if not all(np.array_equal(outputs[name], first) for name, first in self._first.items()):
            self._checked(outputs)


def wrong_result(check: Check) -> TrialFailed:
    """The failure that `check` found, its first wrong element in the reason."""
    reason = check.note or f"{check.wrong} of {check.checked} elements are wrong"
    if check.mismatches:
        m = check.mismatches[0]
        place = ", ".join(map(str, m.index))
        reason += f"; {m.array}[{place}] = {m.got:g}, expected {m.want:g} ± {m.bound:.2g}"
    return TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, reason, details={"check": check})


def _differing_bits(a: Array, b: Array) -> int:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return int(np.count_nonzero(a.view(unsigned) != b.view(unsigned)))


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
