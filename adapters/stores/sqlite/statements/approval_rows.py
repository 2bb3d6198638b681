"""Approvals and instructions as rows: what events say of approvals, and what people order.

An approval's row has where its request stands among the events, and what became of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies.stream.events import ApprovalEvent, Event, RunCancelled, ToolApprovalRequested
from proctor.supervisor.ports.facts import ApprovalAnswer, StoredApproval
from proctor.supervisor.ports.orders import Block, Instruction, Lift
from proctor.supervisor.store.approvals import asks, closed, shown

from ...tables.asking import WAITING

Execute: TypeAlias = Callable[[str, Sequence[Any]], sqlite3.Cursor]

_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode


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
    stored = StoredApproval(request=shown(ToolApprovalRequested(approval_id=event.approval_id)), state=row[0])
    now = closed(replace(stored, answer=row[1] and _answer(row[1])), event)
    execute(
        "UPDATE approvals SET state = ?, answer = ?, answered_at = ?, recorded = ? WHERE approval_id = ?",
        (
            now.state,
            now.answer and _encode(now.answer),
            now.answered_at and now.answered_at.isoformat(),
            now.recorded,
            event.approval_id,
        ),
    )


def withdraw(execute: Execute, end: Event) -> None:
    """The run is over: nobody needs to answer what it asked, unless it was ended to ask (see `outlives`)."""
    unless = " AND held" if isinstance(end, RunCancelled) else ""
    execute(
        "UPDATE approvals SET state = 'withdrawn', answered_at = ?, recorded = 1"
        f" WHERE run_id = ? AND {WAITING}{unless}",
        (end.at and end.at.isoformat(), end.run_id),
    )


def keep(execute: Execute, instruction: Instruction, blocks: Callable[[], list[Block]]) -> None:
    """Store an instruction. `blocks` are those that a lift may end."""
    number = execute("INSERT INTO instructions (data) VALUES (?)", (_encode(instruction),)).lastrowid
    if isinstance(instruction, Block):
        execute("INSERT INTO blocks (number) VALUES (?)", (number,))
    elif isinstance(instruction, Lift):
        for block in blocks():
            if instruction.lifts(block):
                execute("DELETE FROM blocks WHERE number = ?", (block.number,))
