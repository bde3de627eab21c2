"""Where ncu is, how it is run, and what its refusals mean."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from fake_ncu import WORDS

from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Status
from sweeper.profile.ncu import Finished, find_ncu, known_refusal, refusal, run_ncu, version_of


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(ncu: Path, **options: Any) -> Finished:
    given: dict[str, Any] = {"cold": True, "timeout_s": 20, "env": {}, **options}
    return run_ncu(ncu, ["a.sum", "b.pct"], ["python", "-m", "it"], **given)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all of PATH, and none of NVIDIA's places."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sweeper.profile.ncu._PLACES", ())
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_ncu_the_message_says_where_to_get_it(bare: Path) -> None:
    with pytest.raises(SetupError) as caught:
        find_ncu()
    assert caught.value.exit_code == 3
    assert "not installed" in caught.value.message
    for way in ("CUDA toolkit", "developer.nvidia.com/nsight-compute", "--ncu"):
        assert way in str(caught.value.hint)


def test_the_ncu_on_path_comes_before_that_of_the_toolkit(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = program(bare / "cuda" / "bin" / "ncu", "")
    monkeypatch.setenv("CUDA_HOME", str(bare / "cuda"))
    assert find_ncu() == toolkit
    on_path = program(bare / "bin" / "ncu", "")
    assert find_ncu() == on_path


def test_of_several_installed_versions_the_newest_is_taken(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2024.3.2", "2025.10.0", "2025.3.1"):
        program(bare / "opt" / version / "ncu", "")
    monkeypatch.setattr("sweeper.profile.ncu._PLACES", (f"{bare}/opt/*/ncu",))
    assert find_ncu() == bare / "opt" / "2025.10.0" / "ncu"


def test_a_named_ncu_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text("")
    with pytest.raises(SetupError, match="is no program"):
        find_ncu(tmp_path / "ncu")


def test_the_version_is_read_and_a_program_that_cannot_run_is_named(tmp_path: Path) -> None:
    assert (
        version_of(program(tmp_path / "ncu", "echo NVIDIA; echo 'Version 2025.3.1.0 (build 1)'"))
        == "2025.3.1.0"
    )
    assert version_of(program(tmp_path / "silent", "exit 1")) == ""
    with pytest.raises(SetupError, match="cannot be run"):
        version_of(tmp_path / "gone")


def test_clocks_are_left_alone_and_only_the_marked_launch_is_profiled(tmp_path: Path) -> None:
    ncu = program(tmp_path / "ncu", 'echo "$@"; echo "$LC_ALL $EXTRA"')
    printed = run(ncu, env={"EXTRA": "more"}).printed
    assert "--clock-control none" in printed
    assert "--profile-from-start off" in printed
    assert "--metrics a.sum,b.pct python -m it" in printed
    assert printed.endswith("C more\n")


@pytest.mark.parametrize(("cold", "control"), [(True, "all"), (False, "none")])
def test_caches_are_emptied_between_passes_for_cold_rows_alone(
    tmp_path: Path, cold: bool, control: str
) -> None:
    assert f"--cache-control {control}" in run(program(tmp_path / "ncu", 'echo "$@"'), cold=cold).printed


def test_the_table_comes_from_the_log_not_from_what_the_program_prints(tmp_path: Path) -> None:
    ncu = program(
        tmp_path / "ncu",
        'while [ "$1" != --log-file ]; do shift; done; echo from ncu > "$2"; echo from the program; exit 4',
    )
    assert run(ncu) == Finished(4, "from ncu\n", "from the program\n")


def test_a_run_that_takes_too_long_leaves_no_process(tmp_path: Path) -> None:
    ncu = program(tmp_path / "ncu", f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    with pytest.raises(TrialFailed, match=r"did not finish within 0.5 s.*--timeout") as caught:
        run(ncu, timeout_s=0.5)
    assert caught.value.status is Status.TIMEOUT
    assert time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not _alive(child):
            break
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def told(words: str, *, answered: bool = True, status: int = 1, printed: str = "") -> Any:
    return refusal(
        Finished(status, f"==PROF== Connected to process 7\n{words}\n", printed), answered=answered
    )


def test_a_missing_permission_names_the_driver_option_and_what_to_do() -> None:
    error = told(WORDS["permission"], answered=False)
    assert isinstance(error, SetupError)
    assert "may not read the GPU's performance counters" in error.message
    for remedy in (
        "root",
        "NVreg_RestrictProfilingToAdminUsers=0",
        "/etc/modprobe.d/",
        "--cap-add=SYS_ADMIN",
    ):
        assert remedy in str(error.hint)


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        ("busy", "another tool holds", "dcgmi profiling --pause"),
        ("lock", "another user's ncu", "TMPDIR"),
        ("no library", "cannot reach the driver", "driver's CUDA version"),
        ("no launch", "saw no launch", "CUDA_INJECTION64_PATH"),
    ],
)
def test_each_refusal_has_one_meaning_and_a_remedy(words: str, message: str, remedy: str) -> None:
    error = told(WORDS[words])
    assert isinstance(error, SetupError)
    assert message in error.message
    assert remedy in str(error.hint)


def test_what_the_program_prints_is_never_taken_for_ncu_s_word() -> None:
    printed = "my kernel is not supported on this device\nERR_NVGPUCTRPERM, it says in a book\n"
    assert known_refusal(Finished(1, "==PROF== Connected to process 7\n", printed)) is None
    assert known_refusal(Finished(1, "", WORDS["permission"])) is not None


def test_an_unknown_refusal_is_told_in_ncu_s_own_words() -> None:
    error = told("==ERROR== Something that nobody has seen.", status=9)
    assert error.message == "ncu ended with 9: Something that nobody has seen."


def test_a_program_that_ends_before_its_launch_is_a_crash_of_that_configuration() -> None:
    error = told(
        "==ERROR== The application returned an error code (139).",
        answered=False,
        status=139,
        printed="boom\n",
    )
    assert isinstance(error, TrialFailed)
    assert error.status is Status.CRASH
    assert re.search(r"ended with 139 .*error code \(139\).*boom", error.reason)


def test_ncu_killed_by_a_signal_says_which() -> None:
    error = told("", answered=False, status=-9)
    assert "by signal 9" in error.message
    assert os.linesep not in error.message
