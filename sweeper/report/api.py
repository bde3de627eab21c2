"""From results to a report on the disk."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.atomic import atomic_write
from sweeper.errors import NoValidConfiguration, SetupError
from sweeper.report.contents import Contents, contents_of
from sweeper.results import Results, read_results

__all__ = ["Written", "write_report"]

FIGURES = "figures"
_TOLD = 6


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and the verdicts that the report begins with."""

    page: Path
    markdown: Path
    figures: tuple[Path, ...]
    verdicts: tuple[str, ...]


def write_report(
    paths: Sequence[Path | str], folder: Path | str | None = None, *, title: str = "", figures: bool = True
) -> Written:
    """Report on what `paths` hold, as `report.html`, `report.md` and `figures/*.png` in `folder`.

    `folder` is by default the results folder where one alone is given, else the current one. Nothing but these
    files is written. Raises SetupError where a package is missing, StorageError for what cannot be read or written,
    NoValidConfiguration where there is no row to report on.
    """
    _needs("plotly", *(["matplotlib"] if figures else []))
    results = read_results(paths)
    contents = contents_of(results, title)
    if not contents.found:
        raise NoValidConfiguration("the results hold no configuration to report on")
    into = Path(folder) if folder is not None else _beside(paths, results)
    return _write(contents, into, figures=figures)


def _write(contents: Contents, into: Path, *, figures: bool) -> Written:
    from sweeper.report.markdown import markdown
    from sweeper.report.page import page

    drawn = []
    if figures:
        from sweeper.report.figures import draw_all

        drawn = draw_all(contents, into / FIGURES)
    html, text = into / "report.html", into / "report.md"
    atomic_write(html, page(contents).encode("utf-8", "replace"))
    atomic_write(text, markdown(contents, drawn, FIGURES).encode("utf-8", "replace"))
    sentences = contents.sentences
    told = sentences if len(sentences) <= _TOLD else []
    lead = [contents.lead, *told] if contents.lead else sentences
    return Written(html, text, tuple(into / FIGURES / one.file for one in drawn), tuple(lead))


def _beside(paths: Sequence[Path | str], results: Sequence[Results]) -> Path:
    only = Path(paths[0])
    return only if len(paths) == 1 and len(results) == 1 and only.is_dir() else Path()


def _needs(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"a report lacks {' and '.join(missing)}",
            hint="pip install matplotlib plotly"
            + ("; --no-figures does without matplotlib" if missing == ["matplotlib"] else ""),
        )
