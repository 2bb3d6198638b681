"""What an audit reads of a store, whatever keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from proctor.supervisor.ports.facts import RunInfo

from .listing import ListedApproval
from .verifying import StoredRecord

RECORDS = "position, coalesce(session_id, ''), seq, run_id, event_id, type, at, data"
APPROVALS = (
    "SELECT approval_id, coalesce(session_id, ''), state, answer, recorded"
    " FROM approvals LEFT JOIN sessions ON key = session_key"
)

ORDERS = "SELECT number, data FROM instructions ORDER BY number"
BLOCKS = "SELECT number FROM blocks"


class AuditSource(NamedTuple):
    """A store in one moment: its id, how many records were ever stored, those there are, its list of runs (of one
    whose row cannot be read the id), its list of approvals, its orders, how many it ever had, which of them block
    starts, and what it has that no version of this package makes.
    """

    store_id: str
    stored: int
    records: Iterable[StoredRecord]
    runs: Iterable[RunInfo | str]
    approvals: Iterable[ListedApproval]
    orders: Iterable[tuple[int, bytes]]
    ordered: int
    blocks: Iterable[int]
    planted: Iterable[tuple[str, str]]


def runs_of(rows: Iterable[tuple[Any, ...]], read: Callable[[tuple[Any, ...]], RunInfo]) -> Iterator[RunInfo | str]:
    """The runs of these rows."""
    for row in rows:
        try:
            yield read(row)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            yield str(row[0])


def approvals_of(rows: Iterable[tuple[Any, ...]]) -> Iterator[ListedApproval]:
    """The approvals of these rows."""
    return (ListedApproval(id, session_id, state, answer, bool(done)) for id, session_id, state, answer, done in rows)


def numbers_of(rows: Iterable[tuple[Any, ...]]) -> Iterator[int]:
    """The numbers in these rows."""
    return (number for (number,) in rows)
