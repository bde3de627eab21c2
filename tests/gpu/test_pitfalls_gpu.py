"""The pitfalls on a GPU: right at every edge."""

from __future__ import annotations

import pytest
from bench_rig import no_gpu

pytest.register_assert_rewrite("contract.pitfalls_contract")

from contract.pitfalls_contract import PitfallsContract  # noqa: E402

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")


class TestPitfallsOnGpu(PitfallsContract):
    backend = "cuda"
    # What differs among the classes is the arithmetic, which the ladder's tests prove: these share it.
    classes = ("float32",)
