"""A job as it is handed to another process: pickled, it holds what Hydra composed the multirun from, and no secret."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

__all__ = ["HandedJob", "handed_jobs"]


@dataclass(frozen=True, slots=True)
class HandedJob:
    """One job: its `number` from 1 on, its `overrides`, the folder of the multirun, and Hydra's part."""

    number: int
    overrides: tuple[str, ...]
    results: Path
    context: HydraContext
    task: TaskFunction
    config: DictConfig
    singletons: Mapping[type, Any]

    @property
    def own(self) -> list[str]:
        """What distinguishes it from the other jobs of the multirun, as the job itself will see it."""
        from hydra.core.utils import filter_overrides

        from sweeper.cli.planned import own_among

        return own_among(filter_overrides(self.overrides))

    @property
    def asked(self) -> str:
        """`kernel=tiled shape=odd`, as the job's record will have it."""
        from sweeper.cli.planned import told

        return told(self.own)

    def composed(self) -> tuple[DictConfig, dict[str, Any]]:
        """Hydra's account of the job, and its whole configuration in plain containers, not yet validated.

        Raises Hydra's errors and OmegaConf's.
        """
        from omegaconf import OmegaConf, open_dict

        config = self.context.config_loader.load_sweep_config(self.config, list(self.overrides))
        runtime = config.hydra.runtime
        with open_dict(config):
            del config["hydra"]
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return runtime, cast("dict[str, Any]", plain)

    def __call__(self) -> None:
        """Run it in this process. What it raises is raised; its record says the same to the command."""
        from hydra.core.singleton import Singleton
        from hydra.core.utils import run_job, setup_globals
        from omegaconf import OmegaConf, open_dict

        # As on a terminal: whatever started this process may have it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Singleton.set_state({"instances": dict(self.singletons), "omegaconf_resolvers": {}})
        OmegaConf.clear_resolvers()
        setup_globals()
        config = self.context.config_loader.load_sweep_config(self.config, list(self.overrides))
        with open_dict(config):
            config.hydra.job.id = f"{config.hydra.job.name}_{self.number - 1}"
            config.hydra.job.num = self.number - 1
        done = run_job(
            hydra_context=self.context,
            task_function=self.task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        # Raises what the job raised, if it was no error of ours.
        _ = done.return_value


def handed_jobs(
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    overrides: Sequence[Sequence[str]],
    first: int,
) -> list[HandedJob]:
    """The jobs with these overrides, of which the first is Hydra's job number `first`, counted from 0."""
    from hydra.core.singleton import Singleton

    results = Path(str(config.hydra.sweep.dir))
    # Resolvers are functions without names, which cannot be pickled; the job has the same without them.
    state = Singleton.get_state()["instances"]
    return [
        HandedJob(first + place + 1, tuple(own), results, context, task, config, state)
        for place, own in enumerate(overrides)
    ]
