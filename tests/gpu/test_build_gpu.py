"""On a GPU: what nvcc and nvrtc made loads, runs, and has the figures that the driver reports.

PyCUDA is used in a process of its own, as the product does: this one never imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
from specs import gemm_spec, param_specs

from sweeper.build.cache import BuildCache
from sweeper.build.cubin_builder import CubinBuilder
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.nvrtc import NvrtcBuilder
from sweeper.build.source import translation_unit
from sweeper.errors import TrialFailed
from sweeper.expressions import Value
from sweeper.model import Build, Point

PROBE = """
import json, sys
import numpy as np
import pycuda.driver as drv
drv.init()
context = drv.Device(0).make_context()
try:
    cubin, entry, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    function = drv.module_from_file(cubin).get_function(entry)
    out = drv.mem_alloc(4 * count)
    function(out, np.int32(count), block=(count, 1, 1), grid=(1, 1))
    values = np.empty(count, np.float32)
    drv.memcpy_dtoh(values, out)
    print(json.dumps({
        "registers": function.num_regs, "shared": function.shared_size_bytes,
        "local": function.local_size_bytes, "values": values.tolist(),
    }))
finally:
    context.pop()
"""

DEVICE = """
import pycuda.driver as drv
drv.init()
print("%d%d" % drv.Device(0).compute_capability())
"""

TEMPLATE_CU = """
#include <cuda_fp16.h>
template <typename T, int FACTOR> __global__ void fill(T* out, int n) {
  __shared__ T tile[256];
  tile[threadIdx.x] = T(FACTOR * int(threadIdx.x));
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
template __global__ void fill<float, 7>(float*, int);
"""

MACRO_CU = """
extern "C" __global__ void fill(float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = FACTOR * int(n - 1 - threadIdx.x);
}
"""


@pytest.fixture(scope="module")
def arch() -> str:
    """The GPU's architecture, `sm_90`."""
    try:
        return f"sm_{programs.output(DEVICE).strip()}"
    except RuntimeError as error:
        pytest.skip(f"no GPU with PyCUDA: {str(error).strip().splitlines()[-1]}")


@pytest.fixture(params=["nvcc", "nvrtc"])
def builder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CubinBuilder]:
    cache = BuildCache(tmp_path / "cache")
    made: CubinBuilder = NvccBuilder(cache) if request.param == "nvcc" else NvrtcBuilder(cache)
    yield made
    made.close()


@pytest.fixture
def nvcc(tmp_path: Path) -> Iterator[NvccBuilder]:
    made = NvccBuilder(BuildCache(tmp_path / "nvcc"))
    yield made
    made.close()


def build(
    builder: CubinBuilder, arch: str, folder: Path, text: str, *, template: bool, **params: Value
) -> Build:
    (folder / "fill.cu").write_text(text)
    levels = {name: (value,) for name, value in params.items()}
    spec = gemm_spec("fill", params=levels, template=template, source=folder / "fill.cu", entry="fill")
    assert spec.params == param_specs(levels)
    return builder.build(translation_unit(spec, Point.of(params)), arch=arch, deadline_s=120)


def probe(made: Build, count: int = 256) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(programs.output(PROBE, str(made.artifact), made.entry, str(count)))
    return answer


@pytest.mark.parametrize("factor", [3, 7])
def test_the_chosen_instance_of_a_template_is_what_runs(
    arch: str, builder: CubinBuilder, tmp_path: Path, factor: int
) -> None:
    made = build(builder, arch, tmp_path, TEMPLATE_CU, template=True, FACTOR=factor)
    assert probe(made)["values"] == [float(factor * (255 - i)) for i in range(256)]


def test_a_plain_kernel_runs_with_its_macros(arch: str, builder: CubinBuilder, tmp_path: Path) -> None:
    made = build(builder, arch, tmp_path, MACRO_CU, template=False, FACTOR=5)
    assert made.entry == "fill"
    assert probe(made, 64)["values"] == [float(5 * (63 - i)) for i in range(64)]


def test_figures_are_those_of_the_driver(arch: str, builder: CubinBuilder, tmp_path: Path) -> None:
    made = build(builder, arch, tmp_path, TEMPLATE_CU, template=True, FACTOR=7)
    found = probe(made)
    assert (made.registers, made.static_shared_bytes) == (found["registers"], found["shared"])
    assert made.local_bytes == found["local"]


def test_pycudas_compiler_is_the_one_that_ran(arch: str, nvcc: NvccBuilder, tmp_path: Path) -> None:
    """Its warnings carry what nvcc said, which the log keeps."""
    made = build(nvcc, arch, tmp_path, MACRO_CU, template=False, FACTOR=1)
    log = nvcc.cache.log_path(made.key).read_text()
    assert "The CUDA compiler succeeded, but said the following" in log


def test_an_error_through_pycuda_keeps_nvccs_message(arch: str, nvcc: NvccBuilder, tmp_path: Path) -> None:
    with pytest.raises(TrialFailed) as caught:
        build(nvcc, arch, tmp_path, MACRO_CU, template=False, OTHER=1)
    assert caught.value.reason == 'fill.cu(3): error: identifier "FACTOR" is undefined'


WGMMA_CU = """
#include <cuda.h>
#include <stdint.h>
extern "C" __global__ void fill(float* out, int n) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  if (threadIdx.x < n) out[threadIdx.x] = float(uint32_t(FACTOR)) * int(n - 1 - threadIdx.x);
}
"""


def test_instructions_of_one_architecture_alone_run(arch: str, builder: CubinBuilder, tmp_path: Path) -> None:
    if arch != "sm_90":
        pytest.skip(f"{arch} has no wgmma")
    made = build(builder, "sm_90a", tmp_path, WGMMA_CU, template=False, FACTOR=5)
    assert probe(made, 128)["values"] == [float(5 * (127 - i)) for i in range(128)]


def test_both_compilers_make_the_same_kernel(arch: str, nvcc: NvccBuilder, tmp_path: Path) -> None:
    nvrtc = NvrtcBuilder(BuildCache(tmp_path / "nvrtc"))
    try:
        pair = [build(b, arch, tmp_path, TEMPLATE_CU, template=True, FACTOR=3) for b in (nvcc, nvrtc)]
    finally:
        nvrtc.close()
    assert pair[0].entry == pair[1].entry
    assert probe(pair[0])["values"] == probe(pair[1])["values"]
