"""Builds on disk: whole or not at all, right or built again, shared between processes."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import programs
import pytest

from sweeper.build.cache import BuildCache, build_key, default_root
from sweeper.errors import StorageError
from sweeper.model import Build


def a_build(key: str = "ab" * 20) -> Build:
    return Build(
        key=key, kind="nvcc", artifact=Path("kernel.cubin"), entry="mm", compiler="nvcc 13.0.88",
        options=("-O3",), registers=32, static_shared_bytes=2048, local_bytes=0, spill_bytes=8, seconds=0.5,
    )  # fmt: skip


def leftovers(root: Path) -> list[Path]:
    return list((root / "staging").iterdir())


def test_what_is_published_is_found_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    kept = cache.publish(a_build(), b"cubin")
    assert kept.artifact.read_bytes() == b"cubin"
    assert not kept.cached
    found = BuildCache(tmp_path).get(kept.key)
    assert found is not None
    assert found.cached
    assert (found.artifact, found.registers, found.options, found.entry) == (
        kept.artifact,
        32,
        ("-O3",),
        "mm",
    )
    assert leftovers(tmp_path) == []


def test_an_artifact_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"shared object")
    kept = BuildCache(tmp_path / "cache").publish(a_build(), tmp_path / "made")
    assert kept.artifact.read_bytes() == b"shared object"


def test_an_unknown_key_is_not_there(tmp_path: Path) -> None:
    assert BuildCache(tmp_path).get("cd" * 20) is None


def damage_artifact(folder: Path) -> None:
    (folder / "kernel.cubin").write_bytes(b"cubim")


def damage_artifact_length(folder: Path) -> None:
    (folder / "kernel.cubin").write_bytes(b"cu")


def remove_artifact(folder: Path) -> None:
    (folder / "kernel.cubin").unlink()


def cut_manifest(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text[: len(text) // 2])


def remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def foreign_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 99, "sha256": "", "build": []}')


@pytest.mark.parametrize(
    "damage",
    [
        damage_artifact,
        damage_artifact_length,
        remove_artifact,
        cut_manifest,
        remove_manifest,
        foreign_manifest,
    ],
)
def test_a_damaged_build_is_dropped_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage
) -> None:  # type: ignore[no-untyped-def]
    cache = BuildCache(tmp_path)
    for key in ("ab" * 20, "cd" * 20):
        cache.publish(a_build(key), b"cubin")
        damage(cache.folder(key))
        with caplog.at_level(logging.WARNING):
            assert cache.get(key) is None
        assert not cache.folder(key).exists()
        assert cache.publish(a_build(key), b"again").artifact.read_bytes() == b"again"
    assert [r.message for r in caplog.records if "damaged build" in r.message] == [caplog.records[0].message]


def test_a_build_of_another_key_in_this_keys_folder_is_not_believed(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.publish(a_build("ab" * 20), b"cubin")
    cache.folder("cd" * 20).parent.mkdir()
    cache.folder("ab" * 20).rename(cache.folder("cd" * 20))
    assert cache.get("cd" * 20) is None


def test_the_first_of_two_builds_wins(tmp_path: Path) -> None:
    first, second = BuildCache(tmp_path), BuildCache(tmp_path)
    kept = first.publish(a_build(), b"first")
    other = second.publish(a_build(), b"second")
    assert other.artifact == kept.artifact
    assert other.artifact.read_bytes() == b"first"
    assert leftovers(tmp_path) == []


def test_a_damaged_winner_is_replaced(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.publish(a_build(), b"first")
    damage_artifact(cache.folder("ab" * 20))
    assert cache.publish(a_build(), b"second").artifact.read_bytes() == b"second"


ROUNDS = 50


def _race(root: str, name: str, barrier: Barrier) -> None:
    cache = BuildCache(Path(root))
    for i in range(ROUNDS):
        barrier.wait(60)
        key = build_key(str(i), kind="nvcc", arch="sm_90", compiler="x")
        kept = cache.publish(a_build(key), name.encode() * 4096)
        content = kept.artifact.read_bytes()
        if len(content) != 4096 or len(set(content)) != 1:
            raise AssertionError("half a build")
        again = cache.get(key)
        if again is None or again.artifact.read_bytes() != content:
            raise AssertionError("no winner")


def test_two_processes_that_build_one_key_at_once_agree_on_one_winner(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    racers = [context.Process(target=_race, args=(str(tmp_path), name, barrier)) for name in "ab"]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert len(list((tmp_path / "builds").glob("*/*/manifest.json"))) == ROUNDS
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_written_means_no_cache_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        cache = BuildCache(tmp_path / "file" / "cache")
        kept = cache.publish(a_build(), b"cubin")
    assert not cache.persistent
    assert [r.message for r in caplog.records if "no build cache" in r.message] == [caplog.records[0].message]
    assert kept.artifact.read_bytes() == b"cubin"
    assert tmp_path not in kept.artifact.parents
    found = cache.get(kept.key)
    assert found is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_means_no_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert not BuildCache(tmp_path / "cache").persistent
    tmp_path.chmod(0o755)


def test_the_private_folder_goes_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    program = (
        "from pathlib import Path\n"
        "from sweeper.build.cache import BuildCache\n"
        f"print(BuildCache(Path({str(tmp_path / 'file' / 'x')!r})).root)"
    )
    assert not Path(programs.output(program).strip()).exists()


def full_disk(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Every write of bytes below `folders` fails as on a full disk."""
    write = Path.write_bytes

    def fail(self: Path, data: bytes) -> int:
        if any(folder in self.parents for folder in folders):
            raise OSError(28, "No space left on device", str(self))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", fail)


def test_a_disk_that_fills_up_means_no_cache_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BuildCache(tmp_path)
    earlier = cache.publish(a_build("ab" * 20), b"cubin")
    full_disk(monkeypatch, tmp_path)
    with caplog.at_level(logging.WARNING):
        kept = cache.publish(a_build("cd" * 20), b"cubin")
    assert kept.artifact.read_bytes() == b"cubin"
    assert tmp_path not in kept.artifact.parents
    assert "No space left" in caplog.text
    assert earlier.artifact.read_bytes() == b"cubin"
    assert leftovers(tmp_path) == []


def test_no_room_anywhere_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BuildCache(tmp_path)
    full_disk(monkeypatch, Path("/"))
    with pytest.raises(StorageError, match="No space left"):
        cache.publish(a_build(), b"cubin")


def test_no_temporary_folder_either_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="cannot be written"):
        BuildCache(tmp_path / "file" / "cache")


def test_a_vanished_staging_folder_means_no_cache(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    (tmp_path / "staging").rmdir()
    with cache.staging() as folder:
        assert folder.is_dir()
    assert not cache.persistent


def test_staging_is_removed_whatever_happened(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    with contextlib.suppress(ValueError), cache.staging() as folder:
        (folder / "half").write_text("written")
        raise ValueError
    assert leftovers(tmp_path) == []


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """At once where the process was on this host, after a day where nobody can tell."""
    cache = BuildCache(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here, staging = socket.gethostname(), tmp_path / "staging"
    kept = [staging / f"{here}.{os.getpid()}.a", staging / "elsewhere.1.b", staging / "odd"]
    gone = [staging / f"{here}.{ended.pid}.c", staging / "elsewhere.1.d"]
    for folder in (*kept, *gone):
        folder.mkdir()
    os.utime(gone[1], (time.time() - 2 * 86400,) * 2)
    with cache.staging() as mine:
        BuildCache(tmp_path)
        assert sorted(leftovers(tmp_path)) == sorted([*kept, mine])


def test_pruning_removes_the_least_recently_used_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_bytes=25_000)
    keys = [build_key(str(i), kind="k", arch="a", compiler="c") for i in range(4)]
    for i, key in enumerate(keys):
        cache.publish(a_build(key), b"x" * 10_000)
        os.utime(cache.folder(key) / "manifest.json", (time.time() - 7200 + i,) * 2)
    assert cache.get(keys[0]) is not None, "used just now"
    assert cache.prune() >= 20_000
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True]


def test_pruning_spares_what_was_used_within_the_hour(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_bytes=0)
    kept = cache.publish(a_build(), b"x" * 1000)
    assert cache.prune() == 0
    assert kept.artifact.exists()
    assert BuildCache(tmp_path).prune() == 0, "without a bound nothing is removed"


def test_publishing_prunes_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BuildCache(tmp_path, max_bytes=1)
    calls: list[int] = []
    monkeypatch.setattr(cache, "prune", lambda: calls.append(1) or 0)
    for i in range(130):
        cache.publish(a_build(build_key(str(i), kind="k", arch="a", compiler="c")), b"x")
    assert len(calls) == 2


def test_the_key_covers_all_it_is_given() -> None:
    base = {"kind": "nvcc", "arch": "sm_90", "compiler": "nvcc 13.0.88", "flags": ("-x",)}
    keys = {build_key("u", **base), build_key("v", **base)}  # type: ignore[arg-type]
    for name, value in (("kind", "host"), ("arch", "sm_90a"), ("compiler", "nvcc 13.1"), ("flags", ())):
        keys.add(build_key("u", **(base | {name: value})))  # type: ignore[arg-type]
    assert len(keys) == 6


def test_the_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "named"))
    assert default_root() == tmp_path / "named"
    assert BuildCache().root == tmp_path / "named"
    monkeypatch.delenv("SWEEPER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root().name == "sweeper"


def test_a_path_in_a_manifest_stays_in_its_folder(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    kept = cache.publish(a_build(), b"cubin")
    manifest = kept.artifact.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"kernel.cubin"', '"../../../../kernel.cubin"'))
    found = cache.get(kept.key)
    assert found is not None
    assert found.artifact == kept.artifact
