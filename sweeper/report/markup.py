"""HTML by pieces, each text escaped where it is put in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["figure", "html_list", "table", "tag", "text"]


def text(value: object) -> str:
    """A text as HTML: markup in it is shown, not obeyed."""
    return escape(str(value), quote=True)


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element around `content`, which is HTML already; `class_` and `data_x` are class and data-x."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{given}>{content}</{name}>"


def table(
    head: Sequence[tuple[str, str]], rows: Iterable[str], *, caption: str = "", class_: str = ""
) -> str:
    """A table of `rows`, each a whole `<tr>`; `head` has a title and a class for each column."""
    cells = "".join(tag("th", text(title), scope="col", class_=kind) for title, kind in head)
    above = tag("caption", text(caption)) if caption else ""
    return tag(
        "table", f"{above}<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody>", class_=class_
    )


def html_list(items: Iterable[str], class_: str = "") -> str:
    """A list of texts."""
    return tag("ul", "".join(tag("li", text(item)) for item in items), class_=class_)


def figure(name: str, title: str, caption: str, number: int) -> str:
    """An empty figure that the page's script fills when it comes into view."""
    head = f'<h3><span class="fn">Figure {number}</span>{text(title)}</h3>'
    return tag(
        "figure",
        f'<figcaption>{head}<p class="cap">{text(caption)}</p></figcaption><div class="controls"></div>'
        '<div class="body"></div><p class="none" hidden></p>',
        id=f"fig-{name}",
        data_figure=name,
    )
