"""What every trial of a study shares, and what a result depends on beside the point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.evaluate import Evaluator
from sweeper.model import KernelSpec, TimeSource, Trial, digest

__all__ = ["Study"]

# The keys of a description that say which points there are, not what a point does.
_SPACE_KEYS = {"params", "default", "constraints", "description", "layouts"}


@dataclass(frozen=True, slots=True)
class Study:
    """One kernel at one shape on one kind of device: what every trial of it shares.

    `context` digests everything but the point that a result depends on. Which points may be asked is no
    part of it: a level added later leaves earlier trials valid. Of the device it has the kind and the
    driver, not the uuid: several of a kind may serve one search, and every row names the one it ran on.
    """

    spec: KernelSpec
    dims: Mapping[str, int]
    shape: str
    seed: int
    flops: int | None
    bytes: int
    evaluator: Evaluator
    protocol: Mapping[str, Any]

    context: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", self._digest())

    def _digest(self) -> str:
        spec, world = self.spec, self.evaluator
        predicted = world.time_source is TimeSource.PREDICTED
        left_out = _SPACE_KEYS if predicted else _SPACE_KEYS | {"model"}
        description = {k: v for k, v in json.loads(spec.node_json or "{}").items() if k not in left_out}
        return digest(
            {
                "kernel": [spec.digest, spec.reference.digest, description, spec.dtype.name],
                "dims": dict(self.dims),
                "seed": self.seed,
                "backend": world.backend,
                "device": [world.identity.name, world.identity.driver, world.target.name],
                "compiler": world.compiler,
                "protocol": dict(self.protocol),
            }
        )

    @property
    def objective(self) -> str:
        """What the best has least of: `time`, `energy` or `both`."""
        return str(self.protocol.get("objective", "time"))

    @property
    def name(self) -> str:
        """A name for people that no other study of the same store has."""
        return f"{self.spec.name}-{self.spec.dtype.name}-{self.shape}-{self.context[:8]}"

    def reusable(self, trial: Trial) -> bool:
        """Whether a trial of this context answers for this study: a device's rows only where it serves.

        Two GPUs of one kind differ by a few per cent, so another one's times are measured again.
        """
        uuids = {device.uuid for device in self.evaluator.devices}
        return not trial.device_uuid or trial.device_uuid in uuids
