"""What the loop needs of the world, and the worlds there are."""

from __future__ import annotations

from sweeper.evaluate.base import Evaluator
from sweeper.evaluate.live import LiveEvaluator, why_pruned
from sweeper.evaluate.make import make_evaluator
from sweeper.evaluate.replay import ReplayEvaluator
from sweeper.worker.ticket import Ticket

__all__ = ["Evaluator", "LiveEvaluator", "ReplayEvaluator", "Ticket", "make_evaluator", "why_pruned"]
