"""What docs/library.md and the notebook say is what the library does."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sweeper import tune
from sweeper.api import Choice, TuneResult
from sweeper.backend.cuda.callable_kernel import CallableKernel
from sweeper.cli.app import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "examples" / "tune.ipynb"
BLOCKS = re.findall(r"(<!-- gpu -->\n)?^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for the recorded results, as the current one."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "h200").symlink_to(ROOT / "results" / "h200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_programs_run_in_the_order_of_the_page(checkout: Path) -> None:
    """All but those that need a GPU, which compile; what the first one prints is what the page shows."""
    said = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(said):
        for needs_gpu, language, text in BLOCKS:
            if language == "python":
                program = compile(text, "library.md", "exec")
                if not needs_gpu:
                    exec(program, names)  # noqa: S102 - the page's own program
    shown = next(text for _, language, text in BLOCKS if language == "text")
    pattern = re.escape(shown.strip()).replace("…", ".*")
    assert re.search(pattern, said.getvalue())
    searched_again(checkout)


def searched_again(folder: Path) -> None:
    """The page's command goes on from the page's search: not one configuration is run again."""
    (command,) = re.findall(r"^python -m sweeper (.*)$", TEXT, re.MULTILINE)
    before = (folder / "results" / "mine" / "trials.csv").read_bytes()
    assert main(shlex.split(command)) == 0
    assert (folder / "results" / "mine" / "trials.csv").read_bytes() == before


def rows(heading: str) -> list[str]:
    """The first cells of the tables under `heading`."""
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in part.splitlines() if re.match(r"\| `", line)]


def test_every_argument_of_tune_is_in_the_table() -> None:
    listed = {name for cell in rows("tune") for name in re.findall(r"`(\w+)`", cell)}
    assert listed >= set(inspect.signature(tune).parameters)


@pytest.mark.parametrize(
    ("heading", "variable", "kind"),
    [("tune", "result", TuneResult), ("load_kernel", "kernel", CallableKernel)],
)
def test_what_the_tables_name_is_there(heading: str, variable: str, kind: type) -> None:
    source = inspect.getsource(kind)
    named = re.findall(rf"`{variable}\.(\w+)", " ".join(rows(heading)))
    assert named
    for name in named:
        assert hasattr(kind, name) or f"self.{name} = " in source or f"    {name}: " in source, name


@pytest.mark.parametrize("name", ["exact", "confirmed", "how", "time_ms"])
def test_what_is_said_of_a_choice_is_there(name: str) -> None:
    assert f"`{name}`" in TEXT
    assert isinstance(getattr(Choice, name), property)


# --- The notebook -------------------------------------------------------------------------------------


def test_the_notebook_is_kept_without_what_a_run_left_in_it() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What every cell of code shows, run by a kernel of its own in an empty folder of a checkout."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "results").mkdir()
    (folder / "results" / "h200").symlink_to(ROOT / "results" / "h200")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [json.dumps(cell["outputs"]) for cell in notebook.cells if cell.cell_type == "code"]


class TestNotebook:
    def test_it_shows_a_search_its_table_and_the_best(self, executed: list[str]) -> None:
        search, table, winner = executed[:3]
        assert "tiled at 64x48x32" in search
        assert "text/html" in search
        assert "param_tile" in table
        assert "'tile': " in winner

    def test_it_draws_what_was_measured(self, executed: list[str]) -> None:
        assert "image/png" in executed[3]

    def test_it_chooses_and_exports(self, executed: list[str]) -> None:
        assert "tuned: " in executed[4]
        assert "nearest: " in executed[4]
        assert "tile" in executed[5]

    def test_it_loads_the_winner_or_says_why_not(self, executed: list[str]) -> None:
        assert "PyCUDA cannot be used" in executed[6] or "<tiled(A, B, C) with " in executed[6]

    def test_a_search_leaves_nothing_on_standard_error(self, executed: list[str]) -> None:
        assert not any('"name": "stderr"' in shown for shown in executed)
