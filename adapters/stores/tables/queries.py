"""Queries of a store, on the caller's connection or a pooled one that only reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from proctor.policies.events import Event, at_ms
from proctor.policies.events.run_context import FIGURES, Usage
from proctor.policies.values.json_values import NOT_JSON, json_words
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.stored_types import (
    ANY_RUN,
    GOING_ON,
    LogEntry,
    LogPosition,
    Owner,
    RunFilter,
    RunInfo,
    SessionInfo,
)
from proctor.supervisor.store.records import COUNTERS, from_record, moment

from .batches import Condition, Dialect, Pages, Tables, all_of, gone_owners, owner_columns, owner_of
from .schema import CLAIMED

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (*NOT_JSON, ValueError, TypeError)


def events_page(
    session_id: str, after: int, *, before: int | None = None, run_id: str | None = None, newest_first: bool = False
) -> Callable[[Pages], list[Event]]:
    """A query for the next page of a session's events; none at the end."""
    found: list[Condition] = [("session_key = (SELECT key FROM sessions WHERE session_id = ?)", session_id)]
    found.append(("seq > ?", after))
    found += [("seq < ?", before)] if before is not None else []
    found += [("run_id = ?", run_id)] if run_id is not None else []
    wanted, values = all_of(found)

    def page(tables: Pages) -> list[Event]:
        rows = tables.page("seq, data", f"events WHERE {wanted}", values, by="seq", newest_first=newest_first)
        return [from_record(data, session_id=session_id, seq=seq) for seq, data in rows]

    return page


_ENTRY = "position, session_id, run_id, seq, tenant, data, digest"


def log_page(
    after: int, before: int | None, tenant: str | None, newest_first: bool
) -> Callable[[Pages], list[LogEntry]]:
    """A query for the next page of the log; none at the end."""
    found: list[Condition] = [("position > ?", after)]
    found += [("position < ?", before)] if before is not None else []
    found += [("tenant = ?", tenant)] if tenant is not None else []
    wanted, values = all_of(found)

    def page(tables: Pages) -> list[LogEntry]:
        events = f"events {tables.dialect.in_log} sessions ON key = events.session_key LEFT JOIN runs USING (run_id)"
        rows = tables.page(_ENTRY, f"{events} WHERE {wanted}", values, by="position", newest_first=newest_first)
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
            for position, session_id, run_id, seq, tenant, data, digest in rows
        ]

    return page


def latest_position(tables: Tables) -> LogPosition:
    """After the latest stored event."""
    [(store_id, position)] = tables.rows(
        "SELECT store_id, (SELECT coalesce(max(position), 0) FROM events) FROM store"
    )
    return LogPosition(store_id=store_id, position=position)


def session_info(tables: Tables, session_id: str) -> SessionInfo | None:
    """A session with its last seq; None also for a row left by a rejected write."""
    sql = """SELECT provider, provider_session_id, (SELECT coalesce(max(seq), 0) FROM events WHERE session_key = key)
        FROM sessions WHERE session_id = ? AND (EXISTS (SELECT 1 FROM events WHERE session_key = key)
            OR EXISTS (SELECT 1 FROM runs WHERE session_key = key))"""
    for provider, provider_session_id, last_seq in tables.rows(sql, (session_id,)):
        return SessionInfo(
            session_id=session_id, provider=provider, provider_session_id=provider_session_id, last_seq=last_seq
        )
    return None


_PLAIN_COLUMNS = ("run_id", "session_id", "runs.provider", "status", "created_at", "spec", "after")
_LINE_COLUMNS = (
    *("tenant", "labels", "started_ms", "ended_ms", "started_seq", "ended_seq", "attempts"),
    *COUNTERS.values(),
)


_OWNER = slice(len(_PLAIN_COLUMNS), len(_PLAIN_COLUMNS) + 7)
"""Where a row has what `owner_of` takes."""


@cache
def _select(dialect: Dialect) -> str:
    columns = ", ".join((*_PLAIN_COLUMNS, owner_columns(dialect), *_LINE_COLUMNS, *FIGURES))
    runs = "runs JOIN sessions ON key = session_key LEFT JOIN owners ON owners.epoch = runs.epoch"
    return f"SELECT {columns} FROM {runs}"


def run_info(tables: Tables, run_id: str) -> RunInfo | None:
    """A run, or None."""
    rows = tables.rows(f"{_select(tables.dialect)} WHERE run_id = ?", (run_id,))
    return to_run(tables.dialect, rows[0]) if rows else None


def newest_runs(
    tables: Tables,
    *,
    limit: int = 100,
    session_id: str | None = None,
    before: str | None = None,
    where: RunFilter = ANY_RUN,
) -> list[RunInfo]:
    """Runs, newest first; see `Store.runs`."""
    wanted, values = all_of(list(_conditions(tables, session_id, before, where)))
    sql = f"{_select(tables.dialect)} WHERE {wanted} ORDER BY number DESC LIMIT ?"
    return [_listed(tables.dialect, row) for row in tables.rows(sql, (*values, max(limit, 0)))]


def lost_runs(tables: Tables) -> list[RunInfo]:
    """The claimed runs that are not over and whose owner is lost, oldest first."""
    gone, *values = tables.dialect.among("runs.epoch", gone_owners(tables))
    rows = tables.rows(f"{_select(tables.dialect)} WHERE runs.{CLAIMED} AND {gone} ORDER BY number", values)
    return [_listed(tables.dialect, row) for row in rows]


def _conditions(tables: Tables, session_id: str | None, before: str | None, where: RunFilter) -> Iterator[Condition]:
    """The SQL conditions of a query for runs, each with its values."""
    if session_id is not None:
        yield "session_key = (SELECT key FROM sessions WHERE session_id = ?)", session_id
    if before is not None:
        yield "number < (SELECT number FROM runs WHERE run_id = ?)", before
    if where.status:
        stored = sorted({"running" if status == "lost" else status for status in where.status})
        few = session_id is None and GOING_ON.issuperset(stored)
        status = "status" if few else "status || ''"  # the newest of many are not looked for by an index
        yield f"{status} IN ({', '.join('?' * len(stored))})", *stored
        if len({"running", "lost"} & where.status) == 1:
            gone, *values = tables.dialect.among("runs.epoch", gone_owners(tables))
            yield f"(status != 'running' OR {'' if 'lost' in where.status else 'NOT '}{gone})", *values
    if where.tenant is not None:
        yield "tenant = ?", where.tenant
    if where.provider is not None:
        yield "runs.provider = ?", where.provider
    if where.since is not None:
        yield "coalesce(started_ms, created_ms) >= ?", at_ms(where.since)
    if where.until is not None:
        yield "coalesce(started_ms, created_ms) < ?", at_ms(where.until)
    if where.begins:
        yield tables.dialect.begins("run_id", where.begins)
    yield from tables.dialect.labelled(where.labels)


def to_run(dialect: Dialect, row: tuple[Any, ...]) -> RunInfo:
    """The run of a row. Raises StoreError(kind="corrupt") for one that cannot be read."""
    try:
        return _to_run(dialect, row)
    except _UNREADABLE as error:
        why = f"was changed, or is of another version: {json_words(error)}"
        raise StoreError(f"run `{row[0]}` in the list {why}", kind="corrupt") from error


def _listed(dialect: Dialect, row: tuple[Any, ...]) -> RunInfo:
    """The run of a row; if it cannot be read, the readable part, so that the others can be listed all the same."""
    try:
        return to_run(dialect, row)
    except StoreError as error:
        run_id, session_id, provider, status, *_ = row
        owner = None
        with suppress(*_UNREADABLE):
            owner = owner_of(dialect, row[_OWNER])
        status = _status(status, owner)
        about = {"run_id": run_id, "session_id": session_id, "provider": provider, "status": status}
        return RunInfo(**about, owner=owner, unreadable=str(error))


def _status(stored: Any, owner: Owner | None) -> Any:
    return "lost" if stored == "running" and owner is not None and owner.gone else stored


def _to_run(dialect: Dialect, row: tuple[Any, ...]) -> RunInfo:
    run_id, session_id, provider, status, created_at, spec, after = row[: _OWNER.start]
    owner = owner_of(dialect, row[_OWNER])
    line = row[_OWNER.stop :]
    tenant, labels, started, ended, started_seq, ended_seq, attempts, *counted = line
    counts, (*tokens, cost_usd) = counted[: len(COUNTERS)], counted[len(COUNTERS) :]
    return RunInfo(
        run_id=run_id,
        session_id=session_id,
        provider=provider,
        status=_status(status, owner),
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
        attempts=attempts,
        **dict(zip(COUNTERS.values(), counts, strict=True)),
        usage=Usage(**dict(zip(FIGURES, (*map(int, tokens), cost_usd), strict=True))),
    )


T = TypeVar("T")
ConnectionT = TypeVar("ConnectionT")
_KEPT = 4
_MOST = 8
"""How many queries of an event loop run at once. The other worker threads stay free, for example to end an agent,
even if no query is answered.
"""


class ReaderPool(ABC, Generic[ConnectionT]):
    """A few idle connections; more open while all are in use, up to `_MOST`; `check` raises where none may."""

    abandons: ClassVar[bool] = False
    """Whether a cancelled query is left to end by itself."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"reads of {id(self)}")
        self._idle: list[ConnectionT] = []
        self._closed = False

    async def query(self, query: Callable[[Any], T]) -> T:
        """Run a query on a connection, in a worker thread. Raises StoreError."""
        self.check_open()
        self._check()
        limiter = self._limiter.get(None)
        if limiter is None:
            self._limiter.set(limiter := anyio.CapacityLimiter(_MOST))
        return await anyio.to_thread.run_sync(self._query, query, abandon_on_cancel=self.abandons, limiter=limiter)

    def check_open(self) -> None:
        """Raises StoreError for a pool that is closed."""
        if self._closed:
            raise StoreError("the store is closed", kind="closed")

    def close(self) -> None:
        """Close the idle connections; one in use closes when its query ends."""
        self._closed = True
        with suppress(IndexError):  # other threads may empty it at the same time
            while True:
                self._drop(self._idle.pop())

    @contextmanager
    def lent(self) -> Iterator[ConnectionT]:
        """A connection for one query; from any thread."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            yield connection
        finally:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                self._drop(connection)
            if self._closed:  # asked last: it may have been closed meanwhile
                self.close()

    @abstractmethod
    def _query(self, query: Callable[[Any], T]) -> T:
        """Run a query on a pooled connection. Raises StoreError."""

    @abstractmethod
    def _open(self) -> ConnectionT:
        """Open another."""

    @abstractmethod
    def _drop(self, connection: ConnectionT) -> None:
        """Close a connection."""
