"""What configurations of one prepared problem are judged by, and where it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.comparison import (
    Comparison,
    DeviceComparison,
    HostComparison,
    comparison_bytes,
)
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.product import product_of
from sweeper.backend.cuda.reference import DeviceReference, reference_bytes, upload
from sweeper.backend.cuda.reference_cache import ReferenceCache
from sweeper.backend.cuda.watch import Watch
from sweeper.errors import TrialFailed
from sweeper.problem import Problem
from sweeper.problem.reference import ReferenceValues

__all__ = ["Judge", "judge_by", "judge_of"]

Array = npt.NDArray[Any]

# Of the memory that is free, what judging may take; the rest is for copies of the arguments.
_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Judge:
    """`comparison` tells right results from wrong ones, `watch` what a launch has damaged."""

    comparison: Comparison
    watch: Watch


def judge_of(
    device: CudaDevice, arguments: Arguments, inputs: Mapping[str, Array], cache: ReferenceCache
) -> Judge:
    """By the problem's own reference: a large product's is computed on the device, any other's on the host.

    Raises ConfigError and KernelError as `Problem.reference` does, SetupError where the device computes
    wrongly.
    """
    problem = arguments.problem
    product = product_of(problem, inputs)
    if product is not None and _fits(device, problem, product.scratch_bytes):
        try:
            reference = product.reference(device, arguments, inputs)
            return _on_device(device, arguments, {product.out.name: reference})
        except TrialFailed:
            pass  # the memory that seemed free was not
    return judge_by(device, arguments, cache.get(problem, lambda: problem.reference(inputs)))


def judge_by(device: CudaDevice, arguments: Arguments, references: Mapping[str, ReferenceValues]) -> Judge:
    """By the host's `references`: on the device where it has room for them, else on the host."""
    if _fits(device, arguments.problem, 0):
        try:
            placed = upload(device, references, arguments.problem.outputs)
            return _on_device(device, arguments, placed)
        except TrialFailed:
            pass
    return Judge(HostComparison(arguments, references), _sealed(Watch(device, arguments, {})))


def _fits(device: CudaDevice, problem: Problem, scratch_bytes: int) -> bool:
    needed = comparison_bytes(problem.outputs) + sum(reference_bytes(a) for a in problem.outputs)
    return needed + scratch_bytes <= _SHARE * device.memory()[0]


def _on_device(device: CudaDevice, arguments: Arguments, references: Mapping[str, DeviceReference]) -> Judge:
    comparison = DeviceComparison(device, arguments, references)
    own = {f"the reference of {name}": reference.regions for name, reference in references.items()}
    return Judge(comparison, _sealed(Watch(device, arguments, own)))


def _sealed(watch: Watch) -> Watch:
    watch.seal()
    return watch
