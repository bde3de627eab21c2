"""Results for tests of the report: stores with what makes a report hard, and ways to read what was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.store_contract")

from contract.store_contract import trial  # noqa: E402

from sweeper.model import Confirmed, Role, Stage, Status, TimeSource, Timing, Trial  # noqa: E402
from sweeper.store import Store  # noqa: E402

__all__ = [
    "EVIL",
    "Page",
    "blob",
    "candidate",
    "confirmed",
    "evil_results",
    "failed",
    "library",
    "predicted",
    "stored",
]

EVIL = '</script><script>alert("1")</script>'


def candidate(number: int, ms: float, **changes: Any) -> Trial:
    """A measured configuration of nine samples around `ms`."""
    times = tuple(ms * (1 + 0.001 * i) for i in (-4, -3, -2, -1, 0, 1, 2, 3, 4))
    timing = Timing(times, "events", "cold", sm_clock_mhz=1980.0 - number, power_w=300.0, temperature_c=40.0)
    values = {"study": "tiled-float32-large-1", "params": {"tile": 8 * number}, "timing": timing, **changes}
    return trial(number, **values)


def library(ms: float, **changes: Any) -> Trial:
    """cuBLAS beside a study."""
    values = {
        "kernel": "cublas",
        "role": Role.BASELINE,
        "params": {"library": "cublas"},
        "build": None,
        **changes,
    }
    return candidate(0, ms, **values)


def failed(number: int, reason: str, status: Status = Status.BUILD_ERROR, **changes: Any) -> Trial:
    """A configuration that ended otherwise."""
    nothing = {"timing": None, "time_source": None, "check": None}
    return candidate(number, 1.0, status=status, stage=Stage.BUILD, reason=reason, **{**nothing, **changes})


def predicted(number: int, ms: float, **changes: Any) -> Trial:
    """One that the static model alone speaks for."""
    values = {
        "timing": None,
        "time_source": TimeSource.PREDICTED,
        "predicted_ms": ms,
        "backend": "emulator",
        **changes,
    }
    return candidate(number, ms, **{"device": "emulated NVIDIA H200", **values})


def confirmed(of: Trial, times: Sequence[float], **changes: Any) -> Confirmed:
    """`of` as it was timed in turns."""
    values: dict[str, Any] = {
        "confirmation": "c1", "started": "2026-01-01T00:00:00Z", "study": of.study, "kernel": of.kernel,
        "dtype": of.dtype, "shape": of.shape, "params": dict(of.params), "role": of.role,
        "blocks_ms": tuple(times), "device": of.device, "wanted": len(times),
    }  # fmt: skip
    return Confirmed(**{**values, **changes})


def stored(folder: Path, trials: Sequence[Trial], finals: Sequence[Confirmed] = ()) -> Path:
    """A results folder with a store of these."""
    folder.mkdir(parents=True, exist_ok=True)
    with Store(folder / "study.db") as store:
        store.add_all(list(trials))
        if finals:
            store.add_confirmed(list(finals))
    return folder


def evil_results(folder: Path) -> Path:
    """Names, levels and reasons that hold markup; failures; a kernel of which nothing is valid."""
    rows = []
    for n in range(1, 41):
        params = {
            "tile": (8, 16, 32)[n % 3],
            "vector": (1, 2, 4)[n // 3 % 3],
            "how": ("<b>x</b>", "a|b")[n % 2],
        }
        of = {"kernel": EVIL, "study": f"{EVIL}-1", "params": params}
        if n % 7 == 0:
            rows.append(failed(n, f'{EVIL} at line {n}: <img src=x onerror="alert(2)">', **of))
        else:
            rows.append(candidate(n, 1 + 0.1 * (n % 3) + 0.01 * n, **of))
    rows.append(library(1.2, study=f"{EVIL}-1"))
    rows += [failed(n, "no", kernel="dead", study="dead-1", device="") for n in (1, 2)]
    return stored(folder, rows)


def blob(html: str, name: str = "data") -> str:
    """What an element of packed data holds."""
    found = re.search(rf'<script type="application/octet-stream" id="{name}">([^<]*)</script>', html)
    assert found, f"the page has no {name}"
    return found[1]


class Page(HTMLParser):
    """A page as a browser takes it: its elements with their attributes, and the text that is shown."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.shown: list[str] = []
        self._hidden = 0
        self.feed(html)
        self.text = " ".join("".join(self.shown).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.shown.append(data + " ")

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element called `tag`."""
        return [attributes for name, attributes in self.elements if name == tag]
