"""`python -m sweeper.doctor`: one line for each thing that a search needs, and what to do where it is not there."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from sweeper.device import DeviceIdentity, target
from sweeper.device.nvml import NvmlReadings
from sweeper.doctor import Finding, State, examine, machine, software
from sweeper.doctor.command import main
from sweeper.doctor.finding import looked_at
from sweeper.errors import SetupError, StorageError

H200 = target("h200")
DEVICE = DeviceIdentity("NVIDIA H200", "GPU-1", "0000:01:00.0", "580.1", "13.0", 150 << 30)


def right(what: str) -> Callable[..., Finding]:
    return lambda *_, **__: Finding(what, State.OK, "as it should be")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with one GPU on which all works."""
    import sweeper.doctor.examination as examining

    monkeypatch.setattr(machine, "gpus", right("gpu"))
    monkeypatch.setattr(machine, "first_gpu", lambda: (H200, DEVICE))
    monkeypatch.setattr(machine, "nvml", lambda bus: [Finding("nvml", State.OK, bus)])
    monkeypatch.setattr(machine, "others", right("other processes"))
    for name in ("pycuda", "nvcc", "nvrtc", "cublas", "host_compiler", "ncu"):
        monkeypatch.setattr(software, name, right(name.replace("_", " ")))
    monkeypatch.setattr(examining, "attempt", right("gpu run"))
    return monkeypatch


def by_name(results: Path) -> dict[str, Finding]:
    return {one.what: one for one in examine(results).findings}


def test_a_machine_on_which_all_works_is_able(world: Any, tmp_path: Path) -> None:
    found = examine(tmp_path / "results")
    assert found.able
    assert all(one.works for one in found.findings)
    text = by_name(tmp_path)["gpu"].text
    assert "NVIDIA H200 (sm_90a), CUDA 13.0" in text
    assert not (tmp_path / "results").exists(), "nothing is made"


def test_where_the_main_job_cannot_run_the_command_ends_with_3(
    world: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sweeper.doctor.examination as examining

    def fails(*_: str) -> Finding:
        raise SetupError("nvcc not found", hint="install the CUDA toolkit")

    world.setattr(examining, "attempt", fails)
    assert main(["--results-dir", str(tmp_path)]) == 3
    told = capsys.readouterr().out
    assert "BROKEN gpu run" in told
    assert "nvcc not found" in told
    assert "→ install the CUDA toolkit" in told
    assert told.endswith("a search cannot run here: see what is BROKEN\n")


def test_another_compiler_that_works_is_the_mend(world: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sweeper.doctor.examination as examining

    def by_compiler(backend: str, compiler: str) -> Finding:
        if compiler == "auto":
            raise SetupError("nvcc not found")
        return Finding("gpu run", State.OK, "right")

    world.setattr(examining, "attempt", by_compiler)
    run = by_name(tmp_path)["gpu run"]
    assert run.state is State.BROKEN
    assert "build.compiler=nvrtc works here" in run.mend


def test_a_folder_that_cannot_hold_results_is_no_place_for_a_search(
    world: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.setattr(machine, "network_file_system", lambda folder: "nfs4")
    found = examine(tmp_path)
    assert not found.able
    assert "network file system (nfs4)" in by_name(tmp_path)["results"].text


def test_a_driver_that_does_not_answer_is_told(world: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hangs() -> int:
        raise TimeoutError("the CUDA driver does not answer")

    world.undo()
    world.setattr(machine, "count_gpus", hangs)
    found = looked_at("gpu", machine.gpus)
    assert (found.state, found.text) == (State.BROKEN, "the CUDA driver does not answer")
    assert "nvidia-smi" in found.mend


def test_pycuda_is_missing_only_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = software.pycuda(gpu=True)
    assert missing.state is State.BROKEN
    assert "install_pycuda.py" in missing.mend
    assert software.pycuda(gpu=False).state is State.ABSENT


def test_a_missing_package_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "_NEEDED", ("numpy", "no-such-package"))
    found = software.packages()
    assert (found.state, found.mend) == (State.BROKEN, "pip install no-such-package")


def test_a_compiler_too_old_for_the_gpu_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        "#!/bin/sh\ncase $1 in\n--version) echo 'Cuda compilation tools, release 11.6, V11.6.124';;\n"
        "--list-gpu-code) echo sm_70; echo sm_80;;\nesac\n"
    )
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = software.nvcc("sm_90a")
    assert found.state is State.BROKEN
    assert "sm_90a" in found.text
    assert "11.6" in found.text


class FakeNvml:
    told = NvmlReadings()
    driver: str | None = "580.1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def driver_version(self) -> str | None:
        return self.driver

    def glance(self, pci_bus_id: str) -> NvmlReadings:
        return self.told

    readings = glance


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> type[FakeNvml]:
    fake = type("Nvml", (FakeNvml,), {})
    monkeypatch.setattr(machine, "Nvml", fake)
    return fake


def test_clocks_that_are_held_down_are_noted_with_their_reason(nvml: type[FakeNvml]) -> None:
    nvml.told = NvmlReadings(
        sm_clock_mhz=1200, max_sm_clock_mhz=1980, throttle_reasons=("sw_power_cap",), ecc_errors=2
    )
    found = {one.what: one for one in machine.nvml("bus")}
    assert found["nvml"].text == "answers, driver 580.1"
    assert found["clocks"].state is State.NOTE
    assert "SM clock 1200 of 1980 MHz; held down: sw_power_cap" in found["clocks"].text
    assert found["ecc"].text == "2 uncorrected memory errors"


def test_without_nvml_the_rest_goes_on(nvml: type[FakeNvml]) -> None:
    nvml.driver = None
    nvml.told = NvmlReadings(note="NVML is not installed")
    (found,) = machine.nvml("bus")
    assert (found.state, found.text) == (State.NOTE, "NVML is not installed")
    assert machine.others("bus").state is State.NOTE


def test_other_processes_are_counted(nvml: type[FakeNvml]) -> None:
    nvml.told = NvmlReadings(processes=(17, 23))
    assert machine.others("bus").text == "2 on this GPU: 17, 23"
    nvml.told = NvmlReadings(processes=())
    assert machine.others("bus").state is State.OK


def test_a_folder_that_cannot_be_written_is_an_error_with_the_mend(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(StorageError, match="cannot be written") as error:
        machine.results(taken / "below")
    assert "results_dir=FOLDER" in (error.value.hint or "")


def test_little_space_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    assert machine.results(tmp_path).state is State.NOTE


def test_whatever_goes_wrong_in_looking_is_a_finding() -> None:
    def breaks() -> Finding:
        raise RuntimeError("no idea")

    assert looked_at("it", breaks) == Finding("it", State.BROKEN, "RuntimeError: no idea")


def test_without_a_gpu_a_kernel_is_proved_in_the_emulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "count_gpus", lambda: 0)
    assert main(["--json", "--results-dir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["able"] is True
    found = {one["what"]: one for one in told["findings"]}
    assert found["gpu"]["state"] == "absent"
    assert found["emulator run"]["state"] == "ok"
    assert "proved right" in found["emulator run"]["text"]
