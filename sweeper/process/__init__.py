"""A child process with a private channel for requests and replies.

    parent                                                        child
    Child.request() ── one JSON line ──▶ pipe ──▶ serve(handler)
                    ◀── one JSON line ── pipe ◀──
    last 64 KiB     ◀── standard output and error, drained by a thread

Replies never share a stream with what the child or its libraries print, so printed text cannot pass
for a result. The child leads a session, so its process group is its own: killing that group ends
compilers and helpers with it. A guard process in the group ends all of it once the parent is gone.
"""

from __future__ import annotations

from sweeper.process.child import Child, ChildDied, ChildError, ChildTimeout, ChildUnkillable
from sweeper.process.serving import StopServing, serve

__all__ = ["Child", "ChildDied", "ChildError", "ChildTimeout", "ChildUnkillable", "StopServing", "serve"]
