"""One configuration's source: the `.cu` as read, macros, template arguments and compiler options.

Everything a compile depends on is in the `TranslationUnit`, and everything but where files lie is in
its digest. Values reach C++ by `repr` and `str` of Python numbers, so no locale can change them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.build.options import normalize_options
from sweeper.dtypes import DType
from sweeper.errors import ConfigError
from sweeper.expressions import Expression, Value
from sweeper.model import KernelSpec, Point, digest
from sweeper.source.includes import SourceTree, read_tree
from sweeper.source.names import declared_types, self_defined

__all__ = ["TranslationUnit", "cuda_text", "render_define", "render_template_argument", "translation_unit"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class TranslationUnit:
    """What a compiler is given for one configuration.

    `text` is the source preceded by a `#line` that names it, so that messages speak of the user's
    file; `signature` is the entry as C++ names it (`matmul<float, 16>`, `matmul`); `source_digest`
    covers the source and every header as read, `digest` that and all else but `include_dirs`.
    """

    name: str
    text: str
    source: Path
    entry: str
    template_args: tuple[str, ...]
    signature: str
    defines: tuple[tuple[str, str], ...]
    include_dirs: tuple[Path, ...]
    options: tuple[str, ...]
    source_digest: str
    digest: str


def _render_int(value: int, what: str) -> str:
    if not -_INT64_MAX <= value <= _UINT64_MAX:
        raise ConfigError(f"{what} = {value} does not fit 64 bits", hint="use a smaller number")
    suffix = "ull" if value > _INT64_MAX else ""
    return f"{value}{suffix}"


def _render_float(value: float, what: str) -> str:
    if not math.isfinite(value):
        raise ConfigError(f"{what} = {value} has no C++ spelling", hint="use a finite number")
    return repr(value)


def _render_word(value: str, what: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise ConfigError(
            f"{what} = {value!r} is not a C++ identifier",
            hint="text values may hold letters, digits and _ only, and not begin with a digit",
        )
    return value


def _render(value: object, what: str) -> str:
    if isinstance(value, int):
        return _render_int(value, what)
    if isinstance(value, float):
        return _render_float(value, what)
    if isinstance(value, str):
        return _render_word(value, what)
    raise ConfigError(f"{what} = {value!r} has no C++ spelling", hint="use a number, true, false or a name")


def render_define(value: Value, *, what: str) -> str:
    """`value` as a macro's replacement: booleans as 1 and 0, negative numbers in parentheses.

    Raises ConfigError for text that is no identifier, numbers past 64 bits, infinities and NaN.
    """
    text = _render(int(value) if isinstance(value, bool) else value, what)
    return f"({text})" if text.startswith("-") else text


def render_template_argument(value: Value, *, what: str) -> str:
    """`value` as a template argument: booleans as true and false, whole floats as integers.

    Raises ConfigError as `render_define` does, and for a float that is not whole.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not value.is_integer():
            raise ConfigError(
                f"{what} = {value!r} is not a whole number",
                hint="use // or ceil() where a template argument is computed",
            )
        value = int(value)
    return _render(value, what)


def _settle(value: Value, expression: Expression, scope: Mapping[str, Value]) -> Value:
    """A quotient of whole numbers that comes out whole is whole: `bm / tm` is 4 in C++, not 4.0."""
    inputs = [scope[name] for name in expression.names if name in scope]
    computed = "/" in expression.text and not any(isinstance(v, float) for v in inputs)
    if computed and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _template_args(
    template: Sequence[Expression | str], dtype: DType, scope: Mapping[str, Value]
) -> tuple[str, ...]:
    rendered = []
    for number, argument in enumerate(template, start=1):
        if isinstance(argument, str):
            rendered.append(dtype.ctype if argument == "T" else _render_word(argument, "template argument"))
            continue
        what = f"template argument {number} = {argument.text}"
        rendered.append(render_template_argument(argument.evaluate(scope), what=what))
    return tuple(rendered)


def _defines(spec: KernelSpec, tree: SourceTree, scope: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    """Macros in a fixed order: parameters as described, then T, then the description's own."""
    templated = {name for a in spec.template if isinstance(a, Expression) for name in a.names}
    defines = {
        p.name: render_define(scope[p.name], what=p.name)
        for p in spec.params
        if p.name not in templated and p.name in tree.names
    }
    if not spec.template and "T" in tree.names and "T" not in declared_types(tree) | self_defined(tree):
        defines["T"] = spec.dtype.ctype
    for name, expression in spec.defines.items():
        _render_word(name, "the macro's name")
        if expression.text == "T":
            defines[name] = spec.dtype.ctype
            continue
        value = _settle(expression.evaluate(scope), expression, scope)
        defines[name] = render_define(value, what=f"{name} = {expression.text}")
    return tuple(defines.items())


def _type_headers(spec: KernelSpec) -> str:
    """Includes for the C++ types of the description's precision classes that the language has not."""
    types = (spec.dtype, *(a.dtype for a in spec.args if a.dtype is not None))
    return "".join(f"#include <{header}>\n" for header in dict.fromkeys(t.header for t in types) if header)


def translation_unit(spec: KernelSpec, point: Point, *, include_dirs: Sequence[Path] = ()) -> TranslationUnit:
    """The source of `spec` at `point`. Headers are looked for beside the source, then in `include_dirs`.

    A parameter becomes a macro of its own name where the source uses that name and no template
    argument does; `T` becomes one for a plain kernel that uses it without declaring it.
    Raises KernelError for headers (see `read_tree`), ConfigError for a value or option that cannot be
    given to a compiler, ExpressionError for a define that has no value at `point`.
    """
    folders = (spec.source.parent, *include_dirs)
    tree = read_tree(spec.source, folders)
    scope: dict[str, Value] = {"elem_bytes": spec.dtype.bytes, **point.params}
    arguments = _template_args(spec.template, spec.dtype, scope)
    signature = f"{spec.entry}<{', '.join(arguments)}>" if arguments else spec.entry
    defines = _defines(spec, tree, scope)
    options = normalize_options(spec.options)
    name = spec.source.name
    headers = _type_headers(spec)
    content = [tree.digest, name, spec.entry, arguments, defines, options, headers]
    return TranslationUnit(
        name=name,
        text=f"{headers}#line 1 {_quoted(name)}\n{tree.source.text}",
        source=spec.source,
        entry=spec.entry,
        template_args=arguments,
        signature=signature,
        defines=defines,
        include_dirs=folders,
        options=options,
        source_digest=tree.digest,
        digest=digest(content, length=32),
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def cuda_text(unit: TranslationUnit) -> str:
    """`unit.text` with the entry's instantiation forced, where it is a template.

    A host function that takes the entry's address forces it whether or not the source instantiates
    the same arguments itself (a second explicit instantiation would be an error), and in an unnamed
    namespace too.
    """
    if not unit.template_args:
        return unit.text
    forced = f"const void* sweeper_instance() {{ return reinterpret_cast<const void*>(&{unit.signature}); }}"
    return f'{unit.text}\n#line 1 "instantiation of {unit.entry}"\n{forced}\n'
