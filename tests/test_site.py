"""The documentation as a site: it builds without a warning, is whole, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MISSING = [name for name in ("mkdocs", "material") if importlib.util.find_spec(name) is None]
# What its pages link to; an installed or packed copy has not all of it.
MISSING += [name for name in ("mkdocs.yml", "results/h200") if not (ROOT / name).exists()]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not here")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class _Page(HTMLParser):
    """What a page loads, what it links to, and the places in it that have a name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if given.get("src"):
            self.loads.append(given["src"])
        if given.get("href"):
            (self.loads if tag == "link" else self.links).append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def elsewhere(target: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*:|//", target) is not None


def test_every_page_of_docs_is_in_it_and_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert (site / name).is_file()
        assert name in searched, name


def test_sources_and_tables_do_not_crowd_the_search(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert not [e["location"] for e in index["docs"] if e["location"].startswith(("files/", "results/"))]


def test_pages_load_nothing_from_elsewhere(site: Path, pages: dict[Path, _Page]) -> None:
    assert not [target for page in pages.values() for target in page.loads if elsewhere(target)]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r"(?:@import|url\()\s*[\"']?https?:[^)]*", text), sheet.name


def test_search_works_without_a_server(site: Path) -> None:
    """A page that was opened as a file can load no JSON and start no worker."""
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert "js/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")
    assert "unpkg.com" not in (site / "index.html").read_text(encoding="utf-8")


def targets(pages: dict[Path, _Page]) -> Iterator[tuple[Path, str, Path, str]]:
    for path, page in pages.items():
        for target in (*page.loads, *page.links):
            if not elsewhere(target) and path.name != "404.html":
                file, _, anchor = target.partition("#")
                yield path, target, (path.parent / unquote(file)).resolve() if file else path, unquote(anchor)


def test_every_link_within_it_leads_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    dead = []
    for page, target, file, anchor in targets(pages):
        file = file / "index.html" if file.is_dir() else file  # noqa: PLW2901 - as a server has it
        named = not anchor or anchor.startswith("__") or file not in pages or anchor in pages[file].names
        if not file.is_file() or not named:
            dead.append(f"{page.relative_to(site)}: {target}")
    assert not dead


def test_files_of_the_repository_are_pages_of_it(site: Path) -> None:
    tiled = (site / "files" / "conf" / "kernel" / "tiled.yaml.html").read_text(encoding="utf-8")
    assert "conf/kernel/tiled.yaml" in tiled
    assert "entry" in tiled
    assert 'href="files/conf/kernel/tiled.yaml.html"' in (site / "kernels.html").read_text(encoding="utf-8")
    listing = (site / "files" / "conf" / "index.html").read_text(encoding="utf-8")
    assert "kernel/tiled.yaml" in listing
    assert "<table>" in (site / "kernels" / "gemm" / "index.html").read_text(encoding="utf-8")


def test_the_readme_and_the_front_page_are_two_pages(site: Path) -> None:
    assert "To learn it" in (site / "index.html").read_text(encoding="utf-8")
    assert "Five minutes" in (site / "project.html").read_text(encoding="utf-8")


def test_a_bar_in_a_tables_code_is_shown_without_its_backslash(site: Path) -> None:
    shown = (site / "sweeps.html").read_text(encoding="utf-8")
    assert "install=fish | source</code></td>" in shown
