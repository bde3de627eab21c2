"""`python -m sweeper.report`."""

from __future__ import annotations

from sweeper.report.command import main

if __name__ == "__main__":
    raise SystemExit(main())
