"""Events of a session as a whole, not of one run of it."""

from __future__ import annotations

from typing import Any

from .event import Event


class SessionEvent(Event, frozen=True):
    """About the session, not one run of it.

    Attributes:
        provider_session_id: The provider's own id of it, by which it is resumed.
        metadata: What else the provider says of it.
    """

    provider_session_id: str | None = None
    metadata: dict[str, Any] = {}


class SessionCreated(SessionEvent, tag="session_created", frozen=True):
    """The session began in this store: its first event."""


class SessionStarted(SessionEvent, tag="session_started", frozen=True):
    """The provider opened the session, and says its own id of it."""


class SessionPaused(SessionEvent, tag="session_paused", frozen=True):
    """The session stands still until somebody goes on with it."""


class SessionResumed(SessionEvent, tag="session_resumed", frozen=True):
    """The session was taken up again."""


class SessionCompleted(SessionEvent, tag="session_completed", frozen=True):
    """The session is over."""


class SessionFailed(SessionEvent, tag="session_failed", frozen=True):
    """The session cannot go on."""


class SessionCancelled(SessionEvent, tag="session_cancelled", frozen=True):
    """The session was ended."""


class RecordPruned(Event, tag="record_pruned", frozen=True):
    """The record of the session before this event was removed for its age; nothing can be resumed from it.

    Attributes:
        first_seq: The first event that was removed.
        last_seq: The last one: this event comes right after it, so no number is given twice.
        events: How many events were removed.
        runs: How many runs.
        violations: How many violations were recorded in them.
        head: The digest of the last record that was removed, in hex: whoever kept it knows that it ended so.
        by: Who removed it.
        reason: Why.
    """

    first_seq: int = 0
    last_seq: int = 0
    events: int = 0
    runs: int = 0
    violations: int = 0
    head: str = ""
    by: str = ""
    reason: str = ""
