"""`python -m sweeper.collect`."""

from __future__ import annotations

from sweeper.collect.command import main

if __name__ == "__main__":
    raise SystemExit(main())
