"""A session's record removed, and how much room the rest takes."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.policies.stream.events import RecordPruned
from proctor.supervisor.ports.facts import StoreSize

from ...sqlite.statements.rows import Batch
from ..connection.connecting import Connection
from .recording import Recorder

_COUNTED = """SELECT (SELECT count(*) FROM runs WHERE session_key = %(key)s),
    (SELECT count(*) FROM runs WHERE session_key = %(key)s AND status IN ('created', 'running')),
    (SELECT coalesce(sum(violations), 0)::bigint FROM runs WHERE session_key = %(key)s),
    (SELECT min(seq) FROM events WHERE session_key = %(key)s),
    (SELECT count(*) FROM events WHERE session_key = %(key)s)"""
_REMOVED = (
    "DELETE FROM events WHERE session_key = %(key)s AND seq <= %(last_seq)s",
    "DELETE FROM approvals WHERE session_key = %(key)s",
    "DELETE FROM runs WHERE session_key = %(key)s",
    "DELETE FROM notes WHERE session_id = %(session_id)s",
)
_TABLES = ("events", "runs", "sessions", "approvals", "instructions", "owners", "blocks", "notes")


def prune(recorder: Recorder, event: RecordPruned, up_to: int) -> RecordPruned | None:
    """See `Store.prune`."""
    recorder.begin([event.session_id], make=False)
    session = recorder.session(event.session_id)
    if session is None or session.last_seq != up_to:
        return None
    [row] = recorder.ask(_COUNTED, {"key": session.key}).fetchall()
    runs, going_on, violations, first_seq, events = row
    if going_on:
        return None
    removed = {"key": session.key, "last_seq": session.last_seq, "session_id": event.session_id}
    left = replace(
        event,
        first_seq=first_seq,
        last_seq=session.last_seq,
        events=events,
        runs=runs,
        violations=violations,
        head=session.head.hex(),
    )
    [stored] = recorder.append(Batch([left], {event.session_id: session.last_seq + 1}), look_up=False)
    for sql in _REMOVED:
        recorder.write(sql, removed, in_order=True)
    assert isinstance(stored, RecordPruned)
    return stored


def give_back(connection: Connection) -> None:
    """Let the room of removed rows be used again, and that at the end of a table be given back; nobody is held up."""
    connection.execute(f"VACUUM {', '.join(_TABLES)}")


def size(connection: Connection) -> StoreSize:
    """See `Store.size`."""
    room = " + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)
    [(sessions, events, taken)] = connection.execute(
        f"SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM events), {room}"
    ).fetchall()
    runs = dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall())
    return StoreSize(sessions=sessions, runs=runs, events=events, bytes=int(taken))
