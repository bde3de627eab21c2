"""`tune`: the command line's search from Python, row for row, and nothing left behind in the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml
from cuda_rig import FakeNvml

from sweeper import tune
from sweeper.api import TuneResult
from sweeper.api.wording import sentence
from sweeper.backend.cuda import identity
from sweeper.cli import terminal
from sweeper.cli.app import main
from sweeper.device.nvml import NvmlReadings
from sweeper.errors import ConfigError, KernelError, NoValidConfiguration, SetupError, StorageError
from sweeper.model import Confirmed, Role
from sweeper.paths import checkout_root
from sweeper.results import read_results
from sweeper.table.ranking import rankable

ROOT = Path(__file__).parents[1]
SAXPY = ROOT / "docs" / "examples" / "saxpy"
RECORDED = ROOT / "results" / "h200" / "tile-sweep" / "trials.csv"
REPLAY: dict[str, Any] = {
    "backend": "replay",
    "overrides": {"backend.path": str(RECORDED)},
    "progress": False,
}


def replayed(folder: Path, **options: Any) -> TuneResult:
    """A search that answers from a recorded table at once."""
    return tune("tiled", "small", results_dir=folder, **{**REPLAY, **options})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    """The tiled kernel, searched in the emulator."""
    folder = tmp_path_factory.mktemp("searched")
    return tune("tiled", (32, 16, 24), results_dir=folder, backend="emulator", progress=False)


class TestResult:
    def test_there_is_a_row_for_every_configuration(self, searched: TuneResult) -> None:
        assert sorted(searched.table["param_tile"]) == [8, 16, 32]
        assert set(searched.table["status"]) == {"ok"}

    def test_the_best_row_is_the_least_time(self, searched: TuneResult) -> None:
        assert searched.best["time_ms"] == searched.table["time_ms"].min()
        assert searched.params == json.loads(searched.best["params"])

    def test_a_sentence_says_what_was_found_and_how_sure_that_is(self, searched: TuneResult) -> None:
        said = str(searched)
        assert said.startswith("tiled at 32x16x24 on emulated NVIDIA H200: best ")
        assert "predicted by the static model and not measured" in said
        assert "3 configurations tried, 3 proved right" in said

    def test_a_notebook_shows_the_sentence_and_the_best_rows(self, searched: TuneResult) -> None:
        shown = searched._repr_html_()
        assert "predicted by the static model" in shown
        assert shown.count("<tr>") == 4

    def test_the_folder_is_the_command_lines(self, searched: TuneResult) -> None:
        names = {path.name for path in searched.results_dir.iterdir()}
        assert names >= {"study.db", "trials.csv", "best.csv", "run.json"}
        (run,) = json.loads((searched.results_dir / "run.json").read_text())["runs"]
        assert run["command"] == [
            "sweeper.tune", "kernel=tiled", "shape.m=32", "shape.n=16", "shape.k=24", "backend=emulator",
        ]  # fmt: skip
        assert (run["study"], run["exit_code"]) == (searched.study, 0)

    def test_nothing_valid_is_a_table_of_failures_and_an_error_of_the_best(self, tmp_path: Path) -> None:
        result = tune("tiled", "tiny", params={"tile": [64]}, results_dir=tmp_path, progress=False)
        assert list(result.table["status"]) == ["infeasible"]
        assert "no valid configuration (1 configuration tried, 0 proved right)" in str(result)
        assert "no valid configuration" in result._repr_html_()
        with pytest.raises(NoValidConfiguration, match="threads <= max_threads"):
            _ = result.best


def measured() -> pd.DataFrame:
    """A recorded search: the rows of one study."""
    (results,) = read_results([RECORDED])
    return results.trials[results.trials["shape"] == "small"]


def timed_in_turns(table: pd.DataFrame, time_ms: float, role: Role = Role.CANDIDATE) -> Confirmed:
    """The best of `table`, or cuBLAS beside it, in 12 blocks with 0.1 % of noise."""
    best = rankable(table).iloc[0]
    return Confirmed(
        confirmation="one",
        started="",
        study=best["study"],
        kernel="cublas" if role is Role.BASELINE else best["kernel"],
        dtype=best["dtype"],
        shape=best["shape"],
        params={} if role is Role.BASELINE else json.loads(best["params"]),
        role=role,
        blocks_ms=tuple(time_ms * (1 + 0.001 * (block % 3 - 1)) for block in range(12)),
    )


def test_the_report_is_of_the_whole_folder(searched: TuneResult, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweeper.report import api

    asked: list[Any] = []

    def write_report(paths: Any, folder: Any = None, **options: Any) -> Any:
        asked.append((paths, folder, options))
        return SimpleNamespace(page=Path("report.html"))

    monkeypatch.setattr(api, "write_report", write_report)
    assert searched.report(figures=False) == Path("report.html")
    assert asked == [([searched.results_dir], None, {"figures": False})]


class TestSentences:
    def test_a_confirmed_winner_is_told_with_its_verdicts(self) -> None:
        table = measured()
        said = sentence(table, [timed_in_turns(table, 1.00), timed_in_turns(table, 1.25, Role.BASELINE)])
        assert "confirmed in 12 blocks: 25.0 % faster than cublas" in said
        assert "not confirmed" not in said

    def test_a_measured_winner_that_was_not_confirmed_is_only_likely(self) -> None:
        said = sentence(measured(), ())
        assert "95 % interval" in said
        assert "not confirmed: the best of a search is also the luckiest" in said

    def test_a_replayed_time_is_called_so(self, tmp_path: Path) -> None:
        assert "as a recorded table has it; nothing was run" in str(replayed(tmp_path))


class TestSameAsTheCommandLine:
    def test_the_rows_are_the_same_to_the_byte(self, searched: TuneResult, tmp_path: Path) -> None:
        assert main(["kernel=tiled", "shape=32x16x24", "backend=emulator", f"results_dir={tmp_path}"]) == 0
        theirs = (tmp_path / "trials.csv").read_bytes()
        assert (searched.results_dir / "trials.csv").read_bytes() == theirs

    def test_the_command_line_goes_on_from_a_search_of_ours(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        replayed(tmp_path)
        words = ["kernel=tiled", "shape=small", "backend=replay", f"backend.path={RECORDED}"]
        assert main([*words, f"results_dir={tmp_path}"]) == 0
        assert "3 of them reused from earlier runs" in capsys.readouterr().out

    def test_a_search_of_ours_goes_on_from_the_command_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["kernel=tiled", "shape=small", "backend=replay", f"backend.path={RECORDED}"]
        assert main([*words, f"results_dir={tmp_path}"]) == 0
        replayed(tmp_path, progress=True)
        assert "3 of them reused from earlier runs" in capsys.readouterr().out

    def test_what_was_searched_before_in_this_folder_is_not_run_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        first, second = (tune("tiled", "small", **{**REPLAY, "progress": True}) for _ in range(2))
        assert first.results_dir != second.results_dir
        assert first.results_dir.parent == tmp_path / "results" / "runs"
        assert "3 of them reused" in capsys.readouterr().out

    @pytest.mark.parametrize("form", ["yaml", "node", "text"])
    def test_a_kernel_in_any_form_is_one_study(self, form: str, saxpy_study: str, tmp_path: Path) -> None:
        result = tune(saxpy(form), {"N": 1000}, params=SAXPY_PINS, results_dir=tmp_path, progress=False)
        assert (result.study, list(result.table["status"])) == (saxpy_study, ["ok"])


SAXPY_PINS = {"block": 64, "PER_THREAD": 1}


def saxpy(form: str) -> Any:
    node = yaml.safe_load((SAXPY / "saxpy.yaml").read_text())
    source = SAXPY / "saxpy.cu"
    return {
        "yaml": SAXPY / "saxpy.yaml",
        "node": {**node, "source": source},
        "text": {**node, "source": source.read_text()},
    }[form]


@pytest.fixture(scope="module")
def saxpy_study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the study that the command line makes of the example."""
    folder = tmp_path_factory.mktemp("saxpy")
    pins = [f"kernel.params.{name}={value}" for name, value in SAXPY_PINS.items()]
    assert (
        main(["--config-dir", str(SAXPY), "kernel=saxpy", "shape.n=1000", *pins, f"results_dir={folder}"])
        == 0
    )
    with sqlite3.connect(folder / "study.db") as store:
        ((study,),) = store.execute("SELECT DISTINCT study FROM trials").fetchall()
    return str(study)


class TestErrors:
    @pytest.mark.parametrize(
        ("kernel", "options", "kind", "said"),
        [
            ("tild", {}, ConfigError, r"no kernel 'tild' \(did you mean 'tiled'\?\)"),
            ("tiled", {"shape": "huuge"}, ConfigError, "Could not find 'shape/huuge'"),
            ("tiled", {"shape": (1, 2)}, ConfigError, "has 2 sizes, the kernel has M, N, K"),
            ("tiled", {"params": {"tyle": 8}}, KernelError, "tyle is never used"),
            ("tiled", {"dtype": "floot"}, ConfigError, "unknown precision class 'floot'"),
            ("tiled", {"budget": "some"}, ConfigError, "budget = 'some'"),
            ("tiled", {"search": "greedy"}, ConfigError, "search"),
            ("tiled", {"overrides": ["serch.seed=1"]}, ConfigError, "did you mean 'search'"),
            ("tiled", {"overrides": ["kernel.params.tile=8,16"]}, ConfigError, "tile=8,16"),
            ("tiled", {"overrides": ["dry_run=true"]}, ConfigError, "is the command line's"),
            ("tiled", {"overrides": ["experiment=ladder"]}, ConfigError, "a report is the command line's"),
            ("tiled", {"config_dir": "nowhere"}, ConfigError, "no such folder"),
        ],
    )
    def test_what_is_wrong_is_an_error_of_ours_and_leaves_no_folder(
        self,
        kernel: str,
        options: dict[str, Any],
        kind: type[Exception],
        said: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(kind, match=said):
            tune(kernel, **{"progress": False, **options})
        runs = tmp_path / "results" / "runs"
        assert not runs.is_dir() or not list(runs.iterdir())

    def test_a_results_folder_that_is_a_file_is_a_storage_error(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("")
        with pytest.raises(StorageError, match="taken"):
            replayed(tmp_path / "taken")

    def test_an_interrupt_keeps_what_was_measured_and_says_where(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finished = terminal.LiveProgress.finished
        heard = []

        def interrupted(self: Any, trial: Any, *, reused: bool) -> None:
            finished(self, trial, reused=reused)
            heard.append(trial)
            if len(heard) == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(terminal.LiveProgress, "finished", interrupted)
            with pytest.raises(KeyboardInterrupt) as caught:
                replayed(tmp_path)
        assert str(tmp_path) in " ".join(caught.value.__notes__)
        assert len(pd.read_csv(tmp_path / "trials.csv")) == 2
        (run,) = json.loads((tmp_path / "run.json").read_text())["runs"]
        assert (run["exit_code"], run["error"]) == (130, "interrupted")
        assert len(replayed(tmp_path).table) == 3


class TestInSomebodysProgram:
    def test_it_says_nothing_when_told_so(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        replayed(tmp_path)
        said = capfd.readouterr()
        assert (said.out, said.err) == ("", "")

    def test_signal_handlers_stay_what_they_are(self, tmp_path: Path) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        replayed(tmp_path)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    def test_hydra_is_left_as_it_was_found(self, tmp_path: Path, hydra_of_ones_own: Any) -> None:
        before = hydra_of_ones_own()
        replayed(tmp_path / "one")
        with pytest.raises(ConfigError):
            tune("tiled", "huuge", results_dir=tmp_path / "two", progress=False)
        assert hydra_of_ones_own() == before

    def test_hydra_that_nobody_used_is_left_unused(self, tmp_path: Path) -> None:
        from hydra.core.global_hydra import GlobalHydra

        replayed(tmp_path)
        assert not GlobalHydra.instance().is_initialized()

    def test_a_running_event_loop_does_not_mind(self, tmp_path: Path) -> None:
        async def cell() -> TuneResult:
            return replayed(tmp_path)

        assert len(asyncio.run(cell()).table) == 3

    def test_threads_search_at_the_same_time(self, tmp_path: Path) -> None:
        found: dict[int, TuneResult] = {}
        threads = [
            threading.Thread(target=lambda n=n: found.update({n: replayed(tmp_path / str(n))}))
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(found[n].table) for n in range(3)] == [3, 3, 3]

    def test_this_process_may_hold_a_context_on_the_gpu_that_it_tunes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The worker is a child of it, and takes nobody else for harmless."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(identity, "_LINGER_S", 0.0)
        identity.claim(0, "0000:04:00.0", FakeNvml(NvmlReadings(processes=(os.getppid(),))))
        with pytest.raises(SetupError, match="in use by process 4711"):
            identity.claim(0, "0000:05:00.0", FakeNvml(NvmlReadings(processes=(os.getppid(), 4711))))

    def test_several_searches_may_share_a_folder_one_after_another(self, tmp_path: Path) -> None:
        first = replayed(tmp_path)
        second = tune("tiled", "odd", results_dir=tmp_path, **REPLAY)
        assert first.study != second.study
        assert set(second.table["shape"]) == {"odd"}
        assert set(pd.read_csv(tmp_path / "trials.csv")["shape"]) == {"small", "odd"}


@pytest.fixture
def hydra_of_ones_own(tmp_path: Path) -> Iterator[Any]:
    """A program that has initialised Hydra; a call gives what Hydra knows of it."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.utils import JobRuntime
    from hydra.version import getbase

    conf = tmp_path / "own-conf"
    conf.mkdir()
    (conf / "own.yaml").write_text("answer: 42\n")

    def state() -> tuple[Any, ...]:
        kernels = sorted(ConfigStore.instance().repo.get("kernel", {}))
        composed = compose("own")
        return GlobalHydra.instance().hydra, composed, getbase(), JobRuntime.instance().get("name"), kernels

    with initialize_config_dir(str(conf), job_name="theirs", version_base="1.2"):
        yield state


def test_recorded_tables_are_in_the_checkout() -> None:
    """The tests above answer from them."""
    assert checkout_root() == ROOT
    assert RECORDED.is_file()
