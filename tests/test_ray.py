"""Searches on a Ray cluster of this machine with two pretended GPUs: what is killed is done again, and nothing twice.

`make scale-test` runs the same at 200 points with ten kills, and whole commands that are interrupted and killed.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pytest
from cluster_rig import Command, Nodes, descendants
from test_kernel import shipped
from test_tune import Ears, Memory

from sweeper.config import BackendConfig, Config, EngineConfig, MeasureConfig, ShapeConfig
from sweeper.errors import SetupError
from sweeper.evaluate import Evaluator, ReplayEvaluator, make_evaluator
from sweeper.evaluate.cluster import ClusterReplay
from sweeper.kernel.description import load
from sweeper.model import KernelSpec, Status
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.table import frame
from sweeper.tune import Study, Tally, tune

ray = pytest.importorskip("ray", reason="pip install 'ray>=2.40'")

from sweeper.cluster.connection import Connection  # noqa: E402
from sweeper.cluster.engine import RayEngine  # noqa: E402

POINTS = int(os.environ.get("SWEEPER_SCALE_POINTS", "24"))
KILLS = int(os.environ.get("SWEEPER_SCALE_KILLS", "2"))
WHOLE = "SWEEPER_SCALE_POINTS" in os.environ
TABLE = Path(__file__).parents[1] / "results" / "h200" / "spaces" / "register_tile-2048.csv.gz"
ON_CLUSTER = EngineConfig(name="ray")
KILLABLE = ("ray::DeviceActor", "ray::build_on_node")

whole_commands = pytest.mark.skipif(not WHOLE, reason="make scale-test runs it")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """One cluster for all searches of this process: each finds it and leaves it as it is."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPER_CACHE", str(cache))
        made = Connection(None, gpus=2, cpus=2)
        yield made
        made.close()


def kernel(name: str) -> KernelSpec:
    path = conf_dir() / "kernel" / f"{name}.yaml"
    return load(shipped(path), path)


def config(backend: str, **sections: Any) -> Config:
    sections.setdefault("backend", BackendConfig(name=backend, path=str(TABLE)))
    return Config(kernel={}, shape=ShapeConfig(None, {}), **sections)


def search(world: Evaluator, spec: KernelSpec, dims: dict[str, int], budget: int) -> Tally:
    world.prepare(spec, dims, 1)
    problem = resolve(spec, dims, spec.default_point, seed=1)
    study = Study(spec, dims, "here", 1, problem.flops, problem.bytes, world, asdict(MeasureConfig()))
    space = feasible_space(spec, dims, world.target)
    memory = Memory()
    return tune(
        study,
        space,
        lambda: make("tpe", space, 5),
        memory,
        Ears(memory),
        budget=budget,
        lookahead=8,
    )


class Killer(threading.Thread):
    """Kills one of this process's Ray workers after another, at random moments, until `count` are dead."""

    def __init__(self, count: int, seed: int = 1) -> None:
        super().__init__(daemon=True)
        self._left, self._random = count, random.Random(seed)  # noqa: S311
        self._stopped = threading.Event()
        self.killed: list[int] = []

    def run(self) -> None:
        while self._left and not self._stopped.wait(self._random.uniform(0.1, 0.6)):
            victims = [pid for pid, title in descendants(os.getpid()) if title.startswith(KILLABLE)]
            if victims:
                pid = self._random.choice(victims)
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
                self._left -= 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


def test_a_search_loses_no_point_and_does_none_twice_whatever_is_killed(connection: Connection) -> None:
    """Its rows are those of one process that nobody killed anything of."""
    spec, dims = kernel("register_tile"), {"M": 2048, "N": 2048, "K": 2048}
    alone = search(ReplayEvaluator(BackendConfig(name="replay", path=str(TABLE))), spec, dims, POINTS)
    said: list[str] = []
    engine = RayEngine(ON_CLUSTER, gpus=2, say=said.append)
    # As slow as a device, so that kills meet calls that are under way.
    with (
        closing(ClusterReplay(config("replay"), engine, said.append, pace_s=0.15)) as world,
        Killer(KILLS) as killer,
    ):
        tally = search(world, spec, dims, POINTS)
        busy = world.seconds()["device_busy"]
    assert len(killer.killed) == KILLS
    assert Counter(trial.point.key for trial in tally.trials).most_common(1)[0][1] == 1
    assert len(tally.trials) == POINTS
    assert frame(tally.trials).equals(frame(alone.trials))
    assert len(busy) == 2
    assert min(busy) > 0
    assert any("its process was lost" in line for line in said)


def test_every_gpu_of_the_cluster_gets_an_actor_that_sees_it_alone(connection: Connection) -> None:
    engine = RayEngine(ON_CLUSTER, gpus=2)
    try:
        visible = connection.ray.remote(num_gpus=1)(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        assert (engine.count, connection.processors(), engine.slots) == (2, 2, 2)
        assert connection.ray.get(visible.remote()) in ("0", "1")
    finally:
        engine.close()


def test_more_gpus_than_there_are_is_a_set_up_error(connection: Connection) -> None:
    with pytest.raises(SetupError, match=r"engine\.gpus = 3: the Ray cluster has 2 GPUs\n"):
        RayEngine(EngineConfig(name="ray", gpus=3), gpus=2)
    with pytest.raises(SetupError, match="the Ray cluster has no H200 GPU"):
        RayEngine(EngineConfig(name="ray", accelerator="H200"), gpus=2)


def broken(folder: Path) -> KernelSpec:
    """A kernel that no compiler takes."""
    (folder / "broken.cu").write_text("__global__ void broken(float* y) { y[0] = BLOCK + no_such_name; }\n")
    (folder / "broken.py").write_text("def reference():\n    return 0\n")
    node = {
        "name": "broken",
        "source": "broken.cu",
        "entry": "broken",
        "dims": {"N": 64},
        "params": {"BLOCK": [32]},
        "launch": {"block": ["BLOCK"], "grid": [1]},
        "args": [{"name": "y", "shape": ["N"], "direction": "out"}],
        "reference": {"python": "broken.py"},
    }
    return load(node, folder / "broken.yaml")


def test_emulated_kernels_are_built_by_tasks_and_proved_by_actors(
    connection: Connection, tmp_path: Path
) -> None:
    """The rows are those of one host, and what is in the driver's cache is not built again."""
    spec, dims = kernel("tiled"), {"M": 64, "N": 64, "K": 64}
    with closing(make_evaluator(config("emulator", engine=ON_CLUSTER), print)) as world:
        tally = search(world, spec, dims, 2)
        again = search(world, spec, dims, 2)
        (failed,) = search(world, broken(tmp_path), {"N": 64}, 1).trials
        assert [device.index for device in world.devices] == [0, 1]
    with closing(make_evaluator(config("emulator"), print)) as world:
        alone = search(world, spec, dims, 2)
    assert [t.status for t in tally.trials] == [Status.OK] * 2, [t.reason for t in tally.trials]
    assert frame(tally.trials).equals(frame(alone.trials))
    assert all(t.build is not None and not t.build.cached for t in tally.trials)
    assert all(t.build is not None and t.build.cached for t in again.trials + alone.trials)
    assert failed.status is Status.BUILD_ERROR
    assert "no_such_name" in Path(failed.details["log"]).read_text()


# Whole commands


def assert_no_secret_is_shown(command: Command) -> None:
    """The cluster has a token, and no process of it has it among its arguments."""
    titles = dict(descendants(command.process.pid))
    raylet = next(pid for pid, title in titles.items() if "/raylet/raylet " in title)
    environment = Path(f"/proc/{raylet}/environ").read_text().split("\0")
    (token,) = (text.partition("=")[2] for text in environment if text.startswith("RAY_AUTH_TOKEN="))
    assert len(token) >= 32
    assert not [title for title in titles.values() if token in title]


@whole_commands
@pytest.mark.parametrize(
    ("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_a_command_that_is_stopped_leaves_no_process_of_ray(
    tmp_path: Path, signal_: signal.Signals, code: int
) -> None:
    command = Command(tmp_path, "backend=emulator", "kernel=register_tile", "shape=tiny", "search.budget=60")
    command.until(rows=3)
    assert_no_secret_is_shown(command)
    command.process.send_signal(signal_)
    assert command.process.wait(120) == code
    assert command.left(within_s=60) == {}


@whole_commands
def test_a_command_survives_the_kills_of_actors_and_builds(tmp_path: Path) -> None:
    what = ("backend=emulator", "kernel=register_tile", "shape=tiny", "search.budget=24", "build.cache=false")
    (killed, alone) = (
        Command(tmp_path / name, *what, engine=engine) for name, engine in (("a", "ray"), ("b", "local"))
    )
    chance, count = random.Random(2), 0  # noqa: S311
    while killed.process.poll() is None:
        time.sleep(chance.uniform(0.5, 2.0))
        victims = [pid for pid, title in descendants(killed.process.pid) if title.startswith(KILLABLE)]
        if victims and count < 6 and killed.rows():
            os.kill(chance.choice(victims), signal.SIGKILL)
            count += 1
    assert killed.process.returncode == alone.process.wait(600) == 0
    assert count == 6
    assert killed.table() == alone.table()
    assert killed.left(within_s=60) == {}


@whole_commands
def test_a_node_that_is_lost_costs_no_row(tmp_path: Path) -> None:
    """What was under way there is done by the other, and its GPU is given up."""
    what = ("backend=emulator", "kernel=register_tile", "shape=tiny", "search=random", "search.budget=24")
    # A socket's path may have 107 characters, which a test's own folder uses up.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, Nodes(2, Path(folder)) as nodes:
        command = Command(tmp_path / "ray", *what, nodes=nodes)
        command.until(rows=4)
        nodes.lose_one()
        alone = Command(tmp_path / "local", *what, engine="local")
        assert alone.process.wait(600) == 0
        assert command.process.wait(600) == 0, (command.folder / "said").read_text()
    assert command.table() == alone.table()
    assert "is no longer used, 1 left" in (command.folder / "said").read_text()


@whole_commands
def test_the_documented_commands_run(tmp_path: Path) -> None:
    """Those for one host, and for several on this one: with processors and pretended GPUs told, and an emulator."""
    ran = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, Nodes(0, Path(folder)) as nodes:
        for words in documented(nodes.address):
            done = subprocess.run(
                words,
                cwd=tmp_path,
                env=nodes.environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            ran[words[0]] += 1
    assert ran == {"ray": 2, sys.executable: 2}
    assert len(list(tmp_path.glob("results/runs/*/trials.csv"))) == 2


def documented(address: str) -> Iterator[list[str]]:
    """The commands of the page, for a head at `address`."""
    for section in ("One host", "Several hosts"):
        for block in re.findall(r"```bash\n(.*?)```", chapter(section), re.DOTALL):
            for line in block.splitlines():
                told = line.replace("HEAD:6379", address).replace("6379", address.rpartition(":")[2])
                words = shlex.split(told)
                if words[:2] == ["ray", "start"]:
                    yield [*words, "--num-cpus=1", "--num-gpus=1"]
                elif words[0] == "python":
                    yield [sys.executable, *words[1:], "backend=emulator"]


def chapter(heading: str) -> str:
    """What stands under a heading of the page on clusters."""
    text = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text(encoding="utf-8")
    return text.partition(f"### {heading}\n")[2].partition("\n### ")[0]
