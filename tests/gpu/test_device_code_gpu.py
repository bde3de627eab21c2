"""On a GPU: the backend's own kernels agree with the host, element for element and number for number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import programs
import pytest
from device_cases import FLOATING, WHOLE

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"
GROUPS = [*(f"compare {name}" for name in (*FLOATING, *WHOLE)), "rows", "memory", "products"]


def _no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


pytestmark = pytest.mark.skipif(_no_gpu(), reason="no GPU, or no PyCUDA")


@pytest.fixture(scope="module")
def told() -> list[dict[str, str]]:
    """What `device_checks.py` found; all of it in one process, since each costs a context."""
    program = Path(__file__).with_name("device_checks.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=programs.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_the_device_agrees_with_the_host(told: list[dict[str, str]], group: str) -> None:
    results = [result for result in told if result["group"] == group]
    assert results
    differing = [f"{result['name']}: {result['told']}" for result in results if result["told"]]
    assert not differing, f"{len(differing)} of {len(results)}:\n" + "\n".join(differing[:5])
