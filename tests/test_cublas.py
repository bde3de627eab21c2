"""cuBLAS answers row-major matrix products: operands swapped, precision pinned, results proved like any other."""

from __future__ import annotations

import ctypes
import sys
import types
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_rig import QUICK, Rig, make_rig
from fake_pycuda import FakeDriver, Memory
from specs import array, contraction, gemm_spec, launch, saxpy_spec, spec

from sweeper.backend.cuda import cublas_api, cublas_loading
from sweeper.backend.cuda.cublas import Cublas, gemm_of
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.model import KernelSpec, Stage, Status
from sweeper.problem import resolve

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 10: np.int32, 14: ml_dtypes.bfloat16}
LONG_AND_THIN = {"M": 24, "N": 8, "K": 40}


def column_major(
    memory: Memory, address: int, rows: int, columns: int, leading: int, dtype: Any
) -> np.ndarray:
    assert leading >= rows
    return memory.array(address, (columns, leading), dtype)[:, :rows].T


def factor(
    memory: Memory, address: int, shape: tuple[int, int], transposed: int, leading: int, dtype: Any
) -> np.ndarray:
    """op(X) of `shape`, from where X lies."""
    if transposed:
        return column_major(memory, address, *shape[::-1], leading, dtype).T.astype(np.float64)
    return column_major(memory, address, *shape, leading, dtype).astype(np.float64)


class PretendedCublas:
    """`cublasGemmEx` on pretended device memory; notes how it was asked."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.memory = driver.memory
        self.calls: list[dict[str, int]] = []
        self.math_mode = self.stream = -1
        self.created = 0
        self.status = 0
        self.destroyed = False

    def gemm_ex(self, *args: int) -> None:
        ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algorithm = (
            args
        )
        self.calls.append(
            {"compute": compute, "math": self.math_mode, "algorithm": algorithm, "m": m, "n": n, "lda": lda}
        )
        scale = {70: ctypes.c_double, 72: ctypes.c_int32}.get(compute, ctypes.c_float)
        assert (scale.from_address(alpha).value, scale.from_address(beta).value) == (1, 0)
        left = factor(self.memory, a, (m, k), ta, lda, TYPES[a_type])
        right = factor(self.memory, b, (k, n), tb, ldb, TYPES[b_type])
        self.driver.enqueue(0.1)
        column_major(self.memory, c, m, n, ldc, TYPES[c_type])[:] = (left @ right).astype(TYPES[c_type])

    def gemm_strided_batched_ex(self, *args: int) -> None:
        ta, tb, m, n, k, alpha, a, a_type, lda, a_step, b, b_type, ldb, b_step, beta, *rest = args
        c, c_type, ldc, c_step, count, compute, algorithm = rest
        for number in range(count):
            size = np.dtype(TYPES[a_type]).itemsize
            self.gemm_ex(
                *(ta, tb, m, n, k, alpha, a + number * a_step * size, a_type, lda),
                *(b + number * b_step * size, b_type, ldb, beta),
                *(c + number * c_step * np.dtype(TYPES[c_type]).itemsize, c_type, ldc, compute, algorithm),
            )


def install_bindings(pretended: PretendedCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `nvmath.bindings.cublas` into place."""

    class cuBLASError(Exception):  # noqa: N801 - the library's own name
        def __init__(self, status: int) -> None:
            super().__init__(str(status))
            self.status = status

    def gemm_ex(handle: int, *args: int) -> None:
        if pretended.status:
            raise cuBLASError(pretended.status)
        pretended.gemm_ex(*args)

    module = types.ModuleType("nvmath.bindings.cublas")
    module.cuBLASError = cuBLASError
    module.create = lambda: setattr(pretended, "created", pretended.created + 1) or 77
    module.destroy = lambda handle: setattr(pretended, "destroyed", True)
    module.get_property = lambda part: (13, 1, 2)[part]
    module.set_stream = lambda handle, stream: setattr(pretended, "stream", stream)
    module.set_math_mode = lambda handle, mode: setattr(pretended, "math_mode", mode)
    module.gemm_ex = gemm_ex
    module.gemm_strided_batched_ex = lambda handle, *args: pretended.gemm_strided_batched_ex(*args)
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", types.ModuleType("nvmath.bindings"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", module)


class SharedLibrary:
    """What `ctypes.CDLL` gives for libcublas."""

    def __init__(self, pretended: PretendedCublas) -> None:
        self._pretended = pretended

    def cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802 - the library's own names
        handle._obj.value = 99
        self._pretended.created += 1
        return 0

    def cublasGetProperty(self, part: int, value: Any) -> int:  # noqa: N802
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = (12, 8, 4)[part]
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802
        self._pretended.stream = stream.value
        return 0

    def cublasSetMathMode(self, handle: Any, mode: Any) -> int:  # noqa: N802
        self._pretended.math_mode = mode.value
        return 0

    def cublasGemmEx(self, handle: Any, *args: Any) -> int:  # noqa: N802
        assert handle.value == 99
        if not self._pretended.status:
            self._pretended.gemm_ex(*(arg.value for arg in args))
        return self._pretended.status

    def cublasGemmStridedBatchedEx(self, handle: Any, *args: Any) -> int:  # noqa: N802
        self._pretended.gemm_strided_batched_ex(*(arg.value for arg in args))
        return 0

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        self._pretended.destroyed = True
        return 0


def install_library(pretended: PretendedCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", None)

    def load(path: str, mode: int = 0) -> SharedLibrary:
        if "libcublas.so" not in path:
            raise OSError(f"{path}: cannot open shared object file")
        return SharedLibrary(pretended)

    monkeypatch.setattr(cublas_api.ctypes, "CDLL", load)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


@pytest.fixture(params=[install_bindings, install_library], ids=["bindings", "library"])
def library(request, rig, monkeypatch) -> PretendedCublas:
    pretended = PretendedCublas(rig.driver)
    request.param(pretended, monkeypatch)
    return pretended


def baseline(rig: Rig, kernel: KernelSpec | None = None):
    rig.prepared(kernel or gemm_spec(), LONG_AND_THIN)
    return rig.cuda.baseline("cublas", QUICK)


def test_a_product_of_unequal_sizes_is_right_in_row_major_order(rig, library):
    outcome = baseline(rig)
    assert outcome.check.passed
    assert outcome.check.checked == 24 * 8
    assert outcome.timing.samples_ms
    assert (outcome.build, outcome.launch) == (None, None)
    assert (library.calls[0]["m"], library.calls[0]["n"]) == (8, 24)


def test_the_note_names_version_and_how_it_computes(rig, library):
    note = baseline(rig).note
    assert note in (
        "cuBLAS 13.1.2, CUBLAS_COMPUTE_32F, default math",
        "cuBLAS 12.8.4, CUBLAS_COMPUTE_32F, default math",
    )


@pytest.mark.parametrize(
    ("name", "output", "compute", "math"),
    [
        ("float64", None, 70, 0),
        ("float32", None, 68, 0),
        ("tf32", None, 77, 0),
        ("tf32x3", None, 68, 0),
        ("float16", None, 68, 16),
        ("float16", "float32", 68, 16),
        ("bfloat16", None, 68, 16),
        ("bfloat16", "float32", 68, 16),
        ("int8", "int32", 72, 0),
    ],
)
def test_every_class_is_computed_in_its_own_precision(rig, library, name, output, compute, math):
    assert baseline(rig, gemm_spec(dtype=name, output=output)).check.passed
    assert {call["compute"] for call in library.calls} == {compute}
    assert {call["math"] for call in library.calls} == {math}


def test_it_runs_on_the_one_stream_and_is_given_back(rig, library):
    baseline(rig)
    assert library.stream == 0x5EA
    rig.cuda.close()
    assert library.destroyed


def test_the_handle_is_kept_from_one_baseline_to_the_next(rig, library):
    baseline(rig)
    rig.cuda.baseline("cublas", QUICK)
    assert library.created == 1


@pytest.mark.parametrize(
    ("status", "expected"), [(15, Status.INFEASIBLE), (8, Status.INFEASIBLE), (13, Status.LAUNCH_ERROR)]
)
def test_what_the_library_declines_is_no_error_of_the_sweep(rig, library, status, expected):
    library.status = status
    with pytest.raises(TrialFailed) as caught:
        baseline(rig)
    assert caught.value.status is expected


def test_a_class_that_a_plain_call_has_not_says_who_has_it(rig, library):
    with pytest.raises(TrialFailed, match="cuBLASLt has") as caught:
        baseline(rig, gemm_spec(dtype="float8_e4m3", output="bfloat16"))
    assert caught.value.status is Status.INFEASIBLE


def test_a_wrong_library_is_found_out_like_any_kernel(rig, library, monkeypatch):
    right = library.gemm_ex

    def wrong(*args: int) -> None:
        right(*args)
        rig.driver.memory.array(args[13], (1,), np.float32)[0] += 1

    monkeypatch.setattr(library, "gemm_ex", wrong)
    with pytest.raises(TrialFailed) as caught:
        baseline(rig)
    assert caught.value.status is Status.WRONG_RESULT


def test_no_library_is_a_set_up_error_with_the_way_to_get_it(rig, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", None)
    monkeypatch.setattr(cublas_loading, "where", lambda stem: [f"{stem}.so.99"])
    with pytest.raises(SetupError, match="cuBLAS was not found") as caught:
        Cublas(0)
    assert "nvidia-cublas" in caught.value.hint


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_a_missing_library_is_a_failure_of_its_row_that_is_asked_again_next_time(rig, monkeypatch, library):
    for name in ("cublas", "cublasLt"):
        monkeypatch.setitem(sys.modules, f"nvmath.bindings.{name}", None)
    monkeypatch.setattr(cublas_loading, "where", lambda stem: [f"{stem}.so.99"])
    rig.prepared(gemm_spec(), LONG_AND_THIN)
    with pytest.raises(TrialFailed, match="was not found: install nvidia-cublas") as caught:
        rig.cuda.baseline(library, QUICK)
    assert (caught.value.status, caught.value.stage) == (Status.INFEASIBLE, Stage.SPACE)
    assert rig.measure().check.passed, "the device is none the worse for it"


def test_an_unknown_library_names_the_nearest_one(rig):
    rig.prepared(gemm_spec(), LONG_AND_THIN)
    with pytest.raises(ConfigError, match="did you mean 'cublaslt'") as caught:
        rig.cuda.baseline("cublasLT", QUICK)
    assert caught.value.hint == "known: cublas, cublaslt"


def test_a_library_that_will_not_start_is_a_set_up_error(rig, monkeypatch):
    pretended = PretendedCublas(rig.driver)
    monkeypatch.setattr(SharedLibrary, "cublasCreate_v2", lambda self, handle: 1)
    install_library(pretended, monkeypatch)
    with pytest.raises(SetupError, match="cublasCreate_v2 gave status 1"):
        Cublas(0)


def test_libraries_are_looked_for_in_packages_paths_and_toolkits(tmp_path, monkeypatch):
    package, path, toolkit = (
        tmp_path / "site" / "nvidia" / "cu13" / "lib",
        tmp_path / "path",
        tmp_path / "cuda",
    )
    for folder, name in (
        (package, "libcublas.so.13"),
        (path, "libcublas.so.12"),
        (toolkit / "lib64", "libcublas.so.11"),
    ):
        folder.mkdir(parents=True)
        (folder / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{path}:")
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    found = list(cublas_loading.where("libcublas"))
    assert found[:3] == [
        str(package / "libcublas.so.13"),
        str(path / "libcublas.so.12"),
        str(toolkit / "lib64" / "libcublas.so.11"),
    ]
    assert found[3:] == ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"]


def three_arrays(text: str, a: list[str], b: list[str], c: list[str]) -> KernelSpec:
    arguments = (array("A", a), array("B", b), array("C", c, "out"))
    fields = {"reference": contraction(text), "dims": ("M", "N", "K"), "launch": launch([1], [1])}
    return spec("other", arguments, **fields)


@pytest.mark.parametrize(
    "kernel",
    [
        three_arrays("mk,k->m", ["M", "K"], ["K"], ["M"]),
        three_arrays("mk,mk->mk", ["M", "K"], ["M", "K"], ["M", "K"]),
        gemm_spec(dtype="int8", output="float32"),
        gemm_spec(dtype="int32"),
        gemm_spec(dtype="float32", output="float64"),
    ],
    ids=lambda kernel: f"{kernel.reference.text} {kernel.dtype.name}",
)
def test_what_is_no_plain_product_has_no_equivalent(kernel):
    problem = resolve(kernel, LONG_AND_THIN, kernel.default_point, seed=0)
    with pytest.raises(TrialFailed, match="no library equivalent") as caught:
        gemm_of(problem)
    assert caught.value.status is Status.INFEASIBLE


@pytest.mark.parametrize(
    ("text", "a", "b", "c"),
    [
        ("km,kn->mn", ["K", "M"], ["K", "N"], ["M", "N"]),
        ("mk,nk->mn", ["M", "K"], ["N", "K"], ["M", "N"]),
        ("km,nk->mn", ["K", "M"], ["N", "K"], ["M", "N"]),
        ("mk,kn->nm", ["M", "K"], ["K", "N"], ["N", "M"]),
        ("kn,mk->mn", ["K", "N"], ["M", "K"], ["M", "N"]),
    ],
)
def test_a_transposed_operand_or_result_is_a_product_too(rig, library, text, a, b, c):
    outcome = baseline(rig, three_arrays(text, a, b, c))
    assert outcome.check.passed
    assert outcome.check.checked == 24 * 8


def batched(text: str = "bmk,bkn->bmn") -> KernelSpec:
    a, b, c = (
        [{"b": "BATCH"}.get(x, x.upper()) for x in letters] for letters in text.replace("->", ",").split(",")
    )
    arguments = (array("A", a), array("B", b), array("C", c, "out"))
    fields = {"reference": contraction(text), "dims": {"BATCH": 3, "M": None, "N": None, "K": None}}
    return spec("batch", arguments, launch=launch([1], [1]), **fields)


@pytest.mark.parametrize("text", ["bmk,bkn->bmn", "bmk,bnk->bmn"])
def test_a_batch_of_products_is_one_call(rig, library, text):
    outcome = baseline(rig, batched(text))
    assert outcome.check.passed
    assert outcome.check.checked == 3 * 24 * 8


@pytest.mark.parametrize("text", ["mbk,bkn->bmn", "bmk,kn->bmn", "bmk,bkn->mbn"])
def test_a_batch_that_is_not_first_everywhere_has_no_equivalent(text):
    kernel = batched(text)
    with pytest.raises(TrialFailed, match="is not mk,kn->mn"):
        gemm_of(resolve(kernel, LONG_AND_THIN, kernel.default_point, seed=0))


def test_operands_of_another_class_have_no_equivalent():
    kernel = gemm_spec()
    mixed = replace(kernel, args=(array("A", ["M", "K"], dtype="float16"), *kernel.args[1:]))
    with pytest.raises(TrialFailed, match="operands of float16 and float32"):
        gemm_of(resolve(mixed, LONG_AND_THIN, kernel.default_point, seed=0))


def test_a_function_in_python_has_no_equivalent(tmp_path):
    (tmp_path / "saxpy.py").write_text("def reference(a, x, y):\n    return a * x + y\n")
    kernel = saxpy_spec(tmp_path / "saxpy.py")
    with pytest.raises(TrialFailed, match="no matrix product"):
        gemm_of(resolve(kernel, {"N": 8}, kernel.default_point, seed=0))
