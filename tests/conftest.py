"""What all tests share.

Generated examples are the same in every run, so that a failure can be repeated. Ctrl-C works for the programs
that tests start, also where the tests themselves were started in the background, which ignores it.
"""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
