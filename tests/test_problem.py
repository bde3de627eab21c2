from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from specs import array, contraction, gemm_spec, launch, python_reference, saxpy_spec, scalar, spec

from sweeper.errors import ConfigError, ExpressionError, KernelError
from sweeper.expressions import parse
from sweeper.model import Point, ReferenceSpec
from sweeper.problem import resolve

DIMS = {"M": 24, "N": 40, "K": 16}


def gemm(dims=None, seed=7, **changes):
    return resolve(gemm_spec(**changes), dims or DIMS, None, seed=seed)


def test_arguments_keep_the_kernels_order():
    problem = gemm()
    assert [a.name for a in problem.args] == ["A", "B", "C", "M", "N", "K"]
    assert [a.name for a in problem.arrays] == ["A", "B", "C"]
    assert [(s.name, type(s.value), s.value) for s in problem.scalars] == [
        ("M", np.int32, 24),
        ("N", np.int32, 40),
        ("K", np.int32, 16),
    ]
    assert [a.name for a in problem.outputs] == ["C"]


def test_flops_and_bytes_of_a_matrix_product():
    problem = gemm()
    assert problem.flops == 2 * 24 * 40 * 16
    assert problem.bytes == problem.total_bytes == 4 * (24 * 16 + 16 * 40 + 24 * 40)


def test_flops_and_bytes_are_exact_at_any_size():
    n = 200_000
    problem = gemm({"M": n, "N": n, "K": n}, dtype="float64")
    assert problem.flops == 2 * n**3 == 16_000_000_000_000_000
    assert problem.bytes == 3 * 8 * n * n
    n = 10_000_000
    assert gemm({"M": n, "N": n, "K": n}, dtype="float64").flops == 2 * 10**21 > 2**63


def test_an_output_of_another_class_has_its_own_bytes():
    assert gemm(dtype="int8", output="int32").bytes == 24 * 16 + 16 * 40 + 4 * 24 * 40


def test_an_array_that_is_read_and_written_counts_twice_and_is_allocated_once():
    problem = resolve(saxpy_spec(), {"N": 100}, None, seed=0)
    assert problem.bytes == 4 * 100 * 3
    assert problem.total_bytes == 4 * 100 * 2
    assert problem.flops == 200


def test_a_description_may_state_its_own_flops():
    assert gemm(work_flops=parse("M * N * K")).flops == 24 * 40 * 16


def test_flops_nobody_knows_are_none():
    assert resolve(saxpy_spec(work_flops=None), {}, None, seed=0).flops is None


def test_inputs_are_the_arrays_that_are_read():
    assert list(gemm().inputs()) == ["A", "B"]
    assert list(resolve(saxpy_spec(), {}, None, seed=0).inputs()) == ["x", "y"]


def test_inputs_do_not_depend_on_the_order_of_the_arguments():
    described = gemm_spec()
    args = described.args
    swapped = replace(described, args=(args[1], args[0], *args[2:]), reference=contraction("kn,mk->mn"))
    first, second = (resolve(s, DIMS, None, seed=7).inputs() for s in (described, swapped))
    assert all(first[name].tobytes() == second[name].tobytes() for name in ("A", "B"))


def test_the_seed_decides_the_inputs():
    assert gemm(seed=1).inputs()["A"].tobytes() == gemm(seed=1).inputs()["A"].tobytes()
    assert gemm(seed=1).inputs()["A"].tobytes() != gemm(seed=2).inputs()["A"].tobytes()


def test_equal_problems_have_equal_keys():
    assert gemm().key == gemm().key
    assert gemm({"K": 16, "N": 40, "M": 24}).key == gemm().key


@pytest.mark.parametrize(
    "other",
    [
        {"dims": {"M": 24, "N": 40, "K": 17}},
        {"seed": 8},
        {"dtype": "tf32"},
        {"output": "float64"},
        {"fill": "normal"},
    ],
)
def test_the_key_tells_problems_apart(other):
    assert gemm(**other).key != gemm().key


def test_a_scalars_value_is_part_of_the_key():
    keys = set()
    for value in (2.5, 3.5):
        args = saxpy_spec().args
        keys.add(
            resolve(saxpy_spec(args=(args[0], scalar("a", value, None), *args[2:])), {}, None, seed=0).key
        )
    assert len(keys) == 2


@pytest.mark.parametrize("precision", ["float64", "float32", "tf32", "float16", "bfloat16", "int8", "int32"])
def test_every_class_makes_the_whole_trip(precision):
    problem = gemm(dtype=precision, output="int32" if precision == "int8" else None)
    inputs = problem.inputs()
    reference = problem.reference(inputs)
    c = problem.outputs[0]
    right = reference["C"].values.astype(c.dtype.storage)
    assert problem.check({"C": right}, reference).passed
    assert not problem.check({"C": problem.poison(c)}, reference).passed
    wrong = right.copy()
    wrong[3, 4] = wrong[3, 4] + wrong.dtype.type(1)
    assert not problem.check({"C": wrong}, reference).passed


def test_a_sampled_run_is_checked_by_what_it_wrote():
    problem = gemm({"M": 100, "N": 100, "K": 64})
    inputs = problem.inputs()
    got = problem.poison(problem.outputs[0])
    tile = np.s_[80:96, 16:32]
    got[tile] = (inputs["A"] @ inputs["B"])[tile]
    written = {"C": ~problem.is_poison(got)}
    check = problem.check({"C": got}, problem.reference_where(inputs, written), written)
    assert check.passed
    assert check.checked == 256


def test_a_run_that_wrote_nothing_fails():
    problem = gemm()
    got = problem.poison(problem.outputs[0])
    written = {"C": ~problem.is_poison(got)}
    check = problem.check({"C": got}, problem.reference_where(problem.inputs(), written), written)
    assert not check.passed
    assert check.note == "no element of C was written"


@pytest.mark.parametrize("reorder", [np.asfortranarray, lambda a: np.ascontiguousarray(a.T).T])
def test_fortran_ordered_and_transposed_inputs_become_contiguous(reorder):
    problem = gemm({"M": 8, "N": 4, "K": 6})
    inputs = problem.inputs()
    strided = {"A": reorder(inputs["A"]), "B": inputs["B"]}
    assert not strided["A"].flags.c_contiguous
    conformed = problem.conform(strided)
    assert conformed["A"].flags.c_contiguous
    assert np.array_equal(conformed["A"], inputs["A"])
    assert np.array_equal(problem.reference(strided)["C"].values, problem.reference(inputs)["C"].values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda i: i | {"A": i["A"].astype(np.float64)}, "input A (float32 24×16) was given as float64"),
        (lambda i: i | {"A": i["A"].T}, "was given as float32 (16, 24)"),
        (lambda i: {"A": i["A"]}, "inputs of tiled are A, B, given are A"),
        (lambda i: i | {"D": i["A"]}, "given are A, B, D"),
    ],
)
def test_inputs_of_another_type_shape_or_name_are_an_error(change, said):
    problem = gemm()
    with pytest.raises(ConfigError) as raised:
        problem.reference(change(problem.inputs()))
    assert said in str(raised.value)


def test_a_size_below_one_is_an_error():
    with pytest.raises(ConfigError, match=r"shape\.m = 0: must be at least 1"):
        gemm({"M": 0, "N": 1, "K": 1})


def test_a_scalar_its_type_cannot_hold_is_an_error():
    described = gemm_spec()
    with pytest.raises(ConfigError, match="beyond int32"):
        resolve(described, {"M": 2**31, "N": 1, "K": 1}, None, seed=0)


def test_a_shape_may_depend_on_a_parameter():
    described = spec(
        "padded",
        [array("x", ["N"]), array("y", ["ceil(N / tile) * tile"], "out")],
        reference=python_reference(saxpy_spec().reference.path),
        dims=["N"],
    )
    problem = resolve(described, {"N": 100}, Point.of({"tile": 32}), seed=0)
    assert problem.outputs[0].shape == (128,)
    with pytest.raises(ExpressionError, match="tile"):
        resolve(described, {"N": 100}, None, seed=0)


def saxpy(x, y, a=2.5):
    return np.float32(a) * x + y


def saxpy_problem(n=4096, **changes):
    problem = resolve(saxpy_spec(**changes), {"N": n}, None, seed=5)
    inputs = problem.inputs()
    return problem, inputs, problem.reference(inputs)


def test_a_right_saxpy_passes():
    problem, inputs, reference = saxpy_problem()
    check = problem.check({"y": saxpy(**inputs)}, reference)
    assert check.passed
    assert 0 < check.error_ratio < 0.5


@pytest.mark.parametrize("wrong", [lambda y: y + 1e-5, lambda y: y + 1, lambda y: y * 0, lambda y: -y])
def test_one_wrong_element_of_saxpy_fails(wrong):
    problem, inputs, reference = saxpy_problem()
    y = saxpy(**inputs)
    y[123] = wrong(y[123])
    check = problem.check({"y": y}, reference)
    assert (check.passed, check.wrong, check.error_index) == (False, 1, (123,))


def test_saxpy_in_half_precision_passes_and_fails_too():
    problem, inputs, reference = saxpy_problem(dtype="float16")
    y = np.float16(2.5) * inputs["x"] + inputs["y"]
    assert problem.check({"y": y}, reference).passed
    y[123] += np.float16(0.25)
    assert not problem.check({"y": y}, reference).passed


def test_a_python_reference_gets_scalars_as_the_kernel_gets_them(tmp_path):
    path = tmp_path / "r.py"
    path.write_text(
        "import numpy as np\n"
        "def reference(a, n, x, y):\n"
        "    assert (type(a), type(n)) == (float, int)\n"
        "    assert a == float(np.float32(0.1)) and n == len(x)\n"
        "    return a * x + y\n"
    )
    args = saxpy_spec().args
    problem = resolve(saxpy_spec(path, args=(args[0], scalar("a", 0.1, None), *args[2:])), {}, None, seed=5)
    inputs = problem.inputs()
    assert problem.check({"y": saxpy(**inputs, a=0.1)}, problem.reference(inputs)).passed


def test_a_bfloat16_scalar_reaches_python_as_a_number():
    problem, inputs, reference = saxpy_problem(dtype="bfloat16")
    y = ml_dtypes.bfloat16(2.5) * inputs["x"] + inputs["y"]
    assert y.dtype == ml_dtypes.bfloat16
    assert problem.check({"y": y}, reference).passed


@pytest.mark.parametrize("count", [1000, 200_000])
def test_a_sum_by_a_python_reference_allows_for_its_length(tmp_path, count):
    path = tmp_path / "r.py"
    path.write_text("def reference(x): return x.sum()\n")
    described = spec(
        "total", [array("x", ["N"]), array("y", [1], "out")], reference=python_reference(path), dims=["N"]
    )
    problem = resolve(described, {"N": count}, None, seed=5)
    inputs = problem.inputs()
    total = np.add.accumulate(inputs["x"])[-1:]
    reference = problem.reference(inputs)
    assert problem.check({"y": total}, reference).passed
    assert not problem.check({"y": total + np.float32(1)}, reference).passed


def test_a_convolution_by_a_python_reference_passes_and_misses_no_tap(tmp_path):
    path = tmp_path / "r.py"
    path.write_text("import numpy as np\ndef reference(x, w): return np.convolve(x, w, 'valid')\n")
    described = spec(
        "convolution",
        [array("x", ["N + W - 1"]), array("w", ["W"]), array("y", ["N"], "out")],
        reference=python_reference(path),
        dims=["N", "W"],
    )
    problem = resolve(described, {"N": 2000, "W": 289}, None, seed=5)
    inputs = problem.inputs()
    y = np.zeros(2000, np.float32)
    for tap in range(289):
        y += inputs["x"][tap : tap + 2000] * inputs["w"][288 - tap]
    reference = problem.reference(inputs)
    assert problem.check({"y": y}, reference).passed
    assert not problem.check({"y": y - inputs["x"][:2000] * inputs["w"][288]}, reference).passed


def plain_reference(**changes):
    plain = ReferenceSpec("kernel", "naive", launch=launch([16, 16], ["N", "M"]))
    return gemm(dims={"M": 16, "N": 16, "K": 4096}, reference=plain, **changes)


def test_a_plain_kernels_results_become_the_reference():
    problem = plain_reference()
    inputs = problem.inputs()
    a, b = inputs["A"], inputs["B"]
    forwards, backwards = np.zeros((2, 16, 16), np.float32)
    for k in range(4096):
        forwards += a[:, k, None] * b[k]
        backwards += a[:, 4095 - k, None] * b[4095 - k]
    reference = problem.reference_from({"C": forwards})
    assert problem.check({"C": backwards}, reference).passed
    backwards[1, 2] += 0.5
    assert problem.check({"C": backwards}, reference).wrong == 1


def test_a_plain_kernels_integers_are_exact():
    problem = plain_reference(dtype="int32")
    c = np.arange(256, dtype=np.int32).reshape(16, 16)
    reference = problem.reference_from({"C": c})
    assert problem.check({"C": c}, reference).passed
    assert not problem.check({"C": c + 1}, reference).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_plain_kernel_that_gives_no_numbers_is_no_reference(bad):
    c = np.zeros((16, 16), np.float32)
    c[3, 3] = bad
    with pytest.raises(ConfigError, match="input range"):
        plain_reference().reference_from({"C": c})


def test_a_plain_kernels_reference_cannot_be_computed_here():
    problem = plain_reference()
    with pytest.raises(KernelError, match="the reference of tiled is the kernel naive"):
        problem.reference(problem.inputs())


def test_a_missing_result_of_the_plain_kernel_is_an_error():
    with pytest.raises(KernelError, match=r"output C .* was not fetched"):
        plain_reference().reference_from({})
