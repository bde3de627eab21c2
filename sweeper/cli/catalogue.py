"""What the configuration offers, read from its YAML files without Hydra: fast enough for every Tab of a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sweeper.paths import conf_dir

__all__ = ["chosen_kernel", "described", "groups", "kernel_node", "options", "read_yaml", "shipped_defaults"]


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the YAML file at `path`; empty where it holds none or cannot be read."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - both loaders are safe
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return dict(node) if isinstance(node, Mapping) else {}


def groups() -> list[str]:
    """The configuration groups, by name."""
    return sorted(path.name for path in conf_dir().iterdir() if path.is_dir())


def options(group: str, config_dirs: Iterable[Path] = ()) -> dict[str, Path]:
    """The options of `group` by name, with their files; the shipped one of two counts, as it does for Hydra.

    Kernels may lie directly in a folder of `config_dirs`.
    """
    found = {path.stem: path for path in sorted((conf_dir() / group).glob("*.yaml"))}
    for folder in config_dirs:
        paths = sorted((folder / group).glob("*.yaml"))
        if group == "kernel":
            flat = sorted(folder.glob("*.yaml"))
            paths += [path for path in flat if {"source", "entry"} <= set(read_yaml(path))]
        for path in paths:
            found.setdefault(path.stem, path)
    return found


def described(path: Path) -> str:
    """What the file at `path` is, in a line: its `description`, or the first sentence of its first comment."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    told = re.search(r"^description: (.*)$", text, re.MULTILINE)
    if told:
        return told[1].strip("'\"")
    words = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            words.append(line.lstrip("# "))
    sentence = re.split(r"\.(?: |$)|: (?:python|-m)\b|: backend=", " ".join(words))[0]
    return sentence.strip()


def kernel_node(path: Path) -> dict[str, Any]:
    """The description in the kernel's file at `path`, with what it takes from the files of its defaults list."""
    own = read_yaml(path)
    node: dict[str, Any] = {}
    for entry in own.pop("defaults", []):
        if isinstance(entry, str) and entry != "_self_":
            node |= read_yaml(conf_dir() / f"{entry.partition('@')[0].strip('/')}.yaml")
    return node | own


def shipped_defaults() -> dict[str, Any]:
    """The values that hold where nothing is said, by their full names, as far as the shipped files give them."""
    config = read_yaml(conf_dir() / "config.yaml")
    chosen = {
        k: v for entry in config.pop("defaults", []) if isinstance(entry, Mapping) for k, v in entry.items()
    }
    config.pop("hydra", None)
    for group, name in chosen.items():
        if group not in ("kernel", "experiment") and (conf_dir() / group).is_dir():
            config[group] = {**read_yaml(conf_dir() / group / f"{name}.yaml"), **config.get(group, {})}
    flat: dict[str, Any] = {"kernel": chosen.get("kernel")}
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "benchmark":
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[key] = value
    return flat


def chosen_kernel(words: Iterable[str]) -> str:
    """The kernel that the overrides among `words` choose, the first of several; else the one that is the default."""
    name = ""
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key == "kernel" and value:
            name = value.split(",")[0]
    return name or str(shipped_defaults()["kernel"])
