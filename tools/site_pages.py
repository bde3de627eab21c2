"""A hook of MkDocs: files of the repository outside docs/ that its pages link to become pages of the site.

Markdown is a page as it is, with its pictures; a table, a kernel or any other source is a page that shows it; a folder
is a page that lists it. Links are written for the repository and are turned here, so the same text leads somewhere in
either, and the site needs no address of a repository. What they find has links of its own: those are followed too, but
only from Markdown.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["fences_blanked", "links", "on_files", "on_page_markdown"]

_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_FIRST = ("README.md", "CHANGELOG.md", "SECURITY.md")
# The front page is docs/index.md, whose place a README.md would take.
_ELSEWHERE_IN_SITE = {"README.md": "project.md"}
# What a search would find too often: sources and tables.
_UNSEARCHED = ("files/", "results/", "tests/")
# What has a page that shows it, and what it is shown as. All else, and what is larger, is a file of the site.
_LANGUAGES = {
    ".cu": "cuda", ".cuh": "cuda", ".py": "python", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".csv": "text",
}  # fmt: skip
_MOST_BYTES = 200_000
_DOCS = "docs/"

# What a page of the site is of, by the page's own path: both with / and relative to their roots.
_repository: dict[str, str] = {}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that is linked to, from wherever."""
    root = Path(str(config.config_file_path)).parent
    _repository.clear()
    waiting = [*_FIRST]
    for file in files.documentation_pages():
        _repository[file.src_uri] = _DOCS + file.src_uri
        waiting += _targets(_DOCS + file.src_uri, file.content_string)
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or path.startswith((_DOCS, "..")) or not (root / path).exists():
            continue
        seen.add(path)
        file = _page(config, root, path)
        files.append(file)
        if file.is_documentation_page():
            _repository[file.src_uri] = path
        if path.endswith(".md"):
            waiting += _targets(path, (root / path).read_text(encoding="utf-8"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's links, turned from the repository's paths to the site's."""
    if page.file.src_uri.startswith(_UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    here = _repository[page.file.src_uri]
    root = Path(str(config.config_file_path)).parent

    def turned(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        if not path or _ELSEWHERE.match(path):
            return link[1]
        target = _resolved(here, path)
        there = _uri(root, target)
        if files.get_file_from_path(there) is None:
            return link[1]
        return posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or ".") + mark + anchor

    return _outside_fences(markdown, lambda text: _ROW.sub(_bare_pipes, _LINK.sub(turned, text)))


def links(markdown: str) -> Iterator[str]:
    """Where the links of a text lead, without those of its fenced blocks."""
    yield from (match[1] for match in _LINK.finditer(fences_blanked(markdown)))


def fences_blanked(markdown: str) -> str:
    """The text without its fenced blocks; every character that is left stands where it stood."""
    return _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), markdown)


def _outside_fences(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for block in _FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def _bare_pipes(row: re.Match[str]) -> str:
    """A table's row whose code has no `\\|`: within backticks a bare one divides no cells here, and the other shows."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


def _targets(page: str, markdown: str) -> Iterator[str]:
    """The files that `page`, a path in the repository, links to, by their paths there."""
    for link in links(markdown):
        path = link.partition("#")[0]
        if path and not _ELSEWHERE.match(path):
            yield _resolved(page, path)


def _resolved(page: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _uri(root: Path, path: str) -> str:
    """Where the file or folder `path` of the repository is in the site, if it is there."""
    if path.startswith(_DOCS):
        return path.removeprefix(_DOCS)
    if path in _ELSEWHERE_IN_SITE:
        return _ELSEWHERE_IN_SITE[path]
    if (root / path).is_dir():
        return f"files/{path}/index.md"
    shown = Path(path).suffix in _LANGUAGES and (root / path).is_file()
    return f"files/{path}.md" if shown and (root / path).stat().st_size <= _MOST_BYTES else path


def _page(config: MkDocsConfig, root: Path, path: str) -> File:
    uri, whole = _uri(root, path), root / path
    if whole.is_dir():
        return File.generated(config, uri, content=_listing(root, path))
    if not uri.startswith("files/"):
        return File.generated(config, uri, abs_src_path=str(whole))
    text = whole.read_text(encoding="utf-8").rstrip("\n")
    return File.generated(config, uri, content=f"# {path}\n\n````{_LANGUAGES[whole.suffix]}\n{text}\n````\n")


def _listing(root: Path, folder: str) -> str:
    """The names of the repository's own files in a folder, as git knows them; else all of them."""
    asked = ["git", "ls-files", "--", folder]
    told = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    paths = told.stdout.splitlines() if told.returncode == 0 else []
    if not paths:
        found = (root / folder).rglob("*")
        paths = sorted(path.relative_to(root).as_posix() for path in found if path.is_file())
    names = (os.path.relpath(path, folder) for path in paths)
    return f"# {folder}/\n\n" + "".join(f"- `{name}`\n" for name in names)
