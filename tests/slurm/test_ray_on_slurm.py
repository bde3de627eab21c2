"""The batch script of the documentation on a real SLURM of one node: a Ray cluster that lives as long as its job."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cluster_rig import marked
from one_node import OneNode, why_not

ROOT = Path(__file__).parents[2]
WORDS = ("backend=emulator", "kernel=tiled", "shape=tiny")

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'ray>=2.40'"),
    pytest.mark.skipif("SWEEPER_SCALE_POINTS" not in os.environ, reason="make scale-test runs it"),
]


def rays(mark: str) -> list[str]:
    """The titles of Ray's processes among those with `mark`."""
    return [title for title in marked(mark).values() if "ray" in title.partition(" ")[0]]


def test_the_documented_script_searches_and_ends_its_cluster(tmp_path: Path) -> None:
    mark = f"SWEEPER_TEST_CLUSTER={tmp_path.name}-{os.getpid()}"
    out = tmp_path / "out"
    # A socket's path may have 107 characters, which a test's own folder uses up.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, OneNode(Path(folder) / "one") as cluster:
        name, _, value = mark.partition("=")
        cluster.environment |= {
            name: value,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), cluster.environment["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "SWEEPER_CACHE": str(tmp_path / "cache"),
        }
        options = ("--nodes=1", "--gpus-per-node=2", "--cpus-per-task=2", f"--output={tmp_path / 'log'}")
        script = ROOT / "docs" / "examples" / "ray.sbatch"
        words = ["sbatch", "--wait", *options, str(script), *WORDS, f"results_dir={out}"]
        subprocess.run(words, env=cluster.environment, cwd=tmp_path, timeout=400, check=False)
        said = (tmp_path / "log").read_text()
        assert (out / "trials.csv").is_file(), said
        assert len((out / "trials.csv").read_text().splitlines()) == 1 + 3, said
        end = time.monotonic() + 60
        while (left := rays(mark)) and time.monotonic() < end:
            time.sleep(0.5)
        assert left == []
    assert "RAY_AUTH_TOKEN=" not in said
