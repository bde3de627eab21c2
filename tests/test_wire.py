"""Dataclasses pass through JSON unchanged; anything unexpected on the way back is an error that names it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import TARGETS, DeviceIdentity, Target
from sweeper.expressions import Value
from sweeper.model import Build, Check, Launch, Mismatch, Timing
from sweeper.wire import WireError, from_wire, to_wire


class Colour(StrEnum):
    RED = "red"


class Level(Enum):
    LOW = 1


@dataclass(frozen=True, slots=True)
class Inner:
    x: float
    name: str = "none"


@dataclass(frozen=True, slots=True)
class Everything:
    number: int
    size: float
    flag: bool
    text: str
    colour: Colour
    level: Level
    path: Path
    pair: tuple[int, str]
    row: tuple[float, ...]
    inner: Inner
    rows: tuple[Inner, ...]
    maybe: Inner | None
    value: Value
    names: list[str]
    words: Sequence[str]
    unique: frozenset[int]
    sizes: Mapping[str, int]
    by_number: dict[int, float]
    by_colour: dict[Colour, int]
    anything: Mapping[str, Any]
    derived: int = field(init=False, default=7)


def everything(**changes: Any) -> Everything:
    fields: dict[str, Any] = {
        "number": 2**70,
        "size": 0.1,
        "flag": True,
        "text": "zwölf\n",
        "colour": Colour.RED,
        "level": Level.LOW,
        "path": Path("/a/b c"),
        "pair": (1, "x"),
        "row": (1.0, math.inf, -math.inf),
        "inner": Inner(1.5),
        "rows": (Inner(1.0, "a"), Inner(2.0, "b")),
        "maybe": None,
        "value": 3,
        "names": ["a"],
        "words": ("b",),
        "unique": frozenset({3, 1}),
        "sizes": {"M": 64},
        "by_number": {4: 0.5},
        "by_colour": {Colour.RED: 1},
        "anything": {"list": [1, None, {"deep": math.inf}]},
    }
    return Everything(**(fields | changes))


def passed(value: Any, cls: Any = None) -> Any:
    """`value` after a journey through JSON text."""
    return from_wire(cls or type(value), json.loads(json.dumps(to_wire(value), allow_nan=False)))


def test_every_kind_of_field_passes_unchanged():
    assert passed(everything()) == everything()
    assert passed(everything(maybe=Inner(0.0))).maybe == Inner(0.0)


def test_nan_passes():
    assert math.isnan(passed(everything(size=math.nan)).size)
    assert math.isnan(passed(everything(anything={"e": float("nan")})).anything["e"])


@pytest.mark.parametrize("value", [1, 1.0, True, "1"])
def test_a_union_keeps_the_type_that_was_sent(value):
    got = passed(everything(value=value)).value
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (ml_dtypes.bfloat16(1.5), 1.5),
    ],
)
def test_numpy_scalars_become_plain_numbers(scalar, plain):
    sent = to_wire({"value": scalar})
    assert sent == {"value": plain}
    assert type(sent["value"]) is type(plain)


def test_a_whole_number_may_stand_for_a_float():
    got = from_wire(Inner, {"x": 2})
    assert got == Inner(2.0)
    assert type(got.x) is float


def test_fields_with_defaults_may_be_missing_and_others_may_not():
    assert from_wire(Inner, {"x": 1.0}).name == "none"
    with pytest.raises(WireError, match="Inner: the field 'x' is missing"):
        from_wire(Inner, {"name": "a"})


def test_an_unknown_field_is_an_error():
    with pytest.raises(WireError, match="Inner has no field 'y', 'z'"):
        from_wire(Inner, {"x": 1.0, "z": 1, "y": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 1.5}, r"Everything\.number: '1\.5' is no int"),
        ({"number": True}, r"Everything\.number"),
        ({"flag": 1}, r"Everything\.flag"),
        ({"text": None}, r"Everything\.text"),
        ({"size": "1.0"}, r"Everything\.size"),
        ({"size": {"$float": "1.0"}}, r"Everything\.size"),
        ({"size": {"$float": "nan", "x": 1}}, r"Everything\.size"),
        ({"colour": "blue"}, r"Everything\.colour: 'blue' is no Colour"),
        ({"path": 3}, r"Everything\.path"),
        ({"pair": [1]}, r"Everything\.pair: 1 values where 2 are expected"),
        ({"pair": "ab"}, r"Everything\.pair"),
        ({"row": [1.0, "x"]}, r"Everything\.row\[1\]"),
        ({"inner": [1]}, r"Everything\.inner"),
        ({"inner": {"x": "a"}}, r"Everything\.inner\.x"),
        ({"rows": [{"x": 1.0, "q": 1}]}, r"Everything\.rows\[0\] has no field 'q'"),
        ({"maybe": {"x": None}}, r"Everything\.maybe\.x"),
        ({"value": [1]}, r"Everything\.value"),
        ({"sizes": {"M": "64"}}, r"Everything\.sizes\['M'\]"),
        ({"sizes": [64]}, r"Everything\.sizes"),
        ({"by_number": {"four": 1.0}}, r"Everything\.by_number's keys"),
        ({"by_colour": {"blue": 1}}, r"Everything\.by_colour's keys"),
        ({"anything": {"e": {"$float": "wrong"}}}, "is no float"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_the_field(change, message):
    with pytest.raises(WireError, match=message):
        from_wire(Everything, to_wire(everything()) | change)


@pytest.mark.parametrize(
    "value", [object(), b"bytes", np.zeros(3), {1.5: 2}, {True: 1}, {"$float": 1}, 1j, Everything]
)
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(WireError, match="cannot be sent"):
        to_wire({"value": value})


def test_bare_collections_hold_plain_values():
    assert from_wire(tuple, [1, "a"]) == (1, "a")
    assert from_wire(dict, {"a": [1]}) == {"a": [1]}


@pytest.mark.parametrize(
    "value",
    [
        Launch((16, 16, 1), (2, 3, 1), 1024, 2048),
        Build(
            "key", "nvcc", Path("/cache/k/kernel.cubin"), "_Z2mmv", "nvcc 13.0", ("-O3",), 40, 2048, 0, 0, 1.5
        ),
        Build("key", "host", Path("k.so"), "mm", "g++ 12"),
        Check(
            False, 10, 2, math.inf, math.nan, (1, 2), (Mismatch("C", (1, 2), math.nan, 1.0, 1e-6),), "note"
        ),
        Timing((0.1, 0.2), "events", "cold", sm_clock_mhz=1980.0, note=""),
        MeasureProtocol(cache="warm", max_samples=7),
        DeviceIdentity("GPU", "GPU-1", "0000:01:00.0", "580", "13.0", 2**37, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_worker_sends_passes_unchanged(value):
    assert repr(passed(value)) == repr(value)


def test_an_outcome_passes_whole():
    check = Check(True, 4, 0, 0.0, 0.0, None)
    outcome = Outcome(
        check, None, Launch((1, 1, 1), (1, 1, 1), 0), Timing((1.0,), "events×4", "cold"), "note"
    )
    assert passed(outcome) == outcome


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_passes_unchanged(name):
    assert passed(TARGETS[name], Target) == TARGETS[name]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "$float"), inner),
    max_leaves=20,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text().filter(lambda key: key != "$float"), json_values))
def test_any_plain_value_passes_as_any(value):
    assert passed(value, Mapping[str, Any]) == value
