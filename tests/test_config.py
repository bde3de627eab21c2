"""The strict check of a composed configuration: unknown keys and wrong types, each with the mend."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sweeper.config import Config, MeasureConfig, validate
from sweeper.errors import ConfigError

COMPOSED: dict[str, Any] = {
    "kernel": {"name": "tiled", "dims": ["M", "N", "K"], "params": {"tile": [8, 16]}},
    "shape": {"name": "large", "m": 4096, "n": 4096, "k": 4096},
    "search": {"name": "tpe", "budget": 50, "seed": 0},
    "measure": {"name": "default", "warmup_ms": 20},
    "backend": {"name": "auto"},
    "build": {"compiler": "auto", "workers": 0, "deadline_s": 120, "cache": True},
    "baseline": ["cublas"],
    "results_dir": None,
    "resume": True,
    "seed": 42,
}


def checked(**changes: Any) -> Config:
    """`COMPOSED` with dotted keys changed."""
    node = copy.deepcopy(COMPOSED)
    for dotted, value in changes.items():
        *folders, key = dotted.split("__")
        inner = node
        for folder in folders:
            inner = inner[folder]
        inner[key] = value
    return validate(node)


def complaint(**changes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        checked(**changes)
    return str(error.value)


def test_a_whole_configuration_is_typed() -> None:
    config = checked()
    assert config.shape.sizes == {"m": 4096, "n": 4096, "k": 4096}
    assert config.search.budget == 50
    assert config.measure.warmup_ms == 20.0
    assert config.baseline == ("cublas",)


def test_sections_left_out_take_their_defaults() -> None:
    config = validate({"kernel": {"name": "tiled"}, "shape": {}})
    assert config.backend.target == "h200"
    assert config.shape.sizes == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shpe": "large"}, "unknown key 'shpe' (did you mean 'shape'?)"),
        ({"tlie": 8}, "unknown key 'tlie' (did you mean 'kernel.params.tile'?)"),
        ({"search__buget": 5}, "unknown key search.buget (did you mean 'budget'?)"),
        ({"measure__warmup": 5}, "unknown key measure.warmup (did you mean 'warmup_ms'?)"),
        ({"shape__mm": 5}, "unknown key shape.mm"),
    ],
)
def test_an_unknown_key_names_the_nearest_right_one(changes: dict[str, Any], says: str) -> None:
    assert says in complaint(**changes)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (100.0, "is not a whole number: write 100"),
        ("016", "is not a whole number: write 16"),
        ("0x20", "is not a whole number: write 32"),
        ("on", "is not a whole number"),
        (True, "is not a whole number"),
        (1.5, "is not a whole number"),
        (0, "a size is at least 1"),
        (-3, "a size is at least 1"),
    ],
)
def test_a_size_is_a_plain_whole_number(value: Any, says: str) -> None:
    assert says in complaint(shape__m=value)


def test_a_shape_that_is_no_mapping_names_the_right_forms() -> None:
    assert "write shape=large, shape=256x512x64 or shape.m=256" in complaint(shape=128)


def test_a_kernels_own_sizes_may_be_set() -> None:
    config = checked(kernel__dims={"ROWS": 5}, shape={"rows": 7, "m": None})
    assert config.shape.sizes == {"rows": 7}


def test_every_problem_is_listed_at_once() -> None:
    text = complaint(shpe=1, search__seed="x", measure__cache="hot")
    assert all(part in text for part in ("shpe", "search.seed = 'x' is not a whole number"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"search__objective": "gflops", "search__direction": "minimize"}, "contradicts"),
        ({"search__objective": "speed"}, "none of time_ms, gflops"),
        ({"search__budget": 0}, "at least 1"),
        ({"search__lookahead": 0}, "not between 1 and 1024"),
        ({"measure__min_samples": 0}, "at least 1"),
        ({"measure__min_samples": 9, "measure__max_samples": 3}, "no larger"),
        ({"measure__cache": "hot"}, "none of cold, warm, both"),
        ({"measure__stopping": "widht"}, "did you mean 'width'"),
        ({"measure__stopping": "entropy", "measure__max_samples": 31}, "takes 32 samples to say anything"),
        ({"measure__entropy_bits": 0.0}, "more than 0"),
        ({"measure__graph_below_ms": -1.0}, "0 for never"),
        ({"measure__clock_tolerance": 5.0}, "between 0 and 1, or null for any clock"),
        ({"measure__recovery_s": -1.0}, "0 or more"),
        ({"measure__lock_clocks": "fast"}, "write base, max, or MHz as a whole number"),
        ({"measure__lock_clocks": 3}, "between 100 and 10000"),
        ({"measure__lock_clocks": [1500]}, "is not"),
        ({"kernel": None}, "not a kernel's description"),
        ({"search": 3}, "not a section"),
        ({"baseline": "cublas"}, "not a list: write baseline=[a,b]"),
        ({"resume": "yes"}, "not true or false"),
        ({"search__options": 3}, "not a mapping"),
        ({"measure__stop_factor": 1.0}, "more than 1, or null for never"),
        ({"backend__devices": "both"}, "a list such as [0,1], or all"),
        ({"backend__devices": 1}, "neither text nor a list: write backend.devices=[1]"),
        ({"backend__devices": []}, "at least one device"),
        ({"backend__devices": [0, 0]}, "each once"),
        ({"backend__devices": [-1]}, "counted from 0"),
        ({"backend__devices": ["a"]}, "backend.devices[0] = 'a' is not a whole number"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], says: str) -> None:
    assert says in complaint(**changes)


def test_the_objectives_own_direction_may_be_said() -> None:
    assert checked(search__objective="gflops", search__direction="maximize").search.direction == "maximize"


@pytest.mark.parametrize(("written", "meant"), [([0, 2], (0, 2)), ("all", "all"), (None, None)])
def test_several_devices_may_serve(written: Any, meant: Any) -> None:
    assert checked(backend__devices=written).backend.devices == meant


def test_how_samples_are_taken_is_a_condition_and_a_held_clock_too() -> None:
    """Rows answer for each other only where they were measured alike."""
    usual = MeasureConfig().conditions()
    for change in (
        {"lock_clocks": "base"},
        {"lock_clocks": 1500},
        {"cache": "both"},
        {"stopping": "entropy"},
        {"graph_below_ms": 0.0},
        {"clock_tolerance": None},
    ):
        assert MeasureConfig(**change).conditions() != usual
