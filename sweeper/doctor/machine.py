"""The GPUs, what NVML says of them, and the places that are written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from sweeper.build.cache import default_root
from sweeper.device import DeviceIdentity, Target
from sweeper.device.nvml import Nvml, slow_down_reasons
from sweeper.device.present import count_gpus
from sweeper.doctor.finding import Finding, State
from sweeper.errors import SetupError, StorageError
from sweeper.sqlite_file import network_file_system
from sweeper.worker.pool import DeviceWorker

__all__ = ["cache", "first_gpu", "gpus", "nvml", "others", "results"]

_ENOUGH_BYTES = 1 << 30
_NO_NVML = "pip install nvidia-ml-py: without it clocks, power and other processes go unseen"


def gpus() -> Finding:
    """How many GPUs CUDA finds, asked in a process of its own. Raises SetupError where the driver does not answer."""
    try:
        count = count_gpus()
    except TimeoutError as error:
        raise SetupError(
            str(error), hint="nvidia-smi may say why; a reset or a restart of the machine ends it"
        ) from None
    if count == 0:
        return Finding("gpu", State.ABSENT, "no GPU found: kernels run in the emulator, times are predicted")
    return Finding("gpu", State.OK, f"{count} GPU{'s' if count > 1 else ''} that CUDA can use")


def first_gpu() -> tuple[Target, DeviceIdentity]:
    """The limits and the name of the first GPU, by the driver alone. Raises SetupError."""
    with closing(DeviceWorker("cuda", allow_shared=True)) as worker:
        return worker.identify()


def nvml(pci_bus_id: str) -> list[Finding]:
    """Clocks and who else is there, of the GPU at `pci_bus_id`."""
    with Nvml() as library:
        driver = library.driver_version()
        readings = library.glance(pci_bus_id)
    if driver is None or readings.sm_clock_mhz is None:
        return [Finding("nvml", State.NOTE, readings.note or "NVML does not answer", _NO_NVML)]
    found = [Finding("nvml", State.OK, f"answers, driver {driver}")]
    most = f" of {readings.max_sm_clock_mhz:.0f}" if readings.max_sm_clock_mhz else ""
    clocks = f"SM clock {readings.sm_clock_mhz:.0f}{most} MHz"
    if readings.power_w is not None and readings.temperature_c is not None:
        clocks += f", {readings.power_w:.0f} W, {readings.temperature_c:.0f} °C"
    held = slow_down_reasons(readings)
    found.append(
        Finding(
            "clocks",
            State.NOTE,
            f"{clocks}; held down: {', '.join(held)}",
            "let it cool, or raise its power limit",
        )
        if held
        else Finding("clocks", State.OK, clocks)
    )
    if readings.ecc_errors:
        found.append(
            Finding(
                "ecc",
                State.NOTE,
                f"{readings.ecc_errors} uncorrected memory errors",
                "reset or replace the GPU",
            )
        )
    return found


def others(pci_bus_id: str) -> Finding:
    """Processes with a context on the GPU, of which this is none."""
    with Nvml() as library:
        processes = library.readings(pci_bus_id).processes
    if processes is None:
        return Finding("other processes", State.NOTE, "unknown, without NVML", _NO_NVML)
    if processes:
        text = f"{len(processes)} on this GPU: {', '.join(map(str, processes))}"
        return Finding("other processes", State.NOTE, text, "end them, or expect disturbed times")
    return Finding("other processes", State.OK, "none on this GPU")


def results(folder: Path) -> Finding:
    """Whether a store can be kept in `folder`, of which nothing is made. Raises StorageError."""
    kind = network_file_system(folder)
    if kind is not None:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where SQLite's write-ahead log is not safe",
            hint="use a local folder with results_dir=FOLDER",
        )
    return _written_to("results", folder, "choose another with results_dir=FOLDER")


def cache(folder: Path | None = None) -> Finding:
    """Whether builds can be kept. Raises StorageError."""
    return _written_to("build cache", folder or default_root(), "name another folder by SWEEPER_CACHE")


def _written_to(what: str, folder: Path, mend: str) -> Finding:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"written")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror or error}", hint=mend) from None
    free = shutil.disk_usage(place).free
    text = f"{folder} can be written, {free / 2**30:.1f} GiB free"
    if free < _ENOUGH_BYTES:
        return Finding(what, State.NOTE, text, f"free some space, or {mend}")
    return Finding(what, State.OK, text)
