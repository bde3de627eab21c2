"""What is in a cubin: its kernels, and the registers and memory that each needs.

A cubin is an ELF64 file. Layout: System V ABI, "Object Files"; the `.nv.info` attributes are NVIDIA's
(EIATTR numbers as `cuobjdump -elf` names them), and are compared with ptxas's own figures in tests.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["CubinError", "KernelImage", "choose_kernel", "read_kernels"]

_SYMBOL_IS_FUNCTION = 2
_SYMBOL_IS_KERNEL = 0x10
_REGISTERS = 0x2F
_FRAME_BYTES = 0x11
_STACK_BYTES = 0x12
_SIZED_PAYLOAD = 4
_RESERVED_SHARED_SYMBOL = ".nv.reservedSmem.offset0"
_RESERVED_SHARED_BYTES = 1024
_NAMES_SHOWN = 8


class CubinError(Exception):
    """The file is not a cubin that can be read, or the kernel is not in it. `hint` says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class KernelImage:
    """One kernel of a cubin. `static_shared_bytes` leaves out what the system reserves for itself;
    `local_bytes` is local memory a thread (its stack, with spilled registers)."""

    symbol: str
    registers: int | None
    static_shared_bytes: int
    local_bytes: int | None

    @property
    def readable(self) -> str:
        """The name as the source has it, beside the symbol where they differ."""
        path, rest = _demangle(self.symbol)
        name = "::".join(path) + ("<…>" if rest.startswith("I") else "")
        return self.symbol if name == self.symbol else f"{name} ({self.symbol})"


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int
    index: int


class _Elf:
    """Sections and symbols of an ELF64 little-endian file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise CubinError("not an ELF64 file", hint="the compiler wrote something else; see its log")
        try:
            self.sections = self._read_sections()
        except (struct.error, IndexError, ValueError) as error:
            raise CubinError(f"a damaged ELF file: {error}", hint="build it again") from None
        self.by_name = {section.name: section for section in self.sections}

    def _text(self, offset: int) -> str:
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def _read_sections(self) -> list[_Section]:
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        entry, count, names = struct.unpack_from("<HHH", self.data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * entry) for i in range(count)]
        strings = headers[names][4]
        return [_Section(self._text(strings + h[0]), h[4], h[5], h[6], i) for i, h in enumerate(headers)]

    def symbols(self) -> Iterator[tuple[int, str, int, int]]:
        """(index, name, type, other) of each symbol."""
        table = self.by_name[".symtab"]
        strings = self.sections[table.link].offset
        for i in range(table.size // 24):
            name, info, other = struct.unpack_from("<IBB", self.data, table.offset + 24 * i)
            yield i, self._text(strings + name), info & 0xF, other

    def attributes(self, section: str) -> Iterator[tuple[int, bytes]]:
        """(attribute, payload) of each sized record of an information section."""
        found = self.by_name.get(section)
        if found is None:
            return
        position, end = found.offset, found.offset + found.size
        while position + 4 <= end:
            form, attribute, size = struct.unpack_from("<BBH", self.data, position)
            position += 4
            if form == _SIZED_PAYLOAD:
                yield attribute, self.data[position : position + size]
                position += size


def _by_symbol(elf: _Elf) -> dict[int, dict[int, int]]:
    """Attribute to symbol index to value, for the attributes that are (symbol, value) pairs."""
    found: dict[int, dict[int, int]] = {_REGISTERS: {}, _FRAME_BYTES: {}, _STACK_BYTES: {}}
    for attribute, payload in elf.attributes(".nv.info"):
        if attribute in found and len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            found[attribute][symbol] = value
    return found


def read_kernels(cubin: bytes) -> tuple[KernelImage, ...]:
    """Every kernel of `cubin`, in the order of its symbols. Raises CubinError."""
    elf = _Elf(cubin)
    try:
        symbols = list(elf.symbols())
        figures = _by_symbol(elf)
    except (KeyError, struct.error, IndexError, ValueError) as error:
        raise CubinError(f"a cubin without a readable symbol table: {error}", hint="build it again") from None
    reserved = _RESERVED_SHARED_BYTES if any(s[1] == _RESERVED_SHARED_SYMBOL for s in symbols) else 0
    return tuple(
        _image(elf, index, name, figures, reserved)
        for index, name, kind, other in symbols
        if kind == _SYMBOL_IS_FUNCTION and other & _SYMBOL_IS_KERNEL
    )


def _image(
    elf: _Elf, index: int, name: str, figures: Mapping[int, Mapping[int, int]], reserved: int
) -> KernelImage:
    shared = elf.by_name.get(f".nv.shared.{name}")
    stacks = [figures[a][index] for a in (_FRAME_BYTES, _STACK_BYTES) if index in figures[a]]
    return KernelImage(
        symbol=name,
        registers=figures[_REGISTERS].get(index),
        static_shared_bytes=max(shared.size - reserved, 0) if shared else 0,
        local_bytes=max(stacks) if stacks else None,
    )


def _demangle(symbol: str) -> tuple[tuple[str, ...], str]:
    """The qualified name in an Itanium-mangled function name, and what follows it (`I…` a template's
    arguments). A name that is not mangled is itself. https://itanium-cxx-abi.github.io/cxx-abi/abi.html"""
    if not symbol.startswith("_Z"):
        return (symbol,), ""
    rest = symbol[2:].lstrip("N").lstrip("KL")
    # Without N one name is all: a number after it begins an argument of a class type.
    parts = len(rest) if symbol.startswith("_ZN") else 1
    path: list[str] = []
    while len(path) < parts and (match := re.match(r"\d+", rest)):
        length = int(match.group())
        name, rest = rest[match.end() :][:length], rest[match.end() + length :]
        if not name.startswith("_GLOBAL__N_"):
            path.append(name)
    return tuple(path), rest


_TYPE_CODES = {
    "float": "f", "double": "d", "int": "i", "unsigned int": "j", "unsigned": "j", "long": "l",
    "long long": "x", "unsigned long long": "y", "signed char": "a", "char": "c", "short": "s", "bool": "b",
    "__half": "6__half", "half": "6__half", "__nv_bfloat16": "13__nv_bfloat16",
    "__nv_fp8_e4m3": "13__nv_fp8_e4m3",
}  # fmt: skip


def _argument_pattern(argument: str) -> str:
    """A pattern of how `argument` is mangled; types and integer kinds that are not known match any."""
    if argument in ("true", "false"):
        return f"L[a-z]{int(argument == 'true')}E"
    if re.fullmatch(r"-?\d+(?:ull)?", argument):
        digits = argument.removesuffix("ull").replace("-", "n")
        return rf"L(?:[a-z]|\d+\w+?){digits}E"
    code = _TYPE_CODES.get(argument)
    if code is not None:
        # A class that was named before is a substitution.
        return rf"(?:{code}|S[0-9A-Z]*_)" if code[0].isdigit() else code
    return rf"(?:{len(argument)}{argument}|L\w+?E|[a-z]|S[0-9A-Z]*_)"


def _matches_entry(path: Sequence[str], entry: str) -> bool:
    wanted = tuple(entry.split("::"))
    return tuple(path[-len(wanted) :]) == wanted


def choose_kernel(kernels: Sequence[KernelImage], entry: str, template_args: Sequence[str]) -> KernelImage:
    """The kernel called `entry` with these template arguments (as C++ spells them).

    A source may instantiate its template for other arguments too, so the arguments are compared
    where several kernels have the name. Raises CubinError, naming the kernels found.
    """
    named = [(k, *_demangle(k.symbol)) for k in kernels]
    of_name = [(k, rest) for k, path, rest in named if _matches_entry(path, entry)]
    candidates = [(k, rest) for k, rest in of_name if rest.startswith("I") == bool(template_args)]
    if len(candidates) == 1:
        return candidates[0][0]
    pattern = "I" + "".join(_argument_pattern(a) for a in template_args)
    for full in (pattern + "E[Ev]", pattern):
        matching = [k for k, rest in candidates if template_args and re.match(full, rest)]
        if len(matching) == 1:
            return matching[0]
    wanted = f"{entry}<{', '.join(template_args)}>" if template_args else entry
    found = ", ".join(k.readable for k in kernels[:_NAMES_SHOWN]) or "none"
    more = f" and {len(kernels) - _NAMES_SHOWN} more" if len(kernels) > _NAMES_SHOWN else ""
    problem = "several kernels may be" if candidates else "no kernel"
    raise CubinError(
        f"{problem} {wanted}; the compiled module's kernels: {found}{more}",
        hint=_hint(bool(kernels), bool(of_name), bool(candidates), bool(template_args)),
    )


def _hint(any_kernel: bool, of_name: bool, several: bool, templated: bool) -> str:
    if several and templated:
        return "give every template argument, those with defaults too"
    if several:
        return 'give overloads names of their own, or declare the entry extern "C"'
    if of_name and templated:
        return "it is no template: remove `template`"
    if of_name or not any_kernel:
        return "a template is compiled only with its arguments: add `template`"
    return "correct `entry`"
