"""The record of a run: enough to repeat it, and no secret in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sweeper.device import DeviceIdentity
from sweeper.errors import StorageError
from sweeper.provenance import git_state, package_versions, run_record, write_json
from sweeper.redaction import redact
from sweeper.store import Store

STARTED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))
COMMAND = ["python", "-m", "sweeper", "+shape=large"]


def record(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"command": COMMAND, "config": {"seed": 42}, "started": STARTED}
    return run_record(**{**values, **changes})


def test_a_record_says_what_was_run_with_what_and_when() -> None:
    made = record(ended=STARTED + timedelta(seconds=1))
    assert made["command"] == COMMAND
    assert made["config"] == {"seed": 42}
    assert made["started"] == "2026-01-02T01:04:05.000678Z"
    assert made["ended"] == "2026-01-02T01:04:06.000678Z"
    assert made["packages"]["numpy"]
    assert made["packages"]["sweeper"]
    assert made["python"].startswith("3.")
    assert made["platform"]


def test_what_the_run_found_out_stands_beside_it() -> None:
    identity = DeviceIdentity(name="NVIDIA H200", uuid="GPU-1", driver="580.1")
    made = record(facts={"device": identity, "compiler": "nvcc 13.0", "seeds": {"inputs": 42, "search": 1}})
    assert made["device"]["uuid"] == "GPU-1"
    assert made["compiler"] == "nvcc 13.0"
    assert made["seeds"] == {"inputs": 42, "search": 1}


def test_two_records_have_different_names() -> None:
    assert record()["id"] != record()["id"]


def test_a_run_without_an_end_ends_now() -> None:
    before = datetime.now(UTC).isoformat()[:19]
    assert record()["ended"] >= before


def test_a_record_can_be_written_read_and_stored(tmp_path: Path) -> None:
    made = record(config={"folder": Path("/a/b"), "sizes": (1, 2), "factor": 0.5})
    write_json(made, tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == made
    with Store(tmp_path / "study.db") as store:
        store.add_run(made)
        assert store.runs() == [made]


def test_a_record_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"run\.json"):
        write_json({}, tmp_path / "file" / "run.json")


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    def nothing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    versions = package_versions()
    assert versions["numpy"] is None
    assert versions["sweeper"]


# Secrets


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://tuner:hunter2@db.example/results",
        "store=postgresql+psycopg://tuner:hunter2@db/results",
        "postgresql://tuner:hunter2@x@db/results",
        "postgresql://tuner:a/hunter2@db/results",
        "postgresql://db/results?user=tuner&password=hunter2&timeout=3",
        "+storage.password=hunter2",
        "token: hunter2",
        "API_KEY='hunter2 with spaces'",
        'could not connect: "host=db password=hunter2"',
    ],
)
def test_no_text_shows_a_secret(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert "hunter2" not in json.dumps(record(command=["sweeper", text], config={"any": [text]}))


@pytest.mark.parametrize(
    "key", ["password", "db_password", "PASSWD", "passphrase", "token", "hf_token", "client_secret", "apiKey"]
)
def test_no_key_shows_its_secret(key: str) -> None:
    hidden = redact({"storage": {key: "hunter2", "host": "db"}})
    assert hidden == {"storage": {key: "***", "host": "db"}}


@pytest.mark.parametrize(
    "harmless",
    [
        "kernel.params.token_tile=8,16",
        "see https://example.org/page",
        "a token of gratitude",
        "results_dir=/home/me/results",
        {"token_tile": 8, "tokens": 4096, "password": None},
        ["tile=8", 3, 0.5, None, True],
    ],
)
def test_what_is_no_secret_stays_as_it_is(harmless: Any) -> None:
    assert redact(harmless) == harmless


def test_the_address_of_a_server_stays_readable() -> None:
    assert redact("postgresql://u:p@db.example:5432/results") == "postgresql://***@db.example:5432/results"


# Git


def git(folder: Path, *arguments: str) -> None:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "x@y.z" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_recorded_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "tiled.cu").write_text("// 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = record(source=tmp_path)["git"]
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "tiled.cu").write_text("// 2\n")
    assert git_state(tmp_path) == {"commit": clean["commit"], "dirty": True}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_repository_without_a_commit_and_a_folder_without_a_repository_have_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    git(tmp_path, "init")
    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "missing") is None


def test_without_git_there_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None
