"""How a command line as people write it becomes the one Hydra understands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.cli.command_line import Arguments, gpus_named, normalise
from sweeper.errors import ConfigError

GROUPS = ["shape", "kernel", "search", "measure", "backend", "experiment", "problem"]


def normal(*argv: str) -> Arguments:
    return normalise(argv, groups=GROUPS, default_root=Path("/runs"), now="20300101-120000-000001")


def overrides(*argv: str) -> list[str]:
    return [a for a in normal(*argv).hydra if not a.startswith(("hydra.", "++results_dir"))]


@pytest.mark.parametrize("form", ["shape=large", "+shape=large", "++shape=large"])
def test_a_shape_is_named_with_or_without_plus(form: str) -> None:
    assert overrides(form) == ["+shape=large"]


@pytest.mark.parametrize("form", ["search.seed=1", "+search.seed=1", "++search.seed=1"])
def test_a_value_is_set_whatever_its_prefix(form: str) -> None:
    assert overrides(form) == ["++search.seed=1"]


def test_groups_and_hydras_own_keys_keep_their_form() -> None:
    assert overrides("kernel=tiled", "+search=grid") == ["kernel=tiled", "search=grid"]
    assert "hydra.job.chdir=true" in normal("hydra.job.chdir=true").hydra
    assert overrides("~search.options") == ["~search.options"]


def test_flags_move_to_the_front_with_their_values() -> None:
    arguments = normal("+shape=large", "-m", "kernel.params.tile=8,16", "--config-dir", "mine")
    assert arguments.hydra[:3] == ("-m", "--config-dir", "mine")
    assert arguments.multirun
    assert arguments.config_dirs == (Path("mine").absolute(),)
    assert normal("--config-dir=mine").config_dirs == (Path("mine").absolute(),)


def test_a_flag_without_its_value_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--config-dir needs a value"):
        normal("--config-dir")


def test_a_one_off_shape_by_its_sizes() -> None:
    arguments = normal("shape=256x512x64")
    assert arguments.shapes == {"256x512x64": {"m": 256, "n": 512, "k": 64}}
    assert "+shape=256x512x64" in arguments.hydra


def test_one_off_and_named_shapes_sweep_together() -> None:
    arguments = normal("-m", "shape=[128,256,64],small,64x64x64")
    assert "+shape=128x256x64,small,64x64x64" in arguments.hydra
    assert set(arguments.shapes) == {"128x256x64", "64x64x64"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("128", "shape=128x128x128"),
        ("128,256,64", "shape=128x128x128"),
        ("128x256", "write MxNxK"),
        ("[large,small]", "-m shape=a,b"),
    ],
)
def test_a_shape_that_hydra_would_misread_names_the_right_form(value: str, says: str) -> None:
    with pytest.raises(ConfigError, match="shape") as error:
        normal(f"shape={value}")
    assert says in str(error.value)


def test_a_size_of_its_own_makes_the_shape_nameless() -> None:
    assert overrides("shape.m=1000", "shape.k=77") == ["++shape.m=1000", "++shape.name=null", "++shape.k=77"]


def test_results_go_where_they_are_told() -> None:
    arguments = normal("results_dir=/tmp/mine")
    assert arguments.folder == Path("/tmp/mine")
    assert "hydra.run.dir='/tmp/mine'" in arguments.hydra
    assert "hydra.sweep.dir='/tmp/mine'" in arguments.hydra
    assert normal("results_dir=null").folder == normal().folder
    for bad in ("results_dir=", "results_dir=a,b"):
        with pytest.raises(ConfigError, match="not one folder"):
            normal(bad)


@pytest.mark.parametrize("key", ["hydra.run.dir", "hydra.sweep.dir", "++hydra.sweep.dir"])
def test_hydras_own_folders_are_the_results_folder(key: str) -> None:
    arguments = normal("-m", f"{key}=/tmp/mine")
    assert arguments.folder == Path("/tmp/mine")
    assert [a for a in arguments.hydra if ".dir=" in a] == [
        "hydra.run.dir='/tmp/mine'",
        "hydra.sweep.dir='/tmp/mine'",
    ]
    assert normal(f"{key}=/tmp/mine", "results_dir=/tmp/other").folder == Path("/tmp/other"), (
        "the last counts"
    )
    with pytest.raises(ConfigError, match="not one folder"):
        normal(f"{key}=out/${{now:%Y}}")


@pytest.mark.parametrize(
    "override",
    [
        "hydra.job.chdir=true",
        "++hydra.job.env_set.X=1",
        "+hydra.launcher.n_jobs=2",
        "hydra/launcher=basic",
        "hydra.verbose=true",
    ],
)
def test_keys_that_hydra_has_are_left_to_hydra(override: str) -> None:
    assert override in normal(override).hydra


@pytest.mark.parametrize(
    ("override", "near"),
    [("++hydra.job.cdir=1", "chdir"), ("+hydra.lancher=x", "launcher"), ("hydra.swep.subdir=x", "sweep")],
)
def test_keys_that_hydra_does_not_have_are_an_error_with_the_nearest(override: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        normal(override)


def test_what_others_call_an_option_may_be_written_as_one() -> None:
    assert overrides("--dry-run", "kernel=tiled") == ["++dry_run=true", "kernel=tiled"]
    assert overrides("-m", "--fail-fast") == ["-m", "++fail_fast=true"]


@pytest.mark.parametrize("override", ["label=block=(16,16)", "kernel.launch.block=[a", "search.name=a{b"])
def test_a_value_outside_hydras_grammar_is_named(override: str) -> None:
    with pytest.raises(ConfigError, match="quotes of its own") as error:
        normal(override)
    assert error.value.message.startswith(override)


def test_a_run_without_a_folder_gets_one_that_says_what_it_is() -> None:
    assert normal("kernel=tiled", "+shape=large").folder == Path("/runs/20300101-120000-000001-tiled-large")
    hostile = normal("kernel=../../etc").folder
    assert hostile.parent == Path("/runs")


def test_two_runs_in_one_second_do_not_share_a_folder() -> None:
    names = {normalise([], groups=GROUPS, default_root=Path("/runs")).folder for _ in range(20)}
    assert len(names) > 1


@pytest.mark.parametrize("flags", [("--help",), ("--cfg", "job"), ("--info=all",), ("-sc", "install=bash")])
def test_commands_that_only_show_are_known(flags: tuple[str, ...]) -> None:
    assert normal(*flags).shows
    assert not normal("kernel=tiled").shows


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        ([], 1),
        (["kernel=tiled", "++search.budget=4"], 1),
        (["backend=cuda", "++backend.devices=[0,2]"], 2),
        (["++backend.devices=all"], 1),
        (["backend=emulator"], 0),
        (["++backend.name=replay"], 0),
        (["++dry_run=true"], 0),
        (["++dry_run=false"], 1),
        (["++backend.allow_shared=true"], 0),
    ],
)
def test_how_many_gpus_a_command_will_want_is_told_from_its_line(overrides, count):
    assert gpus_named(overrides) == count
