"""Readers are fed anything at all: each returns or ends with one of our own errors, and soon."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
from fuzz_targets import SAXPY, described, expression, kernel_yaml, saxpy_node, store_bytes, stored, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.kernel import description

# `make faults` asks for more.
EXAMPLES = int(os.environ.get("SWEEPER_TEST_EXAMPLES", "60"))
fed = settings(
    max_examples=EXAMPLES,
    deadline=5_000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
few = settings(fed, max_examples=max(EXAMPLES // 4, 10))

PIECES = ["M", "N", "tile", "T", "0", "1", "16", "2**63", "1e308", "ceil(", "min(", "(", ")", "[", "]", ",", "+", "-",
          "*", "//", "%", "**", "/", "<<", "==", "<", "and", "or", "not", "if", "else", "lambda", "__class__", ".",
          "'float'", "float", "0x", "\n", "\\", "#", "∞", "\0", " "]  # fmt: skip
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
odd = plain | st.sampled_from(
    ["N // 0", "block ** block ** block", "../../etc/passwd", "a" * 10_000, [[]], {}, -1]
)
HEADERS = [
    "trial,status,time_ms,kernel,dtype,device",
    "study,trial,role,kernel,dtype,shape,M,N,K,status,stage,reason,time_ms,params",
    "a,b,time_ms",
    "",
]
cells = st.sampled_from(
    ["", "1", "ok", "-1", "nan", "inf", "1e999", '{"tile": 8}', "{", '"', "candidate", "\0", "é"]
)


@fed
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=80))
def test_an_expression(text: str) -> None:
    expression(text.encode(errors="surrogatepass"))


@fed
@given(st.binary(max_size=200))
def test_a_description_of_any_text(data: bytes) -> None:
    kernel_yaml(data)


@fed
@given(st.data())
def test_a_description_with_something_odd_in_one_place(data: st.DataObject) -> None:
    node = copy.deepcopy(saxpy_node())
    holder, key = data.draw(st.sampled_from(places(node)))
    holder[key] = data.draw(odd)
    described(node)


@fed
@given(st.dictionaries(st.sampled_from(sorted(saxpy_node())) | st.text(max_size=10), odd, max_size=8))
def test_a_description_of_odd_values(node: dict[str, Any]) -> None:
    described({**saxpy_node(), **node})


@few
@given(st.binary(max_size=300))
def test_a_table_of_any_bytes(data: bytes) -> None:
    table(data)


@few
@given(st.sampled_from(HEADERS), st.lists(st.lists(cells, max_size=16).map(",".join), max_size=6))
def test_a_table_of_odd_cells(header: str, lines: list[str]) -> None:
    table("\n".join([header, *lines]).encode())


@few
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("results", "cache", "tune_params_keys", "schema_version", "environment"), plain
        ),
    )
    | plain
)
def test_a_table_of_odd_json(content: Any) -> None:
    table(json.dumps(content).encode())


@few
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), max_size=6),
    st.integers(0, 10**6),
)
def test_a_store_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[int, bytes]], cut: int) -> None:
    content = bytearray(store_bytes())
    for place, piece in changes:
        at = place % len(content)
        content[at : at + len(piece)] = piece
    stored(bytes(content[: len(content) - cut % (len(content) // 4)]))


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_store_that_is_none(content: bytes) -> None:
    stored(content)


def test_the_example_itself_is_taken() -> None:
    """What the descriptions begin from is right: their errors are of what was changed."""
    assert description.load(saxpy_node(), SAXPY).name == "saxpy"


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every place in a nest of dictionaries and lists, as what holds it and its key there."""
    found: list[tuple[Any, Any]] = []
    keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        found.append((node, key))
        found += places(node[key])
    return found
