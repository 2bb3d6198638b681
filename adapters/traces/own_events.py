"""The product's own record: one event a line, the events of several sessions mixed as they were stored.

What `proctor export` writes is read too: its events, each within an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.stream.calls import RunContext
from proctor.policies.stream.codec import decode_event
from proctor.policies.stream.events import TERMINAL, Event, RunStarted, ToolCallDenied, ToolCallStarted, Unrecognized

from .lines import TraceLines
from .session import TraceSession

_EVENT = b'{"event":'


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one file, in the order of their first events. Raises TraceError.

    A session is held until the file ends: only then is it known that no event of it follows.
    """
    sessions: dict[str, list[Event]] = {}
    for line in lines:
        if (event := _decode(lines, line)) is None:
            continue
        events = sessions.setdefault(event.session_id or event.run_id or lines.name, [])
        events.append(event if event.seq else msgspec.structs.replace(event, seq=len(events) + 1))
    for session_id, events in sessions.items():
        yield TraceSession(
            id=session_id,
            source=lines.name,
            format="events",
            events=events,
            complete=_is_complete(events),
            never_ran=_denied(events),
            metadata=_metadata(events),
        )


def is_export(value: dict[str, Any]) -> bool:
    """Whether a line's object is the head of an export."""
    return str(value.get("format", "")).startswith("proctor record ")


def _decode(lines: TraceLines, line: bytes) -> Event | None:
    """The event of a line; None for the head of an export and for a run in it."""
    try:
        return decode_event(_exported(line))
    except EventError as error:
        if line.startswith((b'{"format":"proctor record ', b'{"run":')):
            return None
        raise lines.fail(str(error)) from None


def _exported(line: bytes) -> bytes:
    """An event out of the line of an export that holds it; any other line as it is."""
    stripped = line.rstrip()
    return stripped[len(_EVENT) : -1] if stripped.startswith(_EVENT) and stripped.endswith(b"}") else line


def _is_complete(events: list[Event]) -> bool:
    """Whether the last run has ended; bookkeeping of the session may still follow its end."""
    for event in reversed(events):
        if isinstance(event, TERMINAL):
            return True
        if event.run_id and not isinstance(event, Unrecognized):
            return False
    return False


def _denied(events: list[Event]) -> frozenset[str]:
    """The calls that were refused; one that is only asked for may still be held, and may run."""
    started = {event.tool_call_id for event in events if isinstance(event, ToolCallStarted)}
    denied = {event.tool_call_id for event in events if isinstance(event, ToolCallDenied)}
    return frozenset(denied - started)


def _metadata(events: list[Event]) -> dict[str, Any]:
    """The model, and the context that the first run of it was started with."""
    starts = [event for event in events if isinstance(event, RunStarted)]
    contexts = (_context(start.metadata.get("context")) for start in starts)
    fields = {
        "model": next((start.model for start in starts if start.model), None),
        "context": next((context for context in contexts if context is not None), None),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _context(written: Any) -> RunContext | None:
    """A context as a run's record has it; None where it is none."""
    try:
        return msgspec.convert(written, RunContext)
    except msgspec.ValidationError:
        return None
