"""From overrides, or the path of a description, to a kernel and its configuration, by way of Hydra."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import yaml

from sweeper.cli.yaml_lint import lint
from sweeper.config import Config, validate
from sweeper.errors import ConfigError
from sweeper.kernel import load
from sweeper.kernel.sizes import differing
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir

__all__ = ["Composer", "expand", "kernel_dims"]

_DEFAULT_SIZE = 512


def kernel_dims(spec: KernelSpec, config: Config) -> dict[str, int]:
    """The sizes of the problem that `config` names, in upper case."""
    given = config.shape.sizes
    dims = {name: given.get(name.lower(), default or _DEFAULT_SIZE) for name, default in spec.dims.items()}
    return dims | differing(spec, dims, {name.upper(): size for name, size in given.items()})


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The jobs that `overrides` stand for: one for every combination of values given as `a,b`."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    choices = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([str(override.input_line)])
    return [list(job) for job in itertools.product(*choices)]


class Composer:
    """Composes configurations from the shipped ones and those in `folders`, and loads their kernels.

    A folder may hold groups (`kernel/mine.yaml`) or descriptions of kernels directly (`mine.yaml`).
    `shapes` are one-off shapes by name. Use as a context.
    """

    def __init__(
        self, folders: Sequence[Path] = (), shapes: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        self._folders = tuple(folders)
        self._shapes = dict(shapes or {})
        shipped = {path.stem: path for path in sorted((conf_dir() / "kernel").glob("*.yaml"))}
        self.kernels: dict[str, Path] = {}
        """Every kernel that can be chosen: those in the folders, then the shipped ones."""
        self.hidden: list[Path] = []
        """Descriptions in the folders that nobody can choose: shipped kernels have their names."""
        self._registered: dict[str, Path | Mapping[str, Any]] = {}
        for path in self._descriptions():
            if path.stem in shipped:
                self.hidden.append(path)
            elif path.parent in self._folders:
                self.add_kernel(path.stem, path)
            else:
                self.kernels[path.stem] = path
        self.own_kernels = tuple(self.kernels)
        self.kernels |= shipped

    def _descriptions(self) -> Iterator[Path]:
        for folder in self._folders:
            if not folder.is_dir():
                raise ConfigError(f"--config-dir {folder}: no such folder")
            for path in (*sorted(folder.glob("kernel/*.yaml")), *sorted(folder.glob("*.yaml"))):
                lint(path)
                node = yaml.safe_load(path.read_text(encoding="utf-8"))
                if isinstance(node, Mapping) and {"source", "entry"} <= set(node):
                    yield path

    def add_kernel(self, name: str, path: Path) -> None:
        """Let `kernel=name` choose the description at `path`, wherever that is."""
        lint(path)
        self.kernels[name] = self._registered[name] = path

    def add_node(self, name: str, node: Mapping[str, Any], path: Path) -> None:
        """Let `kernel=name` choose the description `node`, as if that were the file at `path`."""
        self.kernels[name], self._registered[name] = path, node

    def __enter__(self) -> Self:
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._known_to_hydra())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextlib.contextmanager
    def _known_to_hydra(self) -> Iterator[None]:
        from hydra import initialize_config_dir
        from hydra.core.config_store import ConfigStore

        known = ConfigStore.instance()
        nodes: dict[tuple[str, str], Any] = {
            ("shape", n): {"name": None, **s} for n, s in self._shapes.items()
        }
        for name, held in self._registered.items():
            if isinstance(held, Path):
                nodes["kernel", name] = yaml.safe_load(held.read_text(encoding="utf-8"))
            else:
                nodes["kernel", name] = copy.deepcopy(held)
        for (group, name), node in nodes.items():
            known.store(group=group, name=name, node=node)
        try:
            with initialize_config_dir(str(conf_dir()), version_base="1.3"):
                yield
        finally:
            for group, name in nodes:
                known.repo[group].pop(f"{name}.yaml", None)

    def compose(self, overrides: Sequence[str]) -> tuple[KernelSpec, Config]:
        """The kernel and the configuration of one job.

        Raises ConfigError for an unknown key or choice or a value of the wrong type, KernelError for a
        description that is at odds with its source.
        """
        name, plain = self.resolved(overrides)
        config = validate(plain)
        return load(config.kernel, self.kernels[name]), config

    def resolved(self, overrides: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """The name of the kernel that was chosen, and the whole configuration in plain containers, not yet validated.

        Raises ConfigError for what Hydra cannot compose.
        """
        from hydra import compose
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        searched = ",".join(f"'file://{folder}'" for folder in self._folders)
        try:
            composed = compose(
                "config", [f"hydra.searchpath=[{searched}]", *overrides], return_hydra_config=True
            )
            name = str(composed.hydra.runtime.choices["kernel"])
            node = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
            plain = cast(dict[str, Any], OmegaConf.to_container(node, resolve=True, throw_on_missing=True))
        except (HydraException, OmegaConfBaseException) as error:
            said = str(error).partition("\nConfig search path")[0]
            raise ConfigError(f"configuration: {said}") from None
        return name, plain
