"""Leading dimensions and scratch in the emulator."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("contract.storage_contract")

from contract.storage_contract import StorageContract  # noqa: E402


class TestEmulatedStorage(StorageContract):
    backend = "emulator"
