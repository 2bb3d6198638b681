"""What of a provider's stream is believed.

A provider reports what it did; it cannot speak for the supervisor. Approvals, violations, budget warnings and
changes of nets in its stream are recorded as errors (`not_believed`) with what was claimed. The start and the end of
a run are the supervisor's to record: the provider's become `session_started` and the provider's end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.policies.stream.events import (
    EVENT_TYPES,
    ApprovalEvent,
    BudgetReserved,
    BudgetWarned,
    ErrorOccurred,
    Event,
    NetJoined,
    NetLeft,
    PolicyViolated,
    RunStarted,
    SessionStarted,
    Unrecognized,
)

_OURS = (ApprovalEvent, PolicyViolated, BudgetReserved, BudgetWarned, NetJoined, NetLeft)


def believed(event: Event) -> Event:
    """The event as it may be recorded."""
    if isinstance(event, _OURS):
        return _not_believed(event.type, event)
    if isinstance(event, RunStarted):
        return _session_started(event)
    if isinstance(event, Unrecognized):
        return _unrecognized(event)
    return event


def _not_believed(claimed: str, event: Event) -> ErrorOccurred:
    return ErrorOccurred(
        code="not_believed",
        message=f"the provider reported a `{claimed}` event, which only the supervisor records",
        provider_error=msgspec.to_builtins(event),
        event_id=event.event_id,
    )


def _session_started(event: RunStarted) -> SessionStarted:
    metadata: dict[str, Any] = {**event.metadata}
    if event.model is not None:
        metadata["model"] = event.model
    if event.tools is not None:
        metadata["tools"] = list(event.tools)
    return SessionStarted(metadata=metadata, event_id=event.event_id)


def _unrecognized(event: Unrecognized) -> Event:
    """Keep an unknown record as it came, unless reading it back would make it a known one."""
    claimed = event.raw.get("type")
    if claimed in EVENT_TYPES:
        return _not_believed(str(claimed), Unrecognized(raw={"claimed": event.raw}))
    if not isinstance(claimed, str):
        return msgspec.structs.replace(event, raw={**event.raw, "type": "unrecognized"})
    return event
