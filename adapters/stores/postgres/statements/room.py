"""How much room the record takes."""

from __future__ import annotations

from proctor.supervisor.ports.facts import StoreSize

from ..connection.connecting import Connection

_TABLES = ("events", "runs", "sessions", "approvals", "instructions", "owners", "blocks", "notes")


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
