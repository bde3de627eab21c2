"""Where the shipped configuration and kernels are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["START_VARIABLE", "checkout_root", "conf_dir", "kernels_dir", "start_folder"]

START_VARIABLE = "SWEEPER_START"
"""The environment variable by which child processes know the folder that the command was started in."""

_PACKAGE = Path(__file__).resolve().parent


def checkout_root() -> Path | None:
    """The repository this package is run from, or None for an installed wheel."""
    root = _PACKAGE.parent
    return root if (root / "conf" / "config.yaml").is_file() and (root / "kernels").is_dir() else None


def _shipped(name: str) -> Path:
    root = checkout_root()
    return (root or _PACKAGE) / name


def conf_dir() -> Path:
    """The folder of the shipped Hydra configuration."""
    return _shipped("conf")


def kernels_dir() -> Path:
    """The folder of the shipped CUDA sources."""
    return _shipped("kernels")


def start_folder() -> Path:
    """The folder that the command was started in, whatever `hydra.job.chdir` has changed since."""
    return Path(os.environ.get(START_VARIABLE) or Path.cwd())
