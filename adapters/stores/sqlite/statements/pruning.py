"""A session's record removed, and the room it took given back."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import msgspec

from proctor.policies.stream.events import RecordPruned
from proctor.supervisor.ports.facts import StoreSize

from ..schema.tables import pragma
from .recording import Recorder
from .rows import Batch

STEP_PAGES = 1000
"""Pages given back at a time: others write in between."""
_INCREMENTAL = 2
_GOING_ON = "status IN ('created', 'running')"


def prune(recorder: Recorder, event: RecordPruned, up_to: int) -> RecordPruned | None:
    """See `Store.prune`."""
    key, last_seq, head = recorder.state_of(event.session_id)
    count, going_on, violations = recorder.execute(
        f"SELECT count(*), coalesce(sum({_GOING_ON}), 0), coalesce(sum(violations), 0) FROM runs"
        " WHERE session_key = ?",
        (key,),
    ).fetchone()
    if not key or last_seq != up_to or going_on:
        return None
    first_seq, events = recorder.execute(
        "SELECT min(seq), count(*) FROM events WHERE session_key = ?", (key,)
    ).fetchone()
    left = msgspec.structs.replace(
        event,
        first_seq=first_seq,
        last_seq=last_seq,
        events=events,
        runs=count,
        violations=violations,
        head=head.hex(),
    )
    [stored] = recorder.append(Batch([left], {event.session_id: last_seq + 1}), look_up=False)
    recorder.write_out()
    for (run_id,) in recorder.execute("SELECT run_id FROM runs WHERE session_key = ?", (key,)).fetchall():
        recorder.forget_run(run_id)
    recorder.execute("DELETE FROM events WHERE session_key = ? AND seq <= ?", (key, last_seq))
    recorder.execute("DELETE FROM approvals WHERE session_key = ?", (key,))
    recorder.execute("DELETE FROM runs WHERE session_key = ?", (key,))
    recorder.execute("DELETE FROM notes WHERE session_id = ?", (event.session_id,))
    assert isinstance(stored, RecordPruned)
    return stored


def give_back(connection: sqlite3.Connection) -> bool:
    """Give back some of the room that nothing takes; whether there is more. Outside of a transaction."""
    if pragma(connection, "auto_vacuum") == _INCREMENTAL:
        # `execute` would leave it after the first page: it yields rows of no columns, one a page.
        connection.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
        if pragma(connection, "freelist_count"):
            return True
    elif not connection.execute(f"SELECT EXISTS (SELECT 1 FROM runs WHERE {_GOING_ON})").fetchone()[0]:
        # A file of before: it is written anew, once, while nobody waits for it.
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")
    with suppress(sqlite3.OperationalError):  # somebody reads: whoever writes next does it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return False


def size(connection: sqlite3.Connection) -> StoreSize:
    """See `Store.size`."""
    page_size = pragma(connection, "page_size")
    (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return StoreSize(
        sessions=sessions,
        runs=dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall()),
        events=events,
        bytes=pragma(connection, "page_count") * page_size,
        free_bytes=pragma(connection, "freelist_count") * page_size,
    )
