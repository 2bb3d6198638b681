"""Approvals and instructions as rows: what events say of approvals, and what people answer and order.

An approval's row has where its request stands among the events, and what became of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies.stream.events import ApprovalEvent, Event, RunCancelled, ToolApprovalRequested
from proctor.supervisor.ports.facts import ApprovalAnswer, StoredApproval
from proctor.supervisor.ports.orders import AnswerGiven, Block, Instruction, Lift
from proctor.supervisor.store.approvals import asks, closed, shown
from proctor.supervisor.store.codec import from_record
from proctor.supervisor.store.refusals import check_answerable, no_approval

from ..schema.tables import WAITING

Execute: TypeAlias = Callable[[str, Sequence[Any]], sqlite3.Cursor]

_COLUMNS = "number, session_id, approvals.seq, data, state, answer, answered_at, recorded"
_FROM = """approvals JOIN sessions ON key = approvals.session_key
    JOIN events ON events.session_key = approvals.session_key AND events.seq = approvals.seq"""
_BLOCKS = "SELECT number, data FROM blocks JOIN instructions USING (number) ORDER BY number"
_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode
_instruction = msgspec.json.Decoder(Instruction).decode


def note(execute: Execute, event: ApprovalEvent, session_key: int) -> None:
    """Let an approval follow from an event that is being stored."""
    if asks(event):
        execute(
            "INSERT OR IGNORE INTO approvals (approval_id, session_key, seq, run_id, state, held, ran)"
            " VALUES (?, ?, ?, ?, 'requested', ?, ?)",
            (event.approval_id, session_key, event.seq, event.run_id, event.held, event.ran),
        )
    elif not isinstance(event, ToolApprovalRequested):
        _close(execute, event)


def _close(execute: Execute, event: ApprovalEvent) -> None:
    row = execute("SELECT state, answer FROM approvals WHERE approval_id = ?", (event.approval_id,)).fetchone()
    if row is None:
        return
    known = StoredApproval(request=shown(ToolApprovalRequested(approval_id=event.approval_id)), state=row[0])
    now = closed(replace(known, answer=row[1] and _answer(row[1])), event)
    _put(execute, now)


def withdraw(execute: Execute, end: Event) -> None:
    """The run is over: nobody needs to answer what it asked, unless it was ended to ask (see `outlives`)."""
    unless = " AND held" if isinstance(end, RunCancelled) else ""
    execute(
        "UPDATE approvals SET state = 'withdrawn', answered_at = ?, recorded = 1"
        f" WHERE run_id = ? AND {WAITING}{unless}",
        (end.at and end.at.isoformat(), end.run_id),
    )


def answer(
    execute: Execute, approval_id: str, given: ApprovalAnswer, at: datetime, *, instruct: bool
) -> StoredApproval:
    """Take an answer, if it is the first; see `Store.answer`."""
    row = execute(f"SELECT {_COLUMNS} FROM {_FROM} WHERE approval_id = ?", (approval_id,)).fetchone()
    if row is None:
        raise no_approval(approval_id)
    known = to_approval(row)
    check_answerable(known, given)
    answered = replace(known, state="granted" if given.granted else "denied", answer=given, answered_at=at)
    if instruct:
        _put(execute, answered)
        told = AnswerGiven(run_id=known.request.run_id, approval_id=approval_id, answer=given, at=at)
        keep(execute, told)
    return answered


def keep(execute: Execute, instruction: Instruction) -> int:
    """Store an instruction; returns its number."""
    number = int(execute("INSERT INTO instructions (data) VALUES (?)", (_encode(instruction),)).lastrowid or 0)
    if isinstance(instruction, Block):
        execute("INSERT INTO blocks (number) VALUES (?)", (number,))
    elif isinstance(instruction, Lift):
        for block in _blocks(execute(_BLOCKS, ())):
            if instruction.lifts(block):
                execute("DELETE FROM blocks WHERE number = ?", (block.number,))
    return number


def blocks(connection: sqlite3.Connection) -> list[Block]:
    """What blocks starts and was not lifted, oldest first."""
    return _blocks(connection.execute(_BLOCKS))


def to_approval(row: tuple[Any, ...]) -> StoredApproval:
    """What `_COLUMNS` hold."""
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


def find_approval(connection: sqlite3.Connection, approval_id: str) -> StoredApproval | None:
    """An approval, or None."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM {_FROM} WHERE approval_id = ?", (approval_id,)).fetchone()
    return row and to_approval(row)


def approvals_after(
    connection: sqlite3.Connection,
    *,
    waiting: bool,
    run_id: str | None,
    session_id: str | None,
    after: int,
    limit: int,
) -> list[StoredApproval]:
    """See `Store.approvals`."""
    wanted = ["number > :after"]
    wanted += [WAITING] if waiting else []
    wanted += ["approvals.run_id = :run_id"] if run_id is not None else []
    wanted += ["session_id = :session_id"] if session_id is not None else []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM {_FROM} WHERE {' AND '.join(wanted)} ORDER BY number LIMIT :limit",
        {"after": after, "run_id": run_id, "session_id": session_id, "limit": max(limit, 0)},
    )
    return [to_approval(row) for row in rows]


def instructions_after(connection: sqlite3.Connection, after: int) -> list[Instruction]:
    """Instructions in order."""
    rows = connection.execute("SELECT number, data FROM instructions WHERE number > ? ORDER BY number", (after,))
    return [replace(_instruction(data), number=number) for number, data in rows]


def last_instruction(connection: sqlite3.Connection) -> int:
    """The number of the latest."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'instructions'").fetchone()
    return int(row[0]) if row else 0


def _blocks(rows: sqlite3.Cursor) -> list[Block]:
    found = [replace(_instruction(data), number=number) for number, data in rows]
    return [block for block in found if isinstance(block, Block)]


def _put(execute: Execute, approval: StoredApproval) -> None:
    execute(
        "UPDATE approvals SET state = ?, answer = ?, answered_at = ?, recorded = ? WHERE approval_id = ?",
        (
            approval.state,
            approval.answer and _encode(approval.answer),
            approval.answered_at and approval.answered_at.isoformat(),
            approval.recorded,
            approval.request.approval_id,
        ),
    )
