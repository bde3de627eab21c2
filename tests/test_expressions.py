"""Expressions: what they mean, on single values and on columns alike, and what is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from expression_strategies import COLUMN_TYPES, ROWS, SCOPES, TREES
from hypothesis import HealthCheck, given, settings

from sweeper.errors import ConfigError, ExpressionError
from sweeper.expressions import Expression, Value, parse
from sweeper.expressions.syntax import Node, render


def value(text: str, **scope: Value) -> Value:
    return parse(text).evaluate(scope)


def error(text: Any, **scope: Value) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text, where="constraint 1").evaluate(scope)
    return str(caught.value)


class TestMeaning:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("-7 // 2", -4),
            ("-7 % 3", 2),
            ("7 % -3", -2),
            ("2 ** 10", 1024),
            ("-2 ** 2", -4),
            ("(-1) ** 1000001", -1),
            ("2 ** -1", 0.5),
            ("7 / 2", 3.5),
            ("+3 - -3", 6),
            ("1_000", 1000),
            ("0x10", 16),
            ("1e3", 1000.0),
            ("min(3, 1, 2) + max(3, 1, 2)", 4),
            ("abs(-5)", 5),
            ("log2(1024)", 10),
            ("int(7.9) + int(-7.9)", 0),
            ("ceil(7.1)", 8),
            ("floor(-7.1)", -8),
            ("ceil_div(1000, 64)", 16),
            ("True + True", 2),
        ],
    )
    def test_arithmetic(self, text: str, expected: Value) -> None:
        assert value(text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 < 2 < 3", True),
            ("1 < 3 < 2", False),
            ("8 <= x <= 64", True),
            ("x == 16 != y", True),
            ("x in (8, 16, 32)", True),
            ("x in [8, 32]", False),
            ("x not in (8, 32)", True),
            ("x > 100 or y", True),
            ("x and not y", False),
            ("x > 100 if y == 0 else x > 10", True),
            ("mode == 'fast'", True),
            ("mode in ('slow', 'fast')", True),
            ("mode == 1", False),
            ("mode != 1", True),
            ("True == 1", True),
            ("x / 2 == 8", True),
        ],
    )
    def test_conditions(self, text: str, expected: bool) -> None:
        assert value(text, x=16, y=3, mode="fast") is expected

    def test_logic_skips_what_it_does_not_need(self) -> None:
        assert value("b == 0 or a % b == 0", a=5, b=0) is True
        assert value("b != 0 and a % b == 0", a=5, b=0) is False
        assert value("0 if b == 0 else a // b", a=5, b=0) == 0
        assert value("1 < 0 < a / b", a=5, b=0) is False

    def test_logic_yields_a_truth_value(self) -> None:
        assert value("4 and 8") is True
        assert value("0 or 0") is False

    @pytest.mark.parametrize("huge", [2**53 + 1, 2**62 + 1, 2**63 - 1])
    def test_rounded_quotients_of_integers_are_exact_at_any_size(self, huge: int) -> None:
        for divisor in (2, 3, 7, -3):
            down, up = huge // divisor, -(-huge // divisor)
            assert value("floor(a / b)", a=huge, b=divisor) == down
            assert value("ceil(a / b)", a=huge, b=divisor) == up
            assert value("int(a / b)", a=huge, b=divisor) == (down if divisor > 0 else up)
            assert value("ceil_div(a, b)", a=huge, b=divisor) == up

    def test_rounded_quotients_of_fractions(self) -> None:
        assert value("ceil(x / 2)", x=5.5) == 3

    def test_numpy_scalars_count_as_numbers(self) -> None:
        scope: Any = {"M": np.int64(100), "s": np.float32(0.5), "flag": np.bool_(True)}
        assert parse("M * s if flag else 0").evaluate(scope) == 50

    def test_a_number_is_an_expression(self) -> None:
        assert parse(16) == parse("16")
        assert parse(0.5).evaluate({}) == 0.5
        assert parse(-1e20).evaluate({}) == -1e20
        assert parse(True).evaluate({}) is True
        assert parse(np.float64(2.0)).evaluate({}) == 2

    def test_an_expression_of_several_lines_is_one(self) -> None:
        assert value(" 1 +\n  2\n") == 3


class TestIdentity:
    def test_expressions_with_the_same_text_are_equal(self) -> None:
        assert parse("a + b") == parse(" a + b ")
        assert len({parse("a"), parse("a"), parse("b")}) == 2
        assert str(parse("a + b")) == "a + b"

    def test_names_are_the_variables(self) -> None:
        assert parse("min(a, b) if c in (1, 2) else -a * max(d, 2 ** e) < f").names == frozenset("abcdef")

    def test_conjuncts_split_a_conjunction(self) -> None:
        texts = [part.text for part in parse("a > 1 and (b or c) and not d").conjuncts()]
        assert texts == ["a > 1", "b or c", "not d"]
        assert parse("a or b").conjuncts() == (parse("a or b"),)


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "piece"),
        [
            ("a.b", "attribute access"),
            ("a[0]", "indexing"),
            ("lambda: 1", "a lambda"),
            ("[x for x in y]", "a comprehension"),
            ("min(x for x in y)", "a comprehension"),
            ("f'{a}'", "an f-string"),
            ("(a := 3)", "an assignment"),
            ("{1: 2}", "a dictionary"),
            ("{1, 2}", "a set"),
            ("(1, 2)", "a tuple"),
            ("min(*a)", "unpacking"),
            ("min(1, 2, default=3)", "`=`"),
            ("min(1, **a)", "a keyword argument"),
            ("__import__('os').system('true')", "a call of something"),
            ("__import__('os')", "function '__import__' is not known"),
            ("eval('1')", "known functions: min, max"),
            ("open('/etc/passwd')", "function 'open'"),
            ("a & b", "use `and`"),
            ("a | b", "use `or`"),
            ("a ^ 2", "use `**`"),
            ("~a", "use `not`"),
            ("a << 2", "2 ** n"),
            ("a is b", "use `==`"),
            ("a @ b", "`@`"),
            ("a && b", "write `and`"),
            ("a || b", "write `or`"),
            ("!a", "write `not`"),
            ("a ? b : c", "a if condition else b"),
            ("a = 3", "write `==`"),
            ("016", "write 16"),
            ("a * 007", "write 7"),
            ("00", "write 0"),
            ("2j", "complex literal"),
            ("b'x'", "bytes literal"),
            ("None", "NoneType literal"),
            ("...", "ellipsis literal"),
            ("x in y", "a list of literals"),
            ("x in (1, y)", "a member of an `in` list"),
            ("1 < x in (1, 2)", "`in` within a chained comparison"),
            ("ceil(1, 2)", "ceil takes 1 argument, 2 given"),
            ("min(1)", "min takes at least 2 arguments, 1 given"),
            ("ceil_div(1)", "ceil_div takes 2 arguments, 1 given"),
            ("1 +", "cannot read"),
            ("a b", "cannot read"),
            ("import os", "cannot read"),
            ("a; b", "cannot read"),
            ("", "empty expression"),
            ("  ", "empty expression"),
            ("a\0b", "'\\x00'"),
            ("'a\\0b' == x", "control character"),
            ("a\u2028b", "cannot read"),
            ("ｅval('1')", "character"),
            ("\udcff", "is not allowed"),
            ("9" * 30, "does not fit 64 bits"),
            ("1e999", "too large"),
        ],
    )
    def test_other_syntax_naming_the_piece_and_the_place(self, text: str, piece: str) -> None:
        with pytest.raises(ExpressionError) as caught:
            parse(text, where="kernel tiled, constraint 2")
        assert piece in str(caught.value)
        assert str(caught.value).startswith("kernel tiled, constraint 2: ")

    @pytest.mark.parametrize("thing", [None, [1], {"a": 1}, object()])
    def test_what_is_no_text_or_number(self, thing: Any) -> None:
        assert "constraint 1: expected an expression or a number" in error(thing)

    def test_numbers_out_of_range(self) -> None:
        for integer in (2**63, -(2**70), 10**5000):
            assert "does not fit 64 bits" in error(integer)
        for fraction in (math.inf, math.nan):
            assert "is not a number to compute with" in error(fraction)

    @pytest.mark.parametrize(
        "text",
        [
            "9**9**9**9",
            "(" * 10_000 + ")" * 10_000,
            "(" * 400 + "1" + ")" * 400,
            "-" * 900 + "1",
            "not " * 240 + "1",
            "+".join("1" for _ in range(400)),
            "9" * 900,
            "1" + "0" * 5000,
            "2 ** 62 * 2 ** 62",
            "(2 ** 40) ** (2 ** 40)",
            "10.0 ** 400",
            "1e308 * 10",
            "'a' * 1000000000",
            "a" * 1_000_000,
            "log2(-1)",
            "(-8) ** 0.5",
            "min(" * 100 + "1" + ")" * 100,
            "\\" * 500,
            "'" * 999,
            "#" * 500,
        ],
    )
    def test_hostile_text_at_once(self, text: str) -> None:
        seconds = []
        for _ in range(3):
            begin = time.process_time()
            with pytest.raises(ExpressionError) as caught:
                parse(text).evaluate({"a": 1})
            seconds.append(time.process_time() - begin)
            assert len(str(caught.value)) < 500
        assert min(seconds) < 0.02

    def test_odd_text_that_means_something_is_harmless(self) -> None:
        assert value("(" * 150 + "1" + ")" * 150) == 1
        assert value("1 if 1 else " * 80 + "1") == 1
        assert value("'a' 'b' == 'ab'") is True

    def test_a_sum_of_a_hundred_terms_is_not_too_deep(self) -> None:
        assert value(" + ".join(["1"] * 100)) == 100


class TestNoValue:
    def test_unknown_names_come_with_the_nearest_known_one(self) -> None:
        assert (
            error("tlie * 2 < 4", tile=16, N=4)
            == "unknown name 'tlie' in 'tlie * 2 < 4'\n  did you mean 'tile'?"
        )
        assert "did you mean 'N'" in error("n < 4", tile=16, N=4)
        assert "known names: N, tile" in error("block_size", tile=16, N=4)
        assert "known names: none" in error("x")

    def test_unknown_names_are_found_where_logic_would_skip_them(self) -> None:
        assert "unknown name 'y'" in error("x or y", x=1)

    def test_a_zero_divisor_names_the_operands(self) -> None:
        assert (
            error("M % bm == 0", M=70, bm=0)
            == "division by zero in M % bm (M = 70, bm = 0), in 'M % bm == 0'"
        )
        for text in ("1 / z", "1 // z", "1 % z", "0 ** -1 + z", "ceil(1 / z)", "ceil_div(1, z)", "1.5 // z"):
            assert "division by zero" in error(text, z=0)

    def test_results_beyond_64_bits(self) -> None:
        assert value("a + 1", a=2**63 - 2) == 2**63 - 1
        assert "does not fit 64 bits in a + 1 (a = 9223372036854775807)" in error("a + 1", a=2**63 - 1)
        assert "does not fit 64 bits" in error("a * a", a=2**40)
        assert "does not fit 64 bits" in error("2 ** a", a=63)
        assert value("2 ** a", a=62) == 2**62
        assert "does not fit 64 bits" in error("ceil(a * 1.0)", a=2**63 - 1)
        assert "too large" in error("a ** 2", a=1e200)
        assert "does not fit 64 bits" in error("a", a=2**64)

    def test_text_only_compares_for_equality(self) -> None:
        for text in ("s + 1", "s < 'b'", "-s", "not s", "min(s, 1)", "1 if s else 2", "s or 1", "s * 3"):
            assert "text only takes ==, != and `in`" in error(text, s="a")

    def test_undefined_functions(self) -> None:
        assert "log2 of 0, which is not positive" in error("log2(x)", x=0)
        assert "not a real number" in error("x ** 0.5", x=-2)
        assert "ceil_div takes integers; use ceil(a / b)" in error("ceil_div(x, 2)", x=1.5)

    def test_it_is_a_configuration_error(self) -> None:
        with pytest.raises(ConfigError) as caught:
            parse("a.b")
        assert caught.value.exit_code == 2


class TestWholeNumbers:
    def test_integral_floats_count(self) -> None:
        assert parse("16.0").evaluate_int({}, what="block x") == 16
        assert type(parse("M / 16").evaluate_int({"M": 512}, what="grid x")) is int

    def test_fractions_are_refused_with_advice(self) -> None:
        with pytest.raises(ExpressionError) as caught:
            parse("M / 16").evaluate_int({"M": 500}, what="grid x")
        assert str(caught.value) == "grid x = M / 16 = 31.25 is not a whole number; use ceil_div(M, 16)"
        with pytest.raises(ExpressionError, match=r"grid x = 1.5 is not a whole number"):
            parse("1.5").evaluate_int({}, what="grid x")

    @pytest.mark.parametrize(("text", "kind"), [("'16'", "text"), ("1 < 2", "a truth value")])
    def test_other_values_are_refused(self, text: str, kind: str) -> None:
        with pytest.raises(ExpressionError, match=f"is {kind}, not a whole number"):
            parse(text).evaluate_int({}, what="grid x")


class TestExplanation:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2 * bm * bk * 4 <= 49152", "2 * bm * bk * 4 <= 49152: 65536 > 49152 (bm = 64, bk = 128)"),
            ("threads <= max_threads", "threads <= max_threads: 2048 > 1024"),
            ("threads == 2048", "threads == 2048: 2048 == 2048"),
            ("bm % 24 == 0", "bm % 24 == 0: 16 != 0 (bm = 64)"),
            ("bm > 8 and bk < bm and bk < 4", "bk < bm: 128 >= 64"),
            ("8 < bm < bk < 100", "bk < 100: 128 >= 100"),
            ("bm < 8 or bk < 8", "bm < 8 or bk < 8: none holds: bm < 8: 64 >= 8; bk < 8: 128 >= 8"),
            ("bm < 8 or bk > 8", "bk > 8: 128 > 8"),
            ("bm > 8 and bk > 8", "bm > 8: 64 > 8; bk > 8: 128 > 8"),
            ("bm in (8, 16)", "bm in (8, 16): 64 is not one of 8, 16"),
            ("bm not in (64,)", "bm not in (64,): 64 is one of 64"),
            ("bm // 2 in (8, 16)", "bm // 2 in (8, 16): 32 is not one of 8, 16 (bm = 64)"),
            ("not bm == 64", "not bm == 64: bm == 64: 64 == 64"),
            ("bm < 8 if bk > 8 else bk < 8", "bm < 8: 64 >= 8"),
            ("bm - 64", "bm - 64: 0 (bm = 64)"),
            ("ratio * 2 <= 1", "ratio * 2 <= 1: 1.5 > 1 (ratio = 0.75)"),
            ("mode == 'slow'", "mode == 'slow': 'fast' != 'slow'"),
            (
                "not mode",
                "text 'fast' as a truth value (text only takes ==, != and `in`) in not mode (mode = 'fast')",
            ),
            ("bm % zero == 0", "division by zero in bm % zero (bm = 64, zero = 0), in 'bm % zero == 0'"),
        ],
    )
    def test_puts_in_the_numbers(self, text: str, expected: str) -> None:
        scope: dict[str, Value] = {"bm": 64, "bk": 128, "threads": 2048, "max_threads": 1024}
        scope |= {"mode": "fast", "ratio": 0.75, "zero": 0}
        assert parse(text).explain(scope) == expected

    def test_unknown_names_are_errors(self) -> None:
        with pytest.raises(ExpressionError, match="unknown name 'bm'"):
            parse("bm > 1").explain({})


class TestColumns:
    def column(self, text: str, **scope: Any) -> list[Any]:
        return parse(text).evaluate_columns(scope).tolist()

    def test_evaluates_every_row(self) -> None:
        tile = np.array([8, 16, 32, 64])
        assert self.column("tile * tile <= limit", tile=tile, limit=1024) == [True, True, True, False]
        assert self.column("ceil(M / tile)", tile=tile, M=100) == [13, 7, 4, 2]

    def test_dtypes(self) -> None:
        x = np.array([1, 2], dtype=np.int16)
        assert parse("x * 1000000").evaluate_columns({"x": x}).dtype == np.int64
        assert parse("x / 2").evaluate_columns({"x": x}).dtype == np.float64
        assert parse("x > 1").evaluate_columns({"x": x}).dtype == np.bool_
        assert parse("'a' if x > 1 else 'bc'").evaluate_columns({"x": x}).tolist() == ["bc", "a"]
        assert parse("'a' if x > 1 else 2").evaluate_columns({"x": x}).tolist() == [2, "a"]

    def test_rows_without_a_value_are_false_or_zero_and_masked(self) -> None:
        scope = {"a": np.array([4, 5, 6]), "b": np.array([2, 0, 3])}
        assert self.column("a % b == 0", **scope) == [True, False, True]
        assert self.column("not a % b == 1", **scope) == [True, False, True]
        assert self.column("a // b", **scope) == [2, 0, 2]
        values, missing = parse("a / b").evaluate_columns_masked(scope)
        assert values.tolist() == [2.0, 0.0, 2.0]
        assert missing.tolist() == [False, True, False]

    def test_rows_that_logic_skips_have_a_value(self) -> None:
        scope = {"a": np.array([4, 5, 6]), "b": np.array([2, 0, 4])}
        assert self.column("b == 0 or a % b == 0", **scope) == [True, True, False]
        assert self.column("b != 0 and a % b == 0", **scope) == [True, False, False]
        assert self.column("-1 if b == 0 else a // b", **scope) == [2, -1, 1]

    @pytest.mark.parametrize("text", ["a * a", "a + a + a", "a ** 3", "-a - a - a", "abs(a) * 2 ** 32"])
    def test_never_wraps(self, text: str) -> None:
        a = np.array([3, 2**31, 2**62, -(2**62)])
        values, missing = parse(text).evaluate_columns_masked({"a": a})
        for row, number in enumerate(a.tolist()):
            try:
                expected = parse(text).evaluate({"a": number})
            except ExpressionError:
                assert missing[row]
            else:
                assert values[row] == expected
                assert not missing[row]

    def test_big_integers_compare_and_divide_exactly(self) -> None:
        a = np.array([2**53, 2**53 + 1, 2**62 + 1])
        assert self.column("a == 9007199254740992.0", a=a) == [True, False, False]
        assert self.column("a / 3", a=a) == [int(x) / 3 for x in a]
        assert self.column("floor(a / 3) * 3 + a % 3 == a", a=a) == [True, True, True]

    def test_fractions(self) -> None:
        x = np.array([-1.5, 0.25, 4.0])
        assert self.column("min(x, 1.0, x * 2)", x=x) == [-3.0, 0.25, 1.0]
        assert self.column("max(x, 1.0)", x=x) == [1.0, 1.0, 4.0]
        assert self.column("max(x, 1)", x=x) == [1.0, 1.0, 4.0]
        assert self.column("abs(x)", x=x) == [1.5, 0.25, 4.0]
        assert self.column("x ** 2", x=x) == [2.25, 0.0625, 16.0]
        assert self.column("log2(abs(x))", x=x) == [math.log2(1.5), -2.0, 2.0]
        assert self.column("ceil(x / 2)", x=x) == [0, 1, 2]
        assert self.column("int(x) * 10 + floor(x)", x=x) == [-12, 0, 44]
        assert self.column("x // 0.5 + x % 0.5", x=x) == [-3.0, 0.25, 8.0]
        assert parse("x / y").evaluate_columns_masked({"x": x, "y": x - 4})[1].tolist() == [
            False,
            False,
            True,
        ]
        assert parse("ceil(x * 1e18)").evaluate_columns_masked({"x": x * 3})[1].tolist() == [
            False,
            False,
            True,
        ]

    def test_columns_of_several_types(self) -> None:
        mixed = np.array([4, "auto", 0.5], dtype=object)
        assert self.column("m == 'auto' or m * 2 > 4", m=mixed) == [True, True, False]
        texts = parse("m if m == 'auto' else 'fixed'").evaluate_columns({"m": mixed})
        assert texts.tolist() == ["fixed", "auto", "fixed"]
        assert texts.dtype.kind == "U"

    def test_unsigned_columns(self) -> None:
        values, missing = parse("a + 0").evaluate_columns_masked({"a": np.array([1, 2**63], dtype=np.uint64)})
        assert values.tolist() == [1, 0]
        assert missing.tolist() == [False, True]

    def test_infinite_values_are_no_values(self) -> None:
        x = np.array([1.0, np.inf, np.nan])
        assert parse("x > 0").evaluate_columns_masked({"x": x})[1].tolist() == [False, True, True]
        assert parse("x > 0").evaluate_columns({"x": math.inf}).tolist() == [False]

    def test_plain_values_make_one_row(self) -> None:
        assert self.column("a * 2", a=3) == [6]
        assert self.column("a * 2", a=np.array(3)) == [6]
        assert self.column("'x'") == ["x"]
        assert self.column("1 / 0") == [0]

    def test_no_rows_stay_none(self) -> None:
        assert self.column("a * a ** b % 3 < 2", a=np.array([], dtype=np.int64), b=4) == []

    def test_text_in_arithmetic_is_an_error_naming_the_row(self) -> None:
        with pytest.raises(ExpressionError, match=r"text 'a' under `<` \(text only takes .*\) in s < 3"):
            self.column("s < 3", s=np.array(["a", "b"]))
        for text in ("not s", "s + 1", "min(s, 1)", "ceil(s / 2)", "s and True"):
            with pytest.raises(ExpressionError, match="text only takes"):
                self.column(text, s=np.array(["a", "b"]))
        with pytest.raises(ExpressionError, match="ceil_div takes integers"):
            self.column("ceil_div(x, y)", x=np.array([1.5]), y=np.array([0.5]))
        mixed = np.array([4, "auto"], dtype=object)
        assert self.column("s == 'auto' or s < 3", s=mixed) == [False, True]
        with pytest.raises(ExpressionError, match="'auto'"):
            self.column("s < 3", s=mixed)

    def test_unknown_names_and_unequal_lengths(self) -> None:
        with pytest.raises(ExpressionError, match="did you mean 'tile'"):
            self.column("tlie", tile=np.arange(3))
        with pytest.raises(ValueError, match="different lengths"):
            self.column("a + b", a=np.arange(3), b=np.arange(4))


def _as_columns(scope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: np.array(v, dtype=COLUMN_TYPES[name]) if isinstance(v, list) else v for name, v in scope.items()
    }


def _outcome(expression: Expression, scope: Mapping[str, Any], row: int) -> Value | ExpressionError:
    try:
        return expression.evaluate({name: v[row] if isinstance(v, list) else v for name, v in scope.items()})
    except ExpressionError as no_value:
        return no_value


def _is_about_types(no_value: ExpressionError) -> bool:
    return "text only takes" in str(no_value) or "ceil_div takes integers" in str(no_value)


class TestColumnsMeanWhatRowsMean:
    @settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TREES, SCOPES)
    def test_for_any_expression(self, tree: Node, scope: dict[str, Any]) -> None:
        expression = parse(render(tree))
        rows = ROWS if any(isinstance(scope[name], list) for name in expression.names) else 1
        expected = [_outcome(expression, scope, row) for row in range(rows)]
        # An operation on text in any row is an error of the whole column.
        mistyped = next(
            (str(e) for e in expected if isinstance(e, ExpressionError) and _is_about_types(e)), None
        )
        if mistyped is not None:
            with pytest.raises(ExpressionError) as caught:
                expression.evaluate_columns(_as_columns(scope))
            assert str(caught.value) == mistyped
            return
        values, missing = expression.evaluate_columns_masked(_as_columns(scope))
        assert len(values) == rows
        for got, none, want in zip(values.tolist(), missing.tolist(), expected, strict=True):
            assert none == isinstance(want, ExpressionError)
            assert got == want or (none and not got)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TREES, SCOPES)
    def test_any_expression_survives_its_text_and_can_be_explained(
        self, tree: Node, scope: dict[str, Any]
    ) -> None:
        expression = parse(render(tree))
        assert parse(render(expression.tree)).tree == expression.tree
        first_row = {name: v[0] if isinstance(v, list) else v for name, v in scope.items()}
        assert expression.explain(first_row)
