"""The wrappers of PTX instructions in kernels/common/ptx.cuh, held against NumPy and the PTX ISA document."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from check_rig import FILE, Kernels, with_every_compiler
from ptx_cases import TEXT, Case, cases, fragments, registers

from sweeper.emulation import Buffer, FindingKind, HostCompiler, Scalar
from sweeper.paths import kernels_dir

GEMM = kernels_dir() / "gemm"


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("ptx"), TEXT, include_dirs=(GEMM,))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_wrapper_does_what_the_instruction_does(kernels: Kernels, case: Case) -> None:
    out = Buffer("out", case.expected.shape, case.expected.dtype, writable=True)
    inputs = [Buffer.of(f"in{i}", array) for i, array in enumerate(case.inputs)]
    scalars = [Scalar(f"scalar{i}", value) for i, value in enumerate(case.scalars)]
    report = kernels.run(case.kernel, out, *inputs, *scalars, block=1 if case.kernel == "copy" else 32)
    assert (report.ok, report.findings) == (True, ())
    assert out.array.tolist() == case.expected.tolist()


def test_tf32_operands_lose_their_lower_bits(kernels: Kernels) -> None:
    a, b, c = fragments(np.full((16, 8), 1 + 2.0**-11), np.ones((8, 8)), np.zeros((16, 8)), 1)
    inputs = (registers(a, np.float32), registers(b, np.float32), c.astype(np.float32))
    out = Buffer("out", (32, 4), np.float32, writable=True)
    report = kernels.run("tf32", out, *(Buffer.of(f"in{i}", x) for i, x in enumerate(inputs)), block=32)
    assert (report.ok, report.findings) == (True, ())
    assert (out.array == 8).all()


def test_no_number_stays_none_when_it_is_rounded(kernels: Kernels) -> None:
    out = Buffer("out", (1,), np.uint32, writable=True)
    report = kernels.run("round_tf32", out, Buffer.of("x", np.full(1, np.nan, np.float32)))
    assert report.ok
    assert np.isnan(out.array.view(np.float32)[0])


def test_a_row_needs_an_address_that_is_a_multiple_of_16(kernels: Kernels) -> None:
    out, a = Buffer("out", (32,), np.uint32, writable=True), Buffer.of("A", np.zeros(256, np.uint16))
    found = kernels.only("load_unaligned", out, a, Scalar("shift", np.int32(2)), block=32)
    assert found.kind is FindingKind.MISALIGNED
    assert found.message == "an access of 16 bytes at an address that is not a multiple of it"
    assert (found.memory, found.first) == ("shared rows[2]", kernels.place("unaligned"))


def test_each_lane_reads_the_row_that_it_names(kernels: Kernels) -> None:
    out, a = Buffer("out", (32,), np.uint32, writable=True), Buffer.of("A", np.zeros(64, np.uint16))
    found = kernels.run("load_too_early", out, a, block=32).findings
    races = [f for f in found if f.kind is FindingKind.RACE_SHARED]
    assert races
    for race in races:
        assert race.second is not None
        assert {race.first.line, race.second.line} == {
            kernels.place("stores").line,
            kernels.place("loads").line,
        }


def test_a_copy_is_there_once_its_group_was_waited_for(kernels: Kernels) -> None:
    out, a = Buffer("out", (1,), np.uint8, writable=True), Buffer.of("A", np.ones(16, np.uint8))
    found = kernels.only("copy_unwaited", out, a)
    assert found.kind is FindingKind.PENDING_COPY
    assert (found.first, found.second) == (
        kernels.place("one group too early"),
        kernels.place("asynchronous"),
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_every_wrapper_compiles_for_a_gpu(tmp_path: Path) -> None:
    source = tmp_path / FILE
    source.write_text(TEXT)
    command = [
        "nvcc",
        "-cubin",
        "-arch=sm_90",
        "-std=c++17",
        "-Werror=all-warnings",
        f"-I{GEMM}",
        str(source),
    ]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "ptx.cubin")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
