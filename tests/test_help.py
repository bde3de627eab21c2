"""What a newcomer is told by `--help`, and what the shell completes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_rig import kernel_in

from sweeper.cli.app import main
from sweeper.cli.catalogue import described, groups, options, shipped_defaults
from sweeper.cli.completion import candidates, completion, wanted
from sweeper.cli.help_text import help_text
from sweeper.cli.keys import FLAGS, KEYS
from sweeper.config import Config
from sweeper.errors import ConfigError

ROOT = Path(__file__).parents[1]
KERNELS = sorted(path.stem for path in (ROOT / "conf" / "kernel").glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
PAGES = [[], *([f"kernel={name}"] for name in KERNELS), *([f"experiment={name}"] for name in EXPERIMENTS)]


# The catalogue of keys


def schema(kind: type = Config, prefix: str = "") -> dict[str, Any]:
    """Every key that a configuration may have, by its full name, with its default."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        own = hints[field.name]
        if dataclasses.is_dataclass(own) and field.name != "shape":
            found |= schema(own, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        elif field.name not in ("kernel", "shape"):
            made = field.default_factory is not dataclasses.MISSING
            found[f"{prefix}{field.name}"] = field.default_factory() if made else field.default  # type: ignore[misc]
    return found


def test_every_key_of_the_configuration_is_told_in_a_line() -> None:
    assert sorted(key.name for key in KEYS) == sorted(schema())
    assert all(key.meaning and len(key.meaning) < 90 for key in KEYS)


def test_the_defaults_that_help_shows_are_those_that_hold() -> None:
    shipped, own = shipped_defaults(), schema()
    for key in KEYS:
        if key.default is not None:
            assert key.name not in shipped, "the file is what holds"
            assert yaml.safe_load(key.default) == own[key.name]
        elif key.everyday and own[key.name] is not None:
            assert key.name in shipped, key.name


def test_the_choices_of_a_key_are_those_that_it_takes() -> None:
    from sweeper.device.target import TARGETS

    choices = {key.name: key.choices for key in KEYS}
    assert list(choices["backend.target"]) == sorted(TARGETS)
    assert set(choices["backend.name"]) == set(options("backend"))
    own = schema()
    for name, given in choices.items():
        if given and isinstance(own[name], bool):
            assert given == ("true", "false"), name


def test_every_option_of_every_group_is_described() -> None:
    """A shape's sizes say what it is."""
    for group in set(groups()) - {"shape"}:
        for name, path in options(group).items():
            assert described(path), f"{group}={name}"


# Help


@pytest.mark.parametrize("words", PAGES, ids=lambda words: "".join(words) or "all")
def test_a_page_fits_100_columns(words: list[str]) -> None:
    assert max(map(len, help_text(["--help", *words]).splitlines())) <= 100


def test_help_names_every_option_and_flag_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for group in groups():
        for name in options(group) if group != "problem" else ():
            assert f"\n  {name} " in text, f"{group}={name}"
    for flag in FLAGS:
        assert f"\n  {flag} " in text
    assert text.count("    python -m sweeper ") == 5
    assert "130 interrupted" in text
    assert main(["-h"]) == 0
    assert capsys.readouterr().out == text


def test_the_commands_that_help_names_are_there() -> None:
    text = help_text([]).partition("Other commands")[2].partition("Exit codes")[0]
    names = [line.split()[0] for line in text.splitlines()[1:] if line.startswith("  ")]
    assert {"check", "doctor", "dispatch", "profile", "portfolio"} <= set(names)
    for name in names:
        assert (ROOT / "sweeper" / name / "__main__.py").is_file(), name


def test_a_kernels_page_has_its_parameters_with_levels_defaults_and_constraints() -> None:
    text = help_text(["--help", "kernel=register_tile"])
    assert "\n  kernel.params.bm=64  16, 32, 64, 128\n" in text
    assert "\n  bm % tm == 0 and bn % tn == 0\n" in text
    assert "1,024 combinations" in text
    assert "kernel.dtype=float32 of float32, float64" in text


def test_ones_own_kernel_has_a_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = kernel_in(tmp_path, params={"block": [8, 16]})
    assert main(["--help", *own]) == 0
    text = capsys.readouterr().out
    assert "kernel.params.block=8   8, 16" in text or "kernel.params.block=8  8, 16" in text
    assert f"--config-dir {tmp_path}" in text
    assert main(["--help", *own[:2]]) == 0
    assert "\n  mine\n" in capsys.readouterr().out, "it has no description"


def test_help_on_what_there_is_not_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help", "kernel=tild"]) == 2
    assert "did you mean 'tiled'?" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="did you mean 'ladder'"):
        help_text(["experiment=lader"])


def test_hydras_own_help_is_within_reach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hydra-help"]) == 0
    assert "Hydra" in capsys.readouterr().out


# Completion


def words(line: str) -> list[str]:
    return [word for word, _ in candidates(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sweeper kernel=ti", ["kernel=tiled"]),
        ("sweeper +shape=la", ["+shape=large"]),
        ("sweeper -m kernel=tiled,nai", ["kernel=tiled,naive"]),
        ("sweeper kernel=tiled ++kernel.params.", ["++kernel.params.tile="]),
        ("sweeper kernel=tiled kernel.params.tile=", [f"kernel.params.tile={n}" for n in (8, 16, 32)]),
        (
            "sweeper kernel=tiled kernel.params.tile=8,",
            ["kernel.params.tile=8,16", "kernel.params.tile=8,32"],
        ),
        ("sweeper sea", ["search.", "search="]),
        ("sweeper search.bu", ["search.budget="]),
        ("sweeper measure.cache=", ["measure.cache=cold", "measure.cache=warm", "measure.cache=both"]),
        ("sweeper dry_run=t", ["dry_run=true"]),
        ("sweeper shape.ld", ["shape.lda=", "shape.ldb=", "shape.ldc="]),
        ("sweeper kernel.dtype=b", ["kernel.dtype=bfloat16"]),
        ("sweeper --cf", ["--cfg"]),
        ("sweeper --cfg ", ["job", "hydra", "all"]),
        ("sweeper -sc install=z", ["install=zsh"]),
        ("sweeper hydra/launcher=j", ["hydra/launcher=joblib"]),
        ("sweeper kernel=nothing_like_it kernel.params.", []),
        ("sweeper nothing_like_it=", []),
        ("", sorted(words("sweeper "))),
    ],
)
def test_what_may_stand_next(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_an_empty_word_offers_every_group_and_section() -> None:
    assert {"kernel=", "shape=", "shape.", "experiment=", "search.", "seed=", "dry_run="} <= set(
        words("sweeper ")
    )


def test_ones_own_kernels_and_their_parameters_are_completed(tmp_path: Path) -> None:
    kernel_in(tmp_path, params={"block": [8, 16]})
    line = f"sweeper --config-dir {tmp_path} kernel=mi"
    assert words(line) == ["kernel=mine"]
    assert words(f"{line}ne kernel.params.") == ["kernel.params.block="]


def test_paths_are_completed_where_a_path_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs.csv").touch()
    assert words(f"sweeper backend.path={tmp_path}/ru") == [
        f"backend.path={tmp_path}/runs/",
        f"backend.path={tmp_path}/runs.csv",
    ]
    assert words(f"sweeper --config-dir {tmp_path}/runs/x") == []


def test_a_word_that_is_completed_is_one_that_a_command_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first of every key with choices."""
    line = [words(f"sweeper {key.name}=")[0] for key in KEYS if key.choices and key.name not in LEFT_OUT]
    assert main([*line, "kernel=tiled", "shape=tiny", "dry_run=true"]) == 0, capsys.readouterr().err


# What contradicts the others, or asks for another command.
LEFT_OUT = {
    "engine.address",
    "store",
    "report",
    "search.direction",
    "measure.lock_clocks",
    "backend.devices",
    "measure.objective",
    "dry_run",
}


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["-sc", "install=bash"], "install=bash"),
        (["--shell-completion=query=zsh"], "query=zsh"),
        (["kernel=tiled", "--shell-completion", "uninstall=fish"], "uninstall=fish"),
        (["-sc"], ""),
        (["kernel=tiled"], None),
    ],
)
def test_what_is_asked_of_the_completion_is_read_from_either_form(argv: list[str], asked: str | None) -> None:
    assert wanted(argv) == asked


@pytest.mark.parametrize("asked", ["", "install", "install=tcsh", "remove=bash"])
def test_another_shell_is_an_error_that_names_those_there_are(asked: str) -> None:
    with pytest.raises(ConfigError, match="bash, zsh, fish"):
        completion(asked)


def test_descriptions_are_for_the_shells_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "sweeper kernel=tile")
    assert completion("query=bash") == "kernel=tiled\n"
    assert completion("query=fish").startswith("kernel=tiled\tsquare tiles")


def shell(name: str, script: str, tmp_path: Path) -> list[str]:
    """What `script` prints in a shell that has a `sweeper` on its path and has evaluated the completion's code."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    program = tmp_path / "sweeper"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sweeper "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    arguments = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    done = subprocess.run(
        [name, *arguments, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "current", "shown"),
    [
        ("sweeper kernel=ti", "ti", ["tiled"]),
        ("sweeper kernel=tiled kernel.params.tile=8,", "8,", ["8,16", "8,32"]),
        ("sweeper kernel=tiled search.bu", "search.bu", ["search.budget="]),
    ],
)
def test_bash_gets_what_follows_the_word_that_it_knows(
    typed: str, current: str, shown: list[str], tmp_path: Path
) -> None:
    script = f"""
        eval "$(sweeper -sc install=bash)"
        complete -p sweeper >/dev/null || exit 1
        COMP_LINE='{typed}' COMP_POINT={len(typed)} COMP_WORDS=(sweeper '{current}') COMP_CWORD=1
        _sweeper sweeper '{current}' ''
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert shell("bash", script, tmp_path) == shown


def test_zsh_offers_words_with_what_they_are(tmp_path: Path) -> None:
    script = """
        compdef() { print "compdef $1 $2" }
        compadd() { print -l -- $values }
        eval "$(sweeper -sc install=zsh)"
        words=(sweeper kernel=tiled kernel.params.tile=) CURRENT=3
        _sweeper
    """
    assert shell("zsh", script, tmp_path) == [
        "compdef", "_sweeper", "sweeper", *(f"kernel.params.tile={n}" for n in (8, 16, 32)),
    ]  # fmt: skip


def test_fish_completes_by_itself(tmp_path: Path) -> None:
    script = "sweeper -sc install=fish | source; complete -C 'sweeper kernel=tile'"
    assert shell("fish", script, tmp_path)[0] == "kernel=tiled"


def test_completion_loads_neither_hydra_nor_what_is_slow() -> None:
    code = (
        "import sys; from sweeper.cli.app import main; main(['-sc', 'query=bash']);"
        "print([m for m in ('hydra', 'numpy', 'pandas', 'optuna', 'rich') if m in sys.modules])"
    )
    environment = {**os.environ, "COMP_LINE": "sweeper kernel=tile", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.split("\n")[:2] == ["kernel=tiled", "[]"], done.stderr
