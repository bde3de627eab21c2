"""`python -m sweeper.doctor`."""

from __future__ import annotations

from sweeper.doctor.command import main

if __name__ == "__main__":
    raise SystemExit(main())
