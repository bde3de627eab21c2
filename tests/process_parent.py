"""A parent for tests: starts a child with a grandchild, prints their ids, then waits to be killed."""

from __future__ import annotations

import sys
import time

from sweeper.process import Child

if __name__ == "__main__":
    child = Child("process_children")
    child.start()
    grandchild = child.request({"op": "spawn"}, deadline_s=60)["pid"]
    sys.stdout.write(f"{child.pid} {grandchild}\n")
    sys.stdout.flush()
    if sys.argv[1] == "idle":
        time.sleep(600)
    child.request({"op": "sleep", "seconds": 600}, deadline_s=600)
