"""A program for a GPU: runs the backend's own kernels on it and says, as JSON, where they differ from the host.

Run in a process of its own by `test_device_code_gpu.py`. Prints a list of {"group", "name", "told"}; `told`
is empty where device and host agree.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any

import device_model
import numpy as np
from device_cases import FLOATING, WHOLE, Case, cases, output
from specs import gemm_spec

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.arrays import DeviceArray, as_bytes
from sweeper.backend.cuda.comparison import DeviceComparison
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.device_code import type_code
from sweeper.backend.cuda.product import Product, product_of
from sweeper.backend.cuda.reference import upload
from sweeper.backend.cuda.watch import Watch
from sweeper.device.nvml import Nvml
from sweeper.dtypes import DTYPES
from sweeper.model import Direction
from sweeper.problem import Problem, resolve
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.rounding import contraction_bound
from sweeper.problem.storage import gap_damage, gap_index
from sweeper.problem.verify import check, poison

# Up to several parts of several blocks, with a last one that is not full.
SIZES = (1, 77, 1024, 5000, 70_001, (1 << 21) + 3)
PRODUCTS = (
    ("float64", None),
    ("float32", None),
    ("tf32", None),
    ("float16", None),
    ("bfloat16", "float32"),
    ("float8_e4m3", "bfloat16"),
    ("int8", "int32"),
)
SHAPE = {"M": 300, "N": 261, "K": 517}

Told = Iterator[tuple[str, str]]


def compared(device: CudaDevice, name: str) -> Told:
    """Every case of one class: its check, its check with results and reference negated, and differing bits."""
    for size in SIZES:
        chosen = list(cases(name, size, seed=size))
        array = DeviceArray(device, output(name, size))
        arguments: Any = types.SimpleNamespace(
            arrays={"C": array},
            problem=types.SimpleNamespace(outputs=(array.array,), poison=poison),
        )
        references = upload(device, {"C": chosen[0].reference}, (array.array,))
        comparison = DeviceComparison(device, arguments, references)
        for number, case in enumerate(chosen):
            if case.reference is not chosen[0].reference:
                raise AssertionError("the cases of one class and size share their reference")
            yield case.name, _case(device, comparison, array, case, chosen[number - 1])


def _case(
    device: CudaDevice, comparison: DeviceComparison, array: DeviceArray, case: Case, other: Case
) -> str:
    told = []
    host = repr(check([case.array], {"C": case.got}, {"C": case.reference}))
    array.upload(other.got)
    comparison.keep()
    array.upload(case.got)
    comparison.queue()
    device.synchronize()
    verdict = comparison.read()
    if repr(verdict.check) != host:
        told.append(f"device {verdict.check!r}, host {host}")
    differing = int(np.count_nonzero(device_model.bits_of(case.got) != device_model.bits_of(other.got)))
    if verdict.differing != differing:
        told.append(f"{verdict.differing} bits differ, on the host {differing}")
    if case.array.dtype.storage.kind != "u":
        array.negate()
        comparison.queue(negated=True)
        device.synchronize()
        turned = comparison.read().check
        plain = (verdict.check.wrong, verdict.check.max_error, verdict.check.error_ratio)
        if (turned.wrong, turned.max_error, turned.error_ratio) != plain:
            told.append(f"negated {turned!r}, plain {verdict.check!r}")
    comparison.forget()
    return "; ".join(told)


def filled(device: CudaDevice) -> Told:
    """Poison, negation and widening of every class; digests of every length and alignment."""
    for name, precision in DTYPES.items():
        array = DeviceArray(device, output(name, 4099))
        problem: Any = types.SimpleNamespace(poison=poison)
        array.poison(problem)
        got, want = array.download().tobytes(), poison(array.array).tobytes()
        yield f"poison {name}", "" if got == want else "not what the host's poison is"
        values = np.arange(0 if precision.storage.kind == "u" else -2000, 9000)[:4099].astype(
            precision.storage
        )
        array.upload(values)
        wide = device.allocate(8 * values.size)
        device.code.widen(array.pointer, values.size, type_code(precision), int(wide))
        widened = np.empty(values.size)
        device.synchronize()
        device.drv.memcpy_dtoh(widened, int(wide))
        yield (
            f"widen {name}",
            "" if np.array_equal(widened, values.astype(np.float64), equal_nan=True) else "values differ",
        )
        array.negate()
        same = array.download().tobytes() == device_model.negative(values).tobytes()
        yield f"negate {name}", "" if same else "values differ"
        damaged = array.damage()
        yield f"guards {name}", damaged or ""
    data = np.random.default_rng(3).integers(0, 256, 3_000_001, np.uint8)
    held = device.allocate(data.nbytes)
    device.drv.memcpy_htod(int(held), data)
    for start, nbytes in ((0, 1), (0, 8), (0, 4096), (0, data.size), (3, 4096), (5, 100_003), (8, 1 << 21)):
        got = _digest(device, int(held) + start, nbytes)
        want = device_model.digest(data[start : start + nbytes])
        yield f"digest of {nbytes} bytes from {start}", "" if got == want else f"{got:#x}, host {want:#x}"


def rows_apart(device: CudaDevice) -> Told:
    """Arrays whose rows lie apart: gathered, brought back, and what is written between their rows."""
    for name, precision in DTYPES.items():
        for rows, width, pitch in ((1, 5, 9), (257, 129, 130), (1000, 3, 64), (3, 70_001, 70_008)):
            array = ResolvedArray("C", precision, (rows, width), Direction.OUT, "uniform", row_pitch=pitch)
            yield f"rows {name} {rows}×{width} of {pitch}", _rows_apart(device, DeviceArray(device, array))


def _rows_apart(device: CudaDevice, held: DeviceArray) -> str:
    array, problem = held.array, types.SimpleNamespace(poison=poison)
    data = (np.arange(array.size).reshape(array.shape) % 100).astype(array.dtype.storage)
    held.upload(data)
    if held.download().tobytes() != data.tobytes() or not held.equals(data):
        return "came back otherwise"
    together, found = device.allocate(array.nbytes), device.allocate(16)
    got, record = np.empty(array.size, array.dtype.storage), np.zeros(2, np.uint64)
    held.gather(int(together))
    device.synchronize()
    device.drv.memcpy_dtoh(as_bytes(got), int(together))
    if got.tobytes() != data.tobytes():
        return "gathered otherwise"
    stored = held.download_stored()
    for places in ([], [0, -1], [-1]):
        written = stored.copy()
        gaps = (
            [n for n in range(array.stored_size) if n % array.pitch >= array.width] if array.has_gaps else []
        )
        for place in places if gaps else []:
            written[gaps[place]] = 1
        device.drv.memcpy_htod(held.pointer, as_bytes(written))
        held.find_gap_writes(problem, int(found))  # type: ignore[arg-type]
        device.synchronize()
        device.drv.memcpy_dtoh(record.view(np.uint8), int(found))
        damage = gap_damage(array, written)
        told = (int(record[0]), gap_index(array, 2**64 - 1 - int(record[1])) if record[0] else None)
        if told != ((damage.changed, damage.index) if damage else (0, None)):
            return f"{told} were written, on the host {damage}"
    return ""


def _digest(device: CudaDevice, address: int, nbytes: int) -> int:
    out, got = device.allocate(8), np.zeros(1, np.uint64)
    device.drv.memcpy_htod(int(out), got)
    device.code.digest(address, nbytes, int(out))
    device.synchronize()
    device.drv.memcpy_dtoh(got, int(out))
    return int(got[0])


def products(device: CudaDevice) -> Told:
    """References that the GPU computed, all of their elements against NumPy's."""
    for name, out in PRODUCTS:
        kernel = gemm_spec(dtype=name, output=out)
        problem = resolve(kernel, SHAPE, kernel.default_point, seed=11)
        inputs = problem.inputs()
        product = product_of(problem, inputs)
        if product is None:
            yield f"product {name}", "is not taken for a large product"
            continue
        arguments = Arguments(device, problem, inputs)
        arguments.restore()
        reference = product.reference(device, arguments, inputs)
        watch = Watch(device, arguments, {"the reference": reference.regions})
        watch.seal()
        yield f"product {name}", _product(device, problem, product, reference.wanted, inputs)
        watch.queue()
        yield f"digests around product {name}", "; ".join(watch.damage())


def _product(
    device: CudaDevice, problem: Problem, product: Product, wanted: Any, inputs: dict[str, Any]
) -> str:
    shape = product.out.shape
    values = np.empty(shape, np.int64 if wanted.exact else np.float64)
    device.drv.memcpy_dtoh(values, wanted.values)
    a, b = (data.astype(np.float64) for data in inputs.values())
    if wanted.exact:
        wrong = int(np.count_nonzero(values != (a @ b).astype(np.int64)))
        return f"{wrong} of {values.size} integers are wrong" if wrong else ""
    magnitudes = np.abs(a) @ np.abs(b)
    off = np.abs(values - a @ b) / magnitudes
    if off.max() > SHAPE["K"] * 2.0**-52:
        return f"values are off by {off.max():.3g} of their magnitudes"
    bounds = np.empty(shape)
    device.drv.memcpy_dtoh(bounds, wanted.bounds)
    expected = contraction_bound(
        a @ b,
        magnitudes,
        terms=SHAPE["K"],
        operands=2,
        peak=product.peak,
        kernel=problem.spec.dtype,
        output=product.out.dtype,
        tolerance=problem.spec.tolerance,
    )
    off = np.abs(bounds / expected - 1)
    return f"bounds are off by {off.max():.3g}" if off.max() > 1e-9 else ""


def main() -> None:
    device = CudaDevice(0, Nvml(), allow_shared=True)
    try:
        device.target()
        device.canary()
        groups = {f"compare {name}": list(compared(device, name)) for name in (*FLOATING, *WHOLE)}
        groups |= {"rows": list(rows_apart(device))}
        groups |= {"memory": list(filled(device)), "products": list(products(device))}
    finally:
        device.close()
    found = [
        {"group": group, "name": name, "told": told}
        for group, results in groups.items()
        for name, told in results
    ]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
