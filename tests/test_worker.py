"""A worker answers requests with outcomes, or with failures that say whose fault they are."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from fake_worker import FakeBackend, spec_in

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device import DeviceIdentity, Target, target
from sweeper.model import Build, Check
from sweeper.process import StopServing
from sweeper.wire import from_wire, to_wire
from sweeper.worker import main as worker
from sweeper.worker.operations import Operations

BUILD = Build("key", "nvcc", Path("k.cubin"), "act_kernel", "nvcc 13")


@pytest.fixture
def ask(tmp_path):
    return Operations(FakeBackend(tmp_path))


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split("\n")[:-1]


def opened(ask, folder: Path, **changes):
    """`ask`, opened and with a kernel in `folder` prepared."""
    spec = spec_in(folder, **changes)
    assert ask({"op": "open", "device": 0, "target": None})["ok"]
    node = json.loads(spec.node_json)
    request = {"op": "prepare", "kernel": node, "path": str(spec.path), "dims": {"N": 4}, "seed": 1}
    assert ask(request) == {"ok": True}
    return ask


def measure(ask, act: str, **protocol):
    request = {
        "params": {"act": act},
        "build": to_wire(BUILD),
        "protocol": to_wire(MeasureProtocol(**protocol)),
    }
    return ask({"op": "measure", **request})


def test_opening_tells_limits_and_identity(ask):
    reply = ask({"op": "open", "device": 1, "target": "a100"})
    assert from_wire(Target, reply["target"]) == target("a100")
    assert from_wire(DeviceIdentity, reply["identity"]).index == 1


def test_measuring_gives_an_outcome(ask, tmp_path):
    reply = measure(opened(ask, tmp_path), "right", cache="warm")
    outcome = from_wire(Outcome, reply["outcome"])
    assert outcome.check.passed
    assert outcome.build == BUILD
    assert outcome.launch.block == (32, 1, 1)
    assert outcome.timing.samples_ms == (0.5, math.inf)
    assert outcome.timing.cache == "warm"


def test_a_baseline_gives_an_outcome_without_a_build(ask, tmp_path):
    reply = opened(ask, tmp_path)({"op": "baseline", "library": "cublas", "protocol": {}})
    assert from_wire(Outcome, reply["outcome"]).build is None


def test_a_problem_is_prepared_once_for_all_points(ask, tmp_path):
    opened(ask, tmp_path)
    for _ in range(3):
        measure(ask, "right")
    assert calls(tmp_path).count("prepare 4") == 1


def test_a_problem_that_depends_on_the_point_is_prepared_for_it(ask, tmp_path):
    size = ["N if act == 'right' else 2 * N"]
    args = [
        {"name": "x", "shape": size, "direction": "in"},
        {"name": "y", "shape": size, "direction": "out"},
    ]
    ask = opened(ask, tmp_path, parameters="const T* x, T* y", args=args)
    measure(ask, "right")
    measure(ask, "launch")
    measure(ask, "launch")
    assert calls(tmp_path).count("prepare 4") == 2


def test_scalars_and_scratch_that_depend_on_the_point_leave_the_problem_as_it_is(ask, tmp_path):
    args = [
        {"name": "x", "shape": ["N"], "direction": "in"},
        {"name": "y", "shape": ["N"], "direction": "out"},
        {"name": "parts", "shape": ["0 if act == 'right' else 2 * N"], "direction": "scratch"},
        {"name": "s", "scalar": "int32", "value": "1 if act == 'right' else 2"},
    ]
    ask = opened(ask, tmp_path, parameters="const T* x, T* y, T* parts, int s", args=args)
    for act in ("right", "launch", "right"):
        measure(ask, act)
    assert calls(tmp_path).count("prepare 4") == 1


def test_a_failed_configuration_keeps_status_stage_reason_and_details(ask, tmp_path):
    reply = measure(opened(ask, tmp_path), "wrong")
    failed = reply["failed"]
    assert (reply["ok"], failed["status"], failed["stage"]) == (False, "wrong_result", "verify")
    assert math.isnan(from_wire(Check, failed["details"]["check"]).mismatches[0].got)


def test_a_sticky_failure_is_the_last_reply(ask, tmp_path):
    with pytest.raises(StopServing) as stop:
        measure(opened(ask, tmp_path), "sticky")
    assert stop.value.reply["failed"]["status"] == "crash"


def test_an_unusable_device_is_an_error_with_its_hint(ask, tmp_path):
    reply = measure(opened(ask, tmp_path), "broken")
    assert reply["error"] == {
        "type": "SetupError",
        "message": "the device fell off the bus",
        "hint": "put it back",
    }


def test_host_memory_is_a_failed_configuration(ask, tmp_path):
    reply = measure(opened(ask, tmp_path), "no_memory")
    assert reply["failed"]["status"] == "out_of_memory"
    assert "3 TiB" in reply["failed"]["reason"]


def test_an_unforeseen_exception_is_reported_with_type_and_place(ask, tmp_path, capsys):
    reply = measure(opened(ask, tmp_path), "bug")
    assert reply["error"]["type"] == "WorkerError"
    assert "KeyError in _bug (fake_worker.py:" in reply["error"]["message"]
    assert "Traceback" in capsys.readouterr().err


def test_an_impossible_launch_is_a_configuration_error(ask, tmp_path):
    reply = measure(opened(ask, tmp_path, launch={"block": ["N - N"], "grid": [1]}), "right")
    assert reply["error"]["type"] == "ConfigError"


def test_a_request_out_of_turn_is_refused(ask):
    assert measure(ask, "right")["error"]["type"] == "SetupError"
    reply = ask({"op": "baseline", "library": "cublas", "protocol": {}})
    assert reply["error"]["type"] == "SetupError"


def test_an_unknown_operation_is_an_error(ask):
    assert not ask({"op": "dance"})["ok"]


def test_a_failed_preparation_leaves_nothing_prepared(ask, tmp_path):
    ask = opened(ask, tmp_path)
    spec = spec_in(tmp_path)
    request = {"op": "prepare", "kernel": json.loads(spec.node_json), "path": str(spec.path), "seed": 1}
    assert ask({**request, "dims": {"N": 2_000_000}})["failed"]["status"] == "out_of_memory"
    assert ask({**request, "dims": {"N": 8}}) == {"ok": True}
    assert measure(ask, "right")["ok"]


def test_the_canary_is_optional():
    class Plain:
        pass

    assert Operations(Plain())({"op": "canary"}) == {"ok": True}


def test_what_is_about_to_run_is_logged_first(ask, tmp_path, capsys):
    measure(opened(ask, tmp_path), "right")
    assert 'current: measure {"act":"right"}' in capsys.readouterr().err


def test_every_backend_has_a_name_and_is_made_only_when_asked_for(tmp_path):
    assert set(worker.BACKENDS) == {"cuda", "emulator"}
    backend = worker.BACKENDS["cuda"](tmp_path, True)
    assert backend.name == "cuda"
    backend.close()


def test_serving_makes_the_backend_at_the_first_request_and_closes_it(tmp_path, monkeypatch):
    made = []

    def make(scratch, allow_shared):
        made.append((scratch, allow_shared))
        return FakeBackend(scratch)

    def serve(handler, *, meanwhile):
        meanwhile()
        assert not made
        assert handler({"op": "open", "device": 0, "target": None})["ok"]
        assert handler({"op": "canary"})["ok"]

    monkeypatch.setattr(worker, "serve", serve)
    monkeypatch.setattr(worker.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        worker.run(["fake", str(tmp_path), "shared"], {"fake": make})
    assert ended.value.code == 0
    assert made == [(tmp_path, True)]
    assert calls(tmp_path) == ["open", "canary", "close"]
