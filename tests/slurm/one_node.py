"""A SLURM of one node with two pretended GPUs, in a folder, on the loopback address, without systemd; needs root.

with OneNode(folder) as cluster:
    cluster.run("sinfo")                     # with cluster.environment
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

__all__ = ["OneNode", "why_not"]

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun")
_START_S = 60.0
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SrunPortRange={first}-{last}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
MinJobAge=10
GresTypes=gpu
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=4096 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why it cannot be started here, or None."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (apt-get install slurm-wlm munge)"
    return "slurmd takes root" if os.geteuid() != 0 else None


class OneNode:
    """Starts `munged`, `slurmctld` and `slurmd` in `folder`, and ends them with all that they run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        # munged wants folders that nobody else can write to.
        self.folder.chmod(0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        ports = _free_ports(52)
        self._write(
            "slurm.conf",
            _CONF.format(
                folder=self.folder,
                host=socket.gethostname().partition(".")[0],
                controller=ports[0],
                daemon=ports[1],
                first=ports[2],
                last=ports[-1],
            ),
        )
        for gpu in range(2):
            # slurmd takes device files only; these are of the kind of /dev/null.
            os.mknod(self.folder / f"gpu{gpu}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        self._write("gres.conf", f"NodeName=one Name=gpu File={self.folder}/gpu[0-1]\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        here = str(self.folder)
        try:
            self._start(
                "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={here}/munge.socket",
                f"--pid-file={here}/munged.pid", f"--log-file={here}/munged.log", f"--seed-file={here}/munge.seed",
            )  # fmt: skip
            _until((self.folder / "munge.socket").exists, "munged has no socket")
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D", "-N", "one")
            _until(
                lambda: self.run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle", "the node is not idle"
            )
        except BaseException as error:
            self._end()
            raise RuntimeError(self.logs()) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.run("scancel", "--signal=KILL", "--full", "--user=root")
        self.run("scancel", "--user=root")
        try:
            _until(lambda: not self.run("squeue", "-h").stdout.strip(), "the queue is not empty", 20)
        finally:
            self._end()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command with the cluster's environment."""
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        found = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}" for path in found)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}.out.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    words,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    def _end(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        self._daemons.clear()


def _until(true: Callable[[], bool], otherwise: str, within_s: float = _START_S) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.2)


def _free_ports(count: int) -> range:
    """Neighbouring ports that nobody has now."""
    for first in range(20000 + os.getpid() % 10000, 60000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                sockets.append(one)
                one.bind(("127.0.0.1", port))
            return range(first, first + count)
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise OSError(f"no {count} neighbouring ports are free")
