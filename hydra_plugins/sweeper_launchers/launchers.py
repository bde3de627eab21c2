"""The launchers' settings, which Hydra checks by their types, and the classes that it makes of them.

Hydra imports this module at every start: it imports nothing that takes time.
"""

# Hydra runs this file before it is in sys.modules, where a dataclass would look its postponed annotations up.
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

__all__ = ["LocalLauncher", "LocalSettings", "SlurmLauncher", "SlurmSettings"]

_HERE = "hydra_plugins.sweeper_launchers.launchers"


@dataclass
class LocalSettings:
    """`hydra/launcher=local`: jobs in processes of their own on this host, a GPU each."""

    _target_: str = f"{_HERE}.LocalLauncher"
    # The GPUs, by number or UUID; null: those of CUDA_VISIBLE_DEVICES, else all that CUDA finds.
    gpus: list[str] | None = None
    # Jobs side by side; null: one a GPU, one where there is none.
    jobs: int | None = None


@dataclass
class SlurmSettings:
    """`hydra/launcher=slurm`: a job array, submitted by submitit. The names are sbatch's where it has one."""

    _target_: str = f"{_HERE}.SlurmLauncher"
    # Where what submitit hands over and the jobs' output lie: a folder that the nodes share.
    submitit_folder: str = "${hydra.sweep.dir}/jobs/.slurm/%j"
    name: str = "${hydra.job.name}"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    # One GPU a task; SLURM then sets CUDA_VISIBLE_DEVICES to it. gres in its place where a GPU has a name: gpu:h200:1.
    gpus_per_node: int | None = 1
    gres: str | None = None
    cpus_per_task: int = 4
    mem_gb: int | None = None
    timeout_min: int = 240
    # A job that has used up its time is told so this long before, and queued again at most so many times.
    signal_delay_s: int = 120
    max_num_timeout: int = 3
    # Tasks that run at once.
    array_parallelism: int = 256
    # Lines of the batch script before the job's: module load …
    setup: list[str] = field(default_factory=list)
    # Any other of sbatch's options, as {mail-user: …}; requeue: after preemption or a node's failure.
    additional_parameters: dict[str, Any] = field(default_factory=lambda: {"requeue": True})
    # How often the queue and the jobs' records are looked at.
    poll_s: float = 5.0


class _Ours(Launcher):
    """What both have in common: what Hydra gives them, and what it gets back."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from sweeper.cli.launchers import handed_jobs, undone

        jobs = handed_jobs(
            self.hydra_context, self.task_function, self.config, job_overrides, initial_job_idx
        )
        if left := undone(jobs):
            self.run(left)
        # How each has ended is in its record, whatever became of its process.
        return [
            JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED) for overrides in job_overrides
        ]

    def run(self, jobs: Any) -> None:
        """Run the jobs, and return when all have ended or are lost."""
        raise NotImplementedError


class LocalLauncher(_Ours):
    """Runs jobs side by side on this host, each with a GPU of its own."""

    def __init__(self, gpus: Sequence[str] | None = None, jobs: int | None = None) -> None:
        self.gpus, self.jobs = gpus, jobs

    def run(self, jobs: Any) -> None:
        from sweeper.cli.launchers import run_here

        run_here(jobs, None if self.gpus is None else [str(gpu) for gpu in self.gpus], self.jobs)


class SlurmLauncher(_Ours):
    """Submits jobs as an array to SLURM and waits for it, however its tasks end."""

    def __init__(self, **settings: Any) -> None:
        known = {one.name for one in fields(SlurmSettings)} - {"_target_"}
        self.settings = {name: value for name, value in settings.items() if name in known}

    def run(self, jobs: Any) -> None:
        from omegaconf import OmegaConf

        from sweeper.cli.launchers import run_on_slurm

        plain = {
            name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in self.settings.items()
        }
        run_on_slurm(jobs, plain)


for _name, _settings in (("local", LocalSettings), ("slurm", SlurmSettings)):
    ConfigStore.instance().store(
        group="hydra/launcher", name=_name, node=_settings(), provider="sweeper_launchers"
    )
