"""The worlds a search can run in: which one is chosen, what they refuse, and what never reaches a device."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from specs import gemm_spec, launch

from sweeper.backend.base import Outcome
from sweeper.build.source import TranslationUnit
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device import DeviceIdentity, Target, present, target
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.evaluate import LiveEvaluator, ReplayEvaluator, live, make, make_evaluator, why_pruned
from sweeper.model import Build, Check, Point, Stage, Status, TimeSource, Timing
from sweeper.worker.kinds import common_identity, common_target

SPEC = gemm_spec()
DIMS = {"M": 64, "N": 64, "K": 64}
RIGHT = Check(passed=True, checked=4, wrong=0, max_error=0.0, error_ratio=0.0, error_index=None)
TILE_8 = Point.of({"tile": 8})


def config(**sections: Any) -> Config:
    return Config(kernel={}, shape=ShapeConfig(None, {}), **sections)


class StubWorker:
    """A device without a process; those of index 2 and up are of other products."""

    opened: list[StubWorker]
    products = ("NVIDIA H200", "NVIDIA H200", "NVIDIA H100", "NVIDIA A100")
    targets = ("h200", "h200", "h200", "a100")

    def __init__(self, backend: str, *, device: int, target: str | None, allow_shared: bool = False) -> None:
        self.device = device
        self.closed = False
        StubWorker.opened.append(self)

    def identify(self) -> tuple[Target, DeviceIdentity]:
        identity = DeviceIdentity(
            self.products[self.device], uuid=f"GPU-{self.device}", driver="580.1", index=self.device
        )
        return target(self.targets[self.device]), identity

    def prepare(self, spec: Any, dims: Any, seed: int) -> None: ...

    def measure(self, point: Point, build: Build, protocol: Any) -> Outcome:
        return Outcome(RIGHT, build, None, Timing((1.0,), "events", "cold"))

    def baseline(self, library: str, protocol: Any) -> Outcome:
        return Outcome(RIGHT, None, None, Timing((1.0,), "events", "cold"), note=library)

    def kill(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class StubBuilder:
    kind = "fake"

    def __init__(self, figures: dict[str, Any]) -> None:
        self.figures = figures
        self.closed = False

    def identity(self) -> str:
        return "fake 1"

    def check(self, arch: str) -> None:
        if self.figures.get("unknown_arch"):
            raise SetupError(f"fake 1 cannot compile for {arch}")

    def warm(self, count: int) -> None:
        self.warmed = count

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        return Build("key", "fake", Path("kernel.cubin"), unit.entry, f"fake for {arch}", **self.figures)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Devices and a compiler that are none; what the compiler says of its builds can be set."""
    StubWorker.opened = []
    figures: dict[str, Any] = {}
    builder = StubBuilder(figures)
    monkeypatch.setattr(live, "DeviceWorker", StubWorker)
    monkeypatch.setattr(live, "make_builder", lambda *_, **__: builder)
    return {"figures": figures, "builder": builder}


@pytest.fixture
def spec(tmp_path: Path) -> Any:
    source = tmp_path / "tiled.cu"
    source.write_text(
        "template <typename T, int tile> __global__ void matmul(const T*, const T*, T*, int);\n"
    )
    return replace(SPEC, source=source)


Make = Callable[..., LiveEvaluator]


@pytest.fixture
def evaluator(stubs: dict[str, Any]) -> Iterator[Make]:
    made: list[LiveEvaluator] = []

    def make_one(devices: Sequence[int] = (0,), **options: Any) -> LiveEvaluator:
        made.append(LiveEvaluator("cuda", config(**options), devices=devices))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


class TestLive:
    def test_a_point_is_built_and_measured(self, evaluator: Make, spec: Any) -> None:
        world = evaluator()
        world.prepare(spec, DIMS, 1)
        world.ready()
        ticket = world.submit(TILE_8)
        outcome = world.finish(ticket)
        assert outcome.build is not None
        assert outcome.build.compiler == "fake for sm_90a"
        assert ticket.device == world.identity
        assert (world.identity.uuid, world.compiler) == ("GPU-0", "fake 1")
        assert world.seconds()["device_busy"][0] > 0

    def test_a_library_is_measured_on_one_of_the_devices(self, evaluator: Make, spec: Any) -> None:
        world = evaluator((0, 1))
        world.prepare(spec, DIMS, 1)
        ticket = world.baseline("cublas")
        assert world.finish(ticket).note == "cublas"
        assert ticket.device in world.devices

    def test_several_equal_devices_have_a_kind_and_no_uuid(
        self, evaluator: Make, stubs: dict[str, Any]
    ) -> None:
        world = evaluator((0, 1), build=BuildConfig(workers=3))
        assert [device.uuid for device in world.devices] == ["GPU-0", "GPU-1"]
        assert (world.identity.name, world.identity.uuid) == ("NVIDIA H200", "")
        assert world.identity.driver == "580.1"
        assert world.capacity == 2 * 3 + 2
        assert stubs["builder"].warmed == 3

    def test_devices_of_different_kinds_are_refused_and_closed(self, evaluator: Make) -> None:
        with pytest.raises(SetupError, match=r"device 2 is NVIDIA H100, device 0 NVIDIA H200") as caught:
            evaluator((0, 2))
        assert "backend.mixed_devices=true" in str(caught.value.hint)
        assert all(worker.closed for worker in StubWorker.opened)

    def test_unless_they_are_allowed(self, evaluator: Make) -> None:
        world = evaluator((0, 2), backend=BackendConfig(mixed_devices=True))
        assert world.identity.name == "NVIDIA H200 + NVIDIA H100"

    def test_what_the_builder_refuses_leaves_no_device_open(
        self, evaluator: Make, stubs: dict[str, Any]
    ) -> None:
        stubs["figures"]["unknown_arch"] = True
        with pytest.raises(SetupError, match="cannot compile for sm_90a"):
            evaluator()
        assert StubWorker.opened[0].closed
        assert stubs["builder"].closed

    def test_without_a_compiler_no_device_stays_open(
        self, stubs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(*_: Any, **__: Any) -> Any:
            raise SetupError("nvcc not found")

        monkeypatch.setattr(live, "make_builder", missing)
        with pytest.raises(SetupError, match="nvcc not found"):
            LiveEvaluator("cuda", config())
        assert StubWorker.opened[0].closed

    def test_without_a_device_no_compiler_stays_open(
        self, stubs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(self: Any) -> Any:
            raise SetupError("there is no CUDA device 0")

        monkeypatch.setattr(StubWorker, "identify", missing)
        with pytest.raises(SetupError, match="no CUDA device 0"):
            LiveEvaluator("cuda", config())
        assert stubs["builder"].closed

    def test_a_problem_is_prepared_while_the_compiler_is_looked_for(
        self, stubs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, spec: Any
    ) -> None:
        prepared = threading.Event()

        def found(*_: Any, **__: Any) -> Any:
            assert prepared.wait(20)
            return stubs["builder"]

        monkeypatch.setattr(StubWorker, "prepare", lambda *_: prepared.set())
        monkeypatch.setattr(live, "make_builder", found)
        world = LiveEvaluator("cuda", config(), problem=(spec, DIMS, 1))
        world.ready()
        world.close()

    def test_no_device_at_all_is_a_set_up_error(self, stubs: dict[str, Any]) -> None:
        with pytest.raises(SetupError, match="no GPU found"):
            LiveEvaluator("cuda", config(), devices=())


class TestPruning:
    @pytest.mark.parametrize(
        ("figures", "block", "why"),
        [
            ({"registers": 64}, [32, 32], None),
            ({"registers": 255}, [32, 32], "registers 255 > 64 a thread in a block of 1024 threads"),
            ({"registers": 128}, [32, 16], None),
            ({"registers": 136}, [32, 16], "registers 136 > 128"),
            ({"static_shared_bytes": 48 * 1024}, [32], None),
            ({"static_shared_bytes": 64 * 1024}, [32], "static shared memory 65536 B > 49152 B"),
            ({"static_shared_bytes": 300_000}, [32], "shared memory 300000 B > 232448 B"),
        ],
    )
    def test_a_build_that_its_own_figures_forbid_is_not_tried(
        self, figures: dict[str, int], block: list[int], why: str | None
    ) -> None:
        build = Build("key", "nvrtc", Path("kernel.cubin"), "matmul", "nvrtc 13.0.88", **figures)
        spec = replace(SPEC, launch=launch(block, [1]))
        found = why_pruned(spec, TILE_8, DIMS, target("h200"), build)
        assert found is None if why is None else why in str(found)

    def test_spills_forbid_it_only_where_the_description_says_so(self) -> None:
        build = Build("key", "nvcc", Path("kernel.cubin"), "matmul", "nvcc 13", local_bytes=8, spill_bytes=40)
        assert why_pruned(SPEC, TILE_8, DIMS, target("h200"), build) is None
        strict = replace(SPEC, forbid_spills=True)
        assert why_pruned(strict, TILE_8, DIMS, target("h200"), build) == (
            "spills 40 B and 8 B of local memory a thread, with forbid_spills"
        )
        clean = replace(build, local_bytes=0, spill_bytes=0)
        assert why_pruned(strict, TILE_8, DIMS, target("h200"), clean) is None

    def test_such_a_configuration_is_infeasible_with_the_numbers(
        self, evaluator: Make, stubs: dict[str, Any], spec: Any
    ) -> None:
        stubs["figures"]["static_shared_bytes"] = 100_000
        world = evaluator()
        world.prepare(spec, DIMS, 1)
        ticket = world.submit(TILE_8)
        with pytest.raises(TrialFailed, match="100000 B > 49152 B") as caught:
            world.finish(ticket)
        assert (caught.value.status, caught.value.stage) == (Status.INFEASIBLE, Stage.BUILD)
        assert ticket.device is None
        assert ticket.build is not None
        assert ticket.build.result().static_shared_bytes == 100_000


class TestKinds:
    def test_another_compute_capability_is_refused_even_where_kinds_may_mix(self) -> None:
        devices = [DeviceIdentity("NVIDIA H200"), DeviceIdentity("NVIDIA A100", index=1)]
        limits = [target("h200"), target("a100")]
        with pytest.raises(SetupError, match=r"compute capability 9.0 or 8.0"):
            common_target(limits, devices, mixed=True)

    def test_the_same_product_with_less_memory_is_another_kind(self) -> None:
        devices = [DeviceIdentity("NVIDIA A100", memory_bytes=n << 30, index=n) for n in (40, 80)]
        with pytest.raises(SetupError, match="do not compare"):
            common_target([target("a100")] * 2, devices, mixed=False)

    def test_one_device_is_itself(self) -> None:
        one = DeviceIdentity("NVIDIA H200", uuid="GPU-0")
        assert common_identity([one]) == one


class FakeLive:
    """Notes what it was made with; cannot be made for backends in `broken`."""

    broken: dict[str, SetupError]

    def __init__(self, backend: str, config: Config, say: Any, *, devices: Any, problem: Any) -> None:
        if backend in self.broken:
            raise self.broken[backend]
        self.backend = backend
        self.devices = list(devices)


class TestChoosing:
    @pytest.fixture(autouse=True)
    def fakes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeLive.broken = {}
        monkeypatch.setattr(make, "LiveEvaluator", FakeLive)
        monkeypatch.setattr(make, "count_gpus", lambda: 4)
        monkeypatch.setattr(make, "why_no_gpu", lambda *, ask: None)

    def chosen(self, **options: Any) -> tuple[Any, list[str]]:
        heard: list[str] = []
        return make_evaluator(config(backend=BackendConfig(**options)), heard.append), heard

    def test_auto_takes_a_gpu(self) -> None:
        world, heard = self.chosen()
        assert (world.backend, world.devices, heard) == ("cuda", [0], [])

    def test_without_one_the_emulator_and_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(make, "why_no_gpu", lambda *, ask: "no GPU found")
        world, heard = self.chosen(target="a100")
        assert world.backend == "emulator"
        assert heard == ["no GPU found: kernels run in the emulator, times are predicted for a100"]

    def test_a_driver_without_a_gpu_is_no_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeLive.broken["cuda"] = SetupError("CUDA cannot be started")
        monkeypatch.setattr(make, "why_no_gpu", lambda *, ask: "no GPU found" if ask else None)
        world, heard = self.chosen()
        assert world.backend == "emulator"
        assert heard[0].startswith("no GPU found")

    def test_a_gpu_that_cannot_be_used_is_an_error_and_not_passed_over(self) -> None:
        FakeLive.broken["cuda"] = SetupError("device 0 is used by process 17")
        with pytest.raises(SetupError, match="process 17"):
            self.chosen()

    def test_a_named_backend_is_the_one(self) -> None:
        FakeLive.broken["cuda"] = SetupError("there is no CUDA device 0")
        with pytest.raises(SetupError, match="no CUDA device 0"):
            self.chosen(name="cuda")
        assert self.chosen(name="emulator")[0].backend == "emulator"

    @pytest.mark.parametrize(
        ("options", "devices"),
        [
            ({"device": 3}, [3]),
            ({"devices": (0, 2)}, [0, 2]),
            ({"devices": "all"}, [0, 1, 2, 3]),
            ({"devices": "all", "name": "emulator"}, [0]),
            ({"devices": (0, 1), "name": "emulator"}, [0, 1]),
        ],
    )
    def test_the_devices_that_serve(self, options: dict[str, Any], devices: list[int]) -> None:
        assert self.chosen(**options)[0].devices == devices

    def test_an_unknown_backend_names_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match="did you mean 'cuda'"):
            self.chosen(name="cudaa")

    def test_replay_needs_a_table(self) -> None:
        with pytest.raises(ConfigError, match="needs a table"):
            self.chosen(name="replay")


class TestReplay:
    def test_answers_are_those_of_the_table_and_its_device(self, tmp_path: Path) -> None:
        header = (
            "role,kernel,dtype,dims,params,status,stage,reason,time_ms,time_source,method,cache,device,"
            "device_uuid,driver\n"
        )
        row = (
            'candidate,tiled,float32,"{""M"": 64, ""N"": 64, ""K"": 64}","{""tile"": 8}",ok,done,,0.5,measured,'
            "events,cold,NVIDIA H200,GPU-0,580.1\n"
        )
        (tmp_path / "trials.csv").write_text(header + row)
        world = ReplayEvaluator(BackendConfig(name="replay", path=str(tmp_path / "trials.csv")))
        world.prepare(SPEC, DIMS, 0)
        world.ready()
        ticket = world.submit(TILE_8)
        outcome = world.finish(ticket)
        assert outcome.timing is not None
        assert outcome.timing.samples_ms == (0.5,)
        assert ticket.device is not None
        assert ticket.device.uuid == "GPU-0"
        assert world.time_source is TimeSource.REPLAYED
        with pytest.raises(TrialFailed, match="no baseline cublas"):
            world.finish(world.baseline("cublas"))


class TestLookingForAGpu:
    def test_without_the_drivers_library_nothing_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(present, "_LIBRARY", "libnone.so.1")
        assert present.why_no_gpu(ask=True) == "no GPU found"
        assert present.count_gpus() == 0

    @pytest.fixture
    def driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(present, "_driver_loads", lambda: True)

    @pytest.mark.parametrize(("said", "count"), [("2\n", 2), ("0\n", 0), ("cuInit: 100\n", 0)])
    def test_the_driver_is_asked_in_a_process_of_its_own(
        self, driver: None, monkeypatch: pytest.MonkeyPatch, said: str, count: int
    ) -> None:
        monkeypatch.setattr(present, "_COUNT", f"print({said!r}, end='')")
        assert present.count_gpus() == count

    def test_a_driver_that_does_not_answer_is_no_gpu(
        self, driver: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hang(*_: Any, **__: Any) -> Any:
            raise subprocess.TimeoutExpired("python", 60)

        monkeypatch.setattr(subprocess, "run", hang)
        assert present.why_no_gpu(ask=True) == "the CUDA driver does not answer"

    def test_a_gpu_without_pycuda_says_how_to_install_it(
        self, driver: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(present, "count_gpus", lambda: 1)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert "install_pycuda.py" in str(present.why_no_gpu(ask=False))


KERNEL_CU = """
template <typename T, int tile> __global__ void matmul(const T* A, const T* B, T* C, int M, int N, int K) {
  const int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
  T sum = 0;
  for (int k = 0; row < M && column < N && k < K; ++k) sum += A[row * K + k] * B[k * N + column];
  if (row < M && column < N) C[row * N + column] = sum;
}
"""


def test_two_emulated_devices_serve_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way with real processes: compiled, run and proved right, side by side."""
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiled.cu").write_text(KERNEL_CU)
    node = {
        "name": "tiled", "source": "tiled.cu", "entry": "matmul", "template": ["T", "tile"],
        "dims": ["M", "N", "K"], "dtype": "float32", "params": {"tile": [8, 16]},
        "launch": {"block": ["tile", "tile"], "grid": ["ceil(N / tile)", "ceil(M / tile)"]},
        "args": [
            {"name": "A", "shape": ["M", "K"]}, {"name": "B", "shape": ["K", "N"]},
            {"name": "C", "shape": ["M", "N"], "direction": "out"},
            *({"name": d, "scalar": "int32", "value": d} for d in "MNK"),
        ],
        "reference": {"contraction": "mk,kn->mn"},
    }  # fmt: skip
    from sweeper.kernel.description import load

    spec = load(node, tmp_path / "tiled.yaml")
    world = LiveEvaluator("emulator", config(measure=MeasureConfig()), devices=(0, 1))
    try:
        world.prepare(spec, {"M": 20, "N": 17, "K": 9}, 1)
        world.ready()
        tickets = [world.submit(Point.of({"tile": tile})) for tile in (8, 16)]
        assert all(world.finish(ticket).check.passed for ticket in tickets)
        assert len(world.devices) == 2
        assert sum(world.seconds()["device_busy"]) > 0
    finally:
        world.close()
