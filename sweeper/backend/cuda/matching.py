"""Arrays that are given held against those that a kernel takes: which sizes they have, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.backend.cuda.foreign import ForeignArray
from sweeper.errors import ConfigError
from sweeper.model import ArraySpec, KernelSpec
from sweeper.problem import ResolvedArray

__all__ = ["require_alike", "sizes_of"]


def sizes_of(
    spec: KernelSpec,
    arrays: Sequence[ArraySpec],
    views: Sequence[ForeignArray],
    usual: Mapping[str, int],
) -> dict[str, int]:
    """The problem's sizes as `views` have them, in the order of the description.

    A size is read off an axis, and an optional one off a pitch, that is just its name; of those that no array tells,
    the sizes are the `usual` ones. Raises ConfigError where arrays contradict each other.
    """
    found: dict[str, int] = {}
    told: dict[str, str] = {}

    def note(name: str, size: int, where: str) -> None:
        if found.setdefault(name, size) != size:
            raise ConfigError(f"{spec.name}: {name} is {found[name]} by {told[name]} and {size} by {where}")
        told.setdefault(name, where)

    for array, view in zip(arrays, views, strict=True):
        if len(view.shape) != len(array.shape):
            axes = " × ".join(size.text for size in array.shape)
            raise ConfigError(
                f"{spec.name}: {array.name} is {axes}, and what is given has the shape {view.shape}"
            )
        for size, axis in zip(view.shape, array.shape, strict=True):
            if axis.text in spec.dims:
                note(axis.text, size, f"{array.name} {view.shape}")
    by_pitch = set()
    for array, view in zip(arrays, views, strict=True):
        name = "" if array.pitch is None else array.pitch.text
        if name in spec.optional_dims:
            by_pitch.add(name)
            pitch = _pitch(view)
            if pitch is not None:
                note(name, pitch, f"the rows of {array.name}, {pitch} elements apart")
    others = {name: size for name, size in usual.items() if name not in by_pitch}
    return {**others, **found}


def _pitch(view: ForeignArray) -> int | None:
    """Elements from a row to the next; None where there is one row, or they are no whole elements apart.

    The latter is found by `require_alike`.
    """
    rows = [(size, step) for size, step in zip(view.shape[:-1], view.strides[:-1], strict=True) if size > 1]
    if not rows or rows[-1][1] <= 0 or rows[-1][1] % view.itemsize:
        return None
    return rows[-1][1] // view.itemsize


def require_alike(spec: KernelSpec, array: ResolvedArray, view: ForeignArray) -> None:
    """Raise ConfigError where `view` is not what `array` has to be: in type, shape, order or access."""
    name = f"{spec.name}: {array.name}"
    if not _same_type(array, view):
        raise ConfigError(f"{name} is of {array.dtype.storage.name}, and what is given of {view.dtype}")
    if view.shape != array.shape:
        raise ConfigError(f"{name} has to have the shape {array.shape}, and what is given has {view.shape}")
    wanted = _strides(array)
    for axis, (size, step, right) in enumerate(zip(view.shape, view.strides, wanted, strict=True)):
        if size > 1 and step != right:
            raise ConfigError(
                f"{name}: axis {axis} of what is given has a stride of {step} B, and the kernel takes {right} B",
                hint=_order_hint(view),
            )
    if array.is_output and view.read_only:
        raise ConfigError(
            f"{name} is written, and what is given may only be read", hint="of a torch tensor: detach it"
        )


def _same_type(array: ResolvedArray, view: ForeignArray) -> bool:
    storage = array.dtype.storage
    if view.dtype == storage.name:
        return True
    # Who has no such type hands over its bits, as bare bytes or unsigned integers.
    bits = (f"void{8 * storage.itemsize}", f"uint{8 * storage.itemsize}")
    return storage.kind not in "fiu" and view.dtype in bits


def _strides(array: ResolvedArray) -> list[int]:
    """In bytes, as the kernel takes it."""
    steps = [array.dtype.bytes]
    if len(array.shape) > 1:
        steps.append(array.pitch * array.dtype.bytes)
        for size in array.shape[-2:0:-1]:
            steps.append(steps[-1] * size)
    return steps[::-1]


def _order_hint(view: ForeignArray) -> str:
    if len(view.shape) > 1 and view.strides[-1] != view.itemsize:
        return "rows have to be contiguous: give a C-ordered copy, or take a kernel of another layout"
    return "give a contiguous copy"
