"""Launching a multirun's jobs so that none of them can hang or lose the others.

    handed_jobs() ─▶ a HandedJob each ─▶ undone() ─▶ run_here(): a process each, a GPU each
                                                  └▶ run_on_slurm(): an array task each, by submitit
                                             │
                  job.json, written by the job itself, and the queue say when it is over

A launcher's own channel for results is not used: a process that is killed leaves none, and waiting for it is what
makes launchers hang.
"""

from __future__ import annotations

from sweeper.cli.launchers.handed import HandedJob, handed_jobs
from sweeper.cli.launchers.here import run_here
from sweeper.cli.launchers.slurm import run_on_slurm
from sweeper.cli.launchers.undone import undone

__all__ = ["HandedJob", "handed_jobs", "run_here", "run_on_slurm", "undone"]
