"""Whether a recording says of itself that every feasible configuration is in it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

__all__ = ["declared_whole"]

_MOST = 1 << 16


def declared_whole(path: Path) -> bool:
    """Whether the first line of a compact recording has `"whole": true`; False for anything else."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            line = file.readline(_MOST)
        return line.startswith(b"#") and json.loads(line[1:]).get("whole") is True
    except (OSError, EOFError, ValueError, AttributeError, zlib.error):
        return False
