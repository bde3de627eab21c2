"""`python -m sweeper.compare`."""

from __future__ import annotations

from sweeper.compare.command import main

if __name__ == "__main__":
    raise SystemExit(main())
