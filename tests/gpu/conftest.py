"""Which tests may share the GPU among processes: those on a bench, which prove results right and time nothing."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "bench" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shares_gpu)
