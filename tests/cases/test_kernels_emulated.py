"""Kernels in the emulator pass what kernels on a GPU pass."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("contract.kernel_contract")

from contract.kernel_contract import KernelContract  # noqa: E402


class TestEmulatedKernels(KernelContract):
    backend = "emulator"
