"""What a module's file says of it beside its code, read once."""

from __future__ import annotations

import functools
from functools import cached_property
from pathlib import Path

from sweeper.emulation.dwarf import Unit, units
from sweeper.emulation.elf import Elf, Symbol
from sweeper.emulation.places import Places
from sweeper.emulation.variables import Variable, device_variables, shared_variables

__all__ = ["DebugInfo", "debug_info"]


class DebugInfo:
    """Places and variables. Without debugging information, names of functions and variables are known."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf

    @cached_property
    def _units(self) -> list[Unit]:
        return list(units(self._elf))

    @cached_property
    def places(self) -> Places:
        return Places(self._elf, self._units)

    @cached_property
    def guards(self) -> list[Symbol]:
        return self._elf.guards()

    @cached_property
    def shared_variables(self) -> tuple[Variable, ...]:
        return shared_variables(self._elf, self._units)

    @cached_property
    def device_variables(self) -> tuple[Variable, ...]:
        return device_variables(self._elf, self._units)


@functools.lru_cache(maxsize=16)
def _cached(path: Path, _size: int, _changed_ns: int) -> DebugInfo:
    return DebugInfo(Elf.of(path))


def debug_info(module: Path) -> DebugInfo:
    """What is known of `module`; read anew when the file has changed."""
    status = module.stat()
    return _cached(module, status.st_size, status.st_mtime_ns)
