"""Every rung of the GEMM ladder on a GPU: right at every edge, in every class."""

from __future__ import annotations

import pytest
from bench_rig import no_gpu

pytest.register_assert_rewrite("contract.ladder_contract")

from contract.ladder_contract import LadderContract  # noqa: E402

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")


class TestLadderOnGpu(LadderContract):
    backend = "cuda"
