"""Layouts: operands that lie in memory transposed, as a choice of the description that all else follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bench_rig import OnBench
from command_rig import rows, sweep

from sweeper.backend.cuda.cublas_gemm import gemm_of
from sweeper.backend.replay import ReplayTable
from sweeper.errors import ConfigError, KernelError
from sweeper.kernel.description import load
from sweeper.kernel.layout import laid_out, layout_of, shape_suffix, without_default
from sweeper.model import ArraySpec
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.profile.choose import choose, jobs_of, store_path
from sweeper.store import Store

LAYOUTS = ("nn", "nt", "tn", "tt")
DIMS = {"M": 24, "N": 40, "K": 16}
STORED = {
    "nn": ([24, 16], [16, 40]),
    "nt": ([24, 16], [40, 16]),
    "tn": ([16, 24], [16, 40]),
    "tt": ([16, 24], [40, 16]),
}


def naive(**changes: Any):
    path = conf_dir() / "kernel" / "naive.yaml"
    problem = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text())
    node = {**problem, **yaml.safe_load(path.read_text()), **changes}
    node.pop("defaults")
    return load({key: value for key, value in node.items() if value is not None}, path)


def refused(**changes: Any) -> str:
    with pytest.raises(KernelError) as caught:
        naive(**changes)
    return str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_transposed_operand_lies_in_memory_with_its_axes_exchanged(layout):
    problem = resolve(naive(layout=layout), DIMS, None, seed=1)
    shapes = [list(array.shape) for array in problem.arrays]
    assert shapes == [*STORED[layout], [24, 40]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_is_the_same_in_every_layout(layout):
    problem = resolve(naive(layout=layout), DIMS, None, seed=1)
    inputs = problem.inputs()
    a, b = (inputs[name].astype(float) for name in ("A", "B"))
    a, b = (a.T if layout[0] == "t" else a), (b.T if layout[1] == "t" else b)
    assert np.allclose(problem.reference(inputs)["C"].values, a @ b)
    assert problem.flops == 2 * 24 * 40 * 16


@pytest.mark.parametrize(
    ("layout", "lda", "ldb"), [("nn", 16, 40), ("nt", 16, 16), ("tn", 24, 40), ("tt", 24, 16)]
)
def test_a_leading_dimension_is_by_default_a_row_of_what_is_stored(layout, lda, ldb):
    problem = resolve(naive(layout=layout), DIMS, None, seed=1)
    told = {s.name: int(s.value) for s in problem.scalars}
    assert (told["lda"], told["ldb"], told["ldc"]) == (lda, ldb, 40)
    wider = resolve(naive(layout=layout), {**DIMS, "LDA": 50, "LDB": 51}, None, seed=1)
    assert [array.pitch for array in wider.arrays] == [50, 51, 40]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_libraries_are_asked_for_the_same_layout(layout):
    gemm = gemm_of(resolve(naive(layout=layout), DIMS, None, seed=1))
    assert (gemm.m, gemm.n, gemm.k) == (24, 40, 16)
    assert (gemm.transpose_a, gemm.transpose_b) == (layout[0] == "t", layout[1] == "t")
    assert [list(gemm.stored_a), list(gemm.stored_b)] == list(STORED[layout])


def test_what_the_libraries_decline_says_which_operands_are_transposed():
    assert str(gemm_of(resolve(naive(layout="nt"), DIMS, None, seed=1))).endswith(", B transposed")
    assert str(gemm_of(resolve(naive(layout="tt"), DIMS, None, seed=1))).endswith(", A and B transposed")
    assert "transposed" not in str(gemm_of(resolve(naive(), DIMS, None, seed=1)))


def test_expressions_know_the_layout_as_numbers():
    spec = naive(layout="nt")
    assert [item if isinstance(item, str) else item.text for item in spec.template] == ["T", "0", "1"]
    assert [item if isinstance(item, str) else item.text for item in naive(layout="tn").template[1:]] == [
        "1",
        "0",
    ]


def test_a_layout_is_told_where_something_is_transposed():
    assert [shape_suffix(layout) for layout in ("", *LAYOUTS)] == ["", "", "-nt", "-tn", "-tt"]
    assert [layout_of(shape) for shape in ("large", "8x8x8-lda9", "large-nt", "8x8x8-lda9-tt", "mint")] == [
        *("", "", "nt", "tt", ""),
    ]


def test_naming_the_layout_that_a_kernel_has_anyway_is_no_other_kernel():
    assert naive(layout="nn").node_json == naive().node_json
    assert naive(layout="nt").node_json != naive().node_json
    only = {"layouts": ["nt"], "args": naive_args(), "reference": {"contraction": "mk,kn->mn"}}
    assert "layout" not in without_default({**only, "layout": "nt"})


def naive_args() -> list[dict[str, Any]]:
    return list(yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text())["args"])


def test_another_process_reads_the_same_problem():
    spec = naive(layout="tt")
    again = load(json.loads(spec.node_json), spec.path)
    assert (again.layout, again.node_json) == ("tt", spec.node_json)
    assert resolve(again, DIMS, None, seed=1).key == resolve(spec, DIMS, None, seed=1).key


def test_every_layout_is_a_problem_of_its_own():
    """Of a cube the inputs are the same numbers; what is right is not."""
    keys = {resolve(naive(layout=layout), {"M": 8, "N": 8, "K": 8}, None, seed=1).key for layout in LAYOUTS}
    assert len(keys) == 4


def test_the_first_layout_is_that_of_a_run_that_names_none():
    assert naive(layouts=["tn", "nt"]).layout == "tn"
    assert naive(layouts=["tn", "nn"]).layout == "nn"
    assert naive(layouts=None, template=["T", 0, 0]).layout == "nn"


def test_a_batch_is_transposed_matrix_by_matrix():
    node = {
        "args": [
            {"name": "A", "shape": ["BATCH", "M", "K"], "direction": "in"},
            {"name": "B", "shape": ["BATCH", "K", "N"], "direction": "in"},
            {"name": "C", "shape": ["BATCH", "M", "N"], "direction": "out"},
        ],
        "reference": {"contraction": "bmk,bkn->bmn"},
        "layouts": ["nn", "tn"],
        "layout": "tn",
    }
    made, layout = laid_out(node, "k")
    assert layout == "tn"
    assert made["args"][0]["shape"] == ["BATCH", "K", "M"]
    assert made["reference"] == {"contraction": "bkm,bkn->bmn"}
    assert made["args"][1:] == node["args"][1:]


def test_a_description_without_layouts_is_left_as_it_is():
    for name in ("tiled", "gemv", "sample_block", "whole_trip"):
        node = yaml.safe_load((conf_dir() / "kernel" / f"{name}.yaml").read_text())
        assert laid_out(node, "k")[0] == node
        assert without_default(node) == node


def test_a_layout_that_is_not_served_is_refused_with_those_that_are():
    text = refused(layout="tt", layouts=["nn", "nt"])
    assert "'tt' is not among this kernel's layouts" in text
    assert "nn, nt" in text


@pytest.mark.parametrize("layout", ["tx", "n", "nnn", "NT", 3])
def test_a_layout_that_is_none_is_refused_with_what_there_is(layout):
    text = refused(layout=layout)
    assert f"{layout!r}"[1:-1] in text or str(layout) in text
    assert "nn, nt, tn, tt" in text


def test_layouts_are_a_list():
    assert "is not a list" in refused(layouts="nt")
    assert "is not a list" in refused(layouts=[])


def test_a_leading_dimension_that_does_not_follow_from_the_row_cannot_be_transposed():
    text = refused(
        layout="tn", dims={"M": None, "N": None, "K": None, "LDA": "2 * K", "LDB": "N", "LDC": "N"}
    )
    assert "pitch LDA of A" in text
    assert "LDA: K" in text


def test_only_contractions_have_layouts(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void k(const float* A, float* C) { C[0] = A[0]; }\n")
    (tmp_path / "ref.py").write_text("def reference(A): return {'C': A}\n")
    node = {
        "name": "k",
        "source": "k.cu",
        "entry": "k",
        "dims": ["N"],
        "launch": {"block": [32], "grid": [1]},
        "args": [
            {"name": "A", "shape": ["N", "N"], "direction": "in"},
            {"name": "C", "shape": ["N", "N"], "direction": "out"},
        ],
        "reference": {"python": "ref.py"},
    }
    assert load(node, tmp_path / "k.yaml").layout == ""
    with pytest.raises(KernelError, match="only a contraction"):
        load({**node, "layout": "t"}, tmp_path / "k.yaml")


def test_tensor_maps_are_of_what_is_stored():
    path = conf_dir() / "kernel" / "wgmma_k_major.yaml"
    problem = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text())
    node = {**problem, **yaml.safe_load(path.read_text()), "dtype": "int8"}
    node.pop("defaults")
    spec = load({**node, "layout": "nt"}, path)
    maps = resolve(spec, {"M": 256, "N": 512, "K": 1024}, spec.default_point, seed=1).tensor_maps
    assert [(m.array, m.sizes) for m in maps] == [("A", (1024, 256)), ("B", (1024, 512))]
    other = load({**node, "layout": "nn"}, path)
    maps = resolve(other, {"M": 256, "N": 512, "K": 1024}, other.default_point, seed=1).tensor_maps
    assert [(m.array, m.sizes) for m in maps] == [("A", (1024, 256)), ("b_copy", (1024, 512))]
    b = next(a for a in other.args if isinstance(a, ArraySpec) and a.name == "B")
    assert [size.text for size in b.shape] == ["K", "N"]


class TestInTheEmulator(OnBench):
    backend = "emulator"

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", ["float32", "tf32", "bfloat16", "float8_e4m3", "int8"])
    def test_naive_serves_every_layout(self, bench, layout, dtype):
        kernel = naive(layout=layout, dtype=dtype)
        assert bench.measure(kernel, {"M": 19, "N": 37, "K": 23}).check.passed
        assert bench.measure(
            kernel, {"M": 19, "N": 37, "K": 23, "LDA": 41, "LDB": 43, "LDC": 47}
        ).check.passed

    def test_a_kernel_that_reads_the_other_layout_is_wrong(self, bench):
        """Of a square nothing but the values tells."""
        kernel = naive(layout="nt", template=["T", "transpose_a", "1 - transpose_b"])
        assert bench.failure(kernel, {"M": 32, "N": 32, "K": 32}).status == "wrong_result"


class TestInACommand:
    """Two layouts in one multirun: rows of two shapes, which nothing takes for one another."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        out = tmp_path_factory.mktemp("layouts")
        pinned = ["kernel.params.block_x=8", "kernel.params.block_y=4", "search.budget=1"]
        layouts = "kernel.layout=nn,nt"
        assert sweep("-m", "kernel=naive", layouts, "shape=12x20x9", *pinned, f"results_dir={out}") == 0
        return out

    def test_the_shape_tells_of_a_transposed_operand(self, folder):
        assert [row["shape"] for row in rows(folder)] == ["12x20x9", "12x20x9-nt"]

    def test_each_layout_has_a_context_of_its_own(self, folder):
        contexts = {trial["context"] for trial in rows(folder)}
        assert len(contexts) == 2

    def test_rows_of_two_layouts_are_not_ranked_with_each_other(self, folder):
        assert [row["shape"] for row in rows(folder, "best.csv")] == ["12x20x9", "12x20x9-nt"]

    def test_a_row_is_profiled_in_its_layout(self, folder):
        with Store(store_path(folder)) as store:
            jobs = jobs_of(choose(store.trials()), store.runs())
        assert [job.spec.layout for job in jobs] == ["nn", "nt"]

    @pytest.mark.parametrize("file", ["trials.csv", "study.db"])
    def test_a_row_is_replayed_in_its_layout_only(self, folder, file):
        table = ReplayTable(folder / file)
        point = {"block_x": 8, "block_y": 4}
        for layout in ("", "nt"):
            table.select("naive", "float32", {"M": 12, "N": 20, "K": 9}, layout)
            assert table.lookup(point).status == "ok"
        with pytest.raises(ConfigError, match=r"naive \(float32, tn\)"):
            table.select("naive", "float32", {"M": 12, "N": 20, "K": 9}, "tn")
