"""Whether a recorded configuration can run at another shape, and what the static model says of it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sweeper.check.compose import Composer
from sweeper.device import Target
from sweeper.dispatch.entry import Entry
from sweeper.errors import ConfigError, ExpressionError, KernelError, NoValidConfiguration
from sweeper.model import KernelSpec
from sweeper.problem import resolve
from sweeper.resources import resources
from sweeper.resources.geometry import why_infeasible

__all__ = ["Feasibility"]


class Feasibility:
    """Kernels as they are described now, in `folders` and among the shipped ones; each is composed once."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._specs: dict[tuple[str, str, str], KernelSpec | str] = {}
        self._answers: dict[str, tuple[str | None, float | None]] = {}

    def judge(self, entry: Entry, dims: Mapping[str, int], limits: Target) -> tuple[str | None, float | None]:
        """Why the configuration of `entry` cannot run at `dims` on a device of `limits` (None: it can), and the
        milliseconds that the static model predicts (None: it predicts nothing).
        """
        key = f"{entry.configuration} {entry.dtype} {entry.layout} {sorted(dims.items())} {limits.name}"
        if key not in self._answers:
            self._answers[key] = self._judged(entry, dims, limits)
        return self._answers[key]

    def _judged(
        self, entry: Entry, dims: Mapping[str, int], limits: Target
    ) -> tuple[str | None, float | None]:
        spec = self.kernel(entry)
        if isinstance(spec, str):
            return spec, None
        try:
            point = spec.point_of(entry.params)
        except ValueError as error:
            return str(error), None
        try:
            problem = resolve(spec, dims, point, seed=0)
            # Whatever levels are searched today: the constraints and the device decide.
            why_not = why_infeasible(spec, point, problem.dims, limits)
            if why_not is not None:
                return why_not, None
            if problem.total_bytes > limits.memory_bytes:
                return f"its arrays take {problem.total_bytes} B of {limits.memory_bytes} B", None
            work = {"flops": problem.flops, "bytes": problem.bytes}
            figures = resources(spec, point, problem.dims, limits, **work)
        except (NoValidConfiguration, ConfigError, ExpressionError) as error:
            return error.message.partition("\n")[0], None
        if not figures.blocks_per_sm:
            return f"no block of it fits an SM ({figures.limited_by})", None
        return None, figures.predicted_ms

    def kernel(self, entry: Entry) -> KernelSpec | str:
        """The kernel of `entry` in its class and layout, or why there is none."""
        key = entry.kernel, entry.dtype, entry.layout
        if key not in self._specs:
            self._specs[key] = self._loaded(entry)
        return self._specs[key]

    def _loaded(self, entry: Entry) -> KernelSpec | str:
        composer = Composer(self._folders)
        if entry.kernel not in composer.kernels:
            return f"no description of kernel {entry.kernel} is here"
        chosen = [f"kernel={entry.kernel}", f"++kernel.dtype={entry.dtype}"]
        chosen += [f"++kernel.layout={entry.layout}"] if "t" in entry.layout else []
        try:
            with composer:
                return composer.compose(chosen)[0]
        except (ConfigError, KernelError) as error:
            return error.message
