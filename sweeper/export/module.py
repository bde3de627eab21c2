"""The dispatch table as a Python module that needs nothing but the standard library."""

from __future__ import annotations

import keyword
import pprint
from collections.abc import Sequence
from pathlib import Path

from sweeper.export import lookup
from sweeper.export.chosen import Chosen, Export
from sweeper.export.identifiers import Names
from sweeper.export.json_table import record

__all__ = ["python_module"]

_OPTIONS = ("kernel", "dtype", "layout", "device")


def python_module(export: Export) -> str:
    """The module's text: the lookup's own source, the rows, and `lookup` with the sizes by name."""
    source = Path(lookup.__file__).read_text(encoding="utf-8")
    # Its docstring is the rule; ours says what the module is, and has the rule within.
    rule, _, code = source.removeprefix('"""').partition('"""\n')
    rows = pprint.pformat([record(row) for row in export.rows], width=110, sort_dicts=False)
    said = [
        "The best configurations that were found, by kernel, precision class, layout, device and shape.",
        "",
        "Written by `python -m sweeper.export --format python`: write it again rather than change it.",
        "",
        *(f"- {_plain(one)}" for one in export.origins()),
        *(f"- {_plain(price.told())}" for price in export.prices),
        "",
        rule.strip(),
    ]
    text = "\n".join(said)
    return f'"""{text}\n"""\n{code}\n\nROWS: list[dict[str, Any]] = {rows}\n\n\n{_function(export.rows)}'


def _plain(text: str) -> str:
    """`text` as it may stand in a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _function(rows: Sequence[Chosen]) -> str:
    """`lookup(m, n, k, *, …)`: sizes that all rows have come first, in order; the others by name."""
    names = Names()
    for option in (*_OPTIONS, "find", "ROWS"):
        names.new(option)
    dims = list(dict.fromkeys(dim for row in rows for dim, _ in row.dims))
    made = {dim: names.new(_name(dim)) for dim in dims}
    always = [dim for dim in dims if all(dim in dict(row.dims) for row in rows)]
    first = [f"{made[dim]}: int" for dim in always]
    rest = [f"{made[dim]}: int = 0" for dim in dims if dim not in always]
    options = [f"{option}: str | None = None" for option in _OPTIONS]
    arguments = ",\n    ".join([*first, "*", *rest, *options])
    sizes = ", ".join(f"{dim!r}: {made[dim]}" for dim in dims)
    return (
        f"def lookup(\n    {arguments},\n) -> Answer:\n"
        '    """What to run for a shape; LookupError where the rows do not tell (see `find`)."""\n'
        f"    return find(ROWS, {{{sizes}}}, {', '.join(_OPTIONS)})\n"
    )


def _name(dim: str) -> str:
    made = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in dim.lower())
    return made if made.isidentifier() and not keyword.iskeyword(made) else f"size_{made}"
