"""Plain scalars that YAML reads differently from what their writer meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.cli.yaml_lint import lint
from sweeper.errors import ConfigError
from sweeper.paths import conf_dir


def check(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    lint(path)


@pytest.mark.parametrize("scalar", ["016", "0x20", "0b11", "1_000", "1:30", "1e2", "on", "Off", "yes", "NO"])
def test_an_ambiguous_scalar_is_named_with_its_line(tmp_path: Path, scalar: str) -> None:
    with pytest.raises(ConfigError, match=f"mine.yaml:2: {scalar} is") as error:
        check(tmp_path, f"name: x\ntile: {scalar}\n")
    assert "plain decimal" in str(error.value)


@pytest.mark.parametrize(
    "scalar", ["16", "-3", "0", "0.5", "true", "'016'", '"on"', "null", "1.0e", "tile * 016"]
)
def test_a_plain_scalar_is_left_alone(tmp_path: Path, scalar: str) -> None:
    check(tmp_path, f"tile: [8, {scalar}]\n")


def test_a_repeated_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tile' appears twice"):
        check(tmp_path, "params:\n  tile: [8]\n  tile: [16]\n")


def test_broken_yaml_and_a_missing_file_are_our_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        check(tmp_path, "params: [8, 16\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        lint(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "path", sorted(conf_dir().rglob("*.yaml")), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_the_shipped_configuration_is_unambiguous(path: Path) -> None:
    lint(path)
