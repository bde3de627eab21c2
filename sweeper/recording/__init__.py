"""Recorded tables of configurations and their times, in our own formats and in the community's."""

from __future__ import annotations

from sweeper.recording.compact import write_compact
from sweeper.recording.kernel_tuner import write_cache
from sweeper.recording.read import read_recorded
from sweeper.recording.row import Recorded
from sweeper.recording.t4 import write_t4

__all__ = ["Recorded", "read_recorded", "write_cache", "write_compact", "write_t4"]
