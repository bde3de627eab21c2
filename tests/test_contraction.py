from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.errors import KernelError
from sweeper.problem.contraction import evaluate, parse_contraction, rectangles, take

MATRICES = [("A", (4, 6)), ("B", (6, 5))]


def parsed(text="mk,kn->mn", inputs=tuple(MATRICES), output=("C", (4, 5))):
    return parse_contraction(text, list(inputs), output, where="kernel tiled")


def test_letters_take_their_sizes_from_the_arrays():
    product = parsed()
    assert product.operands == ("mk", "kn")
    assert product.output == "mn"
    assert product.sizes == {"m": 4, "k": 6, "n": 5}
    assert product.terms == 6


def test_spaces_in_the_text_do_not_matter():
    assert parsed("m k, k n -> m n").operands == ("mk", "kn")


@pytest.mark.parametrize(
    ("text", "inputs", "output", "named"),
    [
        ("mk,kn", MATRICES, ("C", (4, 5)), "one `->`"),
        ("mk;kn->mn", MATRICES, ("C", (4, 5)), "one `->`"),
        ("mk,kn->mn->mn", MATRICES, ("C", (4, 5)), "one `->`"),
        ("m2,2n->mn", MATRICES, ("C", (4, 5)), "one `->`"),
        ("mk,kn,n->mn", MATRICES, ("C", (4, 5)), "3 operands, but the kernel has 2 input arrays (A, B)"),
        ("mk->m", [], ("C", (4,)), "has 0 input arrays (none)"),
        ("mk,kn->mn", [("A", (4, 6)), ("B", (7, 5))], ("C", (4, 5)), "axis 0 of B has 7"),
        ("mk,kn->mn", MATRICES, ("C", (5, 4)), "'m' is 4 before, but axis 0 of C has 5"),
        ("mk,k->mn", [("A", (4, 6)), ("B", (6,))], ("C", (4, 5)), "the output's letter 'n' is in no operand"),
        ("mk,kn->mm", MATRICES, ("C", (4, 4)), "the letter 'm' twice"),
        ("mkl,kn->mn", MATRICES, ("C", (4, 5)), "'mkl' has 3 axes, but A has 2"),
        ("mk,kn->m", MATRICES, ("C", (4, 5)), "'m' has 1 axes, but C has 2"),
        ("mk,kn->", MATRICES, ("C", (4, 5)), "'' has 0 axes, but C has 2"),
    ],
)
def test_a_text_that_does_not_fit_is_an_error_that_names_the_piece(text, inputs, output, named):
    with pytest.raises(KernelError) as raised:
        parsed(text, inputs, output)
    assert named in str(raised.value)
    assert "kernel tiled" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "shapes", "output", "flops"),
    [
        ("mk,kn->mn", [(4, 6), (6, 5)], (4, 5), 2 * 4 * 5 * 6),
        ("bmk,bkn->bmn", [(3, 4, 6), (3, 6, 5)], (3, 4, 5), 2 * 3 * 4 * 5 * 6),
        ("mk,kl,ln->mn", [(4, 6), (6, 7), (7, 5)], (4, 5), 3 * 4 * 6 * 7 * 5),
        ("n,n->n", [(9,), (9,)], (9,), 9),
        ("n,n->", [(9,), (9,)], (1,), 18),
        ("n->", [(9,)], (1,), 9),
        ("mn->nm", [(4, 6)], (6, 4), 0),
    ],
)
def test_flops_count_multiplications_and_additions(text, shapes, output, flops):
    inputs = [(f"x{i}", shape) for i, shape in enumerate(shapes)]
    assert parsed(text, inputs, ("y", output)).flops == flops


def test_flops_are_exact_where_64_bits_would_wrap():
    n = 3_000_000
    product = parsed(inputs=[("A", (n, n)), ("B", (n, n))], output=("C", (n, n)))
    assert product.flops == 54_000_000_000_000_000_000 > 2**63


def sizes_of(letters, sizes):
    return tuple(sizes[letter] for letter in letters)


def assert_like_einsum(text, sizes, dtype=np.float64):
    operands, output = text.split("->")
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-1, 1, sizes_of(letters, sizes)).astype(dtype) for letters in operands.split(",")]
    inputs = [(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    contraction = parse_contraction(text, inputs, ("y", sizes_of(output, sizes)), where="here")
    result = evaluate(contraction, arrays)
    expected = np.einsum(text, *(a.astype(np.float64) for a in arrays))
    assert result.dtype == dtype
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "mk,kn->mn",
        "km,kn->mn",
        "mk,nk->mn",
        "km,nk->mn",
        "mk,kn->nm",
        "bmk,bkn->bmn",
        "mbk,kbn->bmn",
        "bmk,kn->bmn",
        "mk,k->m",
        "k,kn->n",
        "n,n->n",
        "n,n->",
        "m,n->mn",
        "n->",
        "mn->nm",
        "mn->m",
        "mm->m",
        "mm,mn->n",
        "mk,kl,ln->mn",
        "mk,mk,mk->m",
        "mkl,knl->mn",
        "ab,cd->abcd",
        "mkz,kn->mn",
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_those_of_einsum(text, dtype):
    sizes = {"m": 4, "n": 5, "k": 6, "l": 3, "b": 2, "z": 4, "a": 2, "c": 3, "d": 4}
    assert_like_einsum(text, sizes, dtype)


@st.composite
def contractions(draw):
    operand = st.text("abcde", min_size=1, max_size=4)
    operands = draw(st.lists(operand, min_size=1, max_size=3))
    letters = sorted(set("".join(operands)))
    output = "".join(draw(st.lists(st.sampled_from(letters), unique=True, max_size=3)))
    sizes = {letter: draw(st.integers(1, 4)) for letter in letters}
    return f"{','.join(operands)}->{output}", sizes


@settings(max_examples=200, deadline=None)
@given(contractions())
def test_any_contraction_gives_what_einsum_gives(case):
    assert_like_einsum(*case)


@pytest.mark.parametrize(("m", "k", "n"), [(70, 130, 65), (1, 5000, 64), (129, 64, 64), (64, 64, 65)])
def test_a_product_in_cubes_is_the_product(m, k, n):
    assert_like_einsum("mk,kn->mn", {"m": m, "k": k, "n": n})


def test_taking_rows_and_columns_gives_that_part_of_the_result():
    rng = np.random.default_rng(2)
    a, b = rng.uniform(-1, 1, (6, 4)), rng.uniform(-1, 1, (5, 6))
    contraction = parse_contraction("km,nk->nm", [("A", (6, 4)), ("B", (5, 6))], ("C", (5, 4)), where="here")
    rows, columns = np.array([0, 3]), np.array([1, 2, 3])
    part = evaluate(contraction, take(contraction, [a, b], {"n": rows, "m": columns}))
    np.testing.assert_allclose(part, (b @ a)[np.ix_(rows, columns)])


def covered(mask):
    cover = np.zeros(mask.shape, int)
    for rows, columns in rectangles(mask):
        cover[np.ix_(rows, columns)] += 1
    return cover


def test_tiles_are_covered_exactly_once_and_nothing_else_is():
    mask = np.zeros((200, 300), bool)
    for row, column in [(0, 0), (0, 64), (64, 128), (136, 236), (136, 0)]:
        mask[row : row + 64, column : column + 64] = True
    assert (covered(mask) == mask).all()
    assert len(rectangles(mask)) == 3


def test_scattered_elements_are_covered_by_few_rectangles():
    mask = np.random.default_rng(3).random((500, 400)) < 0.1
    assert (covered(mask)[mask] == 1).all()
    assert len(rectangles(mask)) == 1


def test_an_empty_mask_needs_no_rectangle():
    assert rectangles(np.zeros((4, 4), bool)) == []
