"""Where the description of a job's kernel lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sweeper.paths import conf_dir, kernels_dir

__all__ = ["flat_kernels", "kernel_file"]


def kernel_file(runtime: Any, flat: Mapping[str, Path] | None = None) -> Path:
    """The YAML file that the kernel of a composed job came from; `runtime` is `hydra.runtime` of its configuration.

    `flat` are the kernels that lie directly in its `--config-dir`s, where they are known already.
    """
    choice = str(runtime.choices["kernel"])
    sources = [source for source in runtime.config_sources if source.provider != "schema"]
    for source in sources:
        path = Path(source.path) / "kernel" / f"{choice}.yaml"
        if path.is_file():
            return path
    if flat is None:
        given = [Path(source.path) for source in sources if source.provider == "command-line"]
        flat = {name: path for folder in given for name, path in flat_kernels(folder).items()}
    return flat.get(choice, kernels_dir() / f"{choice}.yaml")


def flat_kernels(folder: Path) -> dict[str, Path]:
    """Kernels by name that lie directly in `folder`, a `--config-dir`; none that has a shipped one's name."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        described = isinstance(node, Mapping) and {"source", "entry"} <= set(node)
        if described and not (conf_dir() / "kernel" / path.name).is_file():
            found[path.stem] = path
    return found
