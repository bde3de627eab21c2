"""Tensor maps, clusters and the launches that take them: described, resolved, encoded and placed, without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cuda_rig import DIMS, POINT, Rig, make_rig

from sweeper.backend.cuda import launching
from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.launching import ExtendedLauncher, LaunchError
from sweeper.backend.cuda.tensor_maps import MAP_BYTES, EncodeError, encode
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.check.command import main as check
from sweeper.cli.app import main
from sweeper.device import target
from sweeper.dtypes import dtype
from sweeper.errors import KernelError, NoValidConfiguration, TrialFailed
from sweeper.expressions import parse
from sweeper.kernel import load
from sweeper.model import KernelSpec, Launch, Point, Status, TensorMapSpec
from sweeper.paths import kernels_dir
from sweeper.problem import resolve
from sweeper.problem.tensor_maps import ResolvedTensorMap
from sweeper.resources.geometry import launch_of, why_not_emulable, why_not_launchable, why_unsupported

CONF = kernels_dir().parent / "conf"
H200 = target("h200")


def description(**changes: Any) -> dict[str, Any]:
    """The shipped TMA kernel's description, with the problem's keys."""
    problem, own = (
        yaml.safe_load((CONF / f).read_text()) for f in ("problem/gemm.yaml", "kernel/tma_pipeline.yaml")
    )
    return {k: v for k, v in {**problem, **own, **changes}.items() if k != "defaults"}


# Takes a copy of A, and a word by which blocks meet, beside what the shipped kernel takes.
COPYING_CU = r"""
template <int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP>
__global__ void copying(const float* A, const float* B, float* C, float* a_copy, unsigned* met, int M, int N, int K,
                        int lda, int ldb, int ldc, const __grid_constant__ CUtensorMap a_map,
                        const __grid_constant__ CUtensorMap b_map) {}
"""


def kernel(**changes: Any) -> KernelSpec:
    return load(description(**changes), CONF / "kernel" / "tma_pipeline.yaml")


def broken(spec: KernelSpec, **dims: int) -> list[str]:
    """The constraints that do not hold at the default point."""
    sizes = {"M": 512, "N": 512, "K": 512, "LDA": 512, "LDB": 512, "LDC": 512} | dims
    launch = launch_of(spec, spec.default_point, sizes, H200)
    scope = {
        **sizes,
        **H200.limits(),
        **spec.default_point.params,
        "elem_bytes": 4,
        "shared_bytes": launch.shared_bytes,
    }
    return [c.text for c in spec.constraints if not c.evaluate(scope)]


class TestDescription:
    def test_a_map_names_its_array_box_and_swizzle(self) -> None:
        a_map, b_map = kernel().tensor_maps
        assert (a_map.name, a_map.arrays, a_map.fill) == ("a_map", ("A",), "zeros")
        assert [e.text for e in a_map.box] == ["bm", "bk"]
        assert a_map.swizzle.text == "4 * bk"
        assert b_map.swizzle.evaluate({}) == 0

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"boxes": [1, 2]}, "unknown key (did you mean 'box'?)"),
            ({"array": "D"}, "'D' is no array of args"),
            ({"array": "M"}, "'M' is no array of args"),
            ({"box": ["bm"]}, "does not give a size for each of the 2 axes of A"),
            ({"box": "bm"}, "does not give a size for each of the 2 axes of A"),
            ({"name": "A"}, "a name is used twice"),
            ({"name": "a map"}, "'a map' is not an identifier"),
            ({"fill": "ones"}, "'ones' is none of zeros, nan"),
            ({"box": ["bm", "K"]}, "unknown name 'K'"),
        ],
    )
    def test_a_mistake_is_told_with_its_place(self, change: dict[str, Any], said: str) -> None:
        first, second = description()["tensor_maps"]
        with pytest.raises(KernelError) as error:
            kernel(tensor_maps=[{**first, **change}, second])
        assert "tensor_maps" in str(error.value)
        assert said in str(error.value)

    def test_a_map_that_the_kernel_does_not_take_is_found_out(self) -> None:
        with pytest.raises(KernelError, match=r"takes 11 arguments .* the description gives 10"):
            kernel(tensor_maps=description()["tensor_maps"][:1])

    def test_maps_come_behind_the_other_arguments(self) -> None:
        args = description()["args"]
        with pytest.raises(KernelError, match=r"argument 9 \(ldc\) is int"):
            kernel(
                args=args[:-1], tensor_maps=[*description()["tensor_maps"], _map("c_map", "C", ["bm", "bn"])]
            )

    def test_integers_have_no_nan_to_be_filled_with(self) -> None:
        args = [dict(a, dtype="int32") if a["name"] == "A" else a for a in description()["args"]]
        maps = [dict(m, fill="nan") for m in description()["tensor_maps"]]
        with pytest.raises(KernelError, match="the integers of A have no NaN"):
            kernel(args=args, tensor_maps=maps)


class TestChoice:
    """A map of one of several arrays: of the problem's own, or of a copy whose rows lie as TMA asks."""

    @pytest.fixture(autouse=True)
    def source(self, tmp_path: Path) -> None:
        self.file = tmp_path / "copying.cu"
        self.file.write_text(COPYING_CU)

    def choosing(self, **changes: Any) -> KernelSpec:
        told = description()
        first, second = told["tensor_maps"]
        chosen = {**first, "array": ["A", "a_copy"], "choice": "min(1, LDA % 4)", **changes}
        scratch = {"direction": "scratch"}
        copies = [
            {"name": "a_copy", "shape": ["M if LDA % 4 else 0", "4 * ceil(K / 4)"], **scratch},
            {"name": "met", "shape": [1, 1], "dtype": "uint32", **scratch},
        ]
        return kernel(
            source=str(self.file),
            entry="copying",
            args=[*told["args"][:3], *copies, *told["args"][3:]],
            tensor_maps=[chosen, second],
        )

    def test_sizes_choose_the_array_and_its_strides(self) -> None:
        aligned, _ = resolved(self.choosing(), LDA=36)
        assert (aligned.array, aligned.sizes, aligned.strides) == ("A", (36, 100), (144,))
        copied, _ = resolved(self.choosing(), K=35, LDA=35)
        assert (copied.array, copied.sizes, copied.strides) == ("a_copy", (36, 100), (144,))

    def test_only_the_chosen_array_has_to_be_as_tma_asks(self) -> None:
        spec = self.choosing()
        assert broken(spec, LDA=513) == []
        assert broken(spec, LDB=513) == ["(LDB) * 4 % 16 == 0"]
        only_a = self.choosing(choice="0 * LDA")
        assert broken(only_a, LDA=513) == ["(0 * LDA) != 0 or (LDA) * 4 % 16 == 0"]

    def test_a_choice_among_fewer_is_infeasible(self) -> None:
        assert broken(self.choosing(choice="LDA % 4"), LDA=514) == ["0 <= (LDA % 4) < 2"]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"array": ["A"]}, "array names 1, and choice is given"),
            ({"array": ["A", "a_cpy"]}, "'a_cpy' is no array of args (did you mean 'a_copy'?)"),
            ({"array": ["A", "met"], "box": ["bm", "bk"]}, "A, met are not of one precision class"),
            ({"choice": "LDD % 4"}, "unknown name 'LDD' in 'LDD % 4'"),
        ],
    )
    def test_a_mistake_is_told(self, change: dict[str, Any], said: str) -> None:
        with pytest.raises(KernelError) as error:
            self.choosing(**change)
        assert said in str(error.value)

    def test_several_arrays_need_a_choice(self) -> None:
        first, second = description()["tensor_maps"]
        with pytest.raises(KernelError, match="array names 2, and choice is not given"):
            kernel(tensor_maps=[{**first, "array": ["A", "B"]}, second])


class TestRules:
    """What the hardware asks for is a constraint, so nothing is built that it would refuse."""

    def test_the_default_point_keeps_all_of_them(self) -> None:
        assert broken(kernel()) == []

    @pytest.mark.parametrize(
        ("dims", "rule"),
        [
            ({"LDA": 514}, "(LDA) * 4 % 16 == 0"),
            ({"LDB": 513}, "(LDB) * 4 % 16 == 0"),
        ],
    )
    def test_rows_begin_a_multiple_of_16_bytes_apart(self, dims: dict[str, int], rule: str) -> None:
        assert broken(kernel(), **dims) == [rule]

    def test_the_stored_result_needs_no_alignment(self) -> None:
        assert broken(kernel(), LDC=515) == []

    @pytest.mark.parametrize(
        ("box", "swizzle", "rule"),
        [
            (["2 * bm + 2", "bk"], 0, "1 <= 2 * bm + 2 <= 256"),
            (["bm", "bk // 32"], 0, "(bk // 32) * 4 % 16 == 0"),
            (["bm", "2 * bk"], 128, "128 in (0, 32, 64, 128) and (128 == 0 or (2 * bk) * 4 <= 128)"),
            (
                ["bm", "2 * bk"],
                "32 if bk == 0 else 128",
                "(S) in (0, 32, 64, 128) and ((S) == 0 or (2 * bk) * 4 <= (S))".replace(
                    "S", "32 if bk == 0 else 128"
                ),
            ),
            (["bm", "bk"], 256, "256 in (0, 32, 64, 128) and (256 == 0 or (bk) * 4 <= 256)"),
        ],
    )
    def test_a_box_has_a_size_that_tma_takes(self, box: list[str], swizzle: int | str, rule: str) -> None:
        first, second = description()["tensor_maps"]
        spec = kernel(tensor_maps=[dict(first, box=box, swizzle=swizzle), second])
        assert broken(spec) == [rule]

    def test_the_reason_names_the_leading_dimension(self) -> None:
        from sweeper.resources.feasible import feasible_space

        with pytest.raises(NoValidConfiguration, match=r"LDA \* 4 % 16 == 0: 4 != 0 \(LDA = 4097\)"):
            feasible_space(kernel(), {"M": 512, "N": 512, "K": 4097}, H200)


class TestWhereItRuns:
    def test_only_compute_capability_9_0_has_the_instructions(self) -> None:
        sizes = {"M": 512, "N": 512, "K": 512}
        assert why_unsupported(kernel(), sizes, H200) is None
        reason = why_unsupported(kernel(), sizes, target("a100"))
        assert reason == "needs cc >= 9.0, have 8.0"

    def test_the_emulator_says_that_it_has_no_tma_and_no_clusters(self) -> None:
        assert "needs tensor maps (TMA), which the emulator has not" in (why_not_emulable(kernel()) or "")
        plain = replace(kernel(), tensor_maps=())
        assert why_not_emulable(plain) is None
        one = parse(1)
        clustered = replace(plain, launch=replace(plain.launch, cluster=(parse(2), one, one)))
        assert "needs thread block clusters" in (why_not_emulable(clustered) or "")

    def test_a_run_in_the_emulator_ends_with_one_infeasible_row_and_builds_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wanted = ["kernel=tma_pipeline", "backend=emulator", "shape.m=64", "shape.n=64", "shape.k=64"]
        assert main([*wanted, f"results_dir={tmp_path / 'results'}"]) == 1
        assert "needs tensor maps" in "".join(capsys.readouterr())
        (row,) = (tmp_path / "results" / "trials.csv").read_text().splitlines()[1:]
        assert "infeasible" in row

    def test_check_mode_leaves_it_out_and_checks_the_others(self, capsys: pytest.CaptureFixture[str]) -> None:
        few = ["check.configurations=1", "shape=8x8x8"]
        assert check(["kernel=tma_pipeline,naive", *few]) == 0
        said = capsys.readouterr()
        assert "left out: kernel tma_pipeline needs tensor maps (TMA)" in said.err
        assert "naive" in said.out
        assert check(["kernel=tma_pipeline", *few]) == 1


class TestClusters:
    def test_a_grid_is_made_of_whole_clusters_of_at_most_8_blocks(self) -> None:
        launch = Launch((128, 1, 1), (12, 1, 1), 0, cluster=(2, 1, 1))
        assert why_not_launchable(launch, H200) is None
        odd = replace(launch, grid=(13, 1, 1))
        assert why_not_launchable(odd, H200) == "grid x 13 is no multiple of the cluster's 2"
        large = replace(launch, grid=(16, 1, 1), cluster=(16, 1, 1))
        assert why_not_launchable(large, H200) == "16 blocks a cluster > 8"

    def test_its_sizes_are_expressions_over_parameters(self) -> None:
        spec = kernel(launch={**description()["launch"], "cluster": ["bm // 64"]})
        assert launch_of(spec, spec.default_point, {"M": 512, "N": 512, "K": 512}, H200).cluster == (2, 1, 1)


def _map(name: str, of: str, box: list[str]) -> dict[str, Any]:
    return {"name": name, "array": of, "box": box}


def resolved(spec: KernelSpec, **dims: int) -> tuple[ResolvedTensorMap, ...]:
    sizes = {"M": 100, "N": 60, "K": 36} | dims
    return resolve(spec, sizes, spec.default_point, seed=0).tensor_maps


class TestResolved:
    def test_axes_are_innermost_first_and_strides_in_bytes(self) -> None:
        a_map, b_map = resolved(kernel())
        assert (a_map.sizes, a_map.strides, a_map.box, a_map.swizzle) == ((36, 100), (144,), (32, 128), 128)
        assert (b_map.sizes, b_map.strides, b_map.box, b_map.swizzle) == ((60, 36), (240,), (256, 32), 0)

    def test_what_lies_between_rows_is_outside_the_array(self) -> None:
        a_map, _ = resolved(kernel(), LDA=40)
        assert (a_map.sizes, a_map.strides) == ((36, 100), (160,))


class Encoder:
    """Stands in for cuTensorMapEncodeTiled: writes what it was given into the map."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.given: list[dict[str, Any]] = []

    def __call__(self, place: Any, kind: Any, rank: Any, address: Any, *rest: Any) -> int:
        sizes, strides, box, steps, interleave, swizzle, promotion, fill = rest
        assert place.value % 64 == 0, "the driver asks for a map aligned to 64 bytes"
        told = (kind, interleave, swizzle, promotion, fill)
        self.given.append(
            {
                "numbers": tuple(number.value for number in told),
                "sizes": list(sizes),
                "strides": list(strides)[: rank.value - 1],
                "box": list(box),
                "steps": list(steps),
            }
        )
        words = struct.pack("=16Q", address.value, *sizes, *[0] * (15 - rank.value))
        ctypes.memmove(place.value, words, MAP_BYTES)
        return self.status


def tensor_map(name: str = "float32", **changes: Any) -> ResolvedTensorMap:
    made = ResolvedTensorMap("a_map", "A", dtype(name), (36, 100), (144,), (32, 128), 128, nan=False)
    return replace(made, **changes)


class TestEncoding:
    def test_the_driver_is_told_everything_in_its_own_numbers(self) -> None:
        encoder = Encoder()
        encoded = encode(encoder, tensor_map(), 0x1000)
        assert len(encoded) == 128
        assert struct.unpack_from("=3Q", encoded) == (0x1000, 36, 100)
        assert encoder.given == [
            {
                "numbers": (7, 0, 3, 2, 0),
                "sizes": [36, 100],
                "strides": [144],
                "box": [32, 128],
                "steps": [1, 1],
            }
        ]

    @pytest.mark.parametrize(
        ("name", "number"),
        [("float32", 7), ("float64", 8), ("float16", 6), ("bfloat16", 9), ("int8", 0), ("tf32", 11)],
    )
    def test_every_precision_class_has_its_type(self, name: str, number: int) -> None:
        encoder = Encoder()
        encode(encoder, tensor_map(name), 0x1000)
        assert encoder.given[0]["numbers"][0] == number

    @pytest.mark.parametrize(("swizzle", "number"), [(0, 0), (32, 1), (64, 2), (128, 3)])
    def test_a_swizzle_is_a_number_of_the_driver(self, swizzle: int, number: int) -> None:
        encoder = Encoder()
        encode(encoder, tensor_map(swizzle=swizzle, nan=True), 0x1000)
        assert encoder.given[0]["numbers"][2:] == (number, 2, 1)

    def test_a_map_that_the_driver_refuses_is_told_in_full(self) -> None:
        with pytest.raises(
            EncodeError, match=r"a_map of A \(error 1\): sizes \(36, 100\), strides \(144,\) B"
        ):
            encode(Encoder(status=1), tensor_map(), 0x1000)


@dataclass
class FakeLaunchApi:
    """The driver on the pretended device: reads the parameters as cuLaunchKernelEx does, and computes."""

    rig: Rig
    letters: str
    encoder: Encoder = field(default_factory=Encoder)
    refuses: str = ""
    launched: list[tuple[Launch, tuple[Any, ...], list[bytes]]] = field(default_factory=list)
    unloaded: list[int] = field(default_factory=list)

    def load(self, image: bytes) -> int:
        assert image.startswith(b"\x7fELF")
        return 77

    def unload(self, module: int) -> None:
        self.unloaded.append(module)

    def function(self, module: int, symbol: str, shared_bytes: int) -> int:
        assert (module, symbol) == (77, "matmul")
        return 88

    def launch(self, function: int, launch: Launch, stream: int, parameters: Any) -> None:
        assert (function, stream) == (88, 0x5EA)
        if self.refuses:
            raise LaunchError(f"cuLaunchKernelEx failed: {self.refuses}")
        places = list(parameters)
        scalars = places[: len(self.letters)]
        numbers = tuple(
            struct.unpack("=Q" if c == "P" else f"={c}", ctypes.string_at(p, 8 if c == "P" else 4))[0]
            for c, p in zip(self.letters, scalars, strict=True)
        )
        maps = [ctypes.string_at(p, MAP_BYTES) for p in places[len(self.letters) :]]
        assert all(place % 64 == 0 for place in places[len(self.letters) :])
        self.launched.append((launch, numbers, maps))
        memory = self.rig.driver.memory
        a, b, c, m, n, k = numbers
        # From where the maps say that A and B lie, as TMA would.
        a, b = (struct.unpack_from("=Q", encoded)[0] for encoded in maps)
        left, right = memory.array(a, (m, k), np.float32), memory.array(b, (k, n), np.float32)
        memory.array(c, (m, n), np.float32)[:] = left.astype(np.float64) @ right.astype(np.float64)
        self.rig.driver.enqueue(0.5)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return make_rig(tmp_path, monkeypatch)


@pytest.fixture
def api(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> FakeLaunchApi:
    """The pretended device with a kernel that takes maps of A and B."""
    from specs import gemm_spec

    maps = tuple(
        TensorMapSpec(f"{name.lower()}_map", (name,), (parse(8), parse(4)), parse(0)) for name in ("A", "B")
    )
    rig.prepared(replace(gemm_spec(), tensor_maps=maps), DIMS)
    fake = FakeLaunchApi(rig, "PPPiii")
    monkeypatch.setattr(launching, "load_launch_api", lambda: fake)
    return fake


class TestLaunches:
    def test_a_kernel_with_maps_is_verified_and_timed(self, rig: Rig, api: FakeLaunchApi) -> None:
        outcome = rig.measure()
        assert outcome.check is not None
        assert outcome.check.passed
        assert outcome.timing is not None
        launch, numbers, maps = api.launched[0]
        assert launch.block == (8, 8, 1)
        assert numbers[3:] == (12, 10, 8)
        assert struct.unpack_from("=3Q", maps[0]) == (numbers[0], 8, 12)
        assert struct.unpack_from("=3Q", maps[1]) == (numbers[1], 10, 8)

    def test_every_copy_of_the_arrays_has_maps_of_its_own(self, rig: Rig, api: FakeLaunchApi) -> None:
        device, _ = rig.cuda._opened
        arguments = Arguments(device, rig.problem, rig.problem.inputs())
        launch = launch_of(rig.spec, POINT, DIMS, rig.target)
        run = ExtendedLauncher(device, b"\x7fELF", "matmul", launch)
        copies = [arguments, arguments.copy()]
        for _ in range(3):
            for given in copies:
                run(given)
        mapped = [struct.unpack_from("=Q", maps[0])[0] for _, _, maps in api.launched]
        assert mapped == [given.arrays["A"].pointer for given in copies] * 3
        # Encoded once for each copy, not once a launch.
        assert len(api.encoder.given) == 2 * len(copies)

    def test_a_launch_that_the_driver_refuses_is_the_configurations_failure(
        self, rig: Rig, api: FakeLaunchApi
    ) -> None:
        api.refuses = "invalid argument"
        failure = rig.failure()
        assert failure.status is Status.LAUNCH_ERROR
        assert "invalid argument (cuLaunchKernelEx)" in failure.reason

    def test_a_map_that_the_driver_refuses_is_the_configurations_failure(
        self, rig: Rig, api: FakeLaunchApi
    ) -> None:
        api.encoder.status = 1
        failure = rig.failure()
        assert failure.status is Status.LAUNCH_ERROR
        assert "does not take tensor map a_map of A" in failure.reason

    def test_a_driver_without_the_functions_is_the_configurations_failure(
        self, rig: Rig, api: FakeLaunchApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def absent() -> Any:
            raise LaunchError("undefined symbol: cuLaunchKernelEx")

        monkeypatch.setattr(launching, "load_launch_api", absent)
        with pytest.raises(TrialFailed, match="undefined symbol: cuLaunchKernelEx"):
            rig.measure()

    def test_the_module_is_given_back_with_the_launcher(self, rig: Rig, api: FakeLaunchApi) -> None:
        rig.measure()
        assert api.unloaded == [77]

    def test_a_cluster_is_told_to_the_driver(self, rig: Rig, api: FakeLaunchApi) -> None:
        plain = launch_of(rig.spec, POINT, DIMS, rig.target)
        rig.measure(launch=replace(plain, grid=(2, 2, 1), cluster=(2, 1, 1)))
        assert {launch.cluster for launch, _, _ in api.launched} == {(2, 1, 1)}


class FakeLibcuda:
    """Records what the driver's functions are called with."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.configs: list[dict[str, Any]] = []
        self.cuModuleLoadData = self.load
        self.cuModuleGetFunction = self.function
        self.cuFuncSetAttribute = self.set_attribute
        self.cuLaunchKernelEx = self.launch
        self.cuGetErrorString = self.error

    def error(self, status: int, text: Any) -> int:
        text._obj.value = b"invalid argument"
        return 0

    def load(self, module: Any, image: bytes) -> int:
        module._obj.value = 0x77
        return self.status

    def function(self, function: Any, module: Any, name: bytes) -> int:
        assert (module.value, name) == (0x77, b"matmul")
        function._obj.value = 0x88
        return self.status

    def set_attribute(self, function: Any, attribute: int, value: Any) -> int:
        assert (function.value, attribute, value.value) == (0x88, 8, 70_000)
        return self.status

    def launch(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        held = config._obj
        told = [(held.attributes[i].id, list(held.attributes[i].value[:3])) for i in range(held.count)]
        self.configs.append(
            {
                "grid": list(held.grid),
                "block": list(held.block),
                "shared": held.shared_bytes,
                "stream": held.stream,
                "attributes": told,
                "function": function.value,
            }
        )
        return self.status


class TestDriver:
    LAUNCH = Launch((384, 1, 1), (132, 2, 1), 70_000)

    def test_a_launch_is_laid_out_as_the_driver_reads_it(self) -> None:
        assert ctypes.sizeof(launching._Config) == 56
        assert ctypes.sizeof(launching._Attribute) == 72
        library = FakeLibcuda()
        driver = launching._Libcuda(library)
        function = driver.function(driver.load(b"\x7fELF"), "matmul", 70_000)
        driver.launch(function, self.LAUNCH, 0x5EA, None)
        driver.launch(function, replace(self.LAUNCH, cluster=(2, 1, 1)), 0x5EA, None)
        plain, clustered = library.configs
        assert plain == {
            "grid": [132, 2, 1],
            "block": [384, 1, 1],
            "shared": 70_000,
            "stream": 0x5EA,
            "attributes": [],
            "function": 0x88,
        }
        assert clustered["attributes"] == [(4, [2, 1, 1])]

    def test_an_error_carries_the_drivers_words(self) -> None:
        with pytest.raises(LaunchError, match="cuModuleLoadData failed: invalid argument"):
            launching._Libcuda(FakeLibcuda(status=1)).load(b"")


EVERY_WRAPPER = r"""
#include "hopper.cuh"
extern "C" __global__ void __launch_bounds__(256, 1) all_of_them(float* out,
                                                                 const __grid_constant__ hopper::TensorMap map) {
  __shared__ alignas(128) float box[8][32];
  __shared__ alignas(8) unsigned long long word;
  const unsigned barrier = hopper::shared_address(&word), tile = hopper::shared_address(box);
  if (threadIdx.x < 128) hopper::setmaxnreg_decrease<40>();
  else hopper::setmaxnreg_increase<200>();
  if (threadIdx.x == 0) {
    hopper::mbarrier_init(barrier, 2);
    hopper::mbarrier_init_fence();
    hopper::prefetch_map(&map);
  }
  hopper::cluster_sync();
  if (threadIdx.x < 32 && hopper::elect_one()) {
    hopper::fence_async_proxy();
    hopper::mbarrier_arrive(barrier);
    hopper::mbarrier_arrive_expect(barrier, sizeof(box));
    hopper::tma_load(tile, &map, barrier, 0, 0);
    hopper::tma_load_multicast(tile, &map, barrier, 0, 0, 1);
    hopper::mbarrier_arrive_at(barrier, hopper::cluster_rank());
  }
  hopper::mbarrier_wait(barrier, 0);
  out[threadIdx.x] = box[threadIdx.x / 32][threadIdx.x % 32];
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
class TestCompiled:
    def test_every_wrapper_is_an_instruction_of_sm_90a(self, tmp_path: Path) -> None:
        (tmp_path / "all.cu").write_text(EVERY_WRAPPER)
        options = ["-std=c++17", "-cubin", "-arch=sm_90a", f"-I{kernels_dir() / 'common'}", "-o", "all.cubin"]
        done = subprocess.run(
            ["nvcc", *options, "all.cu"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("wide", [True, False])
    def test_the_pipeline_keeps_everything_in_registers(self, tmp_path: Path, wide: bool) -> None:
        """Its tiles fill the register file: what does not fit is the difference of a factor."""
        spec = kernel()
        point = spec.default_point
        if not wide:
            point = Point.of({**point.params, "bn": 128, "wn": 32})
        builder = NvccBuilder(BuildCache(tmp_path / "cache"))
        try:
            build = builder.build(translation_unit(spec, point), arch="sm_90a", deadline_s=120)
        finally:
            builder.close()
        assert build.spill_bytes == 0
        assert build.local_bytes == 0
