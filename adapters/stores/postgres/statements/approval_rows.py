"""Approvals as rows that follow from events.

A row has where its request stands among the events, and what became of it. Its number is the place of the request in
the log, so it is written after the events.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from proctor.policies.stream.events import ApprovalEvent, Event, RunCancelled, ToolApprovalRequested
from proctor.supervisor.ports.facts import ApprovalAnswer
from proctor.supervisor.store.approvals import asks, state_after

from ...tables.asking import WAITING

Statement: TypeAlias = tuple[str, dict[str, Any]]

_ASKED = """INSERT INTO approvals (number, approval_id, session_key, seq, run_id, state, held, ran)
    SELECT position, %(id)s, session_key, seq, %(run_id)s, 'requested', %(held)s, %(ran)s FROM events
    WHERE session_key = %(key)s AND seq = %(seq)s ON CONFLICT (approval_id) DO NOTHING"""
_CLOSED = """UPDATE approvals SET state = %(state)s, answered_at = %(at)s, recorded = true,
    answer = CASE WHEN %(answer)s::bytea IS NULL THEN NULL
        WHEN answer IS NULL OR state != %(state)s THEN %(answer)s ELSE answer END
    WHERE approval_id = %(id)s"""
_WITHDRAWN = f"""UPDATE approvals SET state = 'withdrawn', answered_at = %(at)s, recorded = true
    WHERE run_id = %(run_id)s AND {WAITING}"""
_encode = msgspec.json.Encoder().encode


def noted(event: ApprovalEvent, session_key: int) -> Statement | None:
    """What an event of an approval, stored, makes of its row."""
    if asks(event):
        row = {"id": event.approval_id, "run_id": event.run_id, "held": event.held, "ran": event.ran}
        return _ASKED, row | {"key": session_key, "seq": event.seq}
    if isinstance(event, ToolApprovalRequested):
        return None
    state, by = state_after(event), event.by
    answer = None if by is None else _encode(ApprovalAnswer(granted=state == "granted", by=by, reason=event.reason))
    return _CLOSED, {"id": event.approval_id, "state": state, "at": _text(event), "answer": answer}


def withdrawn(end: Event) -> Statement:
    """The run is over: nobody needs to answer what it asked, unless it was ended to ask (see `outlives`)."""
    unless = " AND held" if isinstance(end, RunCancelled) else ""
    return _WITHDRAWN + unless, {"run_id": end.run_id, "at": _text(end)}


def _text(event: Event) -> str | None:
    return None if event.at is None else event.at.isoformat()
