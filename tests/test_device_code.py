"""The backend's own kernels: run in the emulator they compute what the model says, and the PTX is theirs."""

from __future__ import annotations

import re
import struct
import subprocess
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import device_model
import numpy as np
import pytest
from device_cases import SIZES, Case, cases
from emulation_rig import Rig

from sweeper.backend.cuda.arrays import as_bytes, poison_word
from sweeper.backend.cuda.compile_device_code import compile_ptx, compiler_of
from sweeper.backend.cuda.device_code import (
    _ARGUMENTS,
    _TYPE_CODES,
    PART_BYTES,
    PTX_PATH,
    RECORD,
    Split,
    type_code,
)
from sweeper.build.toolkit import Nvcc, find_nvcc
from sweeper.dtypes import DTYPES
from sweeper.emulation import Buffer, Scalar, find_compiler
from sweeper.errors import SetupError
from sweeper.model import Direction
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.inputs import generate
from sweeper.problem.storage import in_storage
from sweeper.problem.verify import poison

PTX = PTX_PATH.read_text(encoding="utf-8")
KERNELS = tuple(sorted(_ARGUMENTS))
# As `struct` packs them on a 64-bit machine.
SIZES_OF_LETTERS = {letter: struct.calcsize(letter) for letter in "PQqIid"}


# --- The text -----------------------------------------------------------------------------------------


def parameters(kernel: str) -> list[int]:
    """The sizes of a kernel's parameters, in bytes."""
    head = re.search(rf"\.entry sweeper_{kernel}\((.*?)\)", PTX, re.DOTALL)
    assert head is not None, f"{kernel} is not in the PTX"
    return [int(bits) // 8 for bits in re.findall(r"\.param \.\w(\d+)", head[1])]


@pytest.mark.parametrize("kernel", KERNELS)
def test_arguments_are_packed_as_the_compiled_kernel_takes_them(kernel: str) -> None:
    assert [SIZES_OF_LETTERS[letter] for letter in _ARGUMENTS[kernel]] == parameters(kernel)


def test_every_kernel_of_the_ptx_is_known() -> None:
    assert set(re.findall(r"\.entry sweeper_(\w+)", PTX)) == set(KERNELS)


def test_an_old_driver_takes_the_ptx() -> None:
    """ISA 6.3 came with CUDA 10.0; sm_70 is Volta."""
    assert re.search(r"^\.version 6\.3$", PTX, re.MULTILINE)
    assert re.search(r"^\.target sm_70$", PTX, re.MULTILINE)


def test_every_precision_class_has_the_code_of_its_storage() -> None:
    assert set(_TYPE_CODES) == set(DTYPES)
    for name, code in _TYPE_CODES.items():
        assert device_model.STORAGE[code] == DTYPES[name].storage


def test_records_are_laid_out_as_in_the_source() -> None:
    assert (device_model.PART.itemsize, RECORD.itemsize) == (PART_BYTES, 224)


@pytest.fixture(scope="module")
def nvcc() -> Nvcc:
    try:
        return find_nvcc()
    except SetupError as error:
        pytest.skip(error.message)


def test_the_ptx_is_what_nvcc_makes_of_the_source(nvcc: Nvcc) -> None:
    if nvcc.version != compiler_of(PTX):
        pytest.skip(f"made by nvcc {compiler_of(PTX)}, here is {nvcc.version}")
    assert compile_ptx(nvcc) == PTX, "run python -m sweeper.backend.cuda.compile_device_code"


def test_the_ptx_assembles_for_the_oldest_and_the_newest_gpu_that_nvcc_knows(
    nvcc: Nvcc, tmp_path: Path
) -> None:
    known = sorted(int(arch[3:]) for arch in nvcc.archs if arch[3:].isdigit())
    for number in {known[0], known[-1]}:
        command = [
            str(nvcc.path),
            "-cubin",
            f"-arch=sm_{number}",
            "-o",
            str(tmp_path / "x.cubin"),
            str(PTX_PATH),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"sm_{number}: {done.stderr}"


# --- The kernels, emulated ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(find_compiler(), tmp_path_factory.mktemp("device_code"))


def launch(rig: Rig, kernel: str, *arguments: Any, blocks: int = 3) -> None:
    """Run `sweeper_<kernel>` on buffers and on numbers packed as the backend packs them."""
    module = rig.module(
        PTX_PATH.with_suffix(".cu").read_text(encoding="utf-8"), *(f"sweeper_{name}" for name in KERNELS)
    )
    kinds = {"Q": np.uint64, "q": np.int64, "I": np.uint32, "i": np.int32, "d": np.float64}
    packed = [
        argument if isinstance(argument, Buffer) else Scalar(f"{kernel}{n}", kinds[letter](argument))
        for n, (letter, argument) in enumerate(zip(_ARGUMENTS[kernel], arguments, strict=True))
    ]
    report = rig.run(module, *packed, grid=blocks, block=256, kernel=KERNELS.index(kernel))
    assert report.ok, f"{kernel}: {report.message}"


def buffer(data: np.ndarray, *, writable: bool = False) -> Buffer:
    return Buffer.of("data", data, writable=writable)


def result(like: Any, count: int = 1) -> Buffer:
    """Zeros for a kernel to write; of a structure its bytes."""
    dtype = np.dtype(like)
    nbytes = count * dtype.itemsize
    made = Buffer(
        "result",
        (count,) if dtype.names is None else (nbytes,),
        dtype if dtype.names is None else np.uint8,
        writable=True,
    )
    made.array[...] = 0
    return made


@pytest.mark.parametrize("nbytes", [1, 8, 13, 4096, 9999])
def test_a_fill_repeats_its_pattern_to_the_last_byte(rig: Rig, nbytes: int) -> None:
    data = result(np.uint8, nbytes)
    launch(rig, "fill", data, nbytes, 0x0123_4567_89AB_CDEF)
    assert data.array.tobytes() == (bytes.fromhex("efcdab8967452301") * nbytes)[:nbytes]


@pytest.mark.parametrize("name", DTYPES)
def test_an_array_is_negated_element_by_element(rig: Rig, name: str) -> None:
    storage = DTYPES[name].storage
    values = np.arange(0 if storage.kind == "u" else -300, 700, 1).astype(np.int64).astype(storage)
    data = buffer(values, writable=True)
    launch(rig, "negate", data, values.size, type_code(DTYPES[name]))
    # Bit for bit: float8 holds no 700, which becomes NaN.
    assert data.array.tobytes() == np.negative(values).tobytes()
    launch(rig, "negate", data, values.size, type_code(DTYPES[name]))
    assert data.array.tobytes() == values.tobytes()


ROWS = [(1, 7, 9), (5, 3, 4), (33, 20, 45), (700, 1, 2)]


def rows_apart(name: str, rows: int, width: int, pitch: int) -> ResolvedArray:
    return ResolvedArray("C", DTYPES[name], (rows, width), Direction.OUT, "uniform", row_pitch=pitch)


@pytest.mark.parametrize(("rows", "width", "pitch"), ROWS)
@pytest.mark.parametrize("name", ["int8", "bfloat16", "float32", "float64"])
def test_rows_that_lie_apart_are_gathered(rig: Rig, name: str, rows: int, width: int, pitch: int) -> None:
    array = rows_apart(name, rows, width, pitch)
    data = generate(replace(array, direction=Direction.IN), seed=rows)
    together = result(array.dtype.storage, data.size)
    stored = buffer(in_storage(array, data))
    launch(rig, "gather", stored, data.size, width, pitch, array.dtype.bytes, together)
    assert together.array.tobytes() == data.tobytes()


@pytest.mark.parametrize(("rows", "width", "pitch"), ROWS)
@pytest.mark.parametrize("name", ["int8", "bfloat16", "float32", "float64"])
def test_writes_between_rows_are_counted_and_the_first_is_told(
    rig: Rig, name: str, rows: int, width: int, pitch: int
) -> None:
    array = rows_apart(name, rows, width, pitch)
    count, gap = (rows - 1) * (pitch - width), pitch - width
    pattern = poison_word(types.SimpleNamespace(poison=poison), array, array.dtype.bytes)  # type: ignore[arg-type]
    for numbers in ([], [0], [count - 1], [count // 2, count // 3, count - 1]):
        places = sorted(n for n in set(numbers) if 0 <= n < count)
        stored = in_storage(array, np.zeros(array.shape, array.dtype.storage))
        for number in places:
            stored[number // gap * pitch + width + number % gap] = 1
        found = result(np.uint64, 2)
        launch(rig, "gaps", buffer(stored), count, width, pitch, array.dtype.bytes, pattern, found)
        first = 2**64 - 1 - places[0] if places else 0
        assert found.array.tolist() == [len(places), first]


def digest(rig: Rig, data: np.ndarray) -> int:
    out = result(np.uint64)
    launch(rig, "digest", buffer(data), data.nbytes, out)
    return int(out.array[0])


@pytest.mark.parametrize("nbytes", [1, 7, 8, 100, 20_001])
def test_a_digest_is_the_models(rig: Rig, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    assert digest(rig, data) == device_model.digest(data)


def test_a_digest_changes_with_one_bit_and_with_the_order() -> None:
    data = np.arange(1000, dtype=np.uint64)
    before = {device_model.digest(data)}
    data[500] ^= 1
    before.add(device_model.digest(data))
    before.add(device_model.digest(data[::-1]))
    assert len(before) == 3


def test_digests_are_added_to_what_is_there(rig: Rig) -> None:
    data, out = np.arange(5.0), result(np.uint64)
    for _ in range(2):
        launch(rig, "digest", buffer(data), data.nbytes, out)
    assert int(out.array[0]) == 2 * device_model.digest(data) % 2**64


def compared(rig: Rig, case: Case, previous: np.ndarray, *, negated: bool) -> tuple[np.ndarray, np.ndarray]:
    """(parts, record) as the emulated kernels write them."""
    array, split = case.array, Split.of(case.array.size)
    pattern = int.from_bytes(as_bytes(poison(array)).tobytes()[: array.dtype.bytes], "little")
    got, want = buffer(case.got), buffer(case.reference.values)
    bounds = buffer(np.ascontiguousarray(case.reference.bound))
    how = (type_code(array.dtype), int(array.dtype.is_integer), int(negated))
    parts, record = result(device_model.PART, split.parts), result(RECORD)
    launch(
        rig,
        "compare",
        *(got, buffer(previous), want, bounds, split.count, split.share, *how, pattern, parts),
        blocks=split.parts,
    )
    launch(
        rig,
        "conclude",
        *(got, want, bounds, split.count, split.share, split.parts, *how, buffer(parts.array), record),
        blocks=1,
    )
    return parts.array.view(device_model.PART), record.array.view(RECORD)[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "int8", "int32", "uint64"])
def test_a_comparison_is_the_models(rig: Rig, name: str, size: int) -> None:
    for number, case in enumerate(cases(name, size, seed=size)):
        negated = number % 3 == 2 and name != "uint64"
        previous = case.got if number % 2 else case.got[::-1].copy()
        flat, before = case.got.reshape(-1), previous.reshape(-1)
        against = [case.reference.values.reshape(-1), case.reference.bound.reshape(-1)]
        if case.array.dtype.is_integer:
            against[1] = None
        pattern = int.from_bytes(as_bytes(poison(case.array)).tobytes()[: case.array.dtype.bytes], "little")
        share = Split.of(case.array.size).share
        parts = device_model.compare(flat, before, *against, share=share, negated=negated, pattern=pattern)
        record = device_model.conclude(flat, *against, parts, negated=negated)
        got_parts, got_record = compared(rig, case, previous, negated=negated)
        assert got_parts.tobytes() == parts.tobytes(), case.name
        assert got_record.tobytes() == record.tobytes(), case.name


@pytest.mark.parametrize("name", DTYPES)
def test_elements_are_widened_exactly(rig: Rig, name: str) -> None:
    storage = DTYPES[name].storage
    values = np.arange(0 if storage.kind == "u" else -100, 1000, 3).astype(np.int64).astype(storage)
    wide = result(np.float64, values.size)
    launch(rig, "widen", buffer(values), values.size, type_code(DTYPES[name]), wide)
    assert np.array_equal(wide.array, values.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (64, 64, 16), (70, 131, 45), (3, 200, 17)])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_is_right_for_sizes_that_divide_nothing(
    rig: Rig, sizes: tuple[int, int, int], transposed: bool
) -> None:
    rows, columns, terms = sizes
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((rows, terms)), rng.standard_normal((columns, terms))
    values, magnitudes = result(np.float64, rows * columns), result(np.float64, rows * columns)
    held = [np.ascontiguousarray(m.T) if transposed else m for m in (a, b)]
    strides = (1, rows, 1, columns) if transposed else (terms, 1, terms, 1)
    blocks = -(-rows // 64) * -(-columns // 64)
    launch(
        rig, "product", buffer(held[0]), buffer(held[1]), *sizes, *strides, values, magnitudes, blocks=blocks
    )
    expected = device_model.product(a, b)
    for got, want in zip((values, magnitudes), expected, strict=True):
        np.testing.assert_allclose(got.array.reshape(rows, columns), want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("nearest", [0, 1])
def test_magnitudes_become_the_models_bounds(rig: Rig, nearest: int) -> None:
    rng = np.random.default_rng(1)
    values, magnitudes = rng.standard_normal(700), rng.random(700) + 3
    coefficients = (1e-6, 0.75, 1e-30, 2e-4, 3e-4, 2.0**-11, 1e-45, nearest)
    made = buffer(magnitudes, writable=True)
    launch(rig, "bound", buffer(values), made, values.size, *coefficients)
    expected = device_model.bound(values, magnitudes, *coefficients)
    np.testing.assert_allclose(made.array, expected, rtol=1e-14)


def test_doubles_become_whole_in_place(rig: Rig) -> None:
    values = np.array([0.0, -1.0, 2.0**52, -(2.0**53)])
    made = buffer(values, writable=True)
    launch(rig, "whole", made, values.size)
    assert made.array.view(np.int64).tolist() == [0, -1, 2**52, -(2**53)]


def test_the_canary_counts_from_its_seed(rig: Rig) -> None:
    out = result(np.uint32, 512)
    launch(rig, "canary", out, 77, blocks=2)
    assert out.array.tolist() == list(range(77, 77 + 512))
