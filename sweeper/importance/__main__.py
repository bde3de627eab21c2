"""`python -m sweeper.importance`."""

from __future__ import annotations

from sweeper.importance.command import main

if __name__ == "__main__":
    raise SystemExit(main())
