"""`from sweeper import best, load_kernel, tune`: what importing costs, and Python's words as the command line's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeper
from sweeper.api.asked import as_overrides, literal, shape_overrides
from sweeper.api.described import named
from sweeper.errors import ConfigError

SAXPY = Path(__file__).parents[1] / "docs" / "examples" / "saxpy"


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestImporting:
    def test_importing_the_package_imports_nothing_else(self) -> None:
        code = "import sys; held = set(sys.modules); import sweeper; print(sorted(set(sys.modules) - held))"
        assert python(code) == "['__future__', 'sweeper']"

    def test_the_three_names_are_listed_before_they_are_loaded(self) -> None:
        code = "import sweeper; print({*sweeper.__all__} <= {*dir(sweeper)}, 'best' in vars(sweeper))"
        assert python(code) == "True False"

    def test_every_public_name_is_there(self) -> None:
        for name in sweeper.__all__:
            assert getattr(sweeper, name) is not None

    @pytest.mark.parametrize("first", ["import sweeper.tune.loop", "from sweeper.tune import Study", "pass"])
    def test_tune_is_the_function_whatever_was_imported_before(self, first: str) -> None:
        code = (
            f"{first}\nfrom sweeper import tune\nimport sweeper.tune.study\nimport sweeper\n"
            "assert sweeper.tune is tune\n"
            "print(tune.__module__, sys.modules['sweeper.tune'].Study.__name__)"
        )
        assert python(f"import sys\n{code}") == "sweeper.api.tuning Study"

    def test_tune_can_be_replaced_as_any_other_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = sweeper.tune
        with monkeypatch.context() as patch:
            patch.setattr(sweeper, "tune", len)
            assert sweeper.tune is len
        assert sweeper.tune is before

    def test_a_name_that_is_not_there_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="module 'sweeper' has no attribute 'tuned'"):
            sweeper.tuned  # type: ignore[attr-defined] # noqa: B018


def parsed(text: str) -> Any:
    """What Hydra takes `text` for."""
    (override,) = OverridesParser.create().parse_overrides([f"key={text}"])
    assert not override.is_sweep_override()
    return override.value()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


class TestWords:
    @settings(max_examples=50)
    @given(VALUES)
    def test_hydra_reads_a_value_as_it_was_given(self, value: Any) -> None:
        assert parsed(literal(value, "key")) == value

    def test_numbers_of_numpy_are_numbers(self) -> None:
        assert literal([np.int64(16), np.float64(0.5), np.bool_(True)], "key") == "[16,0.5,true]"

    def test_what_no_configuration_holds_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"kernel\.params\.tile = .* is a object"):
            literal(object(), "kernel.params.tile")

    @pytest.mark.parametrize(
        ("overrides", "words"),
        [
            (["measure.confirm=0"], ["measure.confirm=0"]),
            (
                {"measure.confirm": 0, "backend.path": "a b.csv"},
                ["measure.confirm=0", "backend.path='a b.csv'"],
            ),
        ],
    )
    def test_overrides_are_words_or_values_by_key(
        self, overrides: Sequence[str] | Mapping[str, Any], words: list[str]
    ) -> None:
        assert as_overrides(overrides) == words

    @pytest.mark.parametrize("overrides", ["measure=quick", ["-m"], ["--cfg=job"], ["measure"]])
    def test_flags_and_loose_words_are_no_overrides(self, overrides: Any) -> None:
        with pytest.raises(ConfigError, match="overrides"):
            as_overrides(overrides)


class TestShapes:
    @pytest.mark.parametrize(
        ("shape", "words"),
        [
            ("large", ["shape=large"]),
            ("256x512x64", ["shape=256x512x64"]),
            ({"M": 64, "lda": 80}, ["shape.m=64", "shape.lda=80"]),
            ((64, np.int64(32), 16), ["shape.m=64", "shape.n=32", "shape.k=16"]),
        ],
    )
    def test_a_shape_in_any_form(self, shape: Any, words: list[str]) -> None:
        assert shape_overrides(shape, ["M", "N", "K"]) == words

    def test_sizes_are_in_the_order_of_the_kernels(self) -> None:
        assert shape_overrides([4096], ["N"]) == ["shape.n=4096"]

    @pytest.mark.parametrize(
        ("shape", "said"), [((64, 32), "has 2 sizes, the kernel has M, N, K"), (64, "is a int")]
    )
    def test_a_shape_that_does_not_fit_says_what_would(self, shape: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            shape_overrides(shape, ["M", "N", "K"])


class TestKernels:
    def test_a_word_is_a_kernels_name(self) -> None:
        assert named("tiled").choice == "tiled"

    def test_a_source_alone_is_no_description(self) -> None:
        with pytest.raises(ConfigError, match="says nothing of parameters"):
            named("mine.cu")

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"'mine.yaml': no such file"):
            named("mine.yaml")

    def test_a_description_is_taken_to_lie_beside_its_source(self) -> None:
        node = yaml.safe_load((SAXPY / "saxpy.yaml").read_text())
        found = named({**node, "source": SAXPY / "saxpy.cu"})
        assert found.path == SAXPY / "saxpy.yaml"
        assert found.node == node

    def test_a_source_as_text_is_kept_and_never_overwritten(self, tmp_path: Path) -> None:
        node = yaml.safe_load((SAXPY / "saxpy.yaml").read_text())
        first, again, other = (
            named({**node, "source": f"// {text}\n"}, tmp_path) for text in ("one", "one", "two")
        )
        assert first.path == again.path != other.path
        assert first.path.with_suffix(".cu").read_text() == "// one\n"
        assert yaml.safe_load(first.path.read_text()) == node

    def test_what_yaml_has_no_word_for_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"kernel.params.tile\[0\] is a complex"):
            named({"name": "mine", "source": "mine.cu", "params": {"tile": [1j]}})
