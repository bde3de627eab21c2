"""Faults that a run survives: each test runs in an empty folder; builds are shared, so that reruns are quick."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("command_rig")

from command_rig import PretendedGpu  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have folders of their own beside each other.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sweeper-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPER_CACHE", str(root))
        yield root


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are given in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedGpu:
    return PretendedGpu(tmp_path / "gpu", monkeypatch)
