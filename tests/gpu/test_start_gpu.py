"""On a GPU: what is known of a device before it is opened is what it says once it is."""

from __future__ import annotations

import pytest

from sweeper.backend.cuda import CudaBackend
from sweeper.device.present import why_no_gpu
from sweeper.errors import SetupError
from sweeper.worker.pool import DeviceWorker

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))


def test_identifying_and_opening_tell_the_same() -> None:
    with DeviceWorker("cuda") as worker:
        known = worker.identify()
        assert worker.open() == known


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(SetupError, match="there is no CUDA device 99"):
        CudaBackend().identify(99, None)


def test_a_device_that_another_worker_has_claimed_is_refused_at_once() -> None:
    with DeviceWorker("cuda") as first, DeviceWorker("cuda") as second:
        first.identify()
        with pytest.raises(SetupError, match="in use by another sweep"):
            second.identify()
