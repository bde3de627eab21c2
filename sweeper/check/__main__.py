"""`python -m sweeper.check`."""

from __future__ import annotations

from sweeper.check.command import main

if __name__ == "__main__":
    raise SystemExit(main())
