"""The rungs on wmma and mma.sync on a GPU: right at every edge and alignment, in every class."""

from __future__ import annotations

import pytest
from bench_rig import no_gpu

pytest.register_assert_rewrite("contract.tensor_contract")

from contract.tensor_contract import TensorContract  # noqa: E402

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")


class TestTensorLadderOnGpu(TensorContract):
    backend = "cuda"
