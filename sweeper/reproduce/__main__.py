"""`python -m sweeper.reproduce`."""

from __future__ import annotations

from sweeper.reproduce.command import main

if __name__ == "__main__":
    raise SystemExit(main())
