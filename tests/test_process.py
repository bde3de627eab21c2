"""A child process answers over its own channel, or fails in a way that says how; nothing is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeper.errors import SetupError
from sweeper.process import Child, ChildDied, ChildTimeout, ChildUnkillable, StopServing, serve, serving
from sweeper.process import child as child_module

HERE = str(Path(__file__).parent)
ENV = {"PYTHONPATH": HERE}


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def started(*args: str, **options: object) -> Child:
        child = Child("process_children", args, env=ENV, **options)
        child.start()
        children.append(child)
        return child

    yield started
    for child in children:
        child.kill()


def is_running(pid: int) -> bool:
    """Whether `pid` is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def is_soon_gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_request_is_answered(start):
    child = start()
    assert child.request({"op": "echo", "value": [1, "zwei", None, 0.1]}, deadline_s=30) == {
        "echo": [1, "zwei", None, 0.1]
    }
    assert child.alive


def test_requests_are_answered_in_turn(start):
    child = start()
    answers = [child.request({"op": "echo", "value": n}, deadline_s=30)["echo"] for n in range(50)]
    assert answers == list(range(50))


def test_messages_far_beyond_a_pipes_buffer_pass_both_ways(start):
    text = "αβγ\n" * 1_000_000
    assert start().request({"op": "echo", "value": text}, deadline_s=60)["echo"] == text


def test_a_child_has_its_own_session_and_the_callers_environment(start):
    child = Child("process_children", env={**ENV, "COLOUR": "green"})
    with child:
        child.start()
        answer = child.request({"op": "environment", "name": "COLOUR"}, deadline_s=30)
    assert answer == {"value": "green", "own_session": True}
    assert not child.alive


def test_a_file_in_the_current_folder_does_not_stand_in_for_a_module(start, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert start().request({"op": "echo", "value": 1}, deadline_s=30) == {"echo": 1}


def test_no_answer_before_the_deadline_kills_the_child(start):
    child = start()
    pid = child.pid
    with pytest.raises(ChildTimeout, match=r"did not answer within 0\.5 s"):
        child.request({"op": "sleep", "seconds": 600}, deadline_s=0.5)
    assert not child.alive
    assert is_soon_gone(pid)


def test_a_deadline_covers_a_request_that_is_never_read(start):
    child = start("closes")
    with pytest.raises((ChildTimeout, ChildDied)):
        child.request({"op": "echo", "value": "x" * 5_000_000}, deadline_s=3)


def test_the_grandchildren_of_a_child_killed_for_its_deadline_end_too(start):
    child = start()
    grandchild = child.request({"op": "spawn"}, deadline_s=30)["pid"]
    with pytest.raises(ChildTimeout):
        child.request({"op": "sleep", "seconds": 600}, deadline_s=0.3)
    assert is_soon_gone(grandchild)


def test_a_crash_names_the_signal_and_keeps_the_last_words(start):
    child = start()
    with pytest.raises(ChildDied, match="killed by SIGSEGV") as caught:
        child.request({"op": "segfault"}, deadline_s=30)
    assert caught.value.signal_name == "SIGSEGV"
    assert caught.value.exit_status is None
    assert "about to read address 0" in caught.value.output


def test_the_grandchildren_of_a_crashed_child_end_too(start):
    child = start()
    grandchild = child.request({"op": "spawn"}, deadline_s=30)["pid"]
    with pytest.raises(ChildDied):
        child.request({"op": "segfault"}, deadline_s=30)
    assert is_soon_gone(grandchild)


def test_an_exit_names_its_code(start):
    with pytest.raises(ChildDied, match="exited with code 7") as caught:
        start().request({"op": "exit", "code": 7}, deadline_s=30)
    assert caught.value.exit_status == 7
    assert "no more paper" in caught.value.output


def test_an_outside_kill_hints_at_memory(start):
    child = start()
    child.request({"op": "echo"}, deadline_s=30)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="SIGKILL") as caught:
        child.request({"op": "echo"}, deadline_s=30)
    assert "out of memory" in caught.value.hint


def test_an_exception_in_the_handler_shows_its_traceback(start):
    with pytest.raises(ChildDied) as caught:
        start().request({"op": "raise"}, deadline_s=30)
    assert "ZeroDivisionError: the divisor was nought" in caught.value.output


def test_a_reply_that_json_cannot_say_ends_the_child(start):
    with pytest.raises(ChildDied) as caught:
        start().request({"op": "no json"}, deadline_s=30)
    assert "not JSON compliant" in caught.value.output


def test_a_child_that_dies_at_start_is_seen_at_the_first_request(start):
    with pytest.raises(ChildDied, match="exited with code 1") as caught:
        start("dies at start").request({"op": "echo"}, deadline_s=30)
    assert "libanswer.so.42" in caught.value.output


def test_a_dead_child_answers_no_more_until_it_is_started_again(start):
    child = start()
    with pytest.raises(ChildDied):
        child.request({"op": "exit", "code": 0}, deadline_s=30)
    with pytest.raises(ChildDied, match="is not running"):
        child.request({"op": "echo"}, deadline_s=30)
    child.start()
    assert child.request({"op": "echo", "value": 2}, deadline_s=30) == {"echo": 2}


def test_a_flood_of_output_neither_blocks_nor_fills_memory(start):
    child = start()
    child.request({"op": "print", "text": "x" * 1000, "times": 20_000}, deadline_s=60)
    child.request({"op": "print", "text": "the end", "times": 1}, deadline_s=60)
    end = time.monotonic() + 5
    while "the end" not in child.output and time.monotonic() < end:
        time.sleep(0.01)
    assert "the end" in child.output
    assert len(child.output) <= 2 * 65536


@pytest.mark.parametrize(
    "forged", ['{"id": "1", "reply": {"ok": true}}', '{"reply": {"echo": "forged"}}', '{"close": true}']
)
def test_printed_text_cannot_pass_for_a_reply(start, forged):
    child = start()
    assert child.request({"op": "print", "text": forged, "times": 5}, deadline_s=30) == {"done": "print"}
    assert child.request({"op": "echo", "value": "real"}, deadline_s=30) == {"echo": "real"}


@pytest.mark.parametrize(
    "answer",
    [
        "this is not JSON\n",
        "[1, 2]\n",
        '{"id": "0123456789abcdef", "reply": {}}\n',
        '{"id": "ID", "reply": 3}\n',
        '{"id": "ID"}\n',
        '{"id": "ID", "reply": {}}\n{"id": "ID", "reply": {}}\n',
        "\xff\n",
    ],
)
def test_a_reply_that_is_none_ends_the_child(start, answer):
    child = start("answers", answer)
    with pytest.raises(ChildDied, match="no reply and was ended") as caught:
        child.request({"op": "echo"}, deadline_s=30)
    assert caught.value.signal_name is None
    assert not child.alive


def test_a_child_that_closes_its_channel_is_ended(start):
    child = start("closes")
    with pytest.raises(ChildDied, match="closed its channel"):
        child.request({"op": "echo"}, deadline_s=30)
    assert not child.alive


def test_a_last_reply_arrives_before_the_child_ends(start):
    child = start()
    assert child.request({"op": "last"}, deadline_s=30) == {"goodbye": True}
    with pytest.raises(ChildDied):
        child.request({"op": "echo"}, deadline_s=30)


def test_closing_lets_the_child_end_by_itself(start):
    child = start()
    child.request({"op": "echo"}, deadline_s=30)
    grandchild = child.request({"op": "spawn"}, deadline_s=30)["pid"]
    child.close()
    assert not child.alive
    assert is_soon_gone(grandchild)
    child.close()


def test_closing_kills_a_child_that_does_not_listen(start):
    child = start("closes")
    pid = child.pid
    child.close(grace_s=0.1)
    assert is_soon_gone(pid)


def test_interrupting_a_request_kills_the_child(start, monkeypatch):
    child = start()
    child.request({"op": "echo"}, deadline_s=30)

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "_exchange", interrupt)
    with pytest.raises(KeyboardInterrupt):
        child.request({"op": "echo"}, deadline_s=30)
    assert not child.alive


def test_another_thread_can_end_a_child_that_is_waited_for(start):
    child = start()
    child.request({"op": "echo"}, deadline_s=30)
    threading.Timer(0.2, child.end_group).start()
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.request({"op": "sleep", "seconds": 600}, deadline_s=60)


def test_a_child_that_survives_sigkill_is_reported(start, monkeypatch):
    child = start(reap_s=0.2)
    with monkeypatch.context() as patch:
        patch.setattr(child_module.os, "killpg", lambda *_: None)
        with pytest.raises(ChildUnkillable, match="still there"):
            child.request({"op": "sleep", "seconds": 600}, deadline_s=0.3)
    child.kill()
    assert not child.alive


def test_a_system_without_processes_left_is_a_set_up_error(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(child_module.subprocess, "Popen", refuse)
    before = open_fds()
    with pytest.raises(SetupError, match="cannot start"):
        Child("process_children").start()
    assert open_fds() == before


@pytest.mark.parametrize("doing", ["idle", "busy"])
def test_a_child_and_its_grandchildren_end_with_a_killed_parent(doing):
    parent = subprocess.Popen(
        [sys.executable, "-m", "process_parent", doing],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([HERE, child_module._PACKAGE_PARENT])},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        child, grandchild = (int(pid) for pid in parent.stdout.readline().split())
        assert is_running(child)
        assert is_running(grandchild)
    finally:
        parent.kill()
        parent.communicate()
    assert is_soon_gone(child)
    assert is_soon_gone(grandchild)


def test_a_hundred_starts_and_kills_leave_nothing_behind(start):
    child = Child("process_children", env=ENV)
    child.start()
    child.kill()
    before, threads, pids = open_fds(), threading.active_count(), []
    for _ in range(100):
        child.start()
        pids.append(child.pid)
        child.kill()
    assert open_fds() == before
    assert threading.active_count() == threads
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_serving_without_a_parent_is_refused(monkeypatch):
    monkeypatch.delenv("SWEEPER_CHANNEL", raising=False)
    with pytest.raises(SetupError, match="there is none"):
        serve(lambda message: message)


@contextlib.contextmanager
def served(requests: str) -> Iterator[Callable[[Callable[..., object]], list[dict]]]:
    """A channel within this process on which `requests` wait and after which the parent is gone."""
    (request_read, request_write), (reply_read, reply_write) = os.pipe(), os.pipe()
    os.write(request_write, requests.encode())
    os.close(request_write)

    def answers(handler: Callable[..., object]) -> list[dict]:
        serving._answer(handler, request_read, reply_write)
        os.close(reply_write)
        with os.fdopen(reply_read, closefd=False) as stream:
            return [json.loads(line) for line in stream]

    yield answers
    os.close(request_read)
    os.close(reply_read)


def test_serving_answers_each_request_and_ends_with_the_parents_channel():
    with served('{"id":"a","request":{"n":1}}\n') as answers:
        assert answers(lambda message: {"n": message["n"] + 1}) == [{"id": "a", "reply": {"n": 2}}]


def test_serving_ends_when_asked_to():
    with served('{"close":true}\n') as answers:
        assert answers(lambda message: pytest.fail("asked although closing")) == []


def test_serving_ends_after_a_last_reply():
    def last(message: dict) -> dict:
        raise StopServing({"last": True})

    with served('{"id":"a","request":{}}\n') as answers:
        assert answers(last) == [{"id": "a", "reply": {"last": True}}]


@pytest.fixture
def calls(monkeypatch):
    """The system calls that would end processes: noted, not made."""
    made: list[tuple[object, ...]] = []
    ending = ("kill", "killpg", "waitpid", "dup2", "closerange")
    noted = {name: lambda *args, name=name: made.append((name, *args)) for name in ending}
    system = types.SimpleNamespace(**(vars(os) | noted | {"fork": lambda: 4711, "_exit": sys.exit}))
    monkeypatch.setattr(serving, "os", system)
    monkeypatch.setattr(serving.faulthandler, "enable", lambda: None)
    return made


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (b'{"close":true}\n', [("kill", 4711, signal.SIGKILL), ("waitpid", 4711, 0)]),
        (b"", [("waitpid", 4711, 0), ("killpg", 0, signal.SIGKILL)]),
    ],
    ids=["told to end", "parent gone"],
)
def test_a_server_ends_its_guard_or_all_of_its_group(calls, monkeypatch, requests, expected):
    request_read, request_write = os.pipe()
    os.write(request_write, requests)
    os.close(request_write)
    monkeypatch.setenv("SWEEPER_CHANNEL", f"{request_read},{request_read}")
    serve(lambda message: message)
    os.close(request_read)
    assert calls == expected


def test_the_guard_waits_for_the_parents_end_and_then_ends_the_group(calls):
    request_read, request_write = os.pipe()
    threading.Timer(0.1, os.close, [request_write]).start()
    with pytest.raises(SystemExit):
        serving._guard(request_read)
    os.close(request_read)
    assert calls[-1] == ("killpg", 0, signal.SIGKILL)


def test_a_signal_without_a_name_is_shown_by_number():
    assert child_module._signal_name(11) == "SIGSEGV"
    assert child_module._signal_name(63) == "signal 63"
