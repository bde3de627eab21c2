"""`python -m sweeper.cli.launchers.process FILE`: the process of one job of `hydra/launcher=local`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

from sweeper.cli.launchers.handed import HandedJob
from sweeper.errors import INTERRUPTED

__all__ = ["main"]

_LOOK_S = 0.5


def main(path: Path) -> int:
    """Run the job in the file at `path`; its record says how it ended."""
    job: HandedJob = pickle.loads(path.read_bytes())  # noqa: S301
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        job()
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _end_with_parent(parent: int) -> None:
    """A command that was killed cannot say so, and its jobs would keep the GPUs."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
