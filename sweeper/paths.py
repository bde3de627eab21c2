"""Where the shipped configuration and kernels are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["checkout_root", "conf_dir", "kernels_dir"]

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
