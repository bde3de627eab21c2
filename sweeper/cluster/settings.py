"""What a configuration may say of the engine that runs devices and builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.errors import did_you_mean

__all__ = ["ENGINES", "EngineConfig", "why_no_engine"]

ENGINES = ("local", "ray")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Who runs devices and builds: `local`, this process, or `ray`, a cluster.

    `address` None starts a cluster on this host and ends it; `auto` joins the one that this host belongs to, as
    does `HOST:PORT` of its head. `gpus` of it serve (None: all that are free), those that Ray calls `accelerator` alone
    where one is named. At most `cpus` builds run at once (None: one a processor of the cluster); of a cluster that is
    started here it is the number of processors, and for an emulator `gpus` that of pretended GPUs.
    """

    name: str = "local"
    address: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    accelerator: str | None = None


def why_no_engine(
    engine: EngineConfig | None, device: int = 0, devices: str | Sequence[int] | None = None
) -> list[str]:
    """What is of the right type and still cannot be meant, beside the `device` or `devices` of a backend."""
    if engine is None:
        return []
    if engine.name not in ENGINES:
        return [
            f"engine.name = {engine.name!r} is none of {', '.join(ENGINES)}{did_you_mean(engine.name, ENGINES)}"
        ]
    problems = []
    if engine.name == "local":
        given = {"address": engine.address, "gpus": engine.gpus, "cpus": engine.cpus}
        given["accelerator"] = engine.accelerator
        problems += [
            f"engine.{key} = {value!r}: a cluster's; write engine=ray"
            for key, value in given.items()
            if value is not None
        ]
        return problems
    for key, count in (("gpus", engine.gpus), ("cpus", engine.cpus)):
        if count is not None and count < 1:
            problems.append(f"engine.{key} = {count}: at least 1, or null for all there are")
    if devices is not None or device:
        key = "device" if devices is None else "devices"
        problems.append(f"backend.{key} names a GPU of this host; with engine=ray write engine.gpus=N")
    if engine.address is not None and not engine.address.strip():
        problems.append("engine.address is empty: auto, HOST:PORT, or null for one of its own")
    return problems
