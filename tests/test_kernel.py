"""A kernel's description and its source: what agrees loads, what does not says why before any compile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeper.errors import ConfigError, KernelError
from sweeper.kernel import load
from sweeper.model import ArraySpec, Direction, KernelSpec
from sweeper.paths import conf_dir

SCALE_CU = """
template <typename T, int WIDTH>
__global__ void __launch_bounds__(WIDTH) scale(const T* x, T* y, T a, int n) {
  const int i = blockIdx.x * WIDTH + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
__global__ void scale_plain(const float* x, float* y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""


def description(**changes: Any) -> dict[str, Any]:
    node: dict[str, Any] = {
        "name": "scale",
        "source": "scale.cu",
        "entry": "scale",
        "template": ["T", "width"],
        "dims": {"N": 4096},
        "params": {"width": [64, 128]},
        "launch": {"block": ["width"], "grid": ["ceil(N / width)"]},
        "args": [
            {"name": "x", "shape": ["N"]},
            {"name": "y", "shape": ["N"], "direction": "out"},
            {"name": "a", "scalar": "T", "value": 2},
            {"name": "n", "scalar": "int32", "value": "N"},
        ],
        "reference": {"kernel": "scale_plain", "launch": {"block": [256], "grid": ["ceil(N / 256)"]}},
    }
    node.update(changes)
    return {key: value for key, value in node.items() if value is not None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scale.cu").write_text(SCALE_CU)
    return tmp_path


def loaded(folder: Path, **changes: Any) -> KernelSpec:
    return load(description(**changes), folder / "scale.yaml")


def test_a_recorded_configuration_stands_at_the_default_of_what_came_later(folder: Path) -> None:
    spec = loaded(
        folder, params={"width": [64, 128], "later": [0, 1]}, default={"width": 128, "later": 0},
        defines={"LATER": "later"},
    )  # fmt: skip
    assert spec.point_of({"width": 64}).params == {"width": 64, "later": 0}
    assert spec.point_of({"later": 1, "width": 64}).params == {"width": 64, "later": 1}
    assert spec.point_of({"width": 32}).params["width"] == 32, (
        "levels are what is searched, not what there is"
    )
    with pytest.raises(ValueError, match="scale has no parameter height"):
        spec.point_of({"width": 64, "height": 2})


def test_a_description_becomes_a_spec(folder: Path) -> None:
    spec = loaded(folder, default={"width": 128})
    assert spec.default_point.params == {"width": 128}
    assert spec.dims == {"N": 4096}
    assert [a.direction for a in spec.args if isinstance(a, ArraySpec)] == [Direction.IN, Direction.OUT]
    assert spec.launch.grid[0].evaluate({"N": 100, "width": 64}) == 2
    assert spec.dtype.name == "float32"


@pytest.mark.parametrize(
    "dims",
    [
        {"N": 4096},
        {"Z": 5, "N": None, "A": 3, "LD": "N + 1"},
        ["Z", "N", "A", {"LD": "N"}],
    ],
)
def test_another_process_loads_the_same_kernel_from_its_node(folder: Path, dims: Any) -> None:
    """The order of the sizes included, which a shape is written in."""
    spec = loaded(folder, dims=dims)
    again = load(json.loads(spec.node_json), spec.path)
    assert again == spec
    assert list(again.dims) == list(spec.dims)


def test_sizes_may_have_defaults_that_follow_from_others(folder: Path) -> None:
    for dims in ({"M": None, "N": 8, "LD": "N + 4"}, ["M", {"N": 8}, {"LD": "N + 4"}]):
        spec = loaded(folder, dims=dims)
        assert spec.dims == {"M": None, "N": 8}
        assert spec.optional_dims["LD"].evaluate({"N": 8}) == 12
    with pytest.raises(KernelError, match=r"dims: LD = 'P' names 'P'"):
        loaded(folder, dims={"M": None, "N": 8, "LD": "P"})
    with pytest.raises(KernelError, match=r"dims: LD = 'LE' names 'LE'"):
        loaded(folder, dims={"M": None, "N": 8, "LD": "LE", "LE": "N"})


def test_scratch_has_fills_of_its_own_and_no_pitch(folder: Path) -> None:
    args = description()["args"]
    for changes, says in (
        ({"fill": "uniform"}, "'uniform' is none of zeros, none"),
        ({"pitch": "N"}, "a scratch array has none"),
    ):
        scratch = {"name": "s", "shape": ["N"], "direction": "scratch", **changes}
        with pytest.raises(KernelError, match=says):
            loaded(folder, args=[*args, scratch])


def test_the_digest_follows_the_source_and_its_headers(folder: Path) -> None:
    (folder / "scale.cu").write_text('#include "common.cuh"\n' + SCALE_CU)
    (folder / "common.cuh").write_text("constexpr int FACTOR = 1;\n")
    before = loaded(folder).digest
    assert loaded(folder).digest == before
    (folder / "common.cuh").write_text("constexpr int FACTOR = 2;\n")
    assert loaded(folder).digest != before


def test_a_scalar_in_place_of_a_list_pins_the_parameter(folder: Path) -> None:
    spec = loaded(folder, params={"width": 96})
    assert spec.params[0].levels == (96,)
    assert spec.default_point.params == {"width": 96}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nmae": "x"}, "unknown key (did you mean 'name'?)"),
        ({"name": "../evil"}, "is not a valid name"),
        ({"source": "scael.cu"}, "no file 'scael.cu'"),
        ({"entry": "scael"}, "has no kernel 'scael' (did you mean 'scale'?)"),
        ({"dtype": "float31"}, "unknown precision class 'float31'"),
        ({"dtype": "float64", "dtypes": ["float32"]}, "not among this kernel's precision classes"),
        ({"dims": ["n"]}, "not an upper-case name"),
        ({"dims": {"N": 0}}, "at least 1"),
        ({"params": {"width": []}}, "no levels"),
        ({"params": {"width": [64, 64]}}, "lists a level twice"),
        ({"params": {"width": ["016"]}}, "write 16, not 016"),
        ({"params": {"width": ["a b"]}}, "neither a number nor an identifier"),
        ({"params": {"width": [{"a": 1}]}}, "not a number, a truth value or an identifier"),
        ({"params": {"wi dth": [1]}}, "is not an identifier"),
        ({"default": {"widht": 64}}, "not a parameter (did you mean 'width'?)"),
        ({"constraints": ["widht > 1"]}, "unknown name 'widht' in 'widht > 1' (did you mean 'width'?)"),
        ({"constraints": ["__import__('os')"]}, "constraints[0]"),
        ({"launch": {"block": ["width"]}}, "grid"),
        ({"launch": {"block": [1, 1, 1, 1], "grid": [1]}}, "one to three sizes"),
        ({"launch": {"block": ["width"], "grid": [1], "gird": 1}}, "did you mean 'grid'?"),
        ({"args": "none"}, "not a list"),
        ({"requires": {"min_cc": "eight"}}, "not a compute capability"),
        ({"requires": {"conditions": ["N % width == 0"]}}, "unknown name 'width'"),
        ({"reference": None}, "reference: missing"),
        (
            {"reference": {"kernel": "nothing", "launch": {"block": [1], "grid": [1]}}},
            "has no kernel 'nothing'",
        ),
        ({"tolerance": -1}, "not a positive number"),
        ({"template": ["T"]}, "has 2 template parameters, the description gives 1"),
        ({"template": None}, "the description has no `template`"),
        ({"model": {"flop": 1}}, "did you mean 'flops'?"),
        ({"defines": {"1X": 1}}, "is not an identifier"),
        ({"options": [1]}, "not text"),
        ({"description": 3}, "is not text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder: Path, changes: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(folder, **changes)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (
            {"name": "x", "shape": ["N"], "direction": "inn"},
            "none of in, out, inout, scratch (did you mean 'in'?)",
        ),
        ({"name": "x", "shape": ["N"], "fill": "unifrm"}, "did you mean 'uniform'?"),
        ({"name": "x", "shape": []}, "give the array's sizes"),
        ({"name": "x", "shape": ["N"], "scalar": "int32"}, "unknown key"),
        ({"name": "1x", "shape": ["N"]}, "not a valid name"),
        ("x", "not a mapping"),
    ],
)
def test_a_wrong_argument_is_named(folder: Path, argument: Any, says: str) -> None:
    args = description()["args"]
    with pytest.raises(KernelError) as error:
        loaded(folder, args=[argument, *args[1:]])
    assert says in str(error.value)


def test_arguments_are_held_against_the_source(folder: Path) -> None:
    args = description()["args"]
    with pytest.raises(KernelError, match="takes 4 arguments"):
        loaded(folder, args=args[:3])
    with pytest.raises(KernelError, match=r"argument 4 \(n\) is int, the description's n is long long"):
        loaded(folder, args=[*args[:3], {"name": "n", "scalar": "int64", "value": "N"}])
    with pytest.raises(KernelError, match="a name is used twice"):
        loaded(folder, args=[args[0], args[0], *args[2:]])
    with pytest.raises(KernelError, match="nothing can be proved right"):
        loaded(folder, args=[args[0], {"name": "y", "shape": ["N"]}, *args[2:]])


def test_a_parameter_that_nothing_reads_is_reported(folder: Path) -> None:
    with pytest.raises(KernelError, match="parameter BMM is never used"):
        loaded(folder, params={"width": [64], "BMM": [64]})


def test_a_macro_that_nothing_defines_is_reported_with_its_line(folder: Path) -> None:
    (folder / "scale.cu").write_text(
        SCALE_CU.replace("a * x[i];\n}\n__global__", "a * x[i] * TN;\n}\n__global__")
    )
    with pytest.raises(KernelError, match=r"scale.cu:5: TN is used"):
        loaded(folder)


def test_a_block_at_odds_with_the_sources_launch_bounds_is_refused(folder: Path) -> None:
    with pytest.raises(KernelError, match=r"the block has 64 threads.*__launch_bounds__"):
        loaded(folder, launch={"block": [8, 8], "grid": ["ceil(N / width)"]}, params={"width": [128]})


def test_spills_may_be_forbidden(folder: Path) -> None:
    assert not loaded(folder).forbid_spills
    assert loaded(folder, forbid_spills=True).forbid_spills
    with pytest.raises(KernelError, match="forbid_spills: 'never' is neither true nor false"):
        loaded(folder, forbid_spills="never")


def shipped(path: Path) -> dict[str, Any]:
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name in node.pop("defaults", ()):
        if name != "_self_":
            problem = conf_dir() / f"{name.strip('/').partition('@')[0]}.yaml"
            node = {**yaml.safe_load(problem.read_text()), **node}
    return dict(node)


@pytest.mark.parametrize("path", sorted((conf_dir() / "kernel").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_kernel_loads_in_every_precision_it_lists(path: Path) -> None:
    node = shipped(path)
    for name in node["dtypes"]:
        spec = load({**node, "dtype": name}, path)
        assert spec.name == path.stem
        assert spec.default_point.params.keys() == {p.name for p in spec.params}
