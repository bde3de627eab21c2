"""The command itself is killed, interrupted, or started twice: nothing acknowledged is lost or measured again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from command_rig import PRODUCT_CU, kernel_in, rows, runs
from processes import Command, stored_params

# `make faults` asks for a hundred.
KILLS = int(os.environ.get("SWEEPER_TEST_KILLS", "4"))
LATE_CU = PRODUCT_CU.replace("float sum = 0;", "float sum = 0 * LATE;")


def four_workers(here: Path, configurations: int = 24, *, builds: bool = False) -> list[str]:
    """A search of so many configurations by four workers; with `builds` each compiles to its own machine code."""
    levels = {"LATE": list(range(configurations))}
    used = (
        {"source": LATE_CU, "launch": LAUNCH}
        if builds
        else {"launch": {**LAUNCH, "shared_bytes": "0 * LATE"}}
    )
    kernel = kernel_in(here, params=levels, **used)
    return [*kernel, "backend=emulator", "backend.devices=[0,1,2,3]", "shape=8x8x8", "search=random",
            "search.budget=null", "build.workers=2"]  # fmt: skip


LAUNCH = {"block": [8, 8], "grid": ["ceil(N / 8)", "ceil(M / 8)"]}


def test_a_parent_killed_at_any_moment_loses_nothing_and_leaves_nobody(here: Path) -> None:
    chance = random.Random(20)  # noqa: S311 - moments, not secrets
    kills, folder = 0, 0
    while kills < KILLS:
        folder += 1
        results = here / f"out{folder}"
        command = [*four_workers(here, builds=True), f"results_dir={results}"]
        kept: list[str] = []
        while kills < KILLS and killed(run := Command(command), results / "study.db", kept, chance):
            kills += 1
            after = stored_params(results / "study.db")
            assert after[: len(kept)] == kept, "what was acknowledged is there"
            assert len(set(after)) == len(after), "nothing was measured twice"
            assert not run.left(), "no worker and no compiler outlives the command"
        code, _, err = Command(command).finish()
        assert code == 0, err
        whole = stored_params(results / "study.db")
        assert whole[: len(kept)] == kept
        assert len(whole) == len(set(whole)) == len(rows(results)) == 24, "the rerun measured the rest"


def killed(run: Command, store: Path, kept: list[str], chance: random.Random) -> bool:
    """Kill `run` at a random moment, of its start or between its trials; whether it had not ended before.

    `kept` becomes what the store had acknowledged just before.
    """
    if chance.random() < 0.3:
        end, more = time.monotonic() + chance.uniform(0.05, 2.0), 1_000
    else:
        end, more = time.monotonic() + 120, chance.randint(1, 5)
    before = len(kept)
    while run.process.poll() is None and time.monotonic() < end and len(kept) < before + more:
        time.sleep(0.005)
        kept[:] = stored_params(store) or kept
    time.sleep(chance.uniform(0, 0.05))
    run.process.kill()
    run.process.communicate()
    return run.process.returncode == -signal.SIGKILL


def test_killed_between_storing_a_trial_and_telling_the_search(here: Path) -> None:
    """The rerun answers it from the store: it is not measured again."""
    results = here / "out"
    command = [*four_workers(here, 8), f"results_dir={results}"]
    run = Command(command)
    run.until_stored(results / "study.db")
    run.process.kill()
    run.process.communicate()
    kept = stored_params(results / "study.db")
    code, out, err = Command(command).finish()
    assert code == 0, err
    assert stored_params(results / "study.db")[: len(kept)] == kept
    assert len(stored_params(results / "study.db")) == 8
    assert f"{len(kept)} of them reused" in out


def test_a_second_interrupt_ends_at_once_with_all_that_was_started(here: Path) -> None:
    results = here / "out"
    slow = PRODUCT_CU.replace(
        "float sum = 0;",
        "float sum = 0 * LATE; if (i == 0 && j == 0) for (volatile int x = 0; x < 2000000000;) x = x + 1;",
    )
    kernel = kernel_in(here, params={"LATE": list(range(4))}, launch=LAUNCH, source=slow)
    run = Command([*kernel, "backend=emulator", "shape=8x8x8", "search=grid", f"results_dir={results}"])
    while run.process.poll() is None and not (results / "study.db").exists():
        time.sleep(0.02)
    time.sleep(1.0)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    run.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    code, _, err = run.finish(20)
    assert time.monotonic() - began < 10
    assert code in (130, -signal.SIGINT), err
    assert not run.left()
    code, _, err = Command(["--version"]).finish()
    assert code == 0
    assert stored_params(results / "study.db") == []


def stopped_between_writes(command: Command, store: Path) -> None:
    """Stop its process at a moment at which it does not hold the store's lock."""
    for _ in range(100):
        command.process.send_signal(signal.SIGSTOP)
        with contextlib.closing(sqlite3.connect(store, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                command.process.send_signal(signal.SIGCONT)
                time.sleep(0.01)
    raise AssertionError("it writes all the time")


def test_of_two_commands_on_one_study_the_second_is_told_who_has_it_and_since_when(here: Path) -> None:
    results = here / "out"
    command = [*four_workers(here, 40), f"results_dir={results}"]
    first = Command(command)
    first.until_stored(results / "study.db")
    stopped_between_writes(first, results / "study.db")
    code, _, err = Command(command).finish()
    first.process.send_signal(signal.SIGCONT)
    assert code == 4
    assert f"is open in process {first.process.pid}" in err
    assert "since" in err
    code, _, err = first.finish()
    assert code == 0, err
    assert len(rows(results)) == 40, "the first one lost nothing by it"


def test_the_claim_of_a_killed_command_is_taken_over(here: Path) -> None:
    results = here / "out"
    command = [*four_workers(here, 8), f"results_dir={results}"]
    first = Command(command)
    first.until_stored(results / "study.db")
    first.process.kill()
    first.process.communicate()
    code, _, err = Command(command).finish()
    assert code == 0, err
    assert len(rows(results)) == 8


@pytest.mark.parametrize("limit", [200_000, 400_000])
def test_a_disk_that_fills_up_under_a_run_ends_it_with_4_and_keeps_what_was_stored(
    here: Path, limit: int
) -> None:
    """Files may not grow beyond `limit` bytes; what was stored until then is whole, and a rerun does the rest."""
    results = here / "out"
    # Another results folder, in which one configuration is enough for all of them to be built.
    search = four_workers(here, 60)
    warm = [*search, "kernel.params.LATE=0", f"results_dir={here / 'warm'}"]
    assert Command(warm).finish()[0] == 0, "so that nothing is built below"
    command = [*search, "resume=true", f"results_dir={results}"]
    code, _, err = Command(command, limit_file_bytes=limit).finish()
    assert code == 4, err
    assert "error: " in err
    kept = stored_params(results / "study.db")
    assert 0 < len(kept) < 60
    code, _, err = Command(command).finish()
    assert code == 0, err
    assert stored_params(results / "study.db")[: len(kept)] == kept
    assert len(rows(results)) == 60
    assert [run["exit_code"] for run in runs(results)][-1] == 0
