"""A source and its headers, found and digested before any compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.errors import KernelError
from sweeper.source.includes import read_tree


def write(folder: Path, **files: str) -> Path:
    """Files by name (`__` stands for a dot, `___` for a folder); returns the first one's path."""
    paths = []
    for name, text in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    return paths[0]


def test_headers_are_found_transitively_and_once(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        a__cu='#include "b.cuh"\n#include "c.cuh"\n#include <cuda_fp16.h>\n',
        b__cuh='#pragma once\n#include "sub/d.cuh"\n',
        c__cuh='#include "sub/d.cuh"\n',
        sub___d__cuh="// d\n",
    )
    tree = read_tree(source)
    assert [h.path.name for h in tree.headers] == ["b.cuh", "d.cuh", "c.cuh"]
    assert tree.source.text.startswith('#include "b.cuh"')


def test_a_header_is_looked_for_beside_the_file_that_includes_it(tmp_path: Path) -> None:
    source = write(
        tmp_path, a__cu='#include "sub/b.cuh"', sub___b__cuh='#include "c.cuh"', sub___c__cuh="int c;"
    )
    assert read_tree(source).headers[-1].text == "int c;"


def test_angle_brackets_count_where_a_given_folder_has_the_header(tmp_path: Path) -> None:
    source = write(
        tmp_path, k___a__cu="#include <lib/b.cuh>\n#include <mma.h>\n", inc___lib___b__cuh="int b;"
    )
    assert read_tree(source).headers == ()
    assert [h.text for h in read_tree(source, [tmp_path / "inc"]).headers] == ["int b;"]


def test_a_missing_header_names_the_line_and_the_folders_searched(tmp_path: Path) -> None:
    source = write(tmp_path, a__cu='// one\n#include "gone.cuh"\n')
    with pytest.raises(KernelError) as caught:
        read_tree(source, [tmp_path / "inc"])
    assert 'a.cu:2: header "gone.cuh" not found' in caught.value.message
    assert str(tmp_path / "inc") in str(caught.value.hint)


def test_a_missing_header_of_a_header_is_named_too(tmp_path: Path) -> None:
    source = write(tmp_path, a__cu='#include "b.cuh"', b__cuh='\n\n#include "gone.cuh"')
    with pytest.raises(KernelError, match=r"b\.cuh:3"):
        read_tree(source)


def test_a_missing_header_inside_a_condition_is_the_compilers_business(tmp_path: Path) -> None:
    source = write(
        tmp_path, a__cu='#ifdef HAVE_IT\n#include "gone.cuh"\n#endif\n#if 0\n#include "old.cuh"\n#endif\n'
    )
    assert read_tree(source).headers == ()


def test_the_toolkits_headers_may_be_quoted(tmp_path: Path) -> None:
    source = write(tmp_path, a__cu='#include "cuda_runtime.h"\n#include "cub/cub.cuh"\n')
    assert read_tree(source).headers == ()


def test_an_include_circle_is_told_with_its_members(tmp_path: Path) -> None:
    source = write(tmp_path, a__cu='#include "b.cuh"', b__cuh='#include "c.cuh"', c__cuh='#include "b.cuh"')
    with pytest.raises(KernelError, match=r"b\.cuh -> c\.cuh -> b\.cuh"):
        read_tree(source)


def test_a_file_that_includes_itself_is_a_circle(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="circle"):
        read_tree(write(tmp_path, a__cu='#include "a.cu"'))


def test_an_include_of_a_macro_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"a\.cu:1: cannot follow"):
        read_tree(write(tmp_path, a__cu="#include HEADER\n"))


def test_a_link_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path, elsewhere___other__cu="int x;")
    (tmp_path / "kernels").mkdir()
    link = tmp_path / "kernels" / "a.cu"
    link.symlink_to(outside)
    with pytest.raises(KernelError, match="outside its folder"):
        read_tree(link)


def test_a_link_within_its_folder_is_fine(tmp_path: Path) -> None:
    write(tmp_path, b__cu="int b;")
    (tmp_path / "a.cu").symlink_to(tmp_path / "b.cu")
    assert read_tree(tmp_path / "a.cu").source.text == "int b;"


def test_a_folder_that_is_itself_a_link_is_fine(tmp_path: Path) -> None:
    write(tmp_path, real___a__cu="int a;")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert read_tree(tmp_path / "linked" / "a.cu").source.text == "int a;"


def test_an_unreadable_source_says_why(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="No such file"):
        read_tree(tmp_path / "a.cu")
    (tmp_path / "b.cu").write_bytes(b"int a; // \xff\xfe")
    with pytest.raises(KernelError, match=r"not UTF-8 \(byte 10\)"):
        read_tree(tmp_path / "b.cu")


def test_a_byte_order_mark_and_carriage_returns_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"int a;\nint b;\n")
    (tmp_path / "b.cu").write_bytes(b"\xef\xbb\xbfint a;\r\nint b;\r\n")
    assert read_tree(tmp_path / "a.cu").digest == read_tree(tmp_path / "b.cu").digest


def test_the_digest_follows_contents_and_not_places(tmp_path: Path) -> None:
    files = {"a__cu": '#include "b.cuh"\n', "b__cuh": "constexpr int N = 1;\n"}
    first, second = write(tmp_path / "one", **files), write(tmp_path / "two" / "deep", **files)
    assert read_tree(first).digest == read_tree(second).digest
    (second.parent / "b.cuh").write_text("constexpr int N = 2;\n")
    assert read_tree(first).digest != read_tree(second).digest
