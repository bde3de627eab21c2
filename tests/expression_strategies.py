"""Random expressions, and scopes for them: columns of every type, and plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sweeper.expressions.syntax import (
    Binary,
    Call,
    Comparison,
    Conditional,
    Link,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
)

_NUMBERS = st.one_of(
    st.integers(-5, 70),
    st.sampled_from([2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1]),
    st.sampled_from([0.0, 0.5, -1.5, 2.0, 1e17, 1e300]),
    st.booleans(),
)
_LITERALS = st.one_of(_NUMBERS, st.sampled_from(["a", "b", ""])).map(Literal)
_NAMES = st.sampled_from("ijfsbmkc").map(Name)


def _larger(smaller: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    two_or_more = st.lists(smaller, min_size=2, max_size=3).map(tuple)
    links = st.builds(Link, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), smaller)
    members = st.builds(
        Link, st.sampled_from(["in", "not in"]), st.lists(_LITERALS, min_size=1, max_size=3).map(tuple)
    )
    rounding = st.sampled_from(["ceil", "floor", "int"])
    quotient = st.builds(Binary, st.just("/"), smaller, smaller)
    return st.one_of(
        st.builds(Unary, st.sampled_from(["+", "-", "not"]), smaller),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), smaller, smaller),
        st.builds(Comparison, smaller, st.lists(links, min_size=1, max_size=3).map(tuple)),
        st.builds(Comparison, smaller, st.tuples(members)),
        st.builds(Logic, st.sampled_from(["and", "or"]), two_or_more),
        st.builds(Conditional, smaller, smaller, smaller),
        st.builds(Call, st.sampled_from(["abs", "ceil", "floor", "int", "log2"]), st.tuples(smaller)),
        st.builds(Call, rounding, st.tuples(quotient)),
        st.builds(Call, st.sampled_from(["min", "max"]), two_or_more),
        st.builds(Call, st.just("ceil_div"), st.tuples(smaller, smaller)),
    )


TREES = st.recursive(st.one_of(_LITERALS, _NAMES), _larger, max_leaves=12)
ROWS = 5
_BIG = st.one_of(st.integers(-8, 64), st.sampled_from([2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1]))


def _rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=ROWS, max_size=ROWS)


SCOPES = st.fixed_dictionaries(
    {
        "i": _rows(st.integers(-8, 64)),
        "j": _rows(_BIG),
        "f": _rows(st.sampled_from([0.0, 0.5, 1.5, -2.0, 3.0, 1e18, 1e308])),
        "s": _rows(st.sampled_from(["a", "b", ""])),
        "b": _rows(st.booleans()),
        "m": _rows(st.one_of(_BIG, st.sampled_from([0.5, 2.0, "a", True]))),
        "k": _BIG,
        "c": st.sampled_from(["a", 1.5, 2, True]),
    }
)
COLUMN_TYPES = {"i": np.int32, "j": np.int64, "f": np.float64, "s": np.str_, "b": np.bool_, "m": object}
