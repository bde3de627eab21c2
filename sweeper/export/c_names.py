"""A kernel's rows with the names that it, its sizes, its parameters and their values have in C."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.export.chosen import Chosen
from sweeper.export.identifiers import Names, identifier, literal, part
from sweeper.expressions import Value

__all__ = ["Field", "KernelNames", "Namer"]

_OF_ALL = ("best", "kernel", "find", "log2", "same", "timed")
_MACROS_OF_EACH = ("ROWS", "COUNT", "CONFIGURATIONS", "KERNEL")


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter: its own name, that of its member and that of its macro.

    Numbers are `int64_t` or `double`. Else `enumerators` has a name for each value, by the value's JSON, empty for
    a row without the parameter; `type` is then an enumeration.
    """

    given: str
    member: str
    macro: str
    type: str
    tag: str = ""
    enumerators: Mapping[str, str] | None = None

    def cell(self, row: Chosen) -> str:
        """The row's value, as an initialiser or an argument of a macro."""
        if self.enumerators is not None:
            return self.enumerators[_key(row, self.given)]
        value: Value = row.params[self.given]
        return literal(float(value) if self.type == "double" else value) or "0"


@dataclass(frozen=True, slots=True)
class KernelNames:
    """`c` and `macro` begin the names of all that belongs to the kernel; `sizes` has the members by size."""

    name: str
    rows: Sequence[Chosen]
    c: str
    macro: str
    sizes: Mapping[str, str]
    fields: Sequence[Field]
    configurations: Sequence[Chosen]

    def params(self, row: Chosen) -> str:
        """The row's parameters, separated by commas."""
        return ", ".join(field.cell(row) for field in self.fields)


class Namer:
    """Names for one header, each given once."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._kernels, self._tags, self._macros = Names(), Names(), Names()
        for name in _OF_ALL:
            self._kernels.new(name)

    def kernels(self, rows: Sequence[Chosen]) -> list[KernelNames]:
        """The kernels of `rows`, in their order."""
        found = list(dict.fromkeys(row.kernel for row in rows))
        stems = {name: self._kernels.new(part(name, "kernel")) for name in found}
        # Names that every kernel has come first: a parameter's has to differ from them.
        capitals = Names()
        macros = {
            name: f"{self._prefix.upper()}_{capitals.new(stem.upper())}" for name, stem in stems.items()
        }
        for macro in macros.values():
            for own in _MACROS_OF_EACH:
                self._macros.new(f"{macro}_{own}")
        return [
            self._kernel(name, [row for row in rows if row.kernel == name], stems[name], macros[name])
            for name in found
        ]

    def _kernel(self, name: str, rows: Sequence[Chosen], stem: str, macro: str) -> KernelNames:
        c = f"{self._prefix}_{stem}"
        configurations: dict[str, Chosen] = {}
        for row in rows:
            configurations.setdefault(row.configuration, row)
        sizes, members = Names(), Names()
        fields = [
            self._field(param, members.new(identifier(param)), c, macro, list(configurations.values()))
            for param in dict.fromkeys(param for row in rows for param in row.params)
        ]
        dims = dict.fromkeys(dim for row in rows for dim, _ in row.dims)
        return KernelNames(
            name,
            rows,
            c,
            macro,
            {dim: sizes.new(identifier(dim)) for dim in dims},
            fields,
            list(configurations.values()),
        )

    def _field(self, param: str, member: str, c: str, macro: str, rows: Sequence[Chosen]) -> Field:
        own = self._macros.new(f"{macro}_{part(param, 'PARAM').upper()}")
        values = [row.params.get(param) for row in rows]
        if all(value is not None and literal(value) is not None for value in values):
            floats = any(isinstance(value, float) for value in values)
            return Field(param, member, own, "double" if floats else "int64_t")
        tag = self._tags.new(f"{c}_{part(param, 'param')}_values")
        enumerators = {
            key: self._macros.new(f"{own}_{part(str(json.loads(key)) if key else 'none', 'EMPTY').upper()}")
            for key in sorted({_key(row, param) for row in rows})
        }
        return Field(param, member, own, f"enum {tag}", tag, enumerators)


def _key(row: Chosen, param: str) -> str:
    return json.dumps(row.params[param]) if param in row.params else ""
