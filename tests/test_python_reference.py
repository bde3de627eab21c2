from __future__ import annotations

import sys

import numpy as np
import pytest
from specs import array

from sweeper.dtypes import dtype
from sweeper.errors import KernelError
from sweeper.problem.arguments import resolve_array
from sweeper.problem.python_reference import PythonReference

X = np.arange(4, dtype=np.float32)


def out(name="y", shape=(4,)):
    return resolve_array(array(name, shape, "out"), dtype("float32"), {})


@pytest.fixture
def write(tmp_path):
    def written(text, name="reference.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def result(path, function="f", outputs=None, **scalars):
    return PythonReference(path, function)({"x": X}, scalars, outputs or [out()])


def test_the_function_gets_float64_arrays_and_scalars_by_name(write):
    path = write("def f(a, x):\n    assert x.dtype == 'float64'\n    return a * x\n")
    assert np.array_equal(result(path, a=2.0, n=4)["y"], [0, 2, 4, 6])


def test_a_function_of_any_keywords_gets_everything(write):
    path = write("def f(**given):\n    assert set(given) == {'x', 'a', 'n'}\n    return given['x']\n")
    assert np.array_equal(result(path, a=2.0, n=4)["y"], X)


def test_a_function_may_change_its_arrays_without_harm(write):
    path = write("def f(x):\n    x += 1\n    return x\n")
    assert np.array_equal(result(path)["y"], [1, 2, 3, 4])
    assert np.array_equal(X, [0, 1, 2, 3])


def test_defaults_and_rest_arguments_are_optional(write):
    path = write("def f(x, *rest, offset=1):\n    return x + offset\n")
    assert np.array_equal(result(path)["y"], [1, 2, 3, 4])


def test_several_outputs_come_as_a_dict(write):
    path = write("def f(x):\n    return {'y': x, 'z': x.sum()}\n")
    values = result(path, outputs=[out(), out("z", (1,))])
    assert np.array_equal(values["y"], X)
    assert values["z"].shape == (1,)
    assert values["z"] == 6


def test_integers_and_truth_values_become_float64(write):
    path = write("def f(x):\n    return x > 1\n")
    assert result(path)["y"].dtype == np.float64


def test_a_file_is_read_again_each_time_and_leaves_no_cache(write, tmp_path):
    assert result(write("def f(x): return x + 1\n"))["y"][0] == 1
    assert result(write("def f(x): return x + 2\n"))["y"][0] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["reference.py"]


def test_files_of_one_name_do_not_meet(write, tmp_path):
    (tmp_path / "other").mkdir()
    first, second = write("def f(x): return x\n"), write("def f(x): return -x\n", "other/reference.py")
    one, two = PythonReference(first, "f"), PythonReference(second, "f")
    assert one({"x": X}, {}, [out()])["y"][1] == 1
    assert two({"x": X}, {}, [out()])["y"][1] == -1
    assert "reference" not in sys.modules


def test_a_dataclass_in_the_file_works(write):
    path = write(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Two:\n    x: float\ndef f(x): return Two(x).x\n"
    )
    assert np.array_equal(result(path)["y"], X)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def g(x): return x\n", "no such function"),
        ("f = 3\n", "no such function"),
        ("def f(x) return x\n", "SyntaxError"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("def f(x): return x[9]\n", "IndexError: index 9 is out of bounds"),
        ("def f(w): return w\n", "takes 'w', which is no input of the kernel"),
        ("def f(x, /): return x\n", "TypeError"),
        ("def f(x): return x[:3]\n", "y has shape (3,), expected (4,)"),
        ("def f(x): return x * 1j\n", "y is of type complex128"),
        ("def f(x): return 'text'\n", "y is of type"),
        ("def f(x): return [[1], [2, 3]]\n", "ValueError"),
        ("def f(x): return None\n", "y is of type object"),
        ("def f(x): return {'z': x}\n", "returned no 'y', only 'z'"),
    ],
)
def test_whatever_goes_wrong_names_the_file_and_the_function(write, text, said):
    path = write(text)
    with pytest.raises(KernelError) as raised:
        result(path)
    assert said in str(raised.value)
    assert f"reference f of {path}" in str(raised.value)


def test_one_array_for_several_outputs_is_an_error(write):
    with pytest.raises(KernelError, match="must return a dict with the keys y, z"):
        result(write("def f(x): return x\n"), outputs=[out(), out("z")])


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(KernelError, match=r"gone\.py: no such file"):
        PythonReference(tmp_path / "gone.py", "f")


def test_a_callable_without_a_signature_gets_everything(write):
    path = write(
        "import numpy as np\nclass F:\n    __signature__ = 3\n    def __call__(self, x): return x\nf = F()\n"
    )
    assert np.array_equal(result(path)["y"], X)


def magnitudes(path, x, **scalars):
    return PythonReference(path, "f").magnitudes({"x": np.array(x, np.float32)}, scalars, [out()])["y"]


def test_magnitudes_are_those_of_the_terms(write):
    path = write("def f(a, x): return a * x + x[::-1]\n")
    assert np.array_equal(magnitudes(path, [1, -2, 3, -4], a=-2.0), [6, 7, 8, 9])


def test_magnitudes_are_zero_where_the_function_of_them_has_none(write):
    path = write("import numpy as np\ndef f(x): return np.log(x - 2)\n")
    assert np.array_equal(magnitudes(path, [-1, 2, 3, 3], a=-2.0), [0, 0, 0, 0])


def test_magnitudes_are_zero_where_the_function_refuses_them(write):
    path = write("def f(x):\n    if (x >= 0).all(): raise ValueError\n    return x\n")
    assert np.array_equal(magnitudes(path, [1, -2, 3, -4]), [0, 0, 0, 0])
