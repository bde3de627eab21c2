"""`python -m sweeper.profile`."""

from __future__ import annotations

from sweeper.profile.command import main

if __name__ == "__main__":
    raise SystemExit(main())
