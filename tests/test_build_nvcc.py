"""Compiling in a child that can be killed, and an nvcc that is checked before the first trial."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import programs
import pytest
from cubins import fake_nvcc

from sweeper.build import cubin as cubin_process
from sweeper.build.cache import BuildCache
from sweeper.build.cubin import CompileRequest, compile_cubin
from sweeper.build.messages import first_error, spill_bytes
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import TranslationUnit
from sweeper.build.toolkit import check_arch, find_nvcc
from sweeper.errors import SetupError, StorageError, TrialFailed
from sweeper.model import Build, Stage, Status

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
DEADLINE_S = 60.0


def unit_of(
    text: str,
    entry: str = "matmul",
    arguments: tuple[str, ...] = (),
    defines: tuple[tuple[str, str], ...] = (),
) -> TranslationUnit:
    signature = f"{entry}<{', '.join(arguments)}>" if arguments else entry
    digest = hashlib.sha256(repr((text, signature, defines)).encode()).hexdigest()[:32]
    return TranslationUnit(
        name="tiled.cu", text=f'#line 1 "tiled.cu"\n{text}', source=Path("tiled.cu"), entry=entry,
        template_args=arguments, signature=signature, defines=defines, include_dirs=(), options=(),
        source_digest=digest, digest=digest,
    )  # fmt: skip


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[NvccBuilder]:
    """A builder around the fake nvcc."""
    made = NvccBuilder(BuildCache(tmp_path / "cache"), nvcc=fake_nvcc(tmp_path / "bin"))
    yield made
    made.close()


def build(builder: NvccBuilder, unit: TranslationUnit, deadline_s: float = DEADLINE_S) -> Build:
    return builder.build(unit, arch="sm_90", deadline_s=deadline_s)


def compiles(tmp_path: Path) -> int:
    """How many compilations the fake has done."""
    return sum("--cubin" in line for line in (tmp_path / "bin" / "calls").read_text().splitlines())


def hanging(tmp_path: Path) -> list[int]:
    """The fake nvcc that never ends, and its child; empty until both are there."""
    file = tmp_path / "bin" / "hanging"
    pids = [int(p) for p in file.read_text().split()] if file.exists() else []
    return pids if len(pids) == 2 else []


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z")
    except FileNotFoundError:
        return True


def wait_for(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.01)


def test_a_build_has_the_compilers_figures(builder: NvccBuilder) -> None:
    made = build(builder, unit_of("// fake: kernels other matmul"))
    assert (made.kind, made.entry, made.compiler) == ("nvcc", "matmul", "nvcc 13.0.88")
    assert (made.registers, made.static_shared_bytes, made.local_bytes, made.spill_bytes) == (32, 0, 0, 40)
    assert made.options[-1] == "-arch=sm_90"
    assert made.artifact.is_file()
    assert not made.cached
    assert made.seconds > 0


def test_a_second_build_of_the_same_comes_from_the_cache(builder: NvccBuilder, tmp_path: Path) -> None:
    first = build(builder, unit_of("// fake: kernels matmul"))
    second = build(builder, unit_of("// fake: kernels matmul"))
    assert second.cached
    assert second.artifact == first.artifact
    assert compiles(tmp_path) == 1


def test_a_damaged_cubin_is_built_again(builder: NvccBuilder, tmp_path: Path) -> None:
    first = build(builder, unit_of("// fake: kernels matmul"))
    first.artifact.write_bytes(b"damaged")
    assert not build(builder, unit_of("// fake: kernels matmul")).cached
    assert compiles(tmp_path) == 2


def test_macros_options_and_folders_reach_nvcc_as_arguments(builder: NvccBuilder, tmp_path: Path) -> None:
    build(builder, unit_of("// fake: kernels matmul", defines=(("tile", "16"),)))
    line = (tmp_path / "bin" / "calls").read_text().splitlines()[-1]
    assert "-Dtile=16" in line
    assert "-arch sm_90" in line
    assert "-arch=" not in line


def test_the_key_follows_architecture_compiler_and_inherited_flags(
    builder: NvccBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = unit_of("// fake: kernels matmul")
    newer = NvccBuilder(builder.cache, nvcc=fake_nvcc(tmp_path / "newer", version="13.1.2"))
    keys = {builder.key(unit, "sm_90"), builder.key(unit, "sm_90a"), newer.key(unit, "sm_90")}
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-use_fast_math")
    keys.add(builder.key(unit, "sm_90"))
    assert len(keys) == 4


def failure(builder: NvccBuilder, unit: TranslationUnit, deadline_s: float = DEADLINE_S) -> TrialFailed:
    with pytest.raises(TrialFailed) as caught:
        build(builder, unit, deadline_s)
    assert caught.value.stage is Stage.BUILD
    return caught.value


def test_an_error_is_its_first_line_and_the_rest_is_in_a_file(builder: NvccBuilder) -> None:
    failed = failure(builder, unit_of("// fake: error"))
    assert failed.status is Status.BUILD_ERROR
    assert failed.reason == 'tiled.cu(12): error: identifier "x" is undefined'
    assert failed.details["type"] == "CompileError"
    assert "tiled.cu(13)" in Path(failed.details["log"]).read_text()


def test_a_megabyte_of_template_errors_is_still_one_row(builder: NvccBuilder) -> None:
    failed = failure(builder, unit_of("// fake: megabyte"))
    assert failed.reason == "tiled.cu(7): error: no instance of overloaded function"
    assert Path(failed.details["log"]).stat().st_size > 1_000_000


def test_a_full_disk_is_not_the_configurations_fault(builder: NvccBuilder) -> None:
    with pytest.raises(StorageError, match="no space left"):
        build(builder, unit_of("// fake: full"))


def test_the_next_build_after_an_error_is_right(builder: NvccBuilder) -> None:
    failure(builder, unit_of("// fake: error"))
    assert build(builder, unit_of("// fake: kernels matmul")).registers == 32


def test_an_entry_that_is_not_in_the_module_is_answered_with_those_that_are(builder: NvccBuilder) -> None:
    failed = failure(builder, unit_of("// fake: kernels _Z3mulPf _Z3addPf"))
    assert failed.status is Status.BUILD_ERROR
    assert "no kernel matmul" in failed.reason
    assert "mul (_Z3mulPf), add (_Z3addPf)" in failed.reason


def test_a_file_that_is_no_cubin_is_a_build_error(builder: NvccBuilder) -> None:
    failed = failure(builder, unit_of("// fake: junk"))
    assert failed.status is Status.BUILD_ERROR
    assert "not an ELF64 file" in failed.reason


def test_an_nvcc_that_dies_by_a_signal_is_a_build_error(builder: NvccBuilder) -> None:
    failed = failure(builder, unit_of("// fake: die"))
    assert failed.status is Status.BUILD_ERROR
    assert "ended with -11" in failed.reason


def test_an_nvcc_that_hangs_is_killed_with_its_children(builder: NvccBuilder, tmp_path: Path) -> None:
    failed = failure(builder, unit_of("// fake: hang"), deadline_s=5.0)
    assert failed.status is Status.BUILD_TIMEOUT
    assert failed.reason == "nvcc did not finish within 5 s"
    pids = hanging(tmp_path)
    assert len(pids) == 2
    wait_for(lambda: all(is_gone(pid) for pid in pids), "the group's end")
    assert list((tmp_path / "cache" / "staging").iterdir()) == []
    assert build(builder, unit_of("// fake: kernels matmul")).registers == 32


def test_a_build_process_that_is_killed_is_a_build_error(builder: NvccBuilder, tmp_path: Path) -> None:
    def kill_the_child() -> None:
        wait_for(lambda: hanging(tmp_path), "nvcc")
        pid = int((tmp_path / "bin" / "hanging").read_text().split()[0])
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])
        os.kill(parent, 9)

    killer = threading.Thread(target=kill_the_child)
    killer.start()
    failed = failure(builder, unit_of("// fake: hang"))
    killer.join()
    assert failed.status is Status.BUILD_ERROR
    assert "SIGKILL" in failed.reason
    assert list((tmp_path / "cache" / "staging").iterdir()) == []


def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "bin")
    program = (
        "from pathlib import Path\n"
        "from test_build_nvcc import BuildCache, NvccBuilder, build, unit_of\n"
        f"builder = NvccBuilder(BuildCache(Path({str(tmp_path / 'cache')!r})), nvcc=Path({str(nvcc)!r}))\n"
        "build(builder, unit_of('// fake: hang'))\n"
    )
    parent = subprocess.Popen(programs.python(program), env=programs.environment())
    wait_for(lambda: hanging(tmp_path), "nvcc")
    pids = hanging(tmp_path)
    parent.kill()
    parent.wait()
    wait_for(lambda: all(is_gone(pid) for pid in pids), "the group's end")
    BuildCache(tmp_path / "cache")
    assert list((tmp_path / "cache" / "staging").iterdir()) == []


def test_closing_ends_a_build_that_is_running(builder: NvccBuilder, tmp_path: Path) -> None:
    failures: list[TrialFailed] = []

    def run() -> None:
        failures.append(failure(builder, unit_of("// fake: hang")))

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: hanging(tmp_path), "nvcc")
    builder.close()
    thread.join(20)
    assert not thread.is_alive()
    assert failures[0].status is Status.BUILD_ERROR
    pids = hanging(tmp_path)
    wait_for(lambda: all(is_gone(pid) for pid in pids), "the group's end")
    assert "closed" in failure(builder, unit_of("// fake: kernels matmul")).reason


def test_children_are_started_before_the_first_build(builder: NvccBuilder, tmp_path: Path) -> None:
    builder.warm(2)
    wait_for(lambda: len(builder._idle) == 2, "two children")
    assert build(builder, unit_of("// fake: kernels matmul")).registers == 32
    assert len(builder._idle) == 2
    assert compiles(tmp_path) == 1


def test_what_cannot_be_started_is_the_first_builds_to_tell(
    builder: NvccBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NvccBuilder, "module", "sweeper.no_such_module")
    builder.warm(1)
    wait_for(lambda: not builder._busy, "the child's end")
    failed = failure(builder, unit_of("// fake: kernels matmul"))
    assert failed.status is Status.BUILD_ERROR
    assert "No module named sweeper.no_such_module" in failed.details["output"]


def test_builds_go_on_without_a_log_folder(builder: NvccBuilder, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache" / "logs")
    failed = failure(builder, unit_of("// fake: error"))
    assert "log" not in failed.details
    assert build(builder, unit_of("// fake: kernels matmul")).registers == 32


class TestFindingNvcc:
    def test_path_comes_first(self, tmp_path: Path) -> None:
        fake_nvcc(tmp_path / "a")
        fake_nvcc(tmp_path / "b" / "bin", version="12.4.1")
        found = find_nvcc(environ={"PATH": str(tmp_path / "a"), "CUDA_HOME": str(tmp_path / "b")})
        assert (found.found_by, found.identity) == ("PATH", "nvcc 13.0.88")

    @pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"])
    def test_then_the_usual_variables(self, tmp_path: Path, variable: str) -> None:
        fake_nvcc(tmp_path / "cuda" / "bin")
        found = find_nvcc(environ={"PATH": str(tmp_path), variable: str(tmp_path / "cuda")})
        assert (found.found_by, found.path) == (variable, tmp_path / "cuda" / "bin" / "nvcc")

    def test_then_the_packages_of_this_python(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin")
        monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
        monkeypatch.setattr("sweeper.build.toolkit._DEFAULT_ROOT", tmp_path / "none")
        found = find_nvcc(environ={"PATH": ""})
        assert found.found_by == "site-packages"

    def test_none_at_all_names_the_places_and_the_fix(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sweeper.build.toolkit._DEFAULT_ROOT", tmp_path / "none")
        monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
        with pytest.raises(SetupError) as caught:
            find_nvcc(environ={"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "home")})
        assert "PATH" in caught.value.message
        assert str(tmp_path / "home") in caught.value.message
        assert "pip install" in str(caught.value.hint)

    def test_one_that_is_not_executable_says_so(self, tmp_path: Path) -> None:
        fake_nvcc(tmp_path).chmod(0o644)
        with pytest.raises(SetupError, match="not executable") as caught:
            find_nvcc(environ={"PATH": str(tmp_path)})
        assert "chmod +x" in str(caught.value.hint)

    @pytest.mark.parametrize(
        ("script", "part"),
        [
            ("#!/bin/sh\nexit 3\n", "exit code 3"),
            ("#!/bin/sh\necho libnvvm.so is missing >&2\nexit 1\n", "libnvvm.so is missing"),
            ("#!/bin/sh\necho hello\n", "does not name its version"),
            ("#!/nowhere/python\n", "cannot be run"),
        ],
    )
    def test_one_that_does_not_work_says_why(self, tmp_path: Path, script: str, part: str) -> None:
        (tmp_path / "nvcc").write_text(script)
        (tmp_path / "nvcc").chmod(0o755)
        with pytest.raises(SetupError, match=part):
            find_nvcc(tmp_path / "nvcc")

    def test_one_that_hangs_is_not_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "nvcc").write_text("#!/bin/sh\nexec sleep 100\n")
        (tmp_path / "nvcc").chmod(0o755)
        monkeypatch.setattr("sweeper.build.toolkit._ANSWER_S", 0.2)
        with pytest.raises(SetupError, match="does not answer"):
            find_nvcc(tmp_path / "nvcc")

    def test_a_replaced_nvcc_is_asked_again(self, tmp_path: Path) -> None:
        assert find_nvcc(fake_nvcc(tmp_path)).version == "13.0.88"
        assert find_nvcc(fake_nvcc(tmp_path, version="13.2.100")).version == "13.2.100"

    def test_an_architecture_it_knows_passes(self, tmp_path: Path) -> None:
        found = find_nvcc(fake_nvcc(tmp_path))
        for arch in ("sm_75", "sm_90", "sm_90a", "sm_100f"):
            if arch != "sm_100f":
                check_arch(found, arch)

    @pytest.mark.parametrize(
        ("version", "archs", "arch", "parts"),
        [
            ("11.6.124", "sm_70 sm_80 sm_86", "sm_89", ("8.9", "11.6.124", "newer")),
            ("13.0.88", "sm_75 sm_90 sm_100", "sm_999", ("99.9", "sm_100", "newer")),
            ("13.0.88", "sm_75 sm_90 sm_100", "sm_70", ("7.0", "sm_75 to sm_100", "12.9")),
            ("11.8.89", "sm_80 sm_90", "sm_90a", ("9.0", "sm_90a", "newer")),
        ],
    )
    def test_one_it_does_not_know_is_told_once_with_the_fix(
        self, tmp_path: Path, version: str, archs: str, arch: str, parts: tuple[str, ...]
    ) -> None:
        builder = NvccBuilder(
            BuildCache(tmp_path / "c"), nvcc=fake_nvcc(tmp_path, version=version, archs=archs)
        )
        with pytest.raises(SetupError) as caught:
            builder.check(arch)
        for part in parts:
            assert part in str(caught.value)

    def test_an_architecture_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SetupError, match="not a GPU architecture"):
            check_arch(find_nvcc(fake_nvcc(tmp_path)), "hopper")

    def test_an_nvcc_too_old_to_list_architectures_is_believed(self, tmp_path: Path) -> None:
        check_arch(find_nvcc(fake_nvcc(tmp_path, version="10.2.89")), "sm_70")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "In file included from x\ntiled.cu(12): error: one\ntiled.cu(9): error: two",
            "tiled.cu(12): error: one",
        ),
        ("f.cu:1:10: fatal error: nope.h: No such file", "f.cu:1:10: fatal error: nope.h: No such file"),
        (
            "nvcc fatal   : Unsupported gpu architecture 'sm_999'",
            "nvcc fatal : Unsupported gpu architecture 'sm_999'",
        ),
        (
            "ptxas error   : Entry function '_Z2mmPf' uses too much shared data (0x10000 bytes, 0xc000 max)",
            "ptxas error : Entry function '_Z2mmPf' uses too much shared data (0x10000 bytes, 0xc000 max)",
        ),
        (
            "ptxas /tmp/tmpxft_00003529_00000000-6_g.ptx, line 26; error   : Instruction 'x' not supported",
            "ptxas g.ptx, line 26; error : Instruction 'x' not supported",
        ),
        ("a.cu(3): warning #177-D: never referenced\na.cu(4): error: bad", "a.cu(4): error: bad"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
        ("nothing telling\nlast line\n\n", "last line"),
        ("", ""),
    ],
)
def test_the_first_error_is_found_in_what_compilers_say(log: str, line: str) -> None:
    assert first_error(log) == line


def test_a_very_long_error_is_cut() -> None:
    assert len(first_error("a.cu(1): error: " + "x" * 5000)) == 500


def test_spills_belong_to_their_kernel() -> None:
    log = (
        "ptxas info : Function properties for a\n  0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info : Function properties for b\n  8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads\n"
    )
    assert (spill_bytes(log, "a"), spill_bytes(log, "b"), spill_bytes(log, "c")) == (0, 16, None)


class FakeCompileError(Exception):
    def __init__(self, stdout: str, stderr: str) -> None:
        super().__init__("nvcc compilation failed")
        self.stdout, self.stderr = stdout, stderr


@pytest.fixture
def pycuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """A PyCUDA whose compiler records what it is asked; `error` and `raise` in the source make it fail."""
    asked: list[dict[str, object]] = []

    def compile_(source: str, **given: object) -> bytes:
        import warnings

        asked.append({"source": source, **given})
        if "raise" in source:
            raise RuntimeError("cannot start nvcc")
        if "error" in source:
            raise FakeCompileError("", "tiled.cu(1): error: bad")
        warnings.warn("The CUDA compiler succeeded, but said the following:\nptxas info", stacklevel=2)
        return b"cubin"

    package, driver, compiler = (
        ModuleType("pycuda"),
        ModuleType("pycuda.driver"),
        ModuleType("pycuda.compiler"),
    )
    compiler.compile = compile_  # type: ignore[attr-defined]
    for module in (package, driver, compiler):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    cubin_process._pycuda_compile.cache_clear()
    yield asked
    cubin_process._pycuda_compile.cache_clear()


def request_of(folder: Path, text: str, nvcc: str = "nvcc") -> CompileRequest:
    return CompileRequest(text, nvcc, "sm_90a", ("-DN=1", "-Xptxas=-v"), ("/k",), str(folder))


def test_pycudas_compiler_is_asked_in_the_way_that_works(
    tmp_path: Path, pycuda: list[dict[str, object]]
) -> None:
    outcome = compile_cubin(request_of(tmp_path, "source"))
    assert (outcome.way, outcome.error, outcome.cubin) == ("pycuda", "", b"cubin")
    assert "ptxas info" in outcome.log
    assert pycuda == [
        {
            "source": "source", "nvcc": "nvcc", "options": ["-DN=1", "-Xptxas=-v"], "arch": "sm_90a",
            "no_extern_c": True, "cache_dir": False, "keep": False, "include_dirs": ["/k"],
        }
    ]  # fmt: skip


def test_what_nvcc_said_through_pycuda_is_kept(tmp_path: Path, pycuda: list[dict[str, object]]) -> None:
    outcome = compile_cubin(request_of(tmp_path, "error"))
    assert (outcome.error, outcome.log, outcome.cubin) == (
        "FakeCompileError",
        "tiled.cu(1): error: bad",
        None,
    )
    outcome = compile_cubin(request_of(tmp_path, "raise"))
    assert (outcome.error, outcome.log) == ("RuntimeError", "cannot start nvcc")


def test_without_pycuda_nvcc_gets_the_same_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    cubin_process._pycuda_compile.cache_clear()
    nvcc = fake_nvcc(tmp_path / "bin")
    outcome = compile_cubin(request_of(tmp_path, "// fake: kernels matmul", str(nvcc)))
    assert (outcome.way, outcome.error) == ("nvcc", "")
    assert outcome.cubin is not None
    call = (tmp_path / "bin" / "calls").read_text().split(maxsplit=1)[1].strip()
    assert call == "--cubin -DN=1 -Xptxas=-v -arch sm_90a -I/k kernel.cu"
    cubin_process._pycuda_compile.cache_clear()


def test_the_child_leaves_files_and_a_short_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    monkeypatch.setattr(cubin_process, "_pycuda_compile", lambda: None)
    message = {
        "text": "// fake: kernels matmul", "nvcc": str(fake_nvcc(tmp_path / "bin")), "arch": "sm_90",
        "options": [], "include_dirs": [], "folder": str(tmp_path),
    }  # fmt: skip
    assert cubin_process._handle(message) == {"way": "nvcc", "error": "", "cubin": True}
    assert (tmp_path / "kernel.cubin").is_file()
    assert "spill" in (tmp_path / "compiler.log").read_text()
    assert os.environ["TMPDIR"] == str(tmp_path)
    message["text"] = "// fake: error"
    assert cubin_process._handle(message)["error"] == "CompileError"


KERNEL = """
#include <cuda_fp16.h>
#include <mma.h>
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


@needs_nvcc
class TestWithTheRealNvcc:
    @pytest.fixture
    def builder(self, tmp_path: Path) -> Iterator[NvccBuilder]:
        made = NvccBuilder(BuildCache(tmp_path / "cache"))
        yield made
        made.close()

    def test_a_template_with_the_toolkits_headers_compiles(self, builder: NvccBuilder) -> None:
        made = build(builder, unit_of(KERNEL, arguments=("__half", "32")))
        assert made.static_shared_bytes == 32 * 32 * 2
        assert made.spill_bytes == 0
        assert "6__halfLi32E" in made.entry

    def test_what_the_source_instantiates_itself_is_no_obstacle(self, builder: NvccBuilder) -> None:
        assert "IfLi16E" in build(builder, unit_of(KERNEL, arguments=("float", "16"))).entry

    def test_a_static_assertion_names_the_users_file_and_line(self, builder: NvccBuilder) -> None:
        failed = failure(builder, unit_of(KERNEL, arguments=("float", "2")))
        assert failed.reason == 'tiled.cu(5): error: static assertion failed with "BK is at least 4"'

    def test_too_much_static_shared_memory_is_told_with_numbers(self, builder: NvccBuilder) -> None:
        failed = failure(builder, unit_of(KERNEL, arguments=("float", "128")))
        assert "too much shared data" in failed.reason
        assert "0x10000 bytes, 0xc000 max" in failed.reason

    def test_a_kernel_in_an_unnamed_namespace_is_found(self, builder: NvccBuilder) -> None:
        text = "namespace { template <int N> __global__ void matmul(float* C) { C[0] = N; } }"
        assert "matmulILi3E" in build(builder, unit_of(text, arguments=("3",))).entry
