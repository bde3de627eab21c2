"""C++ integer expressions, read for their value where that takes no C++ compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.source.cxx import SourceText

__all__ = ["integer_constants", "integer_value"]

_DEEPEST = 16
_INTEGER_WORDS = frozenset(
    {
        "const", "constexpr", "static", "inline", "__device__", "__constant__", "auto", "int", "unsigned",
        "long", "short", "size_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
    }
)  # fmt: skip


class _Unsure(Exception):
    pass


def integer_value(
    words: Sequence[str], values: Mapping[str, int], constants: Mapping[str, Sequence[str]] | None = None
) -> int | None:
    """The value of `words` (tokens of an expression of + - * / % and parentheses), or None if unsure.

    Names are looked up in `values`, then as expressions in `constants`. Division truncates towards
    zero, as in C++.
    """
    try:
        return _Evaluator(words, values, constants or {}, 0).whole()
    except (_Unsure, ZeroDivisionError, RecursionError):
        return None


class _Evaluator:
    def __init__(
        self,
        words: Sequence[str],
        values: Mapping[str, int],
        constants: Mapping[str, Sequence[str]],
        depth: int,
    ) -> None:
        if depth > _DEEPEST:
            raise _Unsure
        self.words, self.values, self.constants, self.depth = words, values, constants, depth
        self.position = 0

    def _peek(self) -> str:
        return self.words[self.position] if self.position < len(self.words) else ""

    def _take(self) -> str:
        word = self._peek()
        self.position += 1
        return word

    def whole(self) -> int:
        value = self._sum()
        if self.position != len(self.words):
            raise _Unsure
        return value

    def _sum(self) -> int:
        value = self._product()
        while self._peek() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> int:
        value = self._unary()
        while self._peek() in ("*", "/", "%"):
            sign, right = self._take(), self._unary()
            if sign == "*":
                value *= right
                continue
            quotient = abs(value) // abs(right)
            quotient = -quotient if (value < 0) != (right < 0) else quotient
            value = quotient if sign == "/" else value - quotient * right
        return value

    def _unary(self) -> int:
        word = self._take()
        if word == "-":
            return -self._unary()
        if word != "(":
            return self._atom(word)
        value = self._sum()
        if self._take() != ")":
            raise _Unsure
        return value

    def _atom(self, word: str) -> int:
        if word in self.values:
            return self.values[word]
        if word in self.constants:
            return _Evaluator(self.constants[word], self.values, self.constants, self.depth + 1).whole()
        digits = word.rstrip("uUlL").replace("'", "")
        if not digits.isdecimal() or (digits.startswith("0") and digits != "0"):
            raise _Unsure
        return int(digits)


def integer_constants(files: Sequence[SourceText]) -> dict[str, tuple[str, ...]]:
    """Macros and `const` or `constexpr` integers of the files: name to the words of its value.

    A macro of several words counts only in parentheses (text is pasted, so `X * 2` may not mean what
    it says), and a name that is given two values not at all.
    """
    found: dict[str, tuple[str, ...]] = {}
    twice: set[str] = set()
    for file in files:
        for name, words in (*_macros(file), *_variables(file)):
            if found.setdefault(name, words) != words:
                twice.add(name)
    return {name: words for name, words in found.items() if name not in twice}


def _macros(file: SourceText) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for directive in file.directives:
        words = tuple(t.text for t in directive.tokens[1:])
        if directive.name == "define" and words and (len(words) == 1 or _is_parenthesised(words)):
            found.append((directive.tokens[0].text, words))
    return found


def _is_parenthesised(words: Sequence[str]) -> bool:
    depth = 0
    for i, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return i == len(words) - 1
    return False


def _variables(file: SourceText) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    tokens = file.tokens
    for i, token in enumerate(tokens):
        if token.text not in ("constexpr", "const"):
            continue
        j = i + 1
        while j < len(tokens) and tokens[j].text in _INTEGER_WORDS:
            j += 1
        if j == i + 1 or j + 1 >= len(tokens) or tokens[j].kind != "name" or tokens[j + 1].text != "=":
            continue
        end = next((k for k in range(j, len(tokens)) if tokens[k].text in (";", ",")), len(tokens))
        found.append((tokens[j].text, tuple(t.text for t in tokens[j + 2 : end])))
    return found
