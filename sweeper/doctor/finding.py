"""One thing that was looked at, how it is, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sweeper.errors import SweeperError

__all__ = ["Finding", "State", "looked_at"]


class State(StrEnum):
    """`ok`; `note`: works, with something to know; `absent`: not here, and not needed; `broken`."""

    OK = "ok"
    NOTE = "note"
    ABSENT = "absent"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is `text`, and `mend` says what to do where it is not as it should be."""

    what: str
    state: State
    text: str
    mend: str = ""

    @property
    def works(self) -> bool:
        return self.state in (State.OK, State.NOTE)


def looked_at(what: str, look: Callable[[], Finding], *, otherwise: State = State.BROKEN) -> Finding:
    """What `look` finds; the error that it ends with is a finding too, of state `otherwise`."""
    try:
        return look()
    except SweeperError as error:
        return Finding(what, otherwise, error.message, error.hint or "")
    except Exception as error:
        return Finding(what, otherwise, f"{type(error).__name__}: {error}")
