"""How much work a recorded problem is, where the kernel is one that ships: tables of times do not tell."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import yaml

from sweeper.device import target
from sweeper.errors import ConfigError, SweeperError
from sweeper.kernel.description import load
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.roofline import roofline_ms

__all__ = ["Work", "work_of"]

_HERE = "@_here_"


class Work(NamedTuple):
    """FLOPs and compulsory bytes of a problem, and the least time in ms that the device allows for them."""

    flops: int | None = None
    bytes: int | None = None
    roofline_ms: float | None = None


@functools.lru_cache(maxsize=4096)
def work_of(kernel: str, dtype: str, layout: str, dims: tuple[tuple[str, int], ...], device: str) -> Work:
    """By the description of the shipped kernel of that name; empty where there is none, or it has other sizes.

    `dims` are the sizes by name. A device that no table knows has no least time.
    """
    spec = _shipped(kernel, dtype, layout)
    if spec is None or not set(spec.dims) <= dict(dims).keys():
        return Work()
    try:
        problem = resolve(spec, dict(dims), spec.default_point, seed=0)
    except SweeperError:
        return Work()
    try:
        least = roofline_ms(problem.flops, problem.bytes, spec.dtype, target(device))
    except (ConfigError, KeyError):
        least = None
    return Work(problem.flops, problem.bytes, least)


@functools.lru_cache(maxsize=256)
def _shipped(kernel: str, dtype: str, layout: str) -> KernelSpec | None:
    path = conf_dir() / "kernel" / f"{kernel}.yaml"
    if not kernel.isidentifier() or not path.is_file():
        return None
    node = _composed(yaml.safe_load(path.read_text(encoding="utf-8")))
    try:
        return load({**node, "dtype": dtype, **({"layout": layout} if layout else {})}, path)
    except SweeperError:
        return None


def _composed(node: dict[str, Any]) -> dict[str, Any]:
    """A description with those that it is based on, as composing it would give; without Hydra's second of start-up."""
    base: dict[str, Any] = {}
    for name in node.pop("defaults", ()):
        if isinstance(name, str) and name.endswith(_HERE):
            path = conf_dir() / f"{name.removesuffix(_HERE).lstrip('/')}.yaml"
            base |= _composed(yaml.safe_load(path.read_text(encoding="utf-8")))
    return base | node
