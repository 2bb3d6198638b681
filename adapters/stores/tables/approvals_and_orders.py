"""Approvals and instructions: what people answer and order, and what is asked of both."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from proctor.policies.stream.events import ToolApprovalRequested
from proctor.supervisor.ports.facts import ApprovalAnswer, StoredApproval
from proctor.supervisor.ports.orders import AnswerGiven, Block, Instruction
from proctor.supervisor.store.approvals import shown
from proctor.supervisor.store.codec import from_record
from proctor.supervisor.store.refusals import check_answerable, no_approval

from .asking import WAITING, Condition, Tables
from .batch import Batch
from .recording import Transaction

_SELECT = """SELECT number, session_id, approvals.seq, data, state, answer, answered_at, recorded
    FROM approvals JOIN sessions ON key = approvals.session_key
    JOIN events ON events.session_key = approvals.session_key AND events.seq = approvals.seq"""
_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode
_instruction = msgspec.json.Decoder(Instruction).decode


def answer(
    recorder: Transaction, approval_id: str, given: ApprovalAnswer, at: datetime, batch: Batch | None
) -> StoredApproval:
    """Take an answer, if it is the first, as an instruction or as the event in a batch; see `Store.answer`."""
    session_id = _found(recorder, approval_id).request.session_id
    events = [] if batch is None else batch.events
    recorder.hold([session_id, *(event.session_id for event in events)], [event.run_id for event in events])
    stored = _found(recorder, approval_id)
    check_answerable(stored, given)
    answered = replace(stored, state="granted" if given.granted else "denied", answer=given, answered_at=at)
    if batch is not None:
        recorder.append(batch, look_up=False)
        return answered
    recorder.write(
        "UPDATE approvals SET state = ?, answer = ?, answered_at = ? WHERE approval_id = ?",
        (answered.state, _encode(given), at.isoformat(), approval_id),
    )
    recorder.instruct(AnswerGiven(run_id=stored.request.run_id, approval_id=approval_id, answer=given, at=at))
    return answered


def keep(recorder: Transaction, instruction: Instruction) -> int:
    """Store an instruction; returns its number."""
    recorder.hold()
    recorder.instruct(instruction)
    return recorder.instructed()


def _found(recorder: Transaction, approval_id: str) -> StoredApproval:
    stored = find_approval(recorder, approval_id)
    if stored is None:
        raise no_approval(approval_id)
    return stored


def blocks(tables: Tables) -> list[Block]:
    """What blocks starts and was not lifted, oldest first."""
    rows = tables.rows("SELECT number, data FROM blocks JOIN instructions USING (number) ORDER BY number")
    return [block for block in map(_read, rows) if isinstance(block, Block)]


def find_approval(tables: Tables, approval_id: str) -> StoredApproval | None:
    """An approval, or None."""
    rows = tables.rows(f"{_SELECT} WHERE approval_id = ?", (approval_id,))
    return _approval(rows[0]) if rows else None


def approvals_after(
    tables: Tables, *, waiting: bool, run_id: str | None, session_id: str | None, after: int, limit: int
) -> list[StoredApproval]:
    """See `Store.approvals`."""
    found: list[Condition] = [("number > ?", after)]
    found += [(WAITING,)] if waiting else []
    found += [("approvals.run_id = ?", run_id)] if run_id is not None else []
    found += [("session_id = ?", session_id)] if session_id is not None else []
    wanted = " AND ".join(text for text, *_ in found)
    values = [value for _, *values in found for value in values]
    rows = tables.rows(f"{_SELECT} WHERE {wanted} ORDER BY number LIMIT ?", (*values, max(limit, 0)))
    return [_approval(row) for row in rows]


def _approval(row: tuple[Any, ...]) -> StoredApproval:
    number, session_id, seq, data, state, given, answered_at, recorded = row
    event = from_record(data, session_id=session_id, seq=seq)
    assert isinstance(event, ToolApprovalRequested)
    return StoredApproval(
        request=shown(event),
        state=state,
        answer=given and _answer(given),
        answered_at=datetime.fromisoformat(answered_at) if answered_at else None,
        recorded=bool(recorded),
        number=number,
    )


def instructions_after(tables: Tables, after: int) -> list[Instruction]:
    """Instructions in order."""
    return [
        _read(row)
        for row in tables.rows("SELECT number, data FROM instructions WHERE number > ? ORDER BY number", (after,))
    ]


def last_instruction(tables: Tables) -> int:
    """The number of the latest, 0 where there is none."""
    rows = tables.rows(tables.dialect.last_instruction)
    return int(rows[0][0]) if rows else 0


def _read(row: tuple[int, bytes]) -> Instruction:
    number, data = row
    found: Instruction = replace(_instruction(data), number=number)
    return found
