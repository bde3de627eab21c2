"""From a kernel's text to a module: options, macros, headers, and what is said of a text that is wrong."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from emulation_rig import Rig

from sweeper.emulation import Compilation, ModuleSource, compile_module, host_options
from sweeper.emulation.compiler import HostCompiler
from sweeper.emulation.translate import translate


def failure(rig: Rig, text: str, *entries: str, **fields: object) -> Compilation:
    source = ModuleSource("mm.cu", f'#line 1 "mm.cu"\n{text}', entries or ("kernel",), **fields)  # type: ignore[arg-type]
    done = rig.compile(source)
    assert not done.ok
    return done


def test_the_first_error_is_told_with_the_users_file_and_line(rig: Rig) -> None:
    text = "__global__ void kernel(float* out) {\n  out[0] = 1;\n  out[1] = gone_1;\n  out[2] = gone_2;\n}\n"
    done = failure(rig, text)
    assert done.error.startswith("mm.cu:3: ")
    assert "'gone_1'" in done.error
    assert "'gone_2'" in done.log


def test_an_error_in_the_users_header_is_told_with_that_file(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "tile.cuh").write_text("#pragma once\nint broken(;\n")
    done = failure(rig, '#include "tile.cuh"\n__global__ void kernel() {}\n', include_dirs=(tmp_path,))
    assert done.error.startswith("tile.cuh:2: expected")


def test_a_failed_static_assertion_is_told(rig: Rig) -> None:
    text = 'template <int BK> __global__ void kernel() {\n  static_assert(BK >= 4, "BK is too small");\n}'
    error = failure(rig, text, "kernel<2>").error
    assert error.startswith("mm.cu:2: static")
    assert "BK is too small" in error


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("mm", "mm.cu: no kernel mm: "),
        ("kernel<float, 16>", "mm.cu: no kernel kernel<float, 16>: "),
    ],
)
def test_an_entry_that_is_not_there_is_named(rig: Rig, entry: str, message: str) -> None:
    text = "template <typename T> __global__ void kernel(T* out) {}\n__global__ void other() {}"
    assert failure(rig, text, "other", entry).error.startswith(message)


def test_a_missing_header_is_told(rig: Rig) -> None:
    done = failure(rig, '\n#include "nowhere.cuh"\n__global__ void kernel() {}')
    assert done.error.startswith("mm.cu:2: ")
    assert "nowhere.cuh" in done.error


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("cp.async.commit_group;");',
        'float x; asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(2.0f));',
    ],
)
def test_inline_ptx_is_refused_with_a_way_out(rig: Rig, statement: str) -> None:
    done = failure(rig, f"__global__ void kernel() {{ {statement} }}")
    assert "inline PTX has no meaning on a CPU" in done.error
    assert "#ifdef __SWEEPER_EMULATOR__" in done.error


def test_a_kernel_may_go_another_way_in_the_emulator(rig: Rig) -> None:
    module = rig.module("""
        __global__ void kernel(int* out) {
        #ifdef __SWEEPER_EMULATOR__
          out[0] = 1;
        #else
          asm volatile("mov.u32 %0, %%laneid;" : "=r"(out[0]));
        #endif
        }""")
    assert rig.out(module, 1, np.int32).tolist() == [1]


def test_a_megabyte_of_errors_is_kept_and_told_in_one_line(rig: Rig) -> None:
    lines = "".join(f"  undeclared_name_number_{i}_{'x' * 1800} = {i};\n" for i in range(600))
    done = failure(rig, f"__global__ void kernel() {{\n{lines}}}")
    assert done.error.startswith("mm.cu:2: ")
    assert "undeclared_name_number_0_x" in done.error
    assert len(done.error) < 600
    assert len(done.log) > 1_000_000 or rig.compiler.kind == "clang"  # which stops after 20 errors


def test_macros_and_include_folders_reach_the_kernel(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "scale.cuh").write_text('#include "factor.cuh"\n#define SCALE (2 * FACTOR)\n')
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "factor.cuh").write_text("#define FACTOR 5\n")
    module = rig.module(
        '#include "scale.cuh"\n__global__ void kernel(int* out) { out[0] = SCALE + TILE; out[1] = __CUDA_ARCH__; }',
        defines=(("TILE", "(-3)"),),
        include_dirs=(tmp_path / "one", tmp_path / "two"),
        cuda_arch=860,
    )
    assert rig.out(module, 2, np.int32).tolist() == [7, 860]


@pytest.mark.parametrize(
    "header", ["cuda_fp16.h", "cuda_bf16.h", "mma.h", "cuda_pipeline.h", "cooperative_groups.h"]
)
def test_a_macro_may_have_any_name(rig: Rig, header: str, tmp_path: Path) -> None:
    (tmp_path / "indirect.cuh").write_text(f"#include <{header}>\n")
    names = [
        "T",
        "M",
        "N",
        "K",
        "tile",
        "lane",
        "mask",
        "value",
        "rows",
        "Size",
        "Format",
        "payload",
        "x",
        "a",
        "b",
        "i",
    ]
    module = rig.module(
        f'#include "indirect.cuh"\n__global__ void kernel(int* out) {{ out[0] = {" + ".join(names)}; }}',
        defines=tuple((name, str(i)) for i, name in enumerate(names)),
        include_dirs=(tmp_path,),
    )
    assert rig.out(module, 1, np.int32).tolist() == [sum(range(len(names)))]


def test_types_of_entries_and_macros_bring_their_headers(rig: Rig) -> None:
    module = rig.module(
        "template <typename T> __global__ void kernel(T* out) { out[0] = T(1.5f); }", "kernel<__half>"
    )
    assert rig.out(module, 1, np.float16).tolist() == [1.5]
    module = rig.module("__global__ void kernel(T* out) { out[0] = T(1.5f); }", defines=(("T", "__half"),))
    assert rig.out(module, 1, np.float16).tolist() == [1.5]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("-DA=1", "-D", "B", "-UC", "-Iinc", "-I", "more"), ("-DA=1", "-DB", "-UC", "-Iinc", "-Imore")),
        (("-std=c++20",), ("-std=gnu++20",)),
        (("--std", "c++14"), ("-std=gnu++17",)),
        (("-lineinfo", "-G", "-O3", "-maxrregcount=64", "-arch=sm_90a", "--expt-relaxed-constexpr"), ()),
        (("-Xptxas", "-v", "-maxrregcount", "32", "-gencode", "arch=x,code=y", "-DKEPT"), ("-DKEPT",)),
    ],
)
def test_of_nvccs_options_those_stay_that_mean_something_here(
    options: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    assert host_options(options) == kept


def test_fast_math_never_assumes_that_numbers_are_finite() -> None:
    options = host_options(("-use_fast_math",))
    assert options
    assert not {"-ffast-math", "-Ofast", "-ffinite-math-only"} & set(options)


def test_options_are_applied(rig: Rig) -> None:
    text = "__global__ void kernel(int* out) { out[0] = VALUE; out[1] = __cplusplus / 100; }"
    module = rig.module(text, options=("-DVALUE=5", "-UVALUE", "-D", "VALUE=7", "-std=c++20", "-lineinfo"))
    assert rig.out(module, 2, np.int32).tolist() == [7, 2020]


def test_translation_keeps_every_line_where_it_was() -> None:
    text = 'int a;\nextern\n  thread_local\n  float tile\n  [];\n# 7 "other.h"\nint b;\nvoid f() { }\n'
    lines = translate(text, ("f",)).split("\n")
    assert lines[0] == "int a;"
    assert "extern __thread float *tile __asm__" in lines[1]
    assert lines[5:8] == ['# 7 "other.h"', "int b;", "void f() { }"]


@pytest.mark.parametrize(
    ("declaration", "pointer"),
    [
        ("extern thread_local float s[];", "float* const s = (float*)simt_dynamic_shared;"),
        ("extern thread_local __attribute__((aligned(16))) unsigned char s[];", "unsigned char* const s = "),
        ("extern volatile thread_local int s[ ] ;", "volatile int* const s = "),
        ("extern thread_local Pair<int, float> s[];", "Pair<int, float>* const s = "),
        (
            "extern thread_local float s[][3][4];",
            "float (*const s)[3][4] = (float (*)[3][4])simt_dynamic_shared;",
        ),
        ("alignas(32) extern thread_local T s[];", "T* const s = "),
    ],
)
def test_a_dynamic_shared_array_becomes_a_pointer(declaration: str, pointer: str) -> None:
    assert pointer in translate(f"void f() {{ {declaration} }}", ())
    assert "extern __thread" in translate(f"namespace n {{ {declaration} }}", ())
    assert "extern __thread" in translate(f'extern "C" {{ {declaration} }}', ())


@pytest.mark.parametrize(
    "text",
    [
        "thread_local float s[4];",
        "extern thread_local float s;",
        "extern float s[];",
        'const char* s = "extern thread_local x[];";',
    ],
)
def test_other_declarations_are_left_alone(text: str) -> None:
    assert translate(f"void f() {{ {text} }}\n", ()).startswith(f"void f() {{ {text} }}\n")


def test_braces_in_texts_and_characters_do_not_confuse_the_scope() -> None:
    text = (
        "void f() { char c = '{'; const char* s = \"}}\"; int big = 1'000'000; extern thread_local int s[]; }"
    )
    assert "int* const s" in translate(text, ())


def slow_compiler(tmp_path: Path) -> tuple[HostCompiler, Path]:
    """A compiler that starts a child, says its process id, and never ends."""
    pid_file, script = tmp_path / "pid", tmp_path / "g++"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}\nwait\n")
    script.chmod(0o755)
    return HostCompiler((str(script),), "gcc", "slow 1.0"), pid_file


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid: int, within_s: float = 10) -> bool:
    """Whether a process that was sent a signal is gone: the kernel takes its time on a busy machine."""
    end = time.monotonic() + within_s
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


def test_a_compiler_that_hangs_is_killed_with_all_it_started(rig: Rig, tmp_path: Path) -> None:
    compiler, pid_file = slow_compiler(tmp_path)
    source = ModuleSource("kernel.cu", "", ("kernel",))
    done = compile_module(source, tmp_path / "m.so", compiler=compiler, folder=tmp_path, deadline_s=2)
    assert done.timed_out
    assert not done.ok
    assert ends(int(pid_file.read_text()))


@pytest.mark.parametrize("supervised", ["by the launcher", "before there is a launcher"])
def test_a_compiler_ends_when_the_process_that_asked_is_killed(
    rig: Rig, tmp_path: Path, supervised: str
) -> None:
    compiler, pid_file = slow_compiler(tmp_path)
    supervisor = f"Path({str(rig.launcher)!r})" if supervised == "by the launcher" else "None"
    program = f"""
from pathlib import Path
from sweeper.emulation import HostCompiler, ModuleSource, compile_module
compile_module(ModuleSource("k.cu", "", ("k",)), Path("m.so"), compiler=HostCompiler({compiler.command!r}, "gcc", ""),
               folder=Path({str(tmp_path)!r}), deadline_s=600, supervisor={supervisor})
"""
    parent = subprocess.Popen([os.sys.executable, "-c", program])  # type: ignore[attr-defined]
    end = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < end:
        time.sleep(0.01)
    child = int(pid_file.read_text())
    assert is_running(child)
    parent.kill()
    parent.wait()
    assert ends(child)


def test_a_compiler_that_dies_is_an_error(rig: Rig, tmp_path: Path) -> None:
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o755)
    compiler = HostCompiler((str(script),), "gcc", "dying 1.0")
    done = compile_module(
        ModuleSource("k.cu", "", ("k",)), tmp_path / "m.so", compiler=compiler, folder=tmp_path, deadline_s=10
    )
    assert done.error == "the compiler ended with code -11"
