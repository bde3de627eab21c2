"""Devices and builds of a cluster, on a Ray that is none: all happens in this process, and when a test says so."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from test_evaluate import RIGHT, StubBuilder

from sweeper.backend.base import Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.build.cache import BuildCache
from sweeper.build.manifest import Recipe
from sweeper.build.source import TranslationUnit, translation_unit
from sweeper.cluster import actor as actor_module
from sweeper.cluster import builder as builder_module
from sweeper.cluster import builds, library
from sweeper.cluster import worker as worker_module
from sweeper.cluster.actor import DeviceActor
from sweeper.cluster.builder import ClusterBuilder
from sweeper.cluster.library import load_ray
from sweeper.cluster.settings import EngineConfig, why_no_engine
from sweeper.cluster.sources import files_of_kernel, files_of_unit, laid_out
from sweeper.cluster.worker import ActorSettings, ClusterWorker
from sweeper.config import BackendConfig, Config, ShapeConfig
from sweeper.device import DeviceIdentity, target
from sweeper.errors import ConfigError, SetupError, StorageError, TrialFailed, WorkerError
from sweeper.evaluate import cluster as on_cluster
from sweeper.evaluate import make_evaluator
from sweeper.kernel import description as kernel
from sweeper.model import Build, KernelSpec, Point, Stage, Status, Timing
from sweeper.paths import conf_dir
from sweeper.worker.kinds import common_target

CLUSTERS = Path(__file__).parents[1] / "docs" / "clusters.md"
DIMS = {"N": 64}
POINT = Point.of({"TILE": 4})


# A Ray in this process


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Answer:
    """What a call came to: a value, an error, or nothing yet."""

    def __init__(self, value: Any = None, *, ready: bool = True) -> None:
        self.value, self.ready = value, ready


class Remote:
    """A function or a method that is called by `remote`, wherever `options` would have it."""

    def __init__(self, call: Callable[..., Any], ray: FakeRay) -> None:
        self._call, self._ray = call, ray

    def options(self, **options: Any) -> Remote:
        self._ray.options.append(options)
        return self

    def remote(self, *args: Any) -> Answer:
        try:
            value = self._call(*args)
        except RayError as error:
            value = error
        return value if isinstance(value, Answer) else Answer(value)


class FakeActor:
    """An actor; `lost` replaces it by a new one, as Ray does, and `mute` keeps it from answering."""

    def __init__(self, ray: FakeRay, kind: type, args: tuple[Any, ...]) -> None:
        self._ray, self._kind, self._args = ray, kind, args
        self.mute = False
        self.raises: Exception | None = None
        self.killed = False
        self.lost()
        self.handle = Remote(self._handle, ray)
        self.alive = Remote(lambda: Answer(True, ready=not self.mute), ray)
        self.end = Remote(self._end, ray)

    def lost(self) -> None:
        self.inside = self._kind(*self._args)

    def _end(self) -> None:
        self.inside.end()

    def _handle(self, *args: Any) -> Any:
        if self.raises is not None:
            raise self.raises
        return Answer(ready=False) if self.mute else self.inside.handle(*args)


class FakeRay:
    exceptions = SimpleNamespace(
        RayError=RayError,
        RayActorError=RayActorError,
        ActorDiedError=ActorDiedError,
        ActorUnavailableError=ActorUnavailableError,
    )

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.actors: list[FakeActor] = []
        self.cancelled: list[Answer] = []

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        self.options.append(options)

        def made(what: Any) -> Any:
            if not isinstance(what, type):
                return Remote(what, self)
            return SimpleNamespace(remote=lambda *args: self._actor(what, args))

        return made

    def _actor(self, kind: type, args: tuple[Any, ...]) -> FakeActor:
        self.actors.append(FakeActor(self, kind, args))
        return self.actors[-1]

    def put(self, value: Any) -> Any:
        return value

    def get(self, answer: Answer) -> Any:
        if isinstance(answer.value, Exception):
            raise answer.value
        return answer.value

    def wait(self, answers: list[Answer], timeout: float | None = None) -> tuple[list[Answer], list[Answer]]:
        ready = [answer for answer in answers if answer.ready][:1]
        if not ready and timeout:
            time.sleep(min(timeout, 0.01))
        return ready, [answer for answer in answers if answer not in ready]

    def kill(self, actor: FakeActor, *, no_restart: bool) -> None:
        assert no_restart
        actor.killed = True

    def cancel(self, task: Answer, *, force: bool = False) -> None:
        self.cancelled.append(task)


class StubDevice:
    """A worker on a node: notes what it is asked, and what it finds at the place of a build."""

    made: list[StubDevice]
    uuid, product, driver = "GPU-1", "NVIDIA H200", "580.1"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.builds: list[Path] = []
        self.fails: Exception | None = None
        StubDevice.made.append(self)

    def identify(self) -> Any:
        self.calls.append("identify")
        return target("h200"), DeviceIdentity(self.product, uuid=self.uuid, driver=self.driver)

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        self.calls.append(f"prepare {spec.name} {dict(dims)} {seed} {spec.source.read_text().count('TILE')}")

    def measure(self, point: Point, build: Build | None, protocol: MeasureProtocol) -> Outcome:
        self.calls.append(f"measure {point}")
        if self.fails is not None:
            raise self.fails
        if build is not None:
            self.builds.append(build.artifact)
            build = replace(build, registers=40)
        return Outcome(RIGHT, build, None, Timing((1.5, 2.5), "events", protocol.cache))

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        return Outcome(RIGHT, None, None, Timing((1.0,), "events", "cold"), note=library)

    def confirm(self, finalists: Any, protocol: MeasureProtocol, rounds: Rounds) -> tuple[Turns, ...]:
        self.builds += [f.build.artifact for f in finalists if f.build is not None]
        return tuple(Turns((1.0,) * rounds.count, build=f.build) for f in finalists)

    def kill(self) -> None: ...

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRay:
    """A node's cache is not the driver's, as it is not where they are two machines."""
    StubDevice.made = []
    monkeypatch.setattr(DeviceActor, "_made", lambda self: StubDevice())
    monkeypatch.setattr(actor_module, "BuildCache", lambda: BuildCache(tmp_path / "node"))
    monkeypatch.setattr(actor_module, "_was_lost", lambda: False)
    monkeypatch.setattr(worker_module, "_ASK_EVERY_S", 0.02)
    monkeypatch.setattr(worker_module, "_POLL_S", 0.01)
    monkeypatch.setattr(builder_module, "_PAUSE_S", 0.0)
    return FakeRay()


@pytest.fixture
def spec(tmp_path: Path) -> KernelSpec:
    """A kernel whose header and reference lie beside its folder, and its description somewhere else."""
    for folder in ("kernels/mine", "kernels/common", "references", "descriptions"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    home = tmp_path / "home"
    (home / "kernels" / "common" / "load.cuh").write_text(
        "#pragma once\n__device__ int load() { return TILE; }\n"
    )
    source = home / "kernels" / "mine" / "copy.cu"
    source.write_text(
        '#include "../common/load.cuh"\n__global__ void copy(const float* x, float* y) { y[0] = x[load() % TILE]; }\n'
    )
    (home / "references" / "copy.py").write_text("def reference(x):\n    return x\n")
    node = {
        "name": "copy",
        "source": "../kernels/mine/copy.cu",
        "entry": "copy",
        "dims": {"N": 64},
        "params": {"TILE": [4, 8]},
        "launch": {"block": ["TILE"], "grid": ["ceil(N / TILE)"]},
        "args": [{"name": "x", "shape": ["N"]}, {"name": "y", "shape": ["N"], "direction": "out"}],
        "reference": {"python": "../references/copy.py"},
    }
    return kernel.load(node, home / "descriptions" / "copy.yaml")


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """One that lies in the driver's cache."""
    made = Build("a1" * 20, "nvcc", Path("kernel.cubin"), "copy", "nvcc 13.0.88")
    return BuildCache(tmp_path / "driver").publish(made, b"cubin of copy")


def device(ray: FakeRay, **options: Any) -> ClusterWorker:
    mixed = options.pop("mixed", False)
    return ClusterWorker(ray, ActorSettings("cuda", "h200", mixed=mixed), 3, **options)


# What may be configured


@pytest.mark.parametrize(
    ("engine", "backend", "said"),
    [
        ({}, {}, None),
        ({"name": "ray", "address": "auto", "gpus": 2, "cpus": 8, "accelerator": "H200"}, {}, None),
        ({"name": "rai"}, {}, "is none of local, ray (did you mean 'ray'?)"),
        ({"gpus": 2}, {}, "engine.gpus = 2: a cluster's; write engine=ray"),
        ({"name": "ray", "gpus": 0}, {}, "engine.gpus = 0: at least 1"),
        ({"name": "ray", "cpus": 0}, {}, "engine.cpus = 0: at least 1"),
        ({"name": "ray", "address": " "}, {}, "engine.address is empty"),
        ({"name": "ray"}, {"devices": (0, 1)}, "backend.devices names a GPU of this host"),
        ({"name": "ray"}, {"device": 1}, "backend.device names a GPU of this host"),
    ],
)
def test_what_cannot_be_meant_is_told(
    engine: dict[str, Any], backend: dict[str, Any], said: str | None
) -> None:
    problems = why_no_engine(EngineConfig(**engine), **backend)
    assert problems == [] if said is None else said in problems[0]


def test_ray_is_loaded_for_a_cluster_alone() -> None:
    code = "import sweeper.cli.session, sweeper.evaluate, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(library.importlib, "import_module", missing)
    with pytest.raises(SetupError, match="engine=ray needs Ray: No module named 'ray'") as caught:
        load_ray()
    assert caught.value.hint == "pip install 'ray>=2.40'"


def test_an_old_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.importlib, "import_module", lambda _: SimpleNamespace(__version__="2.9.3"))
    with pytest.raises(SetupError, match=r"needs Ray 2\.40 or later, this is 2\.9\.3"):
        load_ray()


def test_nodes_of_two_drivers_do_not_serve_one_search() -> None:
    devices = [
        DeviceIdentity("H200", driver="580.1", index=0),
        DeviceIdentity("H200", driver="570.2", index=1),
    ]
    with pytest.raises(SetupError, match=r"device 1 runs on driver 570\.2, device 0 on 580\.1"):
        common_target([target("h200")] * 2, devices, mixed=False)
    assert common_target([target("h200")] * 2, devices, mixed=True).name == target("h200").name


def test_the_keys_are_documented_with_their_defaults() -> None:
    rows = re.findall(
        r"^\| `engine\.(\w+)` \| `(\w+)` \|", CLUSTERS.read_text(encoding="utf-8"), re.MULTILINE
    )
    documented = {key: yaml.safe_load(default) for key, default in rows}
    assert documented == dataclasses.asdict(EngineConfig())
    for name in ("local", "ray"):
        shipped = yaml.safe_load((conf_dir() / "engine" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert EngineConfig(**shipped) == EngineConfig(name=name)


# Sources


def test_a_kernel_is_the_same_wherever_its_files_are_laid_out(spec: KernelSpec, tmp_path: Path) -> None:
    unit = translation_unit(spec, POINT)
    sources = files_of_unit(unit)
    folder = laid_out(sources.files, sources.digest, BuildCache(tmp_path / "node"))
    moved = replace(spec, source=folder / sources.place(spec.source))
    assert folder.is_relative_to(tmp_path / "node" / "sources")
    assert translation_unit(moved, POINT).digest == unit.digest


def test_files_are_laid_out_once_and_nothing_is_left_beside_them(spec: KernelSpec, tmp_path: Path) -> None:
    sources, cache = files_of_kernel(spec), BuildCache(tmp_path / "node")
    first = laid_out(sources.files, sources.digest, cache)
    assert laid_out([("x", b"not written")], sources.digest, cache) == first
    assert [path.name for path in first.parent.iterdir()] == [sources.digest]
    places = sorted(p.relative_to(first).as_posix() for p in first.rglob("*") if p.is_file())
    assert places == ["kernels/common/load.cuh", "kernels/mine/copy.cu", "references/copy.py"]


def test_another_text_is_another_folder(spec: KernelSpec) -> None:
    before = files_of_kernel(spec).digest
    spec.source.write_text(spec.source.read_text() + "// changed\n")
    assert files_of_kernel(spec).digest != before


def test_a_node_without_room_says_so(spec: KernelSpec, tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "node")
    (tmp_path / "node" / "sources").write_text("a file where a folder should be")
    sources = files_of_kernel(spec)
    with pytest.raises(StorageError, match="sources cannot be written"):
        laid_out(sources.files, sources.digest, cache)


# Devices


def test_a_device_is_known_by_its_own_name_and_the_number_it_has_here(ray: FakeRay) -> None:
    limits, identity = device(ray).identify()
    assert (limits.name, identity.uuid, identity.index) == (target("h200").name, "GPU-1", 3)
    asked = ray.options[0]
    assert (asked["num_gpus"], asked["max_restarts"]) == (1, -1)
    assert asked["max_task_retries"] > 0


def test_a_build_travels_by_content_and_comes_back_at_its_own_place(
    ray: FakeRay, spec: KernelSpec, build: Build, tmp_path: Path
) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    outcome = worker.measure(POINT, build, MeasureProtocol(cache="warm"))
    (node,) = StubDevice.made
    assert node.calls == ["identify", "prepare copy {'N': 64} 7 1", "measure TILE=4"]
    assert node.builds[0].is_relative_to(tmp_path / "node")
    assert node.builds[0].read_bytes() == b"cubin of copy"
    assert outcome.build == replace(build, registers=40)
    assert outcome.timing == Timing((1.5, 2.5), "events", "warm")


def test_finalists_travel_too(ray: FakeRay, spec: KernelSpec, build: Build, tmp_path: Path) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    turns = worker.confirm(
        [Finalist(POINT, build), Finalist(library="cublas")], MeasureProtocol(), Rounds(count=2)
    )
    assert [turn.times_ms for turn in turns] == [(1.0, 1.0)] * 2
    assert turns[0].build == build
    assert StubDevice.made[0].builds[0].is_relative_to(tmp_path / "node")


def test_a_point_without_a_build_and_a_library_are_asked_as_well(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    assert worker.measure(POINT, None, MeasureProtocol()).build is None
    assert worker.baseline("cublas", MeasureProtocol()).note == "cublas"


def test_a_build_that_is_gone_is_that_points_failure(ray: FakeRay, spec: KernelSpec, build: Build) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    build.artifact.unlink()
    with pytest.raises(TrialFailed, match="cannot be read"):
        worker.measure(POINT, build, MeasureProtocol())


def test_a_failed_configuration_fails_here_with_all_it_knows(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    StubDevice.made[0].fails = TrialFailed(
        Status.WRONG_RESULT, Stage.VERIFY, "2 wrong", details={"check": replace(RIGHT, passed=False, wrong=2)}
    )
    with pytest.raises(TrialFailed, match="2 wrong") as caught:
        worker.measure(POINT, None, MeasureProtocol())
    assert (caught.value.status, caught.value.details["check"].wrong) == (Status.WRONG_RESULT, 2)


def test_an_error_of_a_node_names_it(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    StubDevice.made[0].fails = StorageError("no space left", hint="free some")
    with pytest.raises(StorageError, match=": no space left") as caught:
        worker.measure(POINT, None, MeasureProtocol())
    assert caught.value.hint == "free some"


def test_an_actor_that_was_started_again_prepares_before_it_measures(ray: FakeRay, spec: KernelSpec) -> None:
    said: list[str] = []
    worker = device(ray, say=said.append)
    worker.prepare(spec, DIMS, 7)
    ray.actors[0].lost()
    worker.measure(POINT, None, MeasureProtocol())
    worker.measure(POINT, None, MeasureProtocol())
    assert StubDevice.made[1].calls == [
        "identify",
        "prepare copy {'N': 64} 7 1",
        "measure TILE=4",
        "measure TILE=4",
    ]
    assert len(said) == 1
    assert "its process was lost" in said[0]


def test_a_device_that_a_lost_process_still_holds_is_waited_for(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([SetupError("in use by another sweep")])

    def identify(self: StubDevice) -> Any:
        for refusal in refusals:
            raise refusal
        return target("h200"), DeviceIdentity("NVIDIA H200", uuid="GPU-1")

    monkeypatch.setattr(StubDevice, "identify", identify)
    monkeypatch.setattr(actor_module.time, "sleep", lambda _: None)
    with pytest.raises(SetupError, match="in use by another sweep"):
        device(ray).identify()
    refusals = iter([SetupError("in use by another sweep")])
    monkeypatch.setattr(actor_module, "_was_lost", lambda: True)
    assert device(ray).identify()[1].uuid == "GPU-1"


def test_a_row_names_the_device_that_it_ran_on_after_a_loss(
    ray: FakeRay, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    monkeypatch.setattr(StubDevice, "uuid", "GPU-2")
    ray.actors[0].lost()
    worker.measure(POINT, None, MeasureProtocol())
    assert worker.identity.uuid == "GPU-2"


@pytest.mark.parametrize(("what", "value"), [("product", "NVIDIA A100"), ("driver", "570.2")])
def test_a_device_of_another_kind_takes_nobodys_place(
    ray: FakeRay, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch, what: str, value: str
) -> None:
    strict, mixed = device(ray), device(ray, mixed=True)
    for worker in (strict, mixed):
        worker.prepare(spec, DIMS, 7)
    monkeypatch.setattr(StubDevice, what, value)
    for actor in ray.actors:
        actor.lost()
    with pytest.raises(SetupError, match="its times do not compare"):
        strict.measure(POINT, None, MeasureProtocol())
    assert ray.actors[0].killed
    mixed.measure(POINT, None, MeasureProtocol())


def test_who_does_not_answer_for_too_long_is_given_up(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray, lost_s=0.1)
    worker.prepare(spec, DIMS, 7)
    ray.actors[0].mute = True
    with pytest.raises(WorkerError, match=r"GPU 3 of the cluster \(GPU-1\) has not answered for 0\.1 s"):
        worker.measure(POINT, None, MeasureProtocol())
    assert ray.actors[0].killed


def test_who_says_that_it_is_at_work_is_waited_for(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray, lost_s=0.1)
    worker.prepare(spec, DIMS, 7)
    inside, asked = ray.actors[0], []
    late = Answer(ready=False)

    def alive() -> Answer:
        asked.append(1)
        if len(asked) == 20:
            late.value, late.ready = inside.inside.handle({"op": "identify"}), True
        return Answer(True)

    inside.alive = Remote(alive, ray)
    inside.handle = Remote(lambda *_: late, ray)
    assert worker._call({"op": "identify"})["ok"]


def test_a_call_that_is_lost_again_and_again_is_a_crash_of_its_point(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    ray.actors[0].raises = ActorUnavailableError("\x1b[36mgone\x1b[0m\nstack")
    with pytest.raises(TrialFailed, match=r"lost 5 times meanwhile: ActorUnavailableError: gone$") as caught:
        worker.measure(POINT, None, MeasureProtocol())
    assert caught.value.status is Status.CRASH


def test_a_dead_node_that_nobody_has_noticed_yet_costs_no_row(ray: FakeRay, spec: KernelSpec) -> None:
    """Calls fail at once, for a while; then there is an actor again."""
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    actor, asked = ray.actors[0], []
    actor.raises = ActorUnavailableError("connection refused")

    def alive() -> bool:
        asked.append(1)
        if len(asked) < 10:
            raise ActorUnavailableError("connection refused")
        actor.raises = None
        actor.lost()
        return True

    actor.alive = Remote(alive, ray)
    assert worker.measure(POINT, None, MeasureProtocol()).timing is not None
    assert len(asked) == 10


def test_a_node_that_never_comes_back_costs_its_device(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray, lost_s=0.1)
    worker.prepare(spec, DIMS, 7)
    ray.actors[0].raises = ActorUnavailableError("connection refused")
    ray.actors[0].mute = True
    with pytest.raises(WorkerError, match="has not answered for"):
        worker.measure(POINT, None, MeasureProtocol())


def test_another_processor_does_not_emulate(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ClusterWorker(ray, ActorSettings("emulator"), 0)
    monkeypatch.setattr(actor_module, "cpu_identity", lambda: "another")
    with pytest.raises(SetupError, match="its processor is of another kind"):
        worker.identify()


def test_an_actor_that_stays_dead_costs_its_device(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    ray.actors[0].raises = ActorDiedError("the owner has died")
    with pytest.raises(WorkerError, match="the owner has died"):
        worker.measure(POINT, None, MeasureProtocol())


def test_what_is_given_back_ends_and_is_asked_no_more(ray: FakeRay, spec: KernelSpec) -> None:
    worker = device(ray)
    worker.prepare(spec, DIMS, 7)
    worker.close()
    assert StubDevice.made[0].calls[-1] == "close"
    assert ray.actors[0].killed
    with pytest.raises(WorkerError, match="was given back"):
        worker.measure(POINT, None, MeasureProtocol())


def test_nodes_have_the_commands_own_version(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = device(ray)
    monkeypatch.setattr(actor_module, "__version__", "0.0.1")
    with pytest.raises(SetupError, match=r": sweeper 0\.0\.1 is installed here, the command's is"):
        worker.identify()


# Builds


class StubCompiler(StubBuilder):
    """A compiler on this host and on every node, each with a cache of its own."""

    def __init__(self, cache: BuildCache, version: str = "1") -> None:
        super().__init__({})
        self.cache, self.version = cache, version
        self.built: list[TranslationUnit] = []
        self.fails: TrialFailed | None = None

    def recipe(self, arch: str) -> Recipe:
        return Recipe("fake", arch, f"fake {self.version}", f"fake {self.version}")

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        self.built.append(unit)
        if self.fails is not None:
            raise self.fails
        key = self.recipe(arch).key(unit.digest)
        headers = [p.read_bytes() for d in unit.include_dirs for p in [d / "../common/load.cuh"]]
        made = Build(key, "fake", Path("kernel.cubin"), unit.entry, "fake 1")
        return self.cache.publish(made, b"built of " + b"".join(headers))


class Nodes:
    """The compilers of a cluster's nodes by name; tasks run on `at`, or where they are told to."""

    def __init__(self, ray: FakeRay, compilers: dict[str, StubCompiler | SetupError]) -> None:
        self.ray, self.compilers, self.at = ray, compilers, next(iter(compilers))
        self.gone: set[str] = set()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": n, "Resources": {"CPU": 2.0}} for n in self.compilers if n not in self.gone]

    def current(self) -> str:
        told = self.ray.options[-1].get("scheduling_strategy")
        return told if told in self.compilers else self.at

    def compiler(self, kind: Mapping[str, Any]) -> StubCompiler:
        found = self.compilers[self.current()]
        if isinstance(found, SetupError):
            raise found
        return found


Cluster = Callable[..., tuple[ClusterBuilder, Nodes, list[str]]]


@pytest.fixture
def cluster(ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made: list[ClusterBuilder] = []

    def make(
        here: StubCompiler | SetupError | None = None, **nodes: str | SetupError
    ) -> tuple[ClusterBuilder, Nodes, list[str]]:
        compilers = {
            name: StubCompiler(BuildCache(tmp_path / name), version) if isinstance(version, str) else version
            for name, version in (nodes or {"a": "1"}).items()
        }
        known = Nodes(ray, compilers)

        def local(*_: Any, **__: Any) -> StubCompiler:
            if isinstance(here, SetupError):
                raise here
            return here or StubCompiler(BuildCache(tmp_path / "driver"))

        monkeypatch.setattr(builder_module, "make_builder", local)
        monkeypatch.setattr(builds, "_builder", known.compiler)
        monkeypatch.setattr(builds, "_node", known.current)
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        monkeypatch.setattr(builder_module.importlib, "import_module", lambda _: strategies)
        monkeypatch.setattr(builder_module, "BuildCache", lambda *_: BuildCache(tmp_path / "driver"))
        connection: Any = SimpleNamespace(ray=ray, nodes=known.nodes)
        said: list[str] = []
        made.append(ClusterBuilder(connection, "cuda", "auto", cache=True, say=said.append))
        made[-1].check("sm_90a")
        return made[-1], known, said

    yield make
    for builder in made:
        builder.close()


def compilers_of(nodes: Nodes, name: str) -> StubCompiler:
    found = nodes.compilers[name]
    assert isinstance(found, StubCompiler)
    return found


def test_a_unit_is_built_on_a_node_and_kept_here(cluster: Cluster, spec: KernelSpec, tmp_path: Path) -> None:
    builder, nodes, _ = cluster()
    unit = translation_unit(spec, POINT)
    built = builder.build(unit, arch="sm_90a", deadline_s=60)
    assert built.artifact.is_relative_to(tmp_path / "driver")
    assert built.artifact.read_bytes().startswith(b"built of #pragma once")
    (there,) = compilers_of(nodes, "a").built
    assert there.digest == unit.digest
    assert there.include_dirs[0].is_relative_to(tmp_path / "a" / "sources")
    assert (builder.kind, builder.identity()) == ("fake", "fake 1")


def test_what_is_cached_here_is_not_built_again(cluster: Cluster, spec: KernelSpec) -> None:
    builder, nodes, _ = cluster()
    unit = translation_unit(spec, POINT)
    first = builder.build(unit, arch="sm_90a", deadline_s=60)
    again = builder.build(unit, arch="sm_90a", deadline_s=60)
    assert again == replace(first, cached=True)
    assert len(compilers_of(nodes, "a").built) == 1


def test_a_failed_builds_log_is_kept_here(cluster: Cluster, spec: KernelSpec, tmp_path: Path) -> None:
    builder, nodes, _ = cluster()
    log = tmp_path / "a" / "log"
    log.write_text("copy.cu(1): error")
    compilers_of(nodes, "a").fails = TrialFailed(
        Status.BUILD_ERROR, Stage.BUILD, "error", details={"log": str(log), "type": "CompileError"}
    )
    with pytest.raises(TrialFailed) as caught:
        builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60)
    kept = Path(caught.value.details["log"])
    assert kept.is_relative_to(tmp_path / "driver")
    assert kept.read_text() == "copy.cu(1): error"
    assert caught.value.details["type"] == "CompileError"


def test_nodes_that_would_build_otherwise_are_passed_over(cluster: Cluster, spec: KernelSpec) -> None:
    builder, nodes, said = cluster(old="0.9", bare=SetupError("nvcc not found"), right="1")
    for point in (POINT, Point.of({"TILE": 8})):
        for nodes.at in ("old", "bare"):
            builder.build(translation_unit(spec, point), arch="sm_90a", deadline_s=60)
    assert len(compilers_of(nodes, "right").built) == 2
    assert not compilers_of(nodes, "old").built
    assert [line.split(": ", 1)[1] for line in said] == [
        "it builds with fake 0.9, the others with fake 1",
        "nvcc not found",
    ]


def test_where_no_node_can_build_the_search_ends(cluster: Cluster, spec: KernelSpec) -> None:
    builder, _, _ = cluster(bare=SetupError("nvcc not found"))
    with pytest.raises(SetupError, match=r"no node of the cluster can build: .*: nvcc not found"):
        builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60)


def test_a_host_without_a_compiler_asks_the_nodes_how_they_build(cluster: Cluster, spec: KernelSpec) -> None:
    missing = SetupError("nvcc not found")
    builder, nodes, _ = cluster(missing, bare=missing, right="7")
    assert builder.identity() == "fake 7"
    built = builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60)
    assert compilers_of(nodes, "right").built
    assert builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60).key == built.key
    with pytest.raises(SetupError, match="no node of the cluster can build"):
        cluster(missing, bare=missing)


def test_a_build_that_ray_loses_for_good_is_that_points_failure(
    cluster: Cluster, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, _, _ = cluster()

    def lost(*_: Any) -> Any:
        raise RayError("worker crashed")

    monkeypatch.setattr(builder, "_task", Remote(lost, builder._ray))
    with pytest.raises(TrialFailed, match="lost, 5 times in a row: RayError: worker crashed") as caught:
        builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60)
    assert caught.value.status is Status.BUILD_ERROR


def test_a_closed_builder_cancels_what_runs_and_begins_nothing(cluster: Cluster, spec: KernelSpec) -> None:
    builder, nodes, _ = cluster()
    running = Answer(ready=False)
    builder._running.add(running)
    builder.close()
    assert nodes.ray.cancelled == [running]
    with pytest.raises(TrialFailed, match="the builder was closed"):
        builder.build(translation_unit(spec, POINT), arch="sm_90a", deadline_s=60)


def test_what_cannot_build_for_the_backend_is_a_usage_error(ray: FakeRay) -> None:
    connection: Any = SimpleNamespace(ray=ray, nodes=list)
    with pytest.raises(ConfigError, match="cannot build for backend emulator"):
        ClusterBuilder(connection, "emulator", "nvcc", cache=True)


# Evaluators


class Chosen:
    """What an evaluator was made with, in its place."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.given, self.options = given, options


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Chosen]:
    monkeypatch.setattr(on_cluster, "RayEngine", Chosen)
    monkeypatch.setattr(on_cluster, "LiveEvaluator", Chosen)
    monkeypatch.setattr(on_cluster, "ClusterReplay", Chosen)
    monkeypatch.setattr(on_cluster, "count_gpus", lambda: 4)
    monkeypatch.setattr(on_cluster, "why_no_gpu", lambda ask: None)

    def choose(backend: str = "auto", **engine: Any) -> Chosen:
        config = Config(
            kernel={},
            shape=ShapeConfig(None, {}),
            backend=BackendConfig(name=backend),
            engine=EngineConfig(name="ray", **engine),
        )
        made: Any = make_evaluator(config, lambda _: None)
        return made

    return choose


def test_a_host_of_its_own_gpus_gives_all_of_them(chosen: Callable[..., Chosen]) -> None:
    for backend in ("auto", "cuda"):
        made = chosen(backend)
        assert made.given[0] == "cuda"
        assert made.options["engine"].options["gpus"] == 4
    with pytest.raises(SetupError, match=r"engine\.gpus = 5: this host has 4 GPUs"):
        chosen("cuda", gpus=5)


def test_without_a_gpu_as_many_as_are_asked_for_are_pretended(
    chosen: Callable[..., Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_cluster, "why_no_gpu", lambda ask: "no GPU found")
    monkeypatch.setattr(on_cluster, "count_gpus", lambda: 0)
    made = chosen(gpus=3)
    assert made.given[0] == "emulator"
    assert made.options["engine"].options["gpus"] == 3
    with pytest.raises(SetupError, match=r"^this host has 0 GPUs"):
        chosen("cuda")


def test_what_a_cluster_has_is_its_own_matter(
    chosen: Callable[..., Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a GPU drives a search on those of others."""
    monkeypatch.setattr(on_cluster, "why_no_gpu", lambda ask: "no GPU found")
    monkeypatch.setattr(on_cluster, "count_gpus", lambda: 0)
    assert chosen(address="auto").given[0] == "cuda"
    assert chosen("replay", address="auto").given[1].given[0].address == "auto"
