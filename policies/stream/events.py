"""The event stream of a session: what every adapter says and every rule judges.

Every event is a frozen record tagged by `type`. Types not known here decode to `Unrecognized`: they are
kept as they came, never dropped and never an error.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .acts import MessageEvent as MessageEvent
from .acts import MessageReceived as MessageReceived
from .acts import MessageSent as MessageSent
from .acts import MessageStreamed as MessageStreamed
from .acts import RunStarted as RunStarted
from .acts import Scope as Scope
from .acts import TokenUsageUpdated as TokenUsageUpdated
from .acts import ToolCallCompleted as ToolCallCompleted
from .acts import ToolCallDenied as ToolCallDenied
from .acts import ToolCallFailed as ToolCallFailed
from .acts import ToolCallRequested as ToolCallRequested
from .acts import ToolCallStarted as ToolCallStarted
from .acts import ToolEvent as ToolEvent
from .acts import ToolOutcome as ToolOutcome
from .acts import TurnCompleted as TurnCompleted
from .acts import TurnEvent as TurnEvent
from .acts import TurnStarted as TurnStarted
from .event import Event as Event
from .outcomes import USER_MESSAGES_FULL as USER_MESSAGES_FULL
from .outcomes import ApprovalEvent as ApprovalEvent
from .outcomes import BudgetReserved as BudgetReserved
from .outcomes import BudgetWarned as BudgetWarned
from .outcomes import ErrorEvent as ErrorEvent
from .outcomes import ErrorOccurred as ErrorOccurred
from .outcomes import ErrorRecovered as ErrorRecovered
from .outcomes import NetJoined as NetJoined
from .outcomes import NetLeft as NetLeft
from .outcomes import PolicyViolated as PolicyViolated
from .outcomes import RunCancelled as RunCancelled
from .outcomes import RunCompleted as RunCompleted
from .outcomes import RunFailed as RunFailed
from .outcomes import ToolApprovalDenied as ToolApprovalDenied
from .outcomes import ToolApprovalExpired as ToolApprovalExpired
from .outcomes import ToolApprovalGranted as ToolApprovalGranted
from .outcomes import ToolApprovalRequested as ToolApprovalRequested
from .sessions import RecordPruned as RecordPruned
from .sessions import SessionCancelled as SessionCancelled
from .sessions import SessionCompleted as SessionCompleted
from .sessions import SessionCreated as SessionCreated
from .sessions import SessionEvent as SessionEvent
from .sessions import SessionFailed as SessionFailed
from .sessions import SessionPaused as SessionPaused
from .sessions import SessionResumed as SessionResumed
from .sessions import SessionStarted as SessionStarted


class Unrecognized(Event, tag="unrecognized", frozen=True):
    """An event of a type this version does not know; `raw` is the whole record as it came."""

    raw: dict[str, Any] = {}

    @property
    def type(self) -> str:
        return str(self.raw.get("type", "unrecognized"))


TERMINAL = (RunCompleted, RunFailed, RunCancelled)
"""Exactly one of these ends a run."""


def _leaves(cls: type[Event]) -> list[type[Event]]:
    subclasses = cls.__subclasses__()
    return [leaf for sub in subclasses for leaf in _leaves(sub)] if subclasses else [cls]


EVENT_TYPES: dict[str, type[Event]] = {
    str(cls.__struct_config__.tag): cls for cls in _leaves(Event) if cls is not Unrecognized
}
"""Every known type by its tag."""


def at_ms(at: datetime) -> int:
    """A moment as milliseconds since the epoch; one without a zone is read as UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
