"""The one connection of this process to a Ray cluster: started here and ended, or joined and left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeper.cluster.library import load_ray, own_token, short
from sweeper.errors import SetupError

__all__ = ["Connection"]

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
# A socket's path has room for 107 characters, and Ray adds about 65.
_LONGEST_FOLDER = 40
# What is sent is at most a few builds of some 100 KB.
_OBJECT_STORE_BYTES = 256 << 20
# What an earlier driver held is given back a moment after it has left; nodes of a new cluster come one by one.
_SETTLE_S = 10.0
_GATHER_S = 60.0
_LOOPBACK = "127.0.0.1"


class Connection:
    """Ray, connected. `gpus` and `cpus` are those of a cluster that is started here, where `address` is None.

    Where this process is connected already, that connection is used, and left as it is. Raises SetupError where there
    is no such cluster, or none can be started.
    """

    def __init__(self, address: str | None, *, gpus: int, cpus: int | None) -> None:
        self.ray: Any = load_ray()
        self._joined = address is not None
        self._folder: str | None = None
        self._own = not self.ray.is_initialized()
        if self._own:
            try:
                with _handlers_kept(), contextlib.ExitStack() as stack:
                    options = self._start_options(gpus, cpus, stack) if address is None else {}
                    self.ray.init(
                        address="local" if address is None else address,
                        logging_level="ERROR",
                        log_to_driver=False,
                        **options,
                    )
            except BaseException as error:
                self.close()
                if not isinstance(error, Exception):
                    raise
                raise _no_cluster(address, error) from None
            _quiet(self.ray)

    def _start_options(self, gpus: int, cpus: int | None, stack: contextlib.ExitStack) -> dict[str, Any]:
        own_token()
        folder = tempfile.mkdtemp(prefix="sweeper-ray-")
        self._folder = folder
        # Ray's processes inherit it: nodes of a cluster have the package installed, this host may have a checkout.
        stack.enter_context(_on_path(_PACKAGE_PARENT))
        return {
            "num_gpus": gpus,
            "num_cpus": cpus or os.cpu_count() or 1,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            # Nobody outside this host has any business with it.
            "_node_ip_address": _LOOPBACK,
            **({"_temp_dir": folder} if len(folder) <= _LONGEST_FOLDER else {}),
        }

    def processors(self) -> int:
        """How many processors the cluster has."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them: `NodeID`, `NodeManagerHostname`, `Resources`."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def gpus(self, wanted: int | None, accelerator: str | None) -> int:
        """How many GPUs are to serve: `wanted`, or all that are free.

        Of a cluster that was joined, those that are `wanted` are waited for, for a minute. Raises SetupError where
        they are not there.
        """
        began = time.monotonic()
        while True:
            there, free = self._counted(accelerator)
            if free >= (wanted or max(there, 1)):
                return wanted or free
            coming_s = _GATHER_S if self._joined and wanted else 0.0
            if time.monotonic() - began >= (_SETTLE_S if there >= (wanted or 1) else coming_s):
                break
            time.sleep(0.2)
        if wanted is None and free > 0:
            return free
        kind = f" {accelerator}" if accelerator else ""
        if there == 0:
            raise SetupError(
                f"the Ray cluster has no{kind} GPU",
                hint="start its nodes with ray start --num-gpus=N, for an emulator too",
            )
        asked = f"engine.gpus = {wanted}: " if wanted else ""
        held = f", {free} free" if there >= (wanted or 1) else ""
        raise SetupError(
            f"{asked}the Ray cluster has {there}{kind} GPU{'s' * (there != 1)}{held}",
            hint="engine.gpus=null takes all that are free; `ray status` shows which there are, and who holds them",
        )

    def _counted(self, accelerator: str | None) -> tuple[int, int]:
        """GPUs of the cluster, and how many of them nobody holds."""
        free = int(self.ray.available_resources().get("GPU", 0))
        if accelerator is None:
            return int(self.ray.cluster_resources().get("GPU", 0)), free
        kind = f"accelerator_type:{accelerator}"
        there = int(sum(n["Resources"].get("GPU", 0) for n in self.nodes() if kind in n["Resources"]))
        return there, min(there, free)

    def close(self) -> None:
        """Leave the cluster, or end it where it was started here."""
        if self._own:
            with _handlers_kept():
                self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _no_cluster(address: str | None, error: Exception) -> SetupError:
    if address is None:
        return SetupError(f"a Ray cluster cannot be started here: {short(error)}")
    hint = (
        "start one with `ray start --head`, and give this command its token, in RAY_AUTH_TOKEN or ~/.ray/auth_token;"
        " without engine.address it starts one of its own"
    )
    return SetupError(f"engine.address = {address}: {short(error)}", hint=hint)


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep what this process does on SIGTERM: Ray has it exit, whatever is under way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _on_path(folder: str) -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    # Last, so that nothing of it hides a library.
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [before]), folder])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _quiet(ray: Any) -> None:
    """Keep Ray's own words on processes that it lost out of standard output, which is for tables."""
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
