"""Compiling with NVRTC: the same unit gives the same kernel as with nvcc, in a child that can be killed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_kernel import shipped

from sweeper.build import nvrtc
from sweeper.build.cache import BuildCache
from sweeper.build.make import make_builder
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.nvrtc import NvrtcBuilder, nvrtc_options
from sweeper.build.nvrtc_headers import STANDARD_HEADERS
from sweeper.build.source import TranslationUnit, translation_unit
from sweeper.build.toolkit import CudaHeaders, find_headers
from sweeper.device import target
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.kernel.description import load
from sweeper.model import Build, KernelSpec, Point, Stage, Status
from sweeper.paths import conf_dir
from sweeper.resources.feasible import feasible_space

DEADLINE_S = 120.0


def _why_absent() -> str:
    """Why there is no NVRTC to test; empty where there is one."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            NvrtcBuilder(BuildCache(Path(folder))).close()
    except SetupError as error:
        return error.message
    return ""


ABSENT = _why_absent()
needs_nvrtc = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")


def unit_of(
    text: str,
    entry: str = "matmul",
    arguments: tuple[str, ...] = (),
    *,
    defines: tuple[tuple[str, str], ...] = (),
    options: tuple[str, ...] = (),
) -> TranslationUnit:
    signature = f"{entry}<{', '.join(arguments)}>" if arguments else entry
    digest = hashlib.sha256(repr((text, signature, defines, options)).encode()).hexdigest()[:32]
    return TranslationUnit(
        name="tiled.cu", text=f'#line 1 "tiled.cu"\n{text}', source=Path("tiled.cu"), entry=entry,
        template_args=arguments, signature=signature, defines=defines, include_dirs=(), options=options,
        source_digest=digest, digest=digest,
    )  # fmt: skip


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvrtcBuilder]:
    made = NvrtcBuilder(BuildCache(tmp_path_factory.mktemp("nvrtc")))
    yield made
    made.close()


def build(builder: NvrtcBuilder, unit: TranslationUnit, deadline_s: float = DEADLINE_S) -> Build:
    return builder.build(unit, arch="sm_90a", deadline_s=deadline_s)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def failure(builder: NvrtcBuilder, unit: TranslationUnit, deadline_s: float = DEADLINE_S) -> TrialFailed:
    with pytest.raises(TrialFailed) as caught:
        build(builder, unit, deadline_s)
    assert caught.value.stage is Stage.BUILD
    return caught.value


TEMPLATE = """
template <typename T, int BK> __global__ void matmul(const T* A, T* C) {
  static_assert(BK >= 4, "BK is at least 4");
  __shared__ T tile[BK][BK];
  tile[threadIdx.y][threadIdx.x] = A[threadIdx.x];
  __syncthreads();
  C[threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
template __global__ void matmul<float, 8>(const float*, float*);
template __global__ void matmul<float, 16>(const float*, float*);
"""

# What a kernel that includes these headers does with them.
USES = {
    "mma.h": (
        "using namespace nvcuda::wmma; fragment<accumulator, 16, 16, 16, float> sum;"
        " fill_fragment(sum, 1.0f); store_matrix_sync(C, sum, 16, mem_row_major);"
    ),
    "cuda_bf16.h": "C[0] = __bfloat162float(__float2bfloat16(C[1]));",
    "cuda_pipeline.h": (
        "__shared__ float s[32]; __pipeline_memcpy_async(s + threadIdx.x, C + threadIdx.x, 4);"
        " __pipeline_commit(); __pipeline_wait_prior(0); C[0] = s[1];"
    ),
    "cooperative_groups.h": "cooperative_groups::this_thread_block().sync();",
    "cuda/barrier": "C[0] = sizeof(cuda::barrier<cuda::thread_scope_block>);",
    "cuda_runtime.h": "C[0] = sizeof(cudaError_t);",
    "cstdint cstddef": "C[0] = std::uint8_t(257) + uint32_t(1) + std::size_t(2);",
    "stdint.h": "C[0] = int64_t(3);",
    "type_traits limits": (
        "if constexpr (std::is_same_v<int, int>) C[0] = std::numeric_limits<float>::max();"
    ),
    "cmath algorithm": "C[0] = std::sqrt(C[1]) + std::min(C[2], C[3]);",
    "cstdio cassert": 'assert(C[0] > 0); printf("%f", C[0]);',
}


@needs_nvrtc
class TestBuilds:
    def test_a_template_is_instantiated_by_name_and_has_the_compilers_figures(
        self, builder: NvrtcBuilder
    ) -> None:
        made = build(builder, unit_of(f"#include <cuda_fp16.h>\n{TEMPLATE}", arguments=("__half", "32")))
        assert (made.kind, made.compiler) == ("nvrtc", builder.identity())
        assert made.entry == "_Z6matmulI6__halfLi32EEvPKT_PS1_"
        assert made.static_shared_bytes == 32 * 32 * 2
        assert made.registers is not None
        assert (made.local_bytes, made.spill_bytes) == (0, 0)
        assert made.artifact.read_bytes()[:4] == b"\x7fELF"

    def test_what_the_source_instantiates_itself_is_no_obstacle(self, builder: NvrtcBuilder) -> None:
        assert "IfLi16E" in build(builder, unit_of(TEMPLATE, arguments=("float", "16"))).entry

    def test_a_plain_kernel_needs_no_instantiation(self, builder: NvrtcBuilder) -> None:
        text = 'extern "C" __global__ void matmul(float* C) { C[0] = FACTOR; }'
        assert build(builder, unit_of(text, defines=(("FACTOR", "3"),))).entry == "matmul"

    def test_a_kernel_in_an_unnamed_namespace_is_found(self, builder: NvrtcBuilder) -> None:
        text = "namespace { template <int N> __global__ void matmul(float* C) { C[0] = N; } }"
        assert "matmulILi3E" in build(builder, unit_of(text, arguments=("3",))).entry

    def test_a_kernel_in_a_namespace_is_named_in_full(self, builder: NvrtcBuilder) -> None:
        text = "namespace gemm { template <int N> __global__ void matmul(float* C) { C[0] = N; } }"
        made = build(builder, unit_of(text, "gemm::matmul", ("3",)))
        assert made.entry == "_ZN4gemm6matmulILi3EEEvPf"

    def test_local_memory_is_reported(self, builder: NvrtcBuilder) -> None:
        text = """
        extern "C" __global__ void matmul(float* C, int n) {
          float kept[64];
          for (int i = 0; i < n; ++i) kept[(i * 7) % 64] = C[i];
          C[n] = kept[n];
        }"""
        made = build(builder, unit_of(text))
        assert made.local_bytes == 256

    def test_registers_that_do_not_fit_are_spilled_and_counted(self, builder: NvrtcBuilder) -> None:
        sums = "\n".join(f"s{i} += C[{i}] * s{(i + 1) % 40};" for i in range(40))
        text = (
            'extern "C" __global__ void matmul(float* C, int n) {'
            f"float {', '.join(f's{i} = C[{i} + n]' for i in range(40))};"
            f"for (int k = 0; k < n; ++k) {{ {sums} }}"
            f"{' '.join(f'C[{i}] = s{i};' for i in range(40))} }}"
        )
        made = build(builder, unit_of(text, options=("-maxrregcount=24",)))
        assert made.registers == 24
        assert made.spill_bytes is not None
        assert made.spill_bytes > 0

    def test_a_second_build_of_the_same_comes_from_the_cache(self, builder: NvrtcBuilder) -> None:
        unit = unit_of(TEMPLATE, arguments=("float", "4"))
        first, second = build(builder, unit), build(builder, unit)
        assert (first.cached, second.cached) == (False, True)
        assert second.artifact == first.artifact

    def test_one_child_compiles_one_after_another(self, builder: NvrtcBuilder) -> None:
        build(builder, unit_of(TEMPLATE, arguments=("float", "5")))
        (child,) = builder._idle
        before = child.pid
        build(builder, unit_of(TEMPLATE, arguments=("float", "6")))
        assert [c.pid for c in builder._idle] == [before]

    def test_children_can_be_started_before_the_first_build(self, tmp_path: Path) -> None:
        own = NvrtcBuilder(BuildCache(tmp_path))
        try:
            own.warm(2)
            wait_for(lambda: len(own._idle) == 2)
            build(own, unit_of(TEMPLATE, arguments=("float", "11")))
            assert len(own._idle) == 2
        finally:
            own.close()

    def test_options_of_nvcc_are_understood(self, builder: NvrtcBuilder) -> None:
        options = ("-use_fast_math", "-lineinfo", "-Xptxas=-O3", "-std=c++20", "-O3", "--fmad=false")
        build(builder, unit_of(TEMPLATE, arguments=("float", "7"), options=options))

    def test_other_architectures_are_compiled_for(self, builder: NvrtcBuilder) -> None:
        for arch in ("sm_80", "sm_90"):
            builder.check(arch)
            unit = unit_of(TEMPLATE, arguments=("float", "8"))
            assert builder.build(unit, arch=arch, deadline_s=DEADLINE_S).registers

    @pytest.mark.parametrize("headers", USES, ids=lambda headers: headers.split()[0])
    def test_the_usual_headers_are_there(self, builder: NvrtcBuilder, headers: str) -> None:
        includes = "".join(f"#include <{name}>\n" for name in headers.split())
        text = f'{includes}extern "C" __global__ void matmul(float* C) {{ {USES[headers]} }}'
        assert build(builder, unit_of(text)).entry == "matmul"

    def test_a_tensor_map_can_be_an_argument(self, builder: NvrtcBuilder) -> None:
        text = (
            "#include <cuda.h>\n__global__ void matmul(const __grid_constant__ CUtensorMap map, float* C) {}"
        )
        assert "CUtensorMap" in build(builder, unit_of(text)).entry

    def test_every_standard_header_compiles(self, builder: NvrtcBuilder) -> None:
        includes = "".join(f"#include <{name}>\n" for name in STANDARD_HEADERS)
        build(builder, unit_of(f'{includes}extern "C" __global__ void matmul(float* C) {{}}'))


@needs_nvrtc
class TestFailures:
    def test_an_error_is_its_first_line_and_the_rest_is_in_a_file(self, builder: NvrtcBuilder) -> None:
        failed = failure(builder, unit_of("__global__ void matmul(float* C) { C[0] = x; C[1] = y; }"))
        assert failed.status is Status.BUILD_ERROR
        assert failed.reason == 'tiled.cu(1): error: identifier "x" is undefined'
        assert failed.details["type"] == "NVRTC_ERROR_COMPILATION"
        assert 'identifier "y"' in Path(failed.details["log"]).read_text()

    def test_a_static_assertion_names_the_users_file_and_line(self, builder: NvrtcBuilder) -> None:
        failed = failure(builder, unit_of(TEMPLATE, arguments=("float", "2")))
        assert failed.reason == 'tiled.cu(3): error: static assertion failed with "BK is at least 4"'

    def test_a_header_of_the_hosts_is_told_to_need_nvcc(self, builder: NvrtcBuilder) -> None:
        failed = failure(builder, unit_of("#include <iostream>\n__global__ void matmul(float* C) {}"))
        assert 'cannot open source file "iostream"' in failed.reason
        assert "build.compiler=nvcc" in failed.reason

    def test_an_entry_that_is_not_there_is_answered_with_those_that_are(self, builder: NvrtcBuilder) -> None:
        failed = failure(builder, unit_of("__global__ void mul(float* C) {}"))
        assert "no kernel matmul" in failed.reason
        assert "mul (_Z3mulPf)" in failed.reason
        missing = failure(builder, unit_of("__global__ void mul(float* C) {}", arguments=("3",)))
        assert 'identifier "matmul" is undefined' in missing.reason

    def test_more_shared_memory_than_there_is_is_told_with_numbers(self, builder: NvrtcBuilder) -> None:
        failed = failure(builder, unit_of(TEMPLATE, arguments=("float", "300")))
        assert "too much shared data (0x57e40 bytes, 0x38c00 max)" in failed.reason

    def test_a_compilation_that_never_ends_is_killed_and_the_next_one_is_right(
        self, builder: NvrtcBuilder
    ) -> None:
        text = """
        template <int A, int B> struct Slow {
          static constexpr int value = Slow<A - 1, B * 2>::value + Slow<A - 1, B * 2 + 1>::value;
        };
        template <int B> struct Slow<0, B> { static constexpr int value = B; };
        extern "C" __global__ void matmul(float* C) { C[0] = Slow<26, 1>::value; }"""
        failed = failure(builder, unit_of(text), deadline_s=2.0)
        assert failed.status is Status.BUILD_TIMEOUT
        assert failed.reason == "nvrtc did not finish within 2 s"
        assert list((builder.cache.root / "staging").iterdir()) == []
        assert build(builder, unit_of(TEMPLATE, arguments=("float", "9"))).registers

    def test_an_architecture_it_does_not_know_is_told_before_any_build(self, builder: NvrtcBuilder) -> None:
        with pytest.raises(SetupError, match=r"nvrtc .* cannot compile for compute capability 7.0"):
            builder.check("sm_70")

    def test_closing_ends_it(self, tmp_path: Path) -> None:
        own = NvrtcBuilder(BuildCache(tmp_path))
        own.close()
        assert "closed" in failure(own, unit_of(TEMPLATE, arguments=("float", "10"))).reason


@needs_nvrtc
class TestKeys:
    def test_the_two_compilers_never_share_a_build(self, builder: NvrtcBuilder, tmp_path: Path) -> None:
        unit = unit_of(TEMPLATE, arguments=("float", "8"))
        older, key = replace(builder.nvrtc, version="12.9.86"), builder.key(unit, "sm_90a")
        keys = {key, builder.key(unit, "sm_90")}
        other = NvrtcBuilder(builder.cache)
        other.nvrtc = older
        keys.add(other.key(unit, "sm_90a"))
        other.nvrtc, other.headers = builder.nvrtc, CudaHeaders((), "13.1")
        keys.add(other.key(unit, "sm_90a"))
        other.close()
        assert len(keys) == 4

    def test_flags_from_the_environment_count(
        self, builder: NvrtcBuilder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unit = unit_of(TEMPLATE, arguments=("float", "8"))
        plain = builder.key(unit, "sm_90a")
        monkeypatch.setenv("NVRTC_APPEND_FLAGS", "--use_fast_math")
        assert builder.key(unit, "sm_90a") != plain


KERNELS = sorted((conf_dir() / "kernel").glob("*.yaml"))


def a_feasible_point(spec: KernelSpec) -> Point:
    """The default one, unless its precision class has no room for it."""
    dims = {**dict.fromkeys(spec.dims, 16), "K": 64}
    space = feasible_space(spec, dims, target("h200"))
    return spec.default_point if space.row(spec.default_point) is not None else space.point(0)


@needs_nvrtc
@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_both_compilers_give_every_shipped_kernel_the_same_entry_and_figures(
    path: Path, builder: NvrtcBuilder, tmp_path: Path
) -> None:
    node = shipped(path)
    nvcc = NvccBuilder(BuildCache(tmp_path / "cache"))
    try:
        for name in node["dtypes"]:
            spec = load({**node, "dtype": name}, path)
            unit = translation_unit(spec, a_feasible_point(spec))
            theirs = nvcc.build(unit, arch="sm_90a", deadline_s=DEADLINE_S)
            ours = build(builder, unit)
            assert ours.entry == theirs.entry, name
            assert ours.static_shared_bytes == theirs.static_shared_bytes, name
            assert (ours.local_bytes, ours.spill_bytes) == (theirs.local_bytes, theirs.spill_bytes), name
            assert ours.registers == pytest.approx(theirs.registers, rel=0.1), name
    finally:
        nvcc.close()


def test_options_become_nvrtcs(tmp_path: Path) -> None:
    unit = unit_of("", defines=(("tile", "16"),), options=("-Xptxas=-O2", "-O3", "-lineinfo", "-Xptxas=-v"))
    unit = replace(unit, include_dirs=(Path("/k"),))
    assert nvrtc_options(unit, "sm_90a", CudaHeaders((Path("/cuda"), Path("/cccl")), "13.0")) == (
        "--gpu-architecture=sm_90a", "--ptxas-options=-O2", "-lineinfo", "--ptxas-options=-v",
        "--device-as-default-execution-space", "-Dtile=16", "-I/k", "-I/cuda", "-I/cccl",
    )  # fmt: skip


class TestSetUp:
    def test_without_the_bindings_the_error_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "cuda").mkdir()
        (tmp_path / "cuda" / "__init__.py").write_text("")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(SetupError, match="NVRTC cannot be loaded: ModuleNotFoundError") as caught:
            NvrtcBuilder(BuildCache(tmp_path / "cache"))
        assert "pip install cuda-bindings nvidia-cuda-nvrtc" in str(caught.value.hint)

    def test_a_child_that_dies_is_a_set_up_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(NvrtcBuilder, "module", "sweeper.no_such_module")
        with pytest.raises(SetupError, match="NVRTC cannot be loaded"):
            NvrtcBuilder(BuildCache(tmp_path / "cache"))

    @needs_nvrtc
    def test_without_headers_nothing_stays_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(version: str) -> CudaHeaders:
            raise SetupError("CUDA's headers not found")

        monkeypatch.setattr(nvrtc, "find_headers", missing)
        with pytest.raises(SetupError, match="headers not found"):
            NvrtcBuilder(BuildCache(tmp_path / "cache"))

    @needs_nvrtc
    def test_it_is_made_by_name_and_only_for_gpus(self, tmp_path: Path) -> None:
        made = make_builder("cuda", "nvrtc", cache=False)
        made.close()
        assert made.kind == "nvrtc"
        with pytest.raises(ConfigError, match="cannot build for backend emulator"):
            make_builder("emulator", "nvrtc", cache=False)


def headers(folder: Path, version: int, *, libcudacxx: bool = True) -> Path:
    """A folder of headers as a toolkit has it."""
    folder.mkdir(parents=True)
    (folder / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
    (folder / "cuda_fp16.h").write_text("")
    if libcudacxx:
        (folder / "cccl" / "cuda" / "std").mkdir(parents=True)
    return folder


class TestFindingHeaders:
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sweeper.build.toolkit._DEFAULT_ROOT", tmp_path / "none")
        monkeypatch.setattr("sweeper.build.toolkit._packages", lambda: iter([tmp_path / "nvidia"]))

    def test_those_of_the_same_release_come_first(self, tmp_path: Path) -> None:
        headers(tmp_path / "home" / "include", 12040)
        packaged = headers(tmp_path / "nvidia" / "cu13" / "include", 13000)
        found = find_headers("13.0.88", environ={"CUDA_HOME": str(tmp_path / "home")})
        assert found == CudaHeaders((packaged, packaged / "cccl"), "13.0")

    def test_then_those_of_the_same_major_version(self, tmp_path: Path) -> None:
        headers(tmp_path / "home" / "include", 12040)
        near = headers(tmp_path / "nvidia" / "cu13" / "include", 13010)
        assert find_headers("13.0.88", environ={"CUDA_HOME": str(tmp_path / "home")}).folders[0] == near

    def test_a_folder_of_packages_without_the_runtimes_headers_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "nvidia" / "cu13" / "include").mkdir(parents=True)
        (tmp_path / "nvidia" / "cu13" / "include" / "nvrtc.h").write_text("")
        home = headers(tmp_path / "home" / "include", 13000)
        assert find_headers("13.0.88", environ={"CUDA_PATH": str(tmp_path / "home")}).folders[0] == home

    def test_the_older_packages_keep_libcudacxx_beside_them(self, tmp_path: Path) -> None:
        runtime = headers(tmp_path / "nvidia" / "cuda_runtime" / "include", 12080, libcudacxx=False)
        beside = tmp_path / "nvidia" / "cuda_cccl" / "include"
        (beside / "cuda" / "std").mkdir(parents=True)
        assert find_headers("12.8.93", environ={}) == CudaHeaders((runtime, beside), "12.8")

    def test_those_of_another_major_version_are_not_taken(self, tmp_path: Path) -> None:
        headers(tmp_path / "home" / "include", 12040)
        with pytest.raises(SetupError, match=r"needs the headers of CUDA 13; found 12.4 in"):
            find_headers("13.0.88", environ={"CUDA_HOME": str(tmp_path / "home")})

    def test_none_at_all_names_the_places_and_the_fix(self, tmp_path: Path) -> None:
        with pytest.raises(SetupError) as caught:
            find_headers("13.0.88", environ={"CUDA_HOME": str(tmp_path / "home")})
        assert str(tmp_path / "home" / "include") in caught.value.message
        assert "cuda-toolkit[cudart,crt,cccl]==13.0.*" in str(caught.value.hint)
