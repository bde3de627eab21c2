"""`best`: which configuration to take, from recorded tables, and how sure that is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sweeper import best
from sweeper.api import choosing
from sweeper.dispatch import best as dispatched
from sweeper.errors import ConfigError, NoValidConfiguration, StorageError

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "results" / "h200" / "tile-sweep"
"""`tiled` with three tiles, at 512³ and at 1000×900×77."""


class TestChoice:
    def test_at_a_shape_that_was_measured_it_is_exact(self) -> None:
        choice = best((512, 512, 512), results=SWEEP)
        assert choice.exact
        assert (choice.kernel, choice.params, choice.dtype, choice.layout) == (
            "tiled",
            {"tile": 32},
            "float32",
            "nn",
        )
        assert choice.time_ms == choice.answer.time_ms
        assert choice.how == "tuned: the best of a search at this shape"

    def test_elsewhere_it_is_the_nearest_and_its_time_is_expected(self) -> None:
        choice = best((500, 512, 512), results=SWEEP)
        assert not choice.exact
        assert choice.time_ms == choice.answer.predicted_ms
        assert "nearest: 512x512x512" in str(choice)
        assert "expected" in str(choice)

    def test_printed_it_is_a_sentence_with_the_interval(self) -> None:
        said = str(best("512x512x512", results=SWEEP))
        assert said.startswith("tiled with tile=32 for 512x512x512 float32 on NVIDIA H200: 37.8 µs (")
        assert said.endswith("tuned: the best of a search at this shape")

    def test_it_is_the_dispatchers_answer(self) -> None:
        assert best("512x512x512", results=SWEEP).record() == dispatched([SWEEP], "512x512x512").record()

    @pytest.mark.parametrize("shape", ["512x512x512", (512, 512, 512), {"m": 512, "N": 512, "k": 512}])
    def test_a_shape_in_any_form(self, shape: Any) -> None:
        assert best(shape, results=SWEEP).exact

    def test_the_tables_of_the_checkout_answer_by_themselves(self) -> None:
        assert best((4096, 4096, 4096)).exact

    def test_an_installed_package_has_no_tables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choosing, "checkout_root", lambda: None)
        with pytest.raises(StorageError, match="no recorded tables"):
            best((4096, 4096, 4096))


class TestNarrowing:
    def test_one_kernel_alone(self) -> None:
        assert best((4096, 4096, 4096), kernel="tiled").kernel == "tiled"

    @pytest.mark.parametrize(
        ("options", "kind", "said"),
        [
            ({"kernel": "tild"}, NoValidConfiguration, r"kernel tild \(did you mean 'tiled'\?\)"),
            ({"dtype": "bfloat16"}, NoValidConfiguration, "no configuration of precision class bfloat16"),
            ({"dtype": "floot"}, ConfigError, "unknown precision class 'floot'"),
            ({"device": "a100"}, NoValidConfiguration, "no configuration of device NVIDIA A100"),
            ({"layout": "nt"}, NoValidConfiguration, "no configuration of layout nt"),
        ],
    )
    def test_what_the_tables_do_not_have_is_said(
        self, options: dict[str, str], kind: type[Exception], said: str
    ) -> None:
        with pytest.raises(kind, match=said):
            best((512, 512, 512), results=SWEEP, **options)

    @pytest.mark.parametrize("shape", [(512, 512), "512", 512])
    def test_a_shape_that_is_none_is_said(self, shape: Any) -> None:
        with pytest.raises(ConfigError, match="is not M"):
            best(shape, results=SWEEP)


class TestReading:
    def test_tables_are_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        best((512, 512, 512), results=SWEEP)
        monkeypatch.setattr("sweeper.dispatch.api.read_entries", lambda _: pytest.fail("read again"))
        best((512, 512, 512), results=SWEEP)

    def test_a_table_that_changed_is_read_again(self, tmp_path: Path) -> None:
        folder = tmp_path / "runs"
        shutil.copytree(SWEEP, folder)
        assert best((512, 512, 512), results=folder).exact
        rows = (folder / "trials.csv").read_text().splitlines(keepends=True)
        (folder / "trials.csv").write_text("".join(row for row in rows if ",small," not in row))
        assert not best((512, 512, 512), results=folder).exact

    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="nowhere: no such file or folder"):
            best((512, 512, 512), results=tmp_path / "nowhere")


def test_in_a_program_that_uses_hydra(tmp_path: Path) -> None:
    """Kernels are composed to see whether they can run: that neither needs nor touches the program's own Hydra."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    (tmp_path / "own.yaml").write_text("answer: 42\n")
    choosing._dispatcher.cache_clear()
    with initialize_config_dir(str(tmp_path), version_base="1.2"):
        held = GlobalHydra.instance().hydra
        assert best((512, 512, 512), results=SWEEP).exact
        assert GlobalHydra.instance().hydra is held
        assert compose("own").answer == 42
