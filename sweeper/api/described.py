"""A kernel as Python names it: a shipped one, a YAML file, or a description as a dict with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sweeper.atomic import atomic_write
from sweeper.check.compose import Composer
from sweeper.errors import ConfigError, did_you_mean
from sweeper.model import digest

__all__ = ["Kernel", "Named", "composer_for", "named"]

Kernel = str | Path | Mapping[str, Any]
"""A kernel's name, the path of its YAML file, or its description, whose `source` is a path or the source itself."""

# No file has this name, so that a description may have that of a shipped kernel.
_CHOICE = "the-one-given"


@dataclass(frozen=True, slots=True)
class Named:
    """A kernel to choose: `choice` is what Hydra calls it, `title` what people do.

    Of a YAML file there is its `path`; of a dict the `node`, and the file that it might have been at.
    """

    choice: str
    title: str
    path: Path | None = None
    node: Mapping[str, Any] | None = None


def named(kernel: Kernel, keep: Path | None = None) -> Named:
    """What `kernel` says. A source that is given as text is kept in a folder of its own below `keep`.

    Raises ConfigError.
    """
    if isinstance(kernel, Mapping):
        return _described(kernel, keep)
    text = str(kernel)
    if isinstance(kernel, str) and not text.endswith((".yaml", ".yml")):
        if text.endswith(".cu"):
            raise ConfigError(
                f"kernel = {text!r} is a source, and says nothing of parameters and arguments",
                hint="describe it: kernel={'name': …, 'source': 'mine.cu', 'entry': …, …}, or in a YAML file",
            )
        return Named(text, text)
    path = Path(kernel).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"kernel = {text!r}: no such file")
    return Named(_CHOICE, path.stem, path=path)


def composer_for(
    kernel: Named, config_dirs: Sequence[Path] = (), shapes: Mapping[str, Mapping[str, int]] | None = None
) -> Composer:
    """A composer that knows `kernel`, and those in `config_dirs`. Raises ConfigError for an unknown name."""
    folders = list(config_dirs)
    if kernel.path is not None and kernel.path.parent.name == "kernel":
        # A group's folder: what its descriptions take over lies beside it.
        folders.append(kernel.path.parent.parent)
    composer = Composer(folders, shapes)
    if kernel.node is not None and kernel.path is not None:
        composer.add_node(_CHOICE, kernel.node, kernel.path)
    elif kernel.path is not None:
        composer.add_kernel(_CHOICE, kernel.path)
    elif kernel.choice not in composer.kernels:
        known = composer.kernels
        raise ConfigError(
            f"no kernel {kernel.choice!r}{did_you_mean(kernel.choice, known)}",
            hint="give a shipped one, the path of a .yaml, or config_dir=, the folder that it is in",
        )
    return composer


def _described(kernel: Mapping[str, Any], keep: Path | None) -> Named:
    node = _plain(kernel)
    name, source = str(node.get("name", "kernel")), str(node.get("source", ""))
    if "\n" in source:
        if keep is None:
            raise ConfigError(
                f"kernel {name}: its source is given as text", hint="write it to a .cu, and give its path"
            )
        return _kept(node, name, source, keep)
    path = Path(source).expanduser()
    folder = Path.cwd()
    if source and path.is_file():
        folder, node["source"] = path.absolute().parent, path.name
    return Named(_CHOICE, name, folder / f"{name}.yaml", node)


def _kept(node: dict[str, Any], name: str, source: str, keep: Path) -> Named:
    """Source and description as files, in a folder that is named by what they say: none is ever overwritten."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64]
    node["source"] = f"{stem}.cu"
    folder = keep / "kernels" / digest([node, source], length=12)
    described = yaml.safe_dump(node, sort_keys=False, allow_unicode=True)
    for file, text in ((node["source"], source), (f"{stem}.yaml", described)):
        if not (folder / file).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            atomic_write(folder / file, text.encode("utf-8"))
    return Named(_CHOICE, name, folder / f"{stem}.yaml", node)


def _plain(value: Any, where: str = "kernel") -> Any:
    """`value` in the plain types that YAML has. Raises ConfigError."""
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one, f"{where}.{key}") for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_plain(one, f"{where}[{place}]") for place, one in enumerate(value)]
    raise ConfigError(f"{where} is a {type(value).__name__}", hint="give text, numbers, lists and dicts")
