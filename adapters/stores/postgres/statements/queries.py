"""What is asked of a store, on a connection that the caller has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies.stream.calls import Usage
from proctor.policies.stream.events import Event, at_ms
from proctor.supervisor.ports.facts import LogEntry, Place, RunFilter, RunInfo, SessionInfo
from proctor.supervisor.store.codec import from_record
from proctor.supervisor.store.tally import FIGURES, moment

from ..connection.connecting import Connection
from ..schema import CLAIMED
from .owners import OWNER_COLUMNS, gone_owners, owner_of
from .rows import one_label

_PAGE_BYTES = 1024 * 1024
_PAGE_ROWS = 512
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_PAGE = """SELECT {columns} FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY {by} {order}) - octet_length(data)
        AS bytes_before FROM (SELECT {columns} FROM {rows} ORDER BY {by} {order} LIMIT {most}) AS page) AS page
    WHERE bytes_before < {bytes} ORDER BY {by} {order}"""


def _page(columns: str, rows: str, by: str, *, newest_first: bool) -> str:
    order = "DESC" if newest_first else "ASC"
    return _PAGE.format(columns=columns, rows=rows, by=by, order=order, most=_PAGE_ROWS, bytes=_PAGE_BYTES)


def events_page(
    session_id: str,
    after: int,
    *,
    before: int | None = None,
    run_id: str | None = None,
    newest_first: bool = False,
) -> Callable[[Connection], list[Event]]:
    """A query for the next events of a session, as many as make a page; none at the end."""
    rows = "events WHERE session_key = (SELECT key FROM sessions WHERE session_id = %(id)s) AND seq > %(after)s"
    rows += " AND seq < %(before)s" if before is not None else ""
    rows += " AND run_id = %(run_id)s" if run_id is not None else ""
    sql = _page("seq, data", rows, "seq", newest_first=newest_first)
    values = {"id": session_id, "after": after, "before": before, "run_id": run_id}

    def page(connection: Connection) -> list[Event]:
        found = connection.execute(sql, values, binary=True)
        return [from_record(data, session_id=session_id, seq=seq) for seq, data in found]

    return page


_ENTRY = "position, session_id, run_id, seq, tenant, data, digest"


def log_page(
    after: int, before: int | None, tenant: str | None, newest_first: bool
) -> Callable[[Connection], list[LogEntry]]:
    """A query for the next entries of the log, as many as make a page; none at the end."""
    rows = "events JOIN sessions ON key = events.session_key LEFT JOIN runs USING (run_id) WHERE position > %(after)s"
    rows += " AND position < %(before)s" if before is not None else ""
    rows += " AND tenant = %(tenant)s" if tenant is not None else ""
    sql = _page(_ENTRY, rows, "position", newest_first=newest_first)
    values = {"after": after, "before": before, "tenant": tenant}

    def page(connection: Connection) -> list[LogEntry]:
        return [
            LogEntry(
                position=position,
                session_id=session_id,
                run_id=run_id,
                seq=seq,
                tenant=tenant,
                data=data,
                digest=digest,
            )
            for position, session_id, run_id, seq, tenant, data, digest in connection.execute(
                sql, values, binary=True
            )
        ]

    return page


def latest_place(connection: Connection) -> Place:
    """After the latest stored event."""
    sql = "SELECT store_id, (SELECT coalesce(max(position), 0) FROM events) FROM store"
    [(store_id, position)] = connection.execute(sql).fetchall()
    return Place(store_id=store_id, position=position)


def session_info(connection: Connection, session_id: str) -> SessionInfo | None:
    """A session with its last seq, None also for a row that was made for what was then refused."""
    sql = """SELECT provider, provider_session_id, (SELECT coalesce(max(seq), 0) FROM events WHERE session_key = key)
        FROM sessions WHERE session_id = %s AND (EXISTS (SELECT FROM events WHERE session_key = key)
            OR EXISTS (SELECT FROM runs WHERE session_key = key))"""
    row = connection.execute(sql, (session_id,)).fetchone()
    if row is None:
        return None
    return SessionInfo(session_id=session_id, provider=row[0], provider_session_id=row[1], last_seq=row[2])


_PLAIN_COLUMNS = ("run_id", "session_id", "runs.provider", "status", "created_at", "spec")
_LINE_COLUMNS = ("tenant", "labels", "started_ms", "ended_ms", "started_seq", "ended_seq", "calls", "violations")
_RUN_COLUMNS = ", ".join((*_PLAIN_COLUMNS, "after", OWNER_COLUMNS, *_LINE_COLUMNS, *FIGURES))
_RUNS = "runs JOIN sessions ON key = session_key LEFT JOIN owners ON owners.epoch = runs.epoch"


EVERY_RUN = f"SELECT {_RUN_COLUMNS} FROM {_RUNS} ORDER BY number"
"""Each row is for `to_run`."""


def run_info(connection: Connection, run_id: str) -> RunInfo | None:
    """A run, or None."""
    sql = f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE run_id = %s"
    row = connection.execute(sql, (run_id,), binary=True).fetchone()
    return row and to_run(row)


def newest_runs(
    connection: Connection, limit: int, session_id: str | None, before: str | None, where: RunFilter
) -> list[RunInfo]:
    """Runs, newest first; `before` a run: the older ones."""
    found = list(_conditions(connection, session_id, before, where))
    wanted = " AND ".join(text for text, *_ in found) or "TRUE"
    rows = connection.execute(
        f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE {wanted} ORDER BY number DESC LIMIT %s",
        (*(value for _, *values in found for value in values), max(limit, 0)),
        binary=True,
    )
    return [to_run(row) for row in rows]


def _conditions(
    connection: Connection, session_id: str | None, before: str | None, where: RunFilter
) -> Iterator[tuple[Any, ...]]:
    """What is asked: each a condition and the values of its places."""
    if session_id is not None:
        yield "session_key = (SELECT key FROM sessions WHERE session_id = %s)", session_id
    if before is not None:
        yield "number < (SELECT number FROM runs WHERE run_id = %s)", before
    if where.status:
        status = "CASE WHEN status = 'running' AND runs.epoch = ANY(%s::bigint[]) THEN 'lost' ELSE status END"
        yield f"{status} = ANY(%s)", gone_owners(connection), sorted(where.status)
    if where.tenant is not None:
        yield "tenant = %s", where.tenant
    if where.provider is not None:
        yield "runs.provider = %s", where.provider
    if where.since is not None:
        yield "coalesce(started_ms, created_ms) >= %s", at_ms(where.since)
    if where.until is not None:
        yield "coalesce(started_ms, created_ms) < %s", at_ms(where.until)
    if where.begins:
        yield "starts_with(run_id, %s)", where.begins
    if where.labels:
        yield "label_texts @> %s", [one_label(*label) for label in where.labels.items()]


def lost_runs(connection: Connection) -> list[RunInfo]:
    """The claimed runs that are not over and whose owner is gone, oldest first."""
    sql = f"SELECT {_RUN_COLUMNS} FROM {_RUNS} WHERE runs.{CLAIMED} ORDER BY number"
    runs = map(to_run, connection.execute(sql, binary=True))
    return [run for run in runs if run.owner is not None and run.owner.gone]


def to_run(row: tuple[Any, ...]) -> RunInfo:
    """The run of a row."""
    run_id, session_id, provider, status, created_at, spec, after = row[:7]
    owner = owner_of(row[7:14])
    tenant, labels, started, ended, started_seq, ended_seq, calls, violations, *tokens, cost_usd = row[14:]
    if status == "running" and owner is not None and owner.gone:
        status = "lost"
    return RunInfo(
        run_id=run_id,
        session_id=session_id,
        provider=provider,
        status=status,
        created_at=datetime.fromisoformat(created_at) if created_at else None,
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
        usage=Usage(**dict(zip(FIGURES, (*map(int, tokens), cost_usd), strict=True))),
    )
