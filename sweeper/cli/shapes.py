"""Shapes by name, as the `shape` group has them, outside the group: for a job that searches several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from sweeper.config import ShapeConfig
from sweeper.errors import ConfigError, did_you_mean
from sweeper.paths import conf_dir

__all__ = ["named_shape"]

_ONE_OFF = re.compile(r"\d+x\d+x\d+")
_SIZES = ("m", "n", "k")


def named_shape(name: str, folders: Sequence[Path] = ()) -> ShapeConfig:
    """The shape called `name`, or `MxNxK`; `folders` are those given by `--config-dir`.

    Raises ConfigError for an unknown name and for a file that is no shape.
    """
    if _ONE_OFF.fullmatch(name):
        return ShapeConfig(None, dict(zip(_SIZES, map(int, name.split("x")), strict=True)))
    paths = {path.stem: path for folder in (*folders, conf_dir()) for path in _files(folder)}
    if name not in paths:
        raise ConfigError(
            f"shapes: no shape is called {name!r}{did_you_mean(name, paths)}",
            hint=f"use MxNxK, or one of {', '.join(sorted(paths))}",
        )
    node = yaml.safe_load(paths[name].read_text(encoding="utf-8"))
    sizes = {key: value for key, value in node.items() if key != "name"} if isinstance(node, dict) else {}
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes.values()):
        raise ConfigError(f"shapes: {paths[name]} is no shape", hint="give it name, m, n and k")
    return ShapeConfig(str(node.get("name") or name), sizes)


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "shape").glob("*.yaml"))
