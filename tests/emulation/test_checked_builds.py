"""Checked modules beside plain ones: in the cache, in either launcher, and until a deadline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check_rig import Kernels, given, out
from emulation_rig import Rig

from sweeper.build.cache import BuildCache
from sweeper.build.host import HostBuilder
from sweeper.build.source import TranslationUnit
from sweeper.emulation import Fault, FindingKind, Geometry, Scalar, launch, launcher_path
from sweeper.errors import TrialFailed

TEXT = """
__global__ void race(float* C) {
  __shared__ float tile[32];
  tile[threadIdx.x] = 1;
  C[threadIdx.x] = tile[threadIdx.x ^ 1];  //race
}

__global__ void hangs(float* C, int n) {
  if (n == 0) C[64] = 1;  //outside
  while (n == 0) {
    asm volatile("" ::: "memory");
  }
}

__global__ void warp_sum(const float* A, float* C) {
  float sum = A[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  __syncthreads();
  C[threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, rig: Rig) -> Kernels:
    return Kernels(rig.compiler, tmp_path_factory.mktemp("checked"), TEXT)


def unit(folder: Path) -> TranslationUnit:
    return TranslationUnit(
        name="race.cu",
        text=f'#line 1 "race.cu"\n{TEXT}',
        source=folder / "race.cu",
        entry="race",
        template_args=(),
        signature="race",
        defines=(),
        include_dirs=(),
        options=(),
        source_digest="0",
        digest="race",
    )


def test_checked_builds_have_keys_of_their_own(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    plain, checked = HostBuilder(cache), HostBuilder(cache, checked=True)
    assert plain.key(unit(tmp_path), "sm_90") != checked.key(unit(tmp_path), "sm_90")
    builds = [b.build(unit(tmp_path), arch="sm_90", deadline_s=60) for b in (plain, checked)]
    assert [build.kind for build in builds] == ["host", "host-checked"]
    assert [build.static_shared_bytes for build in builds] == [128, 128]
    again = checked.build(unit(tmp_path), arch="sm_90", deadline_s=60)
    assert again.cached
    geometry = Geometry((1, 1, 1), (32, 1, 1), 0, 128)
    launcher = launcher_path(checked.compiler)
    report = launch(launcher, again.artifact, [out()], geometry, checked=True)
    assert FindingKind.RACE_SHARED in {finding.kind for finding in report.findings}
    assert launch(launcher, builds[0].artifact, [out()], geometry).ok


def test_a_kernel_that_only_a_gpu_can_run_is_told_from_one_with_an_error(tmp_path: Path) -> None:
    builder = HostBuilder(BuildCache(tmp_path), checked=True)
    for text, kind in (('asm volatile("bar.sync 0;");', "NotEmulable"), ("nonsense", "CompileError")):
        broken = replace(unit(tmp_path), text=f"__global__ void race() {{ {text} }}", digest=kind)
        with pytest.raises(TrialFailed) as failed:
            builder.build(broken, arch="sm_90", deadline_s=60)
        assert failed.value.details["type"] == kind


def test_what_was_found_before_the_deadline_is_kept(kernels: Kernels) -> None:
    report = kernels.run("hangs", out(), Scalar("n", np.int32(0)), deadline_s=0.5)
    assert (report.ok, report.kind) == (False, Fault.TIMEOUT)
    assert [finding.first for finding in report.findings] == [kernels.place("outside")]


def test_any_way_from_fiber_to_fiber_gives_the_same_findings(kernels: Kernels) -> None:
    launcher = launcher_path(kernels.rig.compiler, portable_switch=True)
    number = kernels.names.index("race")
    geometry = Geometry((1, 1, 1), (32, 1, 1), 0, 128)
    portable = launch(launcher, kernels.module, [out()], geometry, kernel=number, checked=True)
    assert portable.findings
    assert portable.findings == kernels.findings("race", out(), block=32)
    number = kernels.names.index("warp_sum")
    report = launch(launcher, kernels.module, [given(), out()], geometry, kernel=number, checked=True)
    assert (report.ok, report.findings) == (True, ())


def test_the_same_findings_come_of_any_number_of_workers(kernels: Kernels) -> None:
    one, four = (kernels.findings("race", out(), block=32, grid=9, workers=workers) for workers in (1, 4))
    assert one == four
