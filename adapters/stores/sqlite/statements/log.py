"""The events of all sessions in the order in which they were stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from proctor.supervisor.ports.adapters import LogEntry, Place

from .queries import PAGE_ROWS, page_of


def log_page(
    after: int, before: int | None, tenant: str | None, newest_first: bool
) -> Callable[[sqlite3.Connection], list[LogEntry]]:
    """A query for the next entries, as many as make a page; none at the end."""
    conditions = "position > :after" + (" AND position < :before" if before is not None else "")
    of_tenant = "" if tenant is None else " AND tenant = :tenant"
    order = "DESC" if newest_first else "ASC"
    # CROSS: the log is what is walked through, whatever else there is an index for.
    sql = (
        "SELECT position, session_id, events.run_id, seq, tenant, data, digest FROM events"
        " CROSS JOIN sessions ON key = events.session_key LEFT JOIN runs ON runs.run_id = events.run_id"
        f" WHERE {conditions}{of_tenant} ORDER BY position {order} LIMIT {PAGE_ROWS}"
    )
    values = {"after": after, "before": before, "tenant": tenant}

    def page(connection: sqlite3.Connection) -> list[LogEntry]:
        return [
            LogEntry(
                position=position,
                session_id=session_id,
                run_id=run_id,
                seq=seq,
                tenant=tenant,
                data=data,
                digest=digest or b"",
            )
            for position, session_id, run_id, seq, tenant, data, digest in page_of(connection.execute(sql, values), 5)
        ]

    return page


def latest_place(connection: sqlite3.Connection) -> Place:
    """After the latest stored event."""
    store_id, position = connection.execute(
        "SELECT store_id, (SELECT coalesce(max(position), 0) FROM events) FROM store"
    ).fetchone()
    return Place(store_id=store_id, position=position)
