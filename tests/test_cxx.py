"""Reading C++ without a compiler: what is a name, what is text, what is a directive."""

from __future__ import annotations

from sweeper.source.cxx import tokenize
from sweeper.source.cxx_integer import integer_constants, integer_value


def words(text: str) -> list[str]:
    return [token.text for token in tokenize(text).tokens]


def test_comments_hold_no_names() -> None:
    text = "int a; // HIDDEN int b;\n/* MORE\n HIDDEN */ int c;"
    assert words(text) == ["int", "a", ";", "int", "c", ";"]


def test_a_comment_continued_by_a_backslash_hides_the_next_line() -> None:
    assert words("// one \\\n HIDDEN\nint a;") == ["int", "a", ";"]


def test_an_unterminated_comment_hides_the_rest() -> None:
    assert words("int a; /* HIDDEN") == ["int", "a", ";"]


def test_strings_and_characters_are_one_token_each() -> None:
    text = r"""x = "a \" // b" + '"' + 'c';"""
    kinds = [t.kind for t in tokenize(text).tokens]
    assert kinds == ["name", "sign", "string", "sign", "char", "sign", "char", "sign"]


def test_a_raw_string_ends_at_its_own_delimiter() -> None:
    text = 'asm(R"ptx( mov.u32 "x" )" ; )ptx" : "=r"(y));'
    assert [t.text for t in tokenize(text).tokens if t.kind == "name"] == ["asm", "y"]


def test_digit_separators_do_not_open_a_character() -> None:
    assert words("int n = 1'000'000; int m = 2;")[3] == "1'000'000"


def test_numbers_keep_their_signs_and_suffixes() -> None:
    assert [t.text for t in tokenize("1.5e-3f 0x1F 10ull .5").tokens] == ["1.5e-3f", "0x1F", "10ull", ".5"]


def test_tokens_know_their_line() -> None:
    assert [t.line for t in tokenize("a\n/* \n */ b\n\nc").tokens] == [1, 3, 5]


def test_directives_are_apart_from_code_and_keep_continuations() -> None:
    read = tokenize("#define SUM(a, b) \\\n  ((a) + (b))\nint x = SUM(1, 2);\n")
    (define,) = read.directives
    assert (define.name, define.line) == ("define", 1)
    assert define.text == "SUM ( a , b ) ( ( a ) + ( b ) )"
    assert [t.text for t in read.tokens][:2] == ["int", "x"]


def test_a_hash_inside_a_line_is_no_directive() -> None:
    assert tokenize("x = a #b;").directives == ()


def test_an_empty_directive_is_harmless() -> None:
    assert [d.name for d in tokenize("#\n#define A 1\n").directives] == ["", "define"]


def test_code_under_if_0_does_not_count() -> None:
    read = tokenize(
        "#if 0\nint hidden;\n#define HIDDEN 1\n# if 1\nint deeper;\n# endif\n#else\nint seen;\n#endif\n"
    )
    assert "seen" in read.names
    assert not {"hidden", "HIDDEN", "deeper"} & read.names


def test_an_include_guard_is_not_a_condition() -> None:
    read = tokenize(
        '#ifndef GUARD_H\n#define GUARD_H\n#include "a.cuh"\n#ifdef FAST\n#include "b.cuh"\n#endif\n#endif\n'
    )
    conditional = {d.text: d.conditional for d in read.directives if d.name == "include"}
    assert conditional == {'"a.cuh"': False, '"b.cuh"': True}


def test_a_stray_endif_or_else_does_not_break_reading() -> None:
    assert words("#endif\n#else\nint a;") == ["int", "a", ";"]


def test_names_include_those_of_directives() -> None:
    assert tokenize("#if BM > 64\n#define ROWS (BM / TM)\n#endif\n").names >= {"BM", "ROWS", "TM"}


def test_integer_expressions_have_their_c_value() -> None:
    values = {"BM": 128, "TM": 8}
    assert integer_value(["(", "BM", "/", "TM", ")", "*", "2", "+", "1"], values) == 33
    assert integer_value(["-", "7", "/", "2"], {}) == -3
    assert integer_value(["-", "7", "%", "2"], {}) == -1
    assert integer_value(["1'024u", "-", "24"], {}) == 1000


def test_what_is_not_plain_arithmetic_has_no_value() -> None:
    for text in ("a ? 1 : 2", "1 << 4", "0x10", "010", "f ( 3 )", "1 / 0", "( 1", "UNKNOWN", ""):
        assert integer_value(text.split(), {"a": 1}) is None, text


def test_constants_of_a_file_are_followed() -> None:
    file = tokenize(
        "#define WARPS 4\n#define THREADS (32 * WARPS)\n#define LOOSE 1 + 1\n#define CALL(x) (x)\n"
        "constexpr int kRows = THREADS / 2;\nstatic const unsigned kBoth = 3, other = 4;\n"
    )
    constants = integer_constants([file])
    assert integer_value(["THREADS"], {}, constants) == 128
    assert integer_value(["kRows"], {}, constants) == 64
    assert integer_value(["kBoth"], {}, constants) == 3
    assert "LOOSE" not in constants
    assert integer_value(["CALL"], {}, constants) is None


def test_a_constant_with_two_values_or_made_of_itself_has_none() -> None:
    constants = integer_constants(
        [tokenize("#ifdef A\n#define N 1\n#else\n#define N 2\n#endif\n#define X X\n")]
    )
    assert integer_value(["N"], {}, constants) is None
    assert integer_value(["X"], {}, constants) is None
