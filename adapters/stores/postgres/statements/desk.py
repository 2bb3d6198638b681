"""Approvals and instructions: what people answer and order, and what is asked of both."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from proctor.policies.stream.events import ToolApprovalRequested
from proctor.supervisor.ports.facts import ApprovalAnswer, StoredApproval
from proctor.supervisor.ports.orders import AnswerGiven, Block, Instruction, Lift
from proctor.supervisor.store.approvals import shown
from proctor.supervisor.store.codec import from_record
from proctor.supervisor.store.refusals import check_answerable, no_approval

from ...sqlite.statements.rows import Batch
from ..connection.connecting import Connection
from ..schema import WAITING
from .recording import Recorder

_COLUMNS = "number, session_id, approvals.seq, data, state, answer, answered_at, recorded"
_FROM = """approvals JOIN sessions ON key = approvals.session_key
    JOIN events ON events.session_key = approvals.session_key AND events.seq = approvals.seq"""
_KEPT = "INSERT INTO instructions SELECT coalesce(max(number), 0) + 1, %s FROM instructions"
_OF_THIS_TRANSACTION = "SELECT max(number) FROM instructions WHERE number > %s AND xmin = %s::text::xid"
_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode
_instruction = msgspec.json.Decoder(Instruction).decode


def answer(
    recorder: Recorder, approval_id: str, given: ApprovalAnswer, at: datetime, batch: Batch | None
) -> StoredApproval:
    """Take an answer, if it is the first, as an instruction or as the event in a batch; see `Store.answer`."""
    known = find_approval(recorder.connection, approval_id)
    if known is None:
        raise no_approval(approval_id)
    events = [] if batch is None else batch.events
    recorder.begin(
        [known.request.session_id, *(event.session_id for event in events)], [event.run_id for event in events]
    )
    known = find_approval(recorder.connection, approval_id)
    if known is None:
        raise no_approval(approval_id)
    check_answerable(known, given)
    answered = replace(known, state="granted" if given.granted else "denied", answer=given, answered_at=at)
    if batch is not None:
        recorder.append(batch, look_up=False)
        return answered
    recorder.write(
        "UPDATE approvals SET state = %s, answer = %s, answered_at = %s WHERE approval_id = %s",
        (answered.state, _encode(given), at.isoformat(), approval_id),
    )
    told = AnswerGiven(run_id=known.request.run_id, approval_id=approval_id, answer=given, at=at)
    recorder.write(_KEPT, (_encode(told),), in_order=True)
    return answered


def keep(recorder: Recorder, instruction: Instruction) -> int:
    """Store an instruction; returns its number."""
    recorder.begin()
    recorder.write(_KEPT, (_encode(instruction),), in_order=True)
    if isinstance(instruction, Block):
        row = (instruction.scope, instruction.value)
        sql = "INSERT INTO blocks SELECT max(number), %s::text, %s::text FROM instructions"
        recorder.write(sql, row, in_order=True)
    elif isinstance(instruction, Lift):
        sql = "DELETE FROM blocks WHERE %s = 'all' OR (scope, value) = (%s, %s)"
        recorder.write(sql, (instruction.scope, instruction.scope, instruction.value), in_order=True)
    xid, before = recorder.xid, recorder.last_instruction
    recorder.commit()
    return int(recorder.ask_stored(_OF_THIS_TRANSACTION, (before, str(xid % 2**32))))


def blocks(connection: Connection) -> list[Block]:
    """What blocks starts and was not lifted, oldest first."""
    sql = "SELECT number, data FROM blocks JOIN instructions USING (number) ORDER BY number"
    found = [replace(_instruction(data), number=number) for number, data in connection.execute(sql, binary=True)]
    return [block for block in found if isinstance(block, Block)]


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
        recorded=recorded,
        number=number,
    )


def find_approval(connection: Connection, approval_id: str) -> StoredApproval | None:
    """An approval, or None."""
    sql = f"SELECT {_COLUMNS} FROM {_FROM} WHERE approval_id = %s"
    row = connection.execute(sql, (approval_id,), binary=True).fetchone()
    return row and to_approval(row)


def approvals_after(
    connection: Connection, *, waiting: bool, run_id: str | None, session_id: str | None, after: int, limit: int
) -> list[StoredApproval]:
    """See `Store.approvals`."""
    wanted = ["number > %(after)s"]
    wanted += [WAITING] if waiting else []
    wanted += ["approvals.run_id = %(run_id)s"] if run_id is not None else []
    wanted += ["session_id = %(session_id)s"] if session_id is not None else []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM {_FROM} WHERE {' AND '.join(wanted)} ORDER BY number LIMIT %(limit)s",
        {"after": after, "run_id": run_id, "session_id": session_id, "limit": max(limit, 0)},
        binary=True,
    )
    return [to_approval(row) for row in rows]


def instructions_after(connection: Connection, after: int) -> list[Instruction]:
    """Instructions in order."""
    sql = "SELECT number, data FROM instructions WHERE number > %s ORDER BY number"
    return [
        replace(_instruction(data), number=number) for number, data in connection.execute(sql, (after,), binary=True)
    ]


def last_instruction(connection: Connection) -> int:
    """The number of the latest."""
    row = connection.execute("SELECT coalesce(max(number), 0) FROM instructions").fetchone()
    return int(row[0]) if row else 0
