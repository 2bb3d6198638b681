"""One recorded session, normalised to the events of the policy language."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies.stream.events import (
    Event,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnStarted,
)


class TraceSession(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded session.

    `events` are in the order they happened, each with its `seq`; `complete` says that nothing more will
    come, so that what a policy still waits for can be settled. `never_ran` are the ids of calls that were
    asked for and are known not to have run. `metadata` holds what the record says of the session beside its
    events: model, task, outcome.
    """

    id: str
    source: str
    format: str
    events: list[Event]
    complete: bool = True
    never_ran: frozenset[str] = frozenset()
    metadata: dict[str, Any] = {}


class EventLog:
    """Collects the events of one session and numbers them from 1."""

    def __init__(self, session_id: str, provider: str = "") -> None:
        self.session_id = session_id
        self.provider = provider
        self.events: list[Event] = []
        self.turn = 0

    def add(self, kind: Callable[..., Event], *, at: datetime | None = None, **fields: Any) -> None:
        """Append one event of this kind, stamped with the session's id and the next `seq`."""
        stamps = {"session_id": self.session_id, "provider": self.provider, "at": at}
        self.events.append(kind(seq=len(self.events) + 1, **stamps, **fields))

    def enter_turn(self, turn: int, at: datetime | None = None) -> None:
        """Note the model response things belong to; a response seen first is said to have started."""
        if turn > self.turn:
            self.turn = turn
            self.add(TurnStarted, at=at, turn=turn)

    def end_call(
        self, call_id: str, name: str, output: Any, *, at: datetime | None = None, failed: Any, refused: bool = False
    ) -> None:
        """Add how a call ended: `output` is what it gave, or its error where it failed."""
        named: dict[str, Any] = {"at": at, "tool_call_id": call_id, "tool_name": name}
        if refused:
            self.add(ToolCallDenied, **named)
        elif failed:
            self.add(ToolCallFailed, **named, error=output)
        else:
            self.add(ToolCallCompleted, **named, tool_output=output)

    def session(self, source: str, format: str, metadata: dict[str, Any], *, complete: bool = True) -> TraceSession:
        """The session of these events, with what is known of `metadata`."""
        return TraceSession(
            id=self.session_id,
            source=source,
            format=format,
            events=self.events,
            complete=complete,
            never_ran=self._never_ran(),
            metadata={name: value for name, value in metadata.items() if value is not None},
        )

    def _never_ran(self) -> frozenset[str]:
        """The calls that were asked for and did not start, in a record that is known to have every start."""
        started = {event.tool_call_id for event in self.events if isinstance(event, ToolCallStarted)}
        requested = {event.tool_call_id for event in self.events if isinstance(event, ToolCallRequested)}
        return frozenset(requested - started)
