"""What is asked of a store's file, on a connection that the caller has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies.stream.calls import Usage
from proctor.policies.stream.events import Event, at_ms
from proctor.supervisor.ports.facts import RunFilter, RunInfo, SessionInfo
from proctor.supervisor.store.codec import from_record
from proctor.supervisor.store.tally import FIGURES, moment

from ..schema.tables import CLAIMED
from .owners import OWNER_COLUMNS, gone_owners, owner_of

_PAGE_BYTES = 1024 * 1024
PAGE_ROWS = 512
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def events_page(
    session_id: str,
    after: int,
    *,
    before: int | None = None,
    run_id: str | None = None,
    newest_first: bool = False,
) -> Callable[[sqlite3.Connection], list[Event]]:
    """A query for the next events of a session, as many as make a page; none at the end."""
    conditions = "seq > :after" + (" AND seq < :before" if before is not None else "")
    of_run = "" if run_id is None else " AND run_id = :run_id"
    order = "DESC" if newest_first else "ASC"
    sql = (
        "SELECT seq, data FROM events WHERE session_key = (SELECT key FROM sessions WHERE session_id = :id)"
        f" AND {conditions}{of_run} ORDER BY seq {order} LIMIT {PAGE_ROWS}"
    )
    values = {"id": session_id, "after": after, "before": before, "run_id": run_id}

    def page(connection: sqlite3.Connection) -> list[Event]:
        rows = page_of(connection.execute(sql, values), 1)
        return [from_record(data, session_id=session_id, seq=seq) for seq, data in rows]

    return page


def page_of(rows: sqlite3.Cursor, data: int) -> list[tuple[Any, ...]]:
    """Rows until they make a page by the bytes in column `data`."""
    page: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        page.append(row)
        size += len(row[data])
        if size >= _PAGE_BYTES:
            rows.close()
            break
    return page


def session_info(connection: sqlite3.Connection, session_id: str) -> SessionInfo | None:
    """A session with its last seq."""
    row = connection.execute(
        "SELECT provider, provider_session_id,"
        " (SELECT coalesce(max(seq), 0) FROM events WHERE session_key = key)"
        " FROM sessions WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        return None
    return SessionInfo(session_id=session_id, provider=row[0], provider_session_id=row[1], last_seq=row[2])


_PLAIN_COLUMNS = ("run_id", "session_id", "runs.provider", "status", "created_at", "spec")
_LINE_COLUMNS = ("tenant", "labels", "started_ms", "ended_ms", "started_seq", "ended_seq", "calls", "violations")
_RUN_COLUMNS = ", ".join((*_PLAIN_COLUMNS, "after", OWNER_COLUMNS, *_LINE_COLUMNS, *FIGURES))
_RUNS = "runs JOIN sessions ON key = session_key LEFT JOIN owners ON owners.epoch = runs.epoch"


EVERY_RUN = f"SELECT {_RUN_COLUMNS} FROM {_RUNS} ORDER BY number"
"""Each row is for `to_run`."""


def run_info(connection: sqlite3.Connection, run_id: str) -> RunInfo | None:
    """A run, or None."""
    row = connection.execute(f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE run_id = ?", (run_id,)).fetchone()
    return row and to_run(row)


def newest_runs(
    connection: sqlite3.Connection, limit: int, session_id: str | None, before: str | None, where: RunFilter
) -> list[RunInfo]:
    """Runs, newest first; `before` a run: the older ones."""
    found = list(_conditions(connection, session_id, before, where))
    wanted = " AND ".join(text for text, *_ in found) or "TRUE"
    rows = connection.execute(
        f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE {wanted} ORDER BY number DESC LIMIT ?",
        (*(value for _, *values in found for value in values), max(limit, 0)),
    )
    return [to_run(row) for row in rows]


_LABEL = """(SELECT iif(type IN ('true', 'false', 'null'), type, CAST(atom AS TEXT))
    FROM json_each(labels) WHERE json_each.key = ?) = ?"""


def _conditions(
    connection: sqlite3.Connection, session_id: str | None, before: str | None, where: RunFilter
) -> Iterator[tuple[Any, ...]]:
    """What is asked: each a condition and the values of its places."""
    if session_id is not None:
        yield "session_key = (SELECT key FROM sessions WHERE session_id = ?)", session_id
    if before is not None:
        yield "number < (SELECT number FROM runs WHERE run_id = ?)", before
    if where.status:
        status = "iif(status = 'running' AND runs.epoch IN (SELECT value FROM json_each(?)), 'lost', status)"
        gone, wanted = (_encode(values).decode() for values in (gone_owners(connection), sorted(where.status)))
        yield f"{status} IN (SELECT value FROM json_each(?))", gone, wanted
    if where.tenant is not None:
        yield "tenant = ?", where.tenant
    if where.provider is not None:
        yield "runs.provider = ?", where.provider
    if where.since is not None:
        yield "coalesce(started_ms, created_ms) >= ?", at_ms(where.since)
    if where.until is not None:
        yield "coalesce(started_ms, created_ms) < ?", at_ms(where.until)
    if where.begins:
        yield "substr(run_id, 1, ?) = ?", len(where.begins), where.begins
    yield from ((_LABEL, name, text) for name, text in where.labels.items())


def lost_runs(connection: sqlite3.Connection) -> list[RunInfo]:
    """The claimed runs that are not over and whose owner is gone, oldest first."""
    rows = connection.execute(f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE runs.{CLAIMED} ORDER BY number")
    return [run for run in map(to_run, rows) if run.owner is not None and run.owner.gone]


def to_run(row: tuple[Any, ...]) -> RunInfo:
    """The run of a row."""
    run_id, session_id, provider, status, created_at, spec, after = row[:7]
    owner = owner_of(row[7:14])
    tenant, labels, started, ended, started_seq, ended_seq, calls, violations, *figures = row[14:]
    if status == "running" and owner is not None and owner.gone:
        status = "lost"
    return RunInfo(
        run_id=run_id,
        session_id=session_id,
        provider=provider,
        status=status,
        created_at=_moment(created_at),
        spec=_decode(spec),
        owner=owner,
        after=after,
        tenant=tenant,
        labels=_decode(labels) if labels else {},
        started_at=moment(started),
        ended_at=moment(ended),
        started_seq=started_seq or 0,
        ended_seq=ended_seq or 0,
        calls=calls,
        violations=violations,
        usage=Usage(**dict(zip(FIGURES, figures, strict=True))),
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
