"""The search loop and what it is given: a study, where trials go, and who hears of them."""

from __future__ import annotations

from sweeper.tune.asked import STOPPED
from sweeper.tune.loop import Listener, Recorder, Tally, tune
from sweeper.tune.study import Study

__all__ = ["STOPPED", "Listener", "Recorder", "Study", "Tally", "tune"]
