"""A worker's process that is started before anybody knows what for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.device import target
from sweeper.worker import spare
from sweeper.worker.pool import DeviceWorker
from sweeper.worker.spare import drop_spare, keep_spare, may_need_gpu, take_spare


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    drop_spare()


def test_it_is_taken_once() -> None:
    keep_spare("emulator")
    taken = take_spare("emulator")
    assert taken is not None
    assert taken.child.alive
    assert take_spare("emulator") is None
    taken.close()
    assert not Path(taken.scratch.name).exists()


def test_another_backend_does_not_take_it() -> None:
    keep_spare("emulator")
    assert take_spare("cuda") is None


def test_one_that_has_died_is_not_given_away() -> None:
    keep_spare("emulator")
    spare._kept[0].child.kill()
    assert take_spare("emulator") is None


def test_what_nobody_took_is_ended() -> None:
    keep_spare("emulator")
    process = spare._kept[0]
    drop_spare()
    assert not process.child.alive
    assert not Path(process.scratch.name).exists()


def test_a_worker_begins_with_it() -> None:
    keep_spare("emulator")
    pid = spare._kept[0].child.pid
    with DeviceWorker("emulator", target="h200") as worker:
        assert worker.identify()[0] == target("h200")
        assert worker._child.pid == pid
        assert worker.restarts == 0


def test_a_worker_of_other_ways_leaves_it(tmp_path: Path) -> None:
    keep_spare("emulator")
    with DeviceWorker("emulator", scratch=tmp_path) as worker:
        worker.identify()
    assert take_spare("emulator") is not None


def test_one_for_a_gpu_is_worth_a_start_only_where_a_driver_has_left_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spare.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(spare, "_DEVICE_FILES", (str(tmp_path / "nvidiactl"),))
    assert not may_need_gpu()
    (tmp_path / "nvidiactl").touch()
    assert may_need_gpu()
    monkeypatch.setattr(spare.importlib.util, "find_spec", lambda name: None)
    assert not may_need_gpu()
