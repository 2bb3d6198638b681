"""The step to records that are tied together: a digest in each row."""

from __future__ import annotations

import sqlite3

from proctor.supervisor.store import chain

_PAGE = 1000


def chain_records(connection: sqlite3.Connection) -> None:
    """Give every row the digest it would have had. Says nothing of what became of a record before."""
    connection.execute("ALTER TABLE events ADD COLUMN digest BLOB")
    for key, session_id in connection.execute("SELECT key, session_id FROM sessions").fetchall():
        head, seq = chain.root(session_id), 0
        while page := _page(connection, key, seq):
            made = chain.links(head, [data for _, _, data in page])
            rows = zip(made, (position for position, _, _ in page), strict=True)
            connection.executemany("UPDATE events SET digest = ? WHERE position = ?", rows)
            head, seq = made[-1], page[-1][1]


def _page(connection: sqlite3.Connection, key: int, after: int) -> list[tuple[int, int, bytes]]:
    sql = "SELECT position, seq, data FROM events WHERE session_key = ? AND seq > ? ORDER BY seq LIMIT ?"
    return connection.execute(sql, (key, after, _PAGE)).fetchall()
