"""The rows that an audit reads from a store, whatever database it is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.stored_types import RunInfo

from ..tables.budgets import unsealed
from ..tables.schema import schema_version
from ..tables.seals import RUN, owner_row, row_digest, run_digest
from ..tables.transactions import Tables
from .list_checks import ListedApproval
from .verify import StoredRecord

RECORDS = (
    "SELECT position, coalesce(session_id, ''), seq, run_id, event_id, type, at, data, digest"
    " FROM events LEFT JOIN sessions ON key = session_key ORDER BY position"
)
APPROVALS = (
    "SELECT approval_id, coalesce(session_id, ''), approvals.seq, run_id, state, held, ran, answer,"
    " answered_at, recorded FROM approvals LEFT JOIN sessions ON key = session_key"
    " ORDER BY approvals.number"
)

ORDERS = "SELECT number, data FROM instructions ORDER BY number"
SESSIONS = "SELECT session_id, provider, provider_session_id FROM sessions"
IN_FLIGHT = "SELECT run_id, calls_in_flight FROM runs"
BLOCKS = "SELECT number, scope, value FROM blocks"


_ID = re.compile("[0-9a-f]{16}")
"""A store's id."""


class AuditSource(NamedTuple):
    """A store in one moment: its id, how many records were ever stored, those there are, its list of runs (of one
    whose row cannot be read the id), which calls of each are in flight, its list of approvals, its sessions with
    their provider and the agent's own id, its orders, how many it ever had, which of them block starts (and what
    each blocks), what it has that no version of this package makes, and which of its
    other rows are not as they were written, in words.
    """

    store_id: str
    stored: int
    records: Iterable[StoredRecord]
    runs: Iterable[RunInfo | str]
    in_flight: Iterable[tuple[str, str]]
    approvals: Iterable[ListedApproval]
    sessions: Iterable[tuple[str, str, str | None]]
    orders: Iterable[tuple[int, bytes]]
    ordered: int
    blocks: Iterable[tuple[int, str, str]]
    planted: Iterable[tuple[str, str]]
    changed: Iterable[str]


def runs_of(rows: Iterable[tuple[Any, ...]], read: Callable[[tuple[Any, ...]], RunInfo]) -> Iterator[RunInfo | str]:
    """The runs of these rows."""
    for row in rows:
        try:
            yield read(row)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            yield str(row[0])


def approvals_of(rows: Iterable[tuple[Any, ...]]) -> Iterator[ListedApproval]:
    """The approvals of these rows."""
    return (ListedApproval(*row) for row in rows)


def changed(tables: Tables) -> Iterator[str]:
    """Changed rows that no event covers: runs as they were created, owners, budgets, the store itself."""
    lines = tables.rows("SELECT store_id FROM store")
    if len(lines) != 1 or not _ID.fullmatch(str(lines[0][0])):
        yield "the store has not the one id that every store is made with"
    columns = f"run_id, coalesce(session_id, ''), epoch, attempts, seal, {RUN}"
    for run_id, session_id, epoch, attempts, digest, *row in tables.rows(
        f"SELECT {columns} FROM runs LEFT JOIN sessions ON key = session_key"
    ):
        if not _fits(digest, lambda: run_digest(run_id, session_id, tuple(row), epoch, attempts)):  # noqa: B023
            yield f"run `{run_id}` was created otherwise, or is another owner's, than the list has it"
    for digest, *row in tables.rows(f"SELECT seal, {owner_row(tables.dialect)} FROM owners"):
        if not _fits(digest, lambda: row_digest("owner", *row)):  # noqa: B023
            yield f"owner {row[0]} is another in the list than the one that registered, or its lease is"
    for run_id, epoch in tables.rows(
        "SELECT run_id, epoch FROM runs WHERE epoch != 0 AND epoch NOT IN (SELECT epoch FROM owners)"
    ):
        yield f"run `{run_id}` has an owner {epoch} that is not there"
    try:
        yield from unsealed(tables)
    except (TypeError, ValueError):
        yield "there are rows of budgets that cannot be read"


def check_current(version: int, name: str) -> None:
    """Raises StoreError for a store that is still to be brought up to date."""
    if version < schema_version():
        message = f"store `{name}` is of an older version; `proctor runs` brings it up to date"
        raise StoreError(message, kind="older_schema")


def _fits(digest: Any, made: Callable[[], bytes]) -> bool:
    try:
        return bool(bytes(digest) == made())
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False
