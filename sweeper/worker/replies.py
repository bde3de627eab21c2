"""Failures as plain JSON values and back, for whoever runs a configuration in another process."""

from __future__ import annotations

from typing import Any

from sweeper import errors
from sweeper.errors import SweeperError, TrialFailed, WorkerError
from sweeper.model import Check, Launch, Stage, Status
from sweeper.wire import from_wire, to_wire

__all__ = ["error_message", "error_of", "failure_message", "failure_of"]

Message = dict[str, Any]

_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SweeperError) and kind is not TrialFailed
}


def failure_message(failure: TrialFailed) -> Message:
    """`failure` as JSON: status, stage, reason, details."""
    described = {"status": failure.status, "stage": failure.stage, "reason": failure.reason}
    message: Message = to_wire({**described, "details": failure.details})
    return message


def failure_of(data: Message) -> TrialFailed:
    """The failure that `failure_message` made `data` from."""
    details = from_wire(dict[str, Any], data["details"])
    if "check" in details:
        details["check"] = from_wire(Check, data["details"]["check"])
    if "launch" in details:
        details["launch"] = from_wire(Launch, data["details"]["launch"])
    return TrialFailed(Status(data["status"]), Stage(data["stage"]), data["reason"], details=details)


def error_message(kind: str, message: str, hint: str | None) -> Message:
    """An error of class `kind` as JSON."""
    return {"type": kind, "message": message, "hint": hint}


def error_of(data: Message) -> SweeperError:
    """The error that `data` describes; a WorkerError where its class is none of ours."""
    return _ERRORS.get(data["type"], WorkerError)(data["message"], hint=data["hint"])
