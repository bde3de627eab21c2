"""A problem's sizes: those that are given, what they are called, and those that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweeper.errors import ConfigError
from sweeper.kernel.layout import layout_of
from sweeper.model import KernelSpec

__all__ = ["completed", "differing", "parse_shape", "shape_text", "sizes_behind"]


def completed(spec: KernelSpec, dims: Mapping[str, int]) -> dict[str, int]:
    """`dims` and, of the optional sizes of `spec` that are not among them, the defaults.

    Raises ExpressionError for a default that is not whole.
    """
    sizes = dict(dims)
    for name, default in spec.optional_dims.items():
        if name not in sizes:
            sizes[name] = default.evaluate_int(dims, what=name)
    return sizes


def differing(spec: KernelSpec, dims: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    """Those of the optional sizes `given` that are not what they would be by default at `dims`."""
    usual = completed(spec, dims)
    return {name: given[name] for name in spec.optional_dims if given.get(name, usual[name]) != usual[name]}


def shape_text(dims: Mapping[str, int], plain: int | None = None) -> str:
    """`31x33x17`, and with optional sizes behind the first `plain` ones `31x33x17-lda20`."""
    items = list(dims.items())
    text = "x".join(str(size) for _, size in items[:plain])
    return text if plain is None else "-".join([text, *(f"{n.lower()}{size}" for n, size in items[plain:])])


def parse_shape(text: str) -> tuple[dict[str, int], str]:
    """`4096x4096x64` and `4096x4096x64-nt` as sizes M, N and K, and the layout (empty: none is named).

    Raises ConfigError.
    """
    layout = layout_of(text)
    parts = text.removesuffix(f"-{layout}").lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"shape {text!r} is not MxNxK", hint="write 4096x4096x4096")
    return dict(zip("MNK", map(int, parts), strict=True)), layout


def sizes_behind(spec: KernelSpec, names: Iterable[str], given: Iterable[str] = ()) -> set[str]:
    """The sizes that a value depends on which names `names`: defaults that are not `given` are followed."""
    found: set[str] = set()
    for name in names:
        if name in spec.optional_dims and name not in given:
            found |= spec.optional_dims[name].names
        elif name in spec.dims or name in spec.optional_dims:
            found.add(name)
    return found
