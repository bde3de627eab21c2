"""`python -m sweeper`."""

from __future__ import annotations

from sweeper.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
