"""On a GPU: the wrappers of kernels/common/ptx.cuh do what NumPy, and so the emulator, says they do."""

from __future__ import annotations

import subprocess

import numpy as np
import programs
import pytest
from bench_rig import no_gpu
from ptx_cases import TEXT, Case, cases

from sweeper.build.make import make_builder
from sweeper.build.source import TranslationUnit
from sweeper.paths import kernels_dir

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# Runs every case of a file that NumPy wrote, and writes what came of them to another.
_PROGRAM = """
import sys
import numpy as np
import pycuda.driver as driver
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
try:
    module = driver.module_from_file(sys.argv[1])
    given, results = np.load(sys.argv[2]), {}
    for key in given["keys"]:
        out = given[f"{key} out"].copy()
        inputs = [given[f"{key} input {i}"] for i in range(int(given[f"{key} inputs"]))]
        scalars = [np.int32(value) for value in given[f"{key} scalars"]]
        function = module.get_function(str(given[f"{key} kernel"]))
        threads = int(given[f"{key} threads"])
        function(driver.Out(out), *map(driver.In, inputs), *scalars, block=(threads, 1, 1), grid=(1, 1))
        results[str(key)] = out
    np.savez(sys.argv[3], **results)
finally:
    context.pop()
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("ptx")
    gemm = kernels_dir() / "gemm"
    builder = make_builder("cuda", "auto", cache=False)
    unit = TranslationUnit(
        name="wrappers.cu",
        text='#line 1 "wrappers.cu"\n' + TEXT.replace("__global__ void", 'extern "C" __global__ void'),
        source=gemm / "wrappers.cu",
        entry="f16",
        template_args=(),
        signature="f16",
        defines=(),
        include_dirs=(gemm,),
        options=(),
        source_digest="0",
        digest="wrappers",
    )
    build = builder.build(unit, arch="sm_90", deadline_s=300)
    given: dict[str, object] = {"keys": np.array([case.name for case in cases()])}
    for case in cases():
        given |= _given(case)
    np.savez(folder / "given.npz", **given)
    command = programs.python(
        _PROGRAM, str(build.artifact), str(folder / "given.npz"), str(folder / "results.npz")
    )
    done = subprocess.run(
        command, env=programs.environment(), capture_output=True, text=True, check=False, timeout=300
    )
    builder.close()
    assert done.returncode == 0, done.stderr
    with np.load(folder / "results.npz") as found:
        return dict(found)


def _given(case: Case) -> dict[str, object]:
    return {
        f"{case.name} kernel": np.array(case.kernel),
        f"{case.name} out": np.zeros_like(case.expected),
        f"{case.name} inputs": np.array(len(case.inputs)),
        f"{case.name} scalars": np.array([int(value) for value in case.scalars]),
        f"{case.name} threads": np.array(1 if case.kernel == "copy" else 32),
        **{f"{case.name} input {i}": array for i, array in enumerate(case.inputs)},
    }


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_wrapper_does_what_its_emulation_does(results: dict[str, np.ndarray], case: Case) -> None:
    assert results[case.name].tolist() == case.expected.tolist()
