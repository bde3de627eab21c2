"""The search loop and what it is given: a study, where trials go, and who hears of them."""

from __future__ import annotations

from sweeper.tune.allocate import Grant, Standing, grant, past_gain
from sweeper.tune.asked import STOPPED
from sweeper.tune.confirm import Confirmation, Keeper, confirm
from sweeper.tune.loop import Listener, Recorder, StudySearch, Tally, tune
from sweeper.tune.study import Study

__all__ = [
    "STOPPED",
    "Confirmation",
    "Grant",
    "Keeper",
    "Listener",
    "Recorder",
    "Standing",
    "Study",
    "StudySearch",
    "Tally",
    "confirm",
    "grant",
    "past_gain",
    "tune",
]
