"""One worker owns the device; when it dies, a successor takes up where it stood."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
from fake_worker import spec_in

from sweeper.backend.base import MeasureProtocol
from sweeper.config import MeasureConfig
from sweeper.device import target
from sweeper.errors import ConfigError, SetupError, TrialFailed, WorkerError
from sweeper.model import Build, Check, Launch, Point, Stage, Status
from sweeper.problem import resolve
from sweeper.process import child
from sweeper.worker import pool
from sweeper.worker.pool import Deadlines, DeviceWorker

HERE = str(Path(__file__).parent)
BUILD = Build("key", "nvcc", Path("k.cubin"), "act_kernel", "nvcc 13")
ERROR = {"error": {"type": "SetupError", "message": "no", "hint": None}}
FAST = Deadlines(slack_s=0.0, backoff_s=0.0)


@pytest.fixture
def spec(tmp_path):
    return spec_in(tmp_path)


@pytest.fixture
def worker(tmp_path):
    with DeviceWorker(
        "fake", scratch=tmp_path, deadlines=FAST, module="fake_worker", env={"PYTHONPATH": HERE}
    ) as made:
        yield made


def prepared(worker, spec):
    worker.open()
    worker.prepare(spec, {"N": 4}, seed=1)
    return worker


def measure(worker, act: str, **protocol):
    return worker.measure(Point.of({"act": act}), BUILD, MeasureProtocol(**protocol))


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split("\n")[:-1]


def fail(worker, act: str, **protocol) -> TrialFailed:
    with pytest.raises(TrialFailed) as caught:
        measure(worker, act, **protocol)
    return caught.value


def test_opening_gives_limits_and_identity(tmp_path):
    options = {"scratch": tmp_path, "module": "fake_worker", "env": {"PYTHONPATH": HERE}}
    with DeviceWorker("fake", device=2, target="a100", **options) as worker:
        limits, identity = worker.open()
    assert limits == target("a100")
    assert identity.index == 2


def test_devices_are_counted_in_pci_order(worker):
    assert worker.open()[1].driver == "PCI_BUS_ID"


def test_a_device_is_known_before_it_is_opened(worker, tmp_path):
    limits, identity = worker.identify()
    assert (limits, identity.uuid) == (target("h200"), "FAKE-0")
    assert calls(tmp_path) == ["identify"]


def test_the_first_problem_opens_it_with_the_inputs_on_their_way(worker, spec, tmp_path):
    worker.identify()
    worker.prepare(spec, {"N": 4}, seed=1)
    assert calls(tmp_path) == ["identify", "open", "prepare 4 with inputs"]
    assert worker.restarts == 0
    worker.prepare(spec, {"N": 8}, seed=1)
    assert calls(tmp_path)[-1] == "prepare 8"


def test_another_device_than_the_known_one_is_refused(worker, spec, tmp_path):
    worker.identify()
    (tmp_path / "uuid").write_text("FAKE-9")
    with pytest.raises(SetupError, match="another one now: FAKE-9, before FAKE-0"):
        worker.prepare(spec, {"N": 4}, seed=1)


def test_a_refusal_to_be_known_is_the_users_to_hear(worker, tmp_path):
    (tmp_path / "nameless").touch()
    with pytest.raises(SetupError, match="no driver"):
        worker.identify()
    assert calls(tmp_path) == ["identify"]


def test_a_worker_that_died_since_it_was_known_is_started_again(worker, spec, tmp_path):
    worker.identify()
    worker.kill()
    worker.prepare(spec, {"N": 4}, seed=1)
    assert worker.restarts == 1
    assert calls(tmp_path) == ["identify", "open", "prepare 4 with inputs"]


def test_a_configuration_is_measured(worker, spec):
    outcome = measure(prepared(worker, spec), "right", cache="warm")
    assert outcome.check.passed
    assert outcome.build == BUILD
    assert outcome.timing.samples_ms == (0.5, math.inf)
    assert outcome.timing.method == "cache warm"


def test_a_configured_protocol_with_more_fields_is_understood(worker, spec):
    outcome = prepared(worker, spec).measure(
        Point.of({"act": "right"}), BUILD, MeasureConfig(name="quick", cache="warm")
    )
    assert outcome.timing.cache == "warm"


def test_a_baseline_is_measured(worker, spec):
    outcome = prepared(worker, spec).baseline("cublas", MeasureProtocol())
    assert outcome.note == "cuBLAS 13.0"


def test_an_error_keeps_its_type_and_hint(worker, spec):
    with pytest.raises(ConfigError, match="unknown library magma") as caught:
        prepared(worker, spec).baseline("magma", MeasureProtocol())
    assert caught.value.hint == "use cublas"


def test_a_failed_configuration_keeps_check_and_launch(worker, spec):
    failure = fail(prepared(worker, spec), "wrong")
    assert failure.status is Status.WRONG_RESULT
    assert failure.stage is Stage.VERIFY
    assert isinstance(failure.details["check"], Check)
    assert math.isnan(failure.details["check"].mismatches[0].got)
    assert failure.details["launch"] == Launch((32, 1, 1), (1, 1, 1), 0)


def test_a_refused_launch_leaves_the_worker_as_it_is(worker, spec, tmp_path):
    failure = fail(prepared(worker, spec), "launch")
    assert (failure.status, failure.reason) == (Status.LAUNCH_ERROR, "threads 2048 > 1024")
    measure(worker, "right")
    assert calls(tmp_path).count("open") == 1
    assert worker.restarts == 0


def test_a_kernel_that_never_ends_is_a_timeout_and_the_next_point_is_right(worker, spec, tmp_path):
    failure = fail(prepared(worker, spec), "hang", deadline_s=0.5)
    assert failure.status is Status.TIMEOUT
    assert "no result within 0.5 s" in failure.reason
    assert failure.details["deadline_s"] == pytest.approx(0.5, abs=0.1)
    assert measure(worker, "right").check.passed
    assert worker.restarts == 1


def test_a_crash_names_the_signal_and_the_culprit(worker, spec):
    failure = fail(prepared(worker, spec), "segfault")
    assert failure.status is Status.CRASH
    assert "killed by SIGSEGV" in failure.reason
    assert failure.details["signal"] == "SIGSEGV"
    assert 'current: measure {"act":"segfault"}' in failure.details["output"]
    assert failure.details["restarts"] == 0


def test_a_crash_quotes_the_last_words(worker, spec):
    failure = fail(prepared(worker, spec), "exit")
    assert "exited with code 9: the driver gave up" in failure.reason
    assert failure.details["exit_status"] == 9


def test_a_successor_is_proved_and_prepared_before_it_goes_on(worker, spec, tmp_path):
    fail(prepared(worker, spec), "segfault")
    measure(worker, "right")
    after = calls(tmp_path)[calls(tmp_path).index("measure segfault") + 1 :]
    assert after == ["open", "canary", "prepare 4 with inputs", "measure right"]


def test_a_lost_context_gets_a_new_process(worker, spec, tmp_path):
    failure = fail(prepared(worker, spec), "sticky")
    assert failure.status is Status.CRASH
    assert failure.details["sticky"]
    assert "device-side assert in act.cu:1" in failure.details["output"]
    assert measure(worker, "right").check.passed
    assert calls(tmp_path).count("open") == 2


def test_printed_results_are_no_results(worker, spec):
    assert measure(prepared(worker, spec), "print").check.checked == 4


def test_an_unforeseen_exception_stops_the_sweep(worker, spec):
    with pytest.raises(WorkerError, match="KeyError in _bug"):
        measure(prepared(worker, spec), "bug")


def test_a_broken_device_stops_the_sweep(worker, spec):
    with pytest.raises(SetupError, match="fell off the bus"):
        measure(prepared(worker, spec), "broken")


def test_too_large_a_problem_fails_alone(worker, spec):
    worker.open()
    with pytest.raises(TrialFailed) as caught:
        worker.prepare(spec, {"N": 2_000_000}, seed=1)
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert measure(prepared(worker, spec), "right").check.passed


def test_a_device_that_is_refused_is_reported_at_once(worker, tmp_path):
    (tmp_path / "at_open").write_text("refuse 1")
    with pytest.raises(SetupError, match="no such device") as caught:
        worker.open()
    assert not isinstance(caught.value, WorkerError)
    assert calls(tmp_path) == ["open"]


def test_a_worker_that_dies_at_start_is_tried_again(worker, tmp_path):
    (tmp_path / "at_open").write_text("die 4")
    worker.open()
    assert calls(tmp_path).count("open") == 5


def test_five_deaths_at_start_in_a_row_end_it_with_the_first_error_quoted(worker, tmp_path):
    (tmp_path / "at_open").write_text("die 5")
    with pytest.raises(WorkerError, match="5 times in a row") as caught:
        worker.open()
    assert "undefined symbol number 5" in caught.value.message
    assert calls(tmp_path).count("open") == 5


def test_five_refusals_after_a_crash_end_it(worker, spec, tmp_path):
    fail(prepared(worker, spec), "segfault")
    (tmp_path / "at_open").write_text("refuse 5")
    with pytest.raises(WorkerError, match="no such device"):
        measure(worker, "right")


def test_a_refusal_after_a_crash_may_pass(worker, spec, tmp_path):
    fail(prepared(worker, spec), "segfault")
    (tmp_path / "at_open").write_text("refuse 2")
    assert measure(worker, "right").check.passed


def test_a_device_that_does_not_open_is_given_up_early(tmp_path):
    (tmp_path / "at_open").write_text("hang 9")
    options = {"scratch": tmp_path, "module": "fake_worker", "env": {"PYTHONPATH": HERE}}
    deadlines = Deadlines(open_s=1.5, backoff_s=0.0)
    with (
        DeviceWorker("fake", deadlines=deadlines, **options) as worker,
        pytest.raises(WorkerError, match="2 times"),
    ):
        worker.open()


def test_another_device_after_a_crash_is_refused(worker, spec, tmp_path):
    fail(prepared(worker, spec), "segfault")
    (tmp_path / "uuid").write_text("FAKE-other")
    with pytest.raises(WorkerError, match="another one now"):
        measure(worker, "right")


def test_a_worker_that_cannot_be_killed_makes_the_device_sick(worker, spec, monkeypatch):
    prepared(worker, spec)
    worker._child.reap_s = 0.2
    with monkeypatch.context() as patch:
        patch.setattr(child.os, "killpg", lambda *_: None)
        patch.setitem(child.Child.close.__kwdefaults__, "grace_s", 0.1)
        with pytest.raises(SetupError, match="device 0 is sick"):
            measure(worker, "hang", deadline_s=0.3)
        with pytest.raises(SetupError, match="sick"):
            worker.close()
    worker.kill()


def test_a_closed_worker_answers_no_more(tmp_path):
    options = {"module": "fake_worker", "env": {"PYTHONPATH": HERE}}
    worker = DeviceWorker("fake", scratch=tmp_path, **options)
    worker.open()
    worker.close()
    assert calls(tmp_path) == ["open", "close"]
    with pytest.raises(WorkerError, match="was closed"):
        worker.open()


def test_scratch_files_of_its_own_are_removed():
    worker = DeviceWorker("fake", module="fake_worker", env={"PYTHONPATH": HERE})
    folder = Path(worker._own_scratch.name)
    assert folder.is_dir()
    worker.close()
    assert not folder.exists()


def test_a_killed_worker_is_gone_at_once(worker, spec):
    prepared(worker, spec)
    threading.Timer(0.2, worker.kill).start()
    failure = fail(worker, "hang", deadline_s=60)
    assert (failure.status, failure.details["signal"]) == (Status.CRASH, "SIGKILL")
    assert measure(worker, "right").check.passed


def test_a_point_with_a_problem_of_its_own_gets_time_to_prepare_it(worker, tmp_path, monkeypatch):
    size = ["N if act == 'right' else 2 * N"]
    arrays = [
        {"name": "x", "shape": size, "direction": "in"},
        {"name": "y", "shape": size, "direction": "out"},
    ]
    spec = spec_in(tmp_path, "const T* x, T* y", args=arrays)
    prepared(worker, spec)
    deadlines = []
    monkeypatch.setattr(
        worker._child,
        "request",
        lambda message, deadline_s: deadlines.append(deadline_s) or {"ok": False, **ERROR},
    )
    for act in ("right", "print"):
        with pytest.raises(SetupError):
            measure(worker, act, deadline_s=10)
    assert deadlines[0] == pytest.approx(10, abs=1)
    assert deadlines[1] > deadlines[0] + 100


def test_larger_problems_get_more_time(spec):
    deadlines, protocol = Deadlines(), MeasureProtocol(deadline_s=10)
    small = resolve(spec, {"N": 4}, spec.default_point, seed=0)
    large = resolve(spec, {"N": 10**9}, spec.default_point, seed=0)
    assert deadlines.prepare(large) > deadlines.prepare(small) + 100
    assert deadlines.measure(large, protocol) > deadlines.measure(small, protocol) + 100
    assert deadlines.measure(None, protocol) == 15


def test_the_last_words_are_those_meant_for_a_reader():
    output = "the driver gave up\ncurrent: measure {}\n\nFatal Python error: Segmentation fault\n  File x\n"
    assert pool._last_words(output) == "the driver gave up"
    assert pool._last_words("current: open {}\n") == ""
    assert pool._shown_output("last words\nExtension modules: numpy, a, b") == "last words"
