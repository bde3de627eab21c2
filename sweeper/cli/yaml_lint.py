"""What YAML reads differently from what its writer meant, found before it can matter.

YAML 1.1 reads 016 as 14, 0x20 as 32, 1_000 as 1000, 1:30 as 90 and `on` as true, and of two equal keys
keeps the last without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from sweeper.errors import ConfigError

__all__ = ["lint"]

_SURPRISES = (
    (re.compile(r"[+-]?0\d+"), "an octal number to YAML"),
    (re.compile(r"[+-]?0[xXoObB][0-9a-fA-F_]+"), "a number in another base"),
    (re.compile(r"[+-]?\d[\d_]*_[\d_]*"), "a number with underscores"),
    (re.compile(r"[+-]?\d+(:[0-5]?\d)+"), "a sexagesimal number to YAML"),
    (re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+"), "a number with an exponent"),
    (re.compile(r"(?i)on|off|yes|no"), "a truth value to YAML"),
)


def lint(path: Path) -> None:
    """Raise ConfigError for the first ambiguous plain scalar or repeated key of the YAML file at `path`.

    Raises ConfigError too where the file is not YAML or cannot be read.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for node in _walk(root):
        place = f"{path}:{node.start_mark.line + 1}"
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if keys.count(key) > 1:
                    raise ConfigError(
                        f"{place}: the key {key!r} appears twice", hint="YAML keeps only the last one"
                    )
        elif isinstance(node, yaml.ScalarNode) and node.style is None:
            for pattern, meaning in _SURPRISES:
                if pattern.fullmatch(node.value):
                    raise ConfigError(
                        f"{place}: {node.value} is {meaning}",
                        hint="write a plain decimal number, true or false, or put it in quotes",
                    )


def _walk(node: yaml.Node | None) -> Iterator[yaml.Node]:
    if node is None:
        return
    yield node
    if isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _walk(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _walk(value)
