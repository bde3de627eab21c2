"""`python -m sweeper.dispatch`."""

from __future__ import annotations

from sweeper.dispatch.command import main

if __name__ == "__main__":
    raise SystemExit(main())
