"""`python -m sweeper.export`."""

from __future__ import annotations

from sweeper.export.command import main

if __name__ == "__main__":
    raise SystemExit(main())
