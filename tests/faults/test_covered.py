"""Every fault of the list has a test that is there."""

from __future__ import annotations

import re

import pytest
from covered import FAULTS, ON_A_GPU, TESTS


@pytest.mark.parametrize("test", sorted({t for tests in FAULTS.values() for t in tests} | set(ON_A_GPU)))
def test_a_named_test_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *def test_{name}\(", text, re.MULTILINE), f"{file} has no test_{name}"
