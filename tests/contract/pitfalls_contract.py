"""The pitfalls of the GEMM family on one backend: a mistake is slow, not wrong.

class TestMine(PitfallsContract):
    backend = "cuda"
"""

from __future__ import annotations

import pytest
import yaml
from bench_rig import Bench, OnBench

from sweeper.lessons import Pitfall
from sweeper.paths import conf_dir

__all__ = ["PITFALLS", "PitfallsContract"]

_NODE = yaml.safe_load((conf_dir() / "experiment" / "pitfalls.yaml").read_text(encoding="utf-8"))
PITFALLS = [Pitfall(**pitfall) for pitfall in _NODE["pitfalls"]]

# One element; less than any tile, and no round depth; more than a tile of each, and nothing divides.
EDGES = [(1, 1, 1), (3, 5, 43), (131, 69, 37)]


class PitfallsContract(OnBench):
    """The pairs of `experiment=pitfalls` on one backend, named by `backend`, in the precision `classes`."""

    classes: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16", "int8")

    @pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda p: p.kernel)
    @pytest.mark.parametrize("side", ["spoiled", "sound"])
    def test_both_sides_are_right_at_every_edge(self, bench: Bench, pitfall: Pitfall, side: str) -> None:
        for dtype in self.classes:
            spec = bench.shipped(pitfall.kernel, dtype)
            params = {**spec.default_point.params, **getattr(pitfall, side)}
            for m, n, k in EDGES:
                dims = {"M": m, "N": n, "K": k, "LDA": k + 1, "LDB": n + 3, "LDC": n}
                check = bench.measure(spec, dims, params).check
                assert check.passed, dtype
                assert check.checked == m * n
