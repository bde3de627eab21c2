"""Mistakes in kernels, found without a GPU: `python -m sweeper.check kernel=tiled`, or from a test

    from sweeper.check import assert_clean

    def test_my_kernel() -> None:
        assert_clean("kernels/mine.yaml")

`plan` chooses configurations (`covering`) and problem sizes (`shapes`), `trial` runs and judges one of each,
`run` all of them side by side, `report` and `junit` say what came of it.
"""

from __future__ import annotations

from sweeper.check.api import Shape, assert_clean, check_kernel
from sweeper.check.report import Defect, Outcome, Report
from sweeper.check.run import Settings

__all__ = ["Defect", "Outcome", "Report", "Settings", "Shape", "assert_clean", "check_kernel"]
