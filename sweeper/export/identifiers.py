"""Names and literals of C and C++ for whatever a kernel, a parameter or a value is called."""

from __future__ import annotations

import math
import re

from sweeper.expressions import Value

__all__ = ["Names", "comment", "identifier", "literal", "part", "quoted"]

# Words of C99, C11, C23 and C++ up to 23, and names that compilers or common headers define as macros.
_WORDS = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break case catch
char char8_t char16_t char32_t class co_await co_return co_yield compl complex concept const const_cast consteval
constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false
final float for friend goto if import inline int long module mutable namespace new noexcept not not_eq nullptr
operator or or_eq override private protected public reflexpr register reinterpret_cast requires restrict return
short signed sizeof static static_assert static_cast struct switch synchronized template this thread_local throw
true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while
xor xor_eq
assert errno stdin stdout stderr linux unix i386 sun mips NULL EOF I NAN INFINITY HUGE_VAL BUFSIZ RAND_MAX
min max near far small interface hyper IN OUT OPTIONAL ERROR DELETE CONST VOID TRUE FALSE
isnan isinf isfinite signbit offsetof setjmp va_arg signals slots emit foreach
"""
_TAKEN = frozenset(_WORDS.split())


def identifier(text: str) -> str:
    """`text` as a name in C and C++: letters outside ASCII by code point, a word of the language with a `_` behind."""
    made = "".join(c if re.match(r"[A-Za-z0-9_]", c) else _spelled(c) for c in text)
    if not made or made[0].isdigit() or re.match(r"_[A-Z_]", made):
        made = f"p{made}"
    # Two underscores in a row belong to the implementation in C++.
    made = re.sub(r"__+", "_", made)
    return f"{made}_" if made in _TAKEN else made


def part(text: str, empty: str) -> str:
    """`text` as a part of a name that begins otherwise, where a word of the language is none; `empty` for nothing."""
    return identifier(f"x{text}")[1:].strip("_") or empty


def _spelled(c: str) -> str:
    return f"u{ord(c):04x}" if ord(c) > 127 else "_"


class Names:
    """Names that differ: a second one of the same spelling gets a number."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def new(self, name: str) -> str:
        """`name`, or that with the first number that makes it new."""
        found, number = name, 2
        while found in self._given:
            found, number = f"{name.rstrip('_')}_{number}", number + 1
        self._given.add(found)
        return found


def quoted(text: str) -> str:
    """A string literal; what is not plain ASCII as octal escapes of UTF-8."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f'"{plain}"'


def comment(text: str) -> str:
    """`text` as it may stand in a comment: one line of ASCII that neither opens nor closes one."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = line.replace("×", "x").encode("ascii", "backslashreplace").decode()
    return line.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def literal(value: Value) -> str | None:
    """A number's literal, None where it has none: text, NaN, infinity, an integer beyond 64 bits."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        if value == -(2**63):
            return "(-INT64_C(9223372036854775807) - 1)"
        if abs(value) >= 2**63:
            return None
        return str(value) if abs(value) < 2**31 else f"INT64_C({value})"
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return None
