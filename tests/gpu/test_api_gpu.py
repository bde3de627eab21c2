"""On a GPU: `load_kernel` on arrays of torch and of our own, and `tune` beside a context of the caller's.

Each case runs in a process of its own, `python tests/gpu/test_api_gpu.py NAME`: a context that the tests' process
held would be another user of the device to all that follow.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__)
SAXPY = HERE.parents[2] / "docs" / "examples" / "saxpy" / "saxpy.yaml"

if __name__ != "__main__":
    from bench_rig import no_gpu

    pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="no torch")


def row(kernel: str, dims: dict[str, int], params: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
    return {"kernel": kernel, "dtype": dtype, "dims": dims, "params": params}


def default_row(kernel: str, m: int, n: int, k: int, *words: str) -> dict[str, Any]:
    """The kernel's default configuration at those sizes."""
    from sweeper.check.compose import Composer

    with Composer() as composer:
        spec, _ = composer.compose([f"kernel={kernel}", *words])
    found = row(kernel, {"M": m, "N": n, "K": k}, spec.default_point.params, spec.dtype.name)
    return {**found, "layout": spec.layout}


# --- Without torch ------------------------------------------------------------------------------------


class DeviceArray:
    """An array in the primary context, with the CUDA array interface."""

    def __init__(self, device: Any, data: np.ndarray) -> None:
        self._device, self._data = device, data
        with device.current():
            self._held = device.drv.mem_alloc(data.nbytes)
            device.drv.memcpy_htod(self._held, data)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self._data.shape,
            "typestr": self._data.dtype.str,
            "data": (int(self._held), False),
            "strides": None,
            "version": 3,
        }

    def get(self) -> np.ndarray:
        with self._device.current():
            self._device.drv.Context.synchronize()
            self._device.drv.memcpy_dtoh(self._data, self._held)
        return self._data


def multiplied(kernel: Any, m: int, n: int, k: int) -> None:
    """The kernel computes a product of these sizes, on arrays of our own."""
    from sweeper.backend.cuda.shared_device import SharedDevice

    device, rng = SharedDevice(0), np.random.default_rng(1)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    c = DeviceArray(device, np.zeros((m, n), np.float32))
    kernel(DeviceArray(device, a), DeviceArray(device, b), c)
    np.testing.assert_allclose(c.get(), a.astype(np.float64) @ b, rtol=1e-4)


def plain() -> None:
    """Other sizes than it was tuned at, edges too, by the same build."""
    from sweeper import load_kernel

    kernel = load_kernel(row("tiled", {"M": 512, "N": 512, "K": 512}, {"tile": 16}))
    for sizes in ((512, 512, 512), (131, 77, 201), (1, 1, 1)):
        multiplied(kernel, *sizes)
    assert kernel.cubin.startswith(b"\x7fELF")
    assert "gemm_tiled" in kernel.source
    assert kernel.build.registers


def tensor_maps() -> None:
    """Tensor maps by value, for arrays of two sizes."""
    from sweeper import load_kernel

    kernel = load_kernel(default_row("tma_pipeline", 512, 512, 512))
    for sizes in ((512, 512, 512), (384, 256, 128)):
        multiplied(kernel, *sizes)


def workspace() -> None:
    """Parts of K added through a workspace, twice: the counters are as a launch leaves them."""
    from sweeper import load_kernel

    found = default_row("split_k", 128, 256, 4096)
    found["params"]["splits"] = 4
    kernel = load_kernel(found)
    for _ in range(3):
        multiplied(kernel, 128, 256, 4096)


def other_streams() -> None:
    """A launch on one stream waits for an array that is being made on another."""
    from sweeper import load_kernel
    from sweeper.backend.cuda.shared_device import SharedDevice

    device = SharedDevice(0)
    kernel = load_kernel(row("tiled", {"M": 64, "N": 64, "K": 64}, {"tile": 16}))
    ones = np.ones((64, 64), np.float32)
    a, b, c = (DeviceArray(device, data.copy()) for data in (ones, ones, 0 * ones))
    with device.current():
        first, second = device.drv.Stream(), device.drv.Stream()
        told = {**a.__cuda_array_interface__, "stream": int(first.handle)}

    kernel(SimpleNamespace(__cuda_array_interface__=told), b, c, stream=second)
    np.testing.assert_array_equal(c.get(), np.full((64, 64), 64, np.float32))


def wrong_device_memory() -> None:
    """An address that is nobody's is refused before anything is launched."""
    from sweeper import load_kernel
    from sweeper.errors import ConfigError

    kernel = load_kernel(row("tiled", {"M": 64, "N": 64, "K": 64}, {"tile": 16}))

    told = {"shape": (64, 64), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}
    nowhere = SimpleNamespace(__cuda_array_interface__=told)
    with pytest.raises(ConfigError, match="not known to the CUDA driver"):
        kernel(nowhere, nowhere, nowhere)


def tuned_and_called(folder: str) -> None:
    """A search, its winner as a kernel, and another search while this process holds a context."""
    from sweeper import best, tune

    found = tune("tiled", "small", budget=2, measure="quick", results_dir=folder, progress=False)
    assert set(found.table["time_source"]) == {"measured"}
    kernel = found.load()
    multiplied(kernel, 512, 512, 512)
    assert kernel.params == found.params
    again = tune("tiled", "tiny", budget=2, measure="quick", results_dir=folder, progress=False)
    assert again.best["time_source"] == "measured"
    choice = best((512, 512, 512), results=folder)
    assert choice.exact


# --- With torch ---------------------------------------------------------------------------------------


def torch_float32() -> None:
    import torch

    from sweeper import load_kernel

    kernel = load_kernel(row("tiled", {"M": 512, "N": 512, "K": 512}, {"tile": 16}))
    a, b = torch.rand(300, 200, device="cuda"), torch.rand(200, 100, device="cuda")
    c = torch.empty(300, 100, device="cuda")
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


def torch_bfloat16() -> None:
    import torch

    from sweeper import load_kernel

    kernel = load_kernel(default_row("wgmma", 512, 512, 512, "++kernel.dtype=bfloat16"))
    a, b = (torch.randn(512, 512, device="cuda").bfloat16() for _ in "ab")
    c = torch.empty(512, 512, device="cuda", dtype=torch.bfloat16)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=2e-2, atol=0.5)


def torch_streams_and_slices() -> None:
    """On torch's current stream, in order with what torch queues there, and on rows that lie apart."""
    import torch

    from sweeper import load_kernel

    kernel = load_kernel(row("tiled", {"M": 512, "N": 512, "K": 512}, {"tile": 16}))
    wide = torch.rand(256, 512, device="cuda")
    b, c = torch.rand(128, 64, device="cuda"), torch.zeros(256, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(20):
            wide.mul_(1.0)
        kernel(wide[:, :128], b, c)
        twice = c * 2
    torch.cuda.synchronize()
    torch.testing.assert_close(
        twice.double(), 2 * (wide[:, :128].double() @ b.double()), rtol=1e-4, atol=1e-4
    )


def torch_graph() -> None:
    """Recorded into a CUDA graph once its sizes are known."""
    import torch

    from sweeper import load_kernel

    kernel = load_kernel(row("tiled", {"M": 64, "N": 64, "K": 64}, {"tile": 16}))
    a, b, c = (torch.rand(64, 64, device="cuda") for _ in "abc")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernel(a, b, c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        kernel(a, b, c)
    a.copy_(torch.rand(64, 64, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


def torch_saxpy() -> None:
    """A kernel of one's own, in place, with a scalar of the caller's."""
    import torch

    from sweeper import load_kernel

    found = row("saxpy", {"N": 1024}, {"block": 128, "PER_THREAD": 4})
    kernel = load_kernel(found, kernel=SAXPY)
    x, y = torch.rand(10_000, device="cuda"), torch.rand(10_000, device="cuda")
    wanted = 3.0 * x + y
    kernel(x, y, a=3.0)
    torch.testing.assert_close(y, wanted)


# --- The tests ----------------------------------------------------------------------------------------


def runs(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE), name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize(
    "case", ["plain", "tensor_maps", "workspace", "other_streams", "wrong_device_memory"]
)
def test_arrays_of_ones_own(case: str) -> None:
    runs(case)


def test_tuning_and_calling_in_one_process(tmp_path: Path) -> None:
    runs("tuned_and_called", str(tmp_path))


@needs_torch
@pytest.mark.parametrize(
    "case",
    ["torch_float32", "torch_bfloat16", "torch_streams_and_slices", "torch_graph", "torch_saxpy"],
)
def test_tensors_of_torch(case: str) -> None:
    runs(case)


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]
    globals()[sys.argv[1]](*sys.argv[2:])
