"""Kernels on a GPU: proved right where they are, found out where they are not, and never at the others' cost."""

from __future__ import annotations

import pytest
from bench_rig import no_gpu

pytest.register_assert_rewrite("contract.kernel_contract")

from contract.kernel_contract import KernelContract  # noqa: E402

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")


class TestKernelsOnGpu(KernelContract):
    backend = "cuda"
