"""The probe of what reading alone takes: what it tries, and what it makes of its samples, on a pretended GPU."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cuda_rig import FakeNvml
from fake_pycuda import FakeDriver

from sweeper.build.nvrtc_child import Compilation, compile_text
from sweeper.device import target
from sweeper.model import Launch
from sweeper.paths import kernels_dir
from sweeper.resources.geometry import why_not_launchable

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import bench_reads
import reads_tried

H200 = target("h200")
TRIED = reads_tried.readers(H200.sm_count)
RINGS = [reader for reader in TRIED if reader.ring]


class FakeLaunches:
    """In the driver's place: every launch takes 20 µs."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.launched: list[Launch] = []

    @staticmethod
    def encoder(*_: Any) -> int:
        return 0

    def load(self, image: bytes) -> int:
        return 1

    def function(self, module: int, symbol: str, shared_bytes: int) -> int:
        return 1

    def launch(self, function: int, launch: Launch, stream: int, parameters: Any) -> None:
        self.launched.append(launch)
        self.driver.enqueue(0.02)


@pytest.mark.parametrize("reader", [r for r in TRIED if r.kernel], ids=str)
def test_every_reader_can_be_launched(reader: reads_tried.Reader) -> None:
    assert why_not_launchable(reader.launch(), H200) is None
    assert reader.blocks % reader.cluster == 0


@pytest.mark.parametrize("reader", RINGS, ids=str)
def test_chunks_cut_every_size_without_a_rest(reader: reads_tried.Reader) -> None:
    """Rows of whole pieces, and all boxes inside the matrix: no byte is read twice, and none is left."""
    assert reader.chunk % reader.segment == 0
    assert reader.segment == reader.chunk or reads_tried.PITCH % reader.segment == 0
    columns, rows = reader.box
    for size in reads_tried.SIZES:
        assert size % reader.chunk == 0
        assert reader.segment == reader.chunk or size // reads_tried.PITCH % rows == 0
    if reader.kernel == "read_tensor":
        assert max(columns, rows) <= 256, "no larger box has TMA"


@pytest.mark.parametrize("reader", [r for r in TRIED if r.strips], ids=str)
def test_strips_are_shared_by_the_same_number_of_blocks_each(reader: reads_tried.Reader) -> None:
    """And rows come in whole batches of 32."""
    assert reader.blocks % (reads_tried.PITCH // reader.segment) == 0
    assert all(size // reads_tried.PITCH % 32 == 0 for size in reads_tried.SIZES)


def test_no_reader_is_tried_twice() -> None:
    assert len(set(TRIED)) == len(TRIED)


def test_the_kernels_compile_for_hopper(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    options = ("--gpu-architecture=sm_90a", f"-I{kernels_dir() / 'common'}")
    text = Path(bench_reads.__file__).with_name("reads.cu").read_text(encoding="utf-8")
    assert compile_text(Compilation(text, "reads.cu", options, "", {}, str(tmp_path)))["error"] == ""


def test_all_are_timed_in_turns_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reader at every size, cold, and warm where the bytes fit into the second-level cache."""
    driver = FakeDriver()
    launches = FakeLaunches(driver)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setattr(bench_reads, "why_no_gpu", lambda ask: None)
    monkeypatch.setattr(bench_reads, "Nvml", FakeNvml)
    monkeypatch.setattr(bench_reads, "load_launch_api", lambda: launches)
    monkeypatch.setattr(bench_reads, "_cubin", lambda arch: b"")
    monkeypatch.setattr(bench_reads, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench_reads, "SIZES", (1 << 17, 1 << 18, 1 << 19))
    monkeypatch.setattr(bench_reads, "_MOST_ROUNDS", 7)
    monkeypatch.setattr(bench_reads._Bench, "reads_all", lambda *_: True)
    monkeypatch.setattr(bench_reads.CudaDevice, "target", lambda self: H200)
    assert bench_reads.main(["--seconds", "0", "--out", str(tmp_path)]) == 0
    with (tmp_path / "reads.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * len(TRIED)
    assert {row["samples"] for row in rows} == {"7"}
    told = {row["us"] for row in rows if row["kernel"] != "memcpy_dtod"}
    assert all(float(us) == pytest.approx(20, abs=1) for us in told)
    half = [row for row in rows if row["bytes"] == str(1 << 19) and row["way"] == "loads"]
    assert float(half[0]["gbs"]) == pytest.approx((1 << 19) / float(half[0]["us"]) / 1e3, rel=0.01)
    assert json.loads((tmp_path / "reads.json").read_text())["command"] == ["python", "bench/bench_reads.py"]
    text = (tmp_path / "reads.md").read_text()
    assert "L2 cold" in text
    assert "L2 warm" in text
    assert text in capsys.readouterr().out


def test_a_reader_that_leaves_bytes_out_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = FakeDriver()
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setattr(bench_reads, "why_no_gpu", lambda ask: None)
    monkeypatch.setattr(bench_reads, "Nvml", FakeNvml)
    monkeypatch.setattr(bench_reads, "load_launch_api", lambda: FakeLaunches(driver))
    monkeypatch.setattr(bench_reads, "_cubin", lambda arch: b"")
    monkeypatch.setattr(bench_reads, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench_reads, "SIZES", (1 << 17, 1 << 18, 1 << 19))
    monkeypatch.setattr(bench_reads.CudaDevice, "target", lambda self: H200)
    assert bench_reads.main(["--out", str(tmp_path)]) == 1
    assert "does not read every byte once" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_reads, "why_no_gpu", lambda ask: "no GPU found")
    assert bench_reads.main([]) == 3
    assert "no GPU found" in capsys.readouterr().err
