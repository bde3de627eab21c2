"""A self-contained header for C99, C++11 and CUDA host code: the rows as tables, and a lookup by shape.

Two equal sets of results give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from sweeper.errors import ConfigError
from sweeper.export.c_common import COMMON, RULE
from sweeper.export.c_names import Field, KernelNames, Namer
from sweeper.export.chosen import Chosen, Export
from sweeper.export.identifiers import Names, comment, identifier, literal, quoted
from sweeper.export.lookup import log2_fixed

__all__ = ["header"]

_LINE = 100
_NAMED = ("device", "dtype", "layout")


def header(export: Export, prefix: str = "sweeper") -> str:
    """The header's text. Names in it begin with `prefix`; ConfigError where that is no name in C."""
    if identifier(prefix) != prefix or prefix.endswith("_"):
        raise ConfigError(
            f"--prefix {prefix}: no name in C can begin so", hint=f"write {identifier(prefix).strip('_')}"
        )
    kernels = Namer(prefix).kernels(export.rows)
    rule = textwrap.indent(RULE, "   ").strip()
    parts = [f"#include <stdint.h>\n#include <string.h>\n\n/* {rule} */\n", COMMON, *map(_kernel, kernels)]
    if len(kernels) > 1:
        parts.append(_best_kernel(export, kernels, prefix))
    body = "\n".join(parts)
    digest = hashlib.sha256(f"{prefix}\n{body}".encode()).hexdigest()[:12].upper()
    guard = f"{prefix.upper()}_EXPORT_{digest}_H"
    return f"{_provenance(export)}\n#ifndef {guard}\n#define {guard}\n\n{body}\n#endif /* {guard} */\n"


def _provenance(export: Export) -> str:
    lines = [
        "The best configurations that were found, by kernel, precision class, layout, device and shape.",
        "Written by `python -m sweeper.export --format header`: write it again rather than change it.",
        "",
        *map(_wrapped, export.origins()),
    ]
    if export.prices:
        lines += ["", *(_wrapped(price.told()) for price in export.prices)]
    return "/* " + "\n".join(f" * {line}".rstrip() for line in "\n".join(lines).split("\n"))[3:] + "\n */"


def _wrapped(text: str) -> str:
    return textwrap.fill(comment(text), _LINE - 6, initial_indent="- ", subsequent_indent="  ")


# --- One kernel ---------------------------------------------------------------------------------------


def _kernel(kernel: KernelNames) -> str:
    parts = [
        f"/* Kernel {comment(kernel.name)} */",
        *(_enumeration(field) for field in kernel.fields if field.enumerators is not None),
        _structs(kernel),
        _rows(kernel),
        _configurations(kernel),
        _lookup(f"{kernel.c}_rows", f"{kernel.c}_row", kernel.c, kernel.rows, kernel.sizes.values()),
    ]
    if len(kernel.rows) == 1 and kernel.fields:
        (row,) = kernel.rows
        parts.append("/* The only row's parameters, for macros and template arguments. */")
        parts += [f"#define {field.macro} {field.cell(row)}" for field in kernel.fields]
    return "\n".join(parts) + "\n"


def _enumeration(field: Field) -> str:
    known: Mapping[str, str] = field.enumerators or {}
    names = ",\n".join(f"  {name}" for name in known.values())
    texts = ", ".join(quoted(str(json.loads(key)) if key else "") for key in known)
    return (
        f"enum {field.tag} {{\n{names}\n}};\n"
        f"/* The values of {comment(field.given)} as text, by enumerator. */\n"
        f"static const char *const {field.tag}_text[{len(known)}] = {{{texts}}};"
    )


def _structs(kernel: KernelNames) -> str:
    params = [f"  {f.type} {f.member};{_given(f.given, f.member)}" for f in kernel.fields]
    sizes = [f"  int64_t {made};{_given(size, made)}" for size, made in kernel.sizes.items()]
    row = [
        *(f"  const char *{name};" for name in _NAMED),
        f"  struct {kernel.c}_sizes sizes; /* where it was measured; 0: not given */",
        f"  struct {kernel.c}_params params;",
        f"  int configuration; /* its number in {kernel.macro}_CONFIGURATIONS */",
        "  enum sweeper_timed timed;",
        "  double time_ms;",
        "  double time_low_ms; /* ends of the 95 % interval; time_ms where there is none */",
        "  double time_high_ms;",
        "  double library_ratio; /* the better library's time / time_ms; 0: no library ran beside it */",
        "  double slowdown; /* time_ms / time of the best configuration for this shape */",
    ]
    named = (("params", params), ("sizes", sizes), ("row", row))
    return "\n".join(_struct(f"{kernel.c}_{name}", members) for name, members in named)


def _struct(tag: str, members: Sequence[str]) -> str:
    inner = "\n".join(members) if members else "  char none; /* C has no empty structures */"
    return f"struct {tag} {{\n{inner}\n}};"


def _given(given: str, made: str) -> str:
    return "" if given == made else f" /* {comment(given)} */"


def _rows(kernel: KernelNames) -> str:
    places = {row.configuration: place for place, row in enumerate(kernel.configurations)}
    lines = []
    for row in kernel.rows:
        low = row.time_ms if row.time_low_ms is None else row.time_low_ms
        high = row.time_ms if row.time_high_ms is None else row.time_high_ms
        cells = [
            _names_of(row),
            f"{{{_sizes_of(row, kernel.sizes)}}}",
            f"{{{kernel.params(row) or '0'}}}",
            str(places[row.configuration]),
            f"SWEEPER_{row.timed.upper()}",
            *(repr(float(number)) for number in (row.time_ms, low, high, row.ratio or 0.0, row.slowdown)),
        ]
        lines.append(f"{{{', '.join(cells)}}}")
    count = len(kernel.rows)
    return (
        f"#define {kernel.macro}_ROWS {count}\n"
        + _array(f"struct {kernel.c}_row {kernel.c}_rows[{count}]", lines)
        + _keys(kernel.c, kernel.rows, kernel.sizes)
    )


def _keys(name: str, rows: Sequence[Chosen], sizes: Iterable[str]) -> str:
    """What the lookup reads: names, sizes and their logarithms, apart from the rows."""
    dims, count = list(sizes), len(rows)
    width = max(1, len(dims))
    logs = [", ".join(str(log2_fixed(size) if size else 0) for size in _own_sizes(row, dims)) for row in rows]
    return (
        _array(f"char *const {name}_names[{len(_NAMED) * count}]", map(_names_of, rows))
        + _array(f"int64_t {name}_sizes_of[{width * count}]", [_sizes_of(row, dims) for row in rows])
        + _array(f"int32_t {name}_logs[{width * count}]", logs)
    )


def _array(declared: str, content: Iterable[str]) -> str:
    return f"static const {declared} = {{\n" + ",\n".join(f"  {line}" for line in content) + "\n};\n"


def _names_of(row: Chosen) -> str:
    return ", ".join(quoted(getattr(row, name)) for name in _NAMED)


def _own_sizes(row: Chosen, dims: Iterable[str]) -> list[int]:
    own = dict(row.dims)
    return [own.get(dim, 0) for dim in dims] or [0]


def _sizes_of(row: Chosen, dims: Iterable[str]) -> str:
    return ", ".join(literal(size) or "0" for size in _own_sizes(row, dims))


def _configurations(kernel: KernelNames) -> str:
    """A list macro, from which a program instantiates a template for each configuration."""
    cells = [
        f"  X({', '.join(filter(None, (str(place), kernel.params(row))))})"
        for place, row in enumerate(kernel.configurations)
    ]
    order = ", ".join(("number", *(field.member for field in kernel.fields)))
    return (
        f"/* Every configuration as X({order}): what a template is instantiated for. */\n"
        f"#define {kernel.macro}_COUNT {len(cells)}\n"
        f"#define {kernel.macro}_CONFIGURATIONS(X) \\\n" + " \\\n".join(cells)
    )


def _lookup(table: str, struct: str, name: str, rows: Sequence[Chosen], sizes: Iterable[str]) -> str:
    members = list(sizes)
    width = max(1, len(members))
    arguments = "".join(f", int64_t size_{member}" for member in members)
    asked = ", ".join(f"size_{member}" for member in members) or "0"
    defaults = "".join(
        f"  if (!{what}) {what} = {default};\n" for what in _NAMED if (default := _default(rows, what))
    )
    return (
        "/* The row for a shape, NULL where there is none. *exact tells whether it is of this very shape; it may be"
        " NULL. */\n"
        f"static inline const struct {struct} *{name}_lookup(\n"
        f"    const char *device, const char *dtype, const char *layout{arguments}, int *exact) {{\n"
        f"  const int64_t asked[{width}] = {{{asked}}};\n"
        f"  int row;\n{defaults}"
        f"  row = sweeper_find({len(rows)}, {width}, {name}_sizes_of, {name}_logs, {name}_names,\n"
        "                     device, dtype, layout, asked, exact);\n"
        f"  return row < 0 ? NULL : &{table}[row];\n}}"
    )


def _default(rows: Sequence[Chosen], what: str) -> str:
    """The literal that stands for NULL; empty where it has to be named."""
    has = list(dict.fromkeys(str(getattr(row, what)) for row in rows))
    if len(has) == 1:
        return quoted(has[0])
    return quoted("nn") if what == "layout" and "nn" in has else ""


# --- All kernels --------------------------------------------------------------------------------------


def _best_kernel(export: Export, kernels: Sequence[KernelNames], prefix: str) -> str:
    """Which kernel to take for a shape, and its row."""
    rows = [row for row in export.rows if row.best]
    members = Names()
    dims = dict.fromkeys(dim for row in rows for dim, _ in row.dims)
    sizes = {dim: members.new(identifier(dim)) for dim in dims}
    by_name = {kernel.name: kernel for kernel in kernels}
    cells = [f"{{{by_name[row.kernel].macro}_KERNEL, {by_name[row.kernel].rows.index(row)}}}" for row in rows]
    enumerators = ",\n".join(f"  {kernel.macro}_KERNEL" for kernel in kernels)
    struct = _struct(
        f"{prefix}_best",
        [f"  enum {prefix}_kernel kernel;", "  int row; /* its number in that kernel's rows */"],
    )
    return (
        "/* Which kernel is the best one for a shape, and the number of its row. */\n"
        f"enum {prefix}_kernel {{\n{enumerators}\n}};\n{struct}\n"
        + _array(f"struct {prefix}_best {prefix}_best_rows[{len(rows)}]", cells)
        + _keys(f"{prefix}_best", rows, sizes)
        + _lookup(f"{prefix}_best_rows", f"{prefix}_best", f"{prefix}_best", rows, sizes.values())
        + "\n"
    )
