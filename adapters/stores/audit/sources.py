"""What an audit reads of a store, whatever keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .verifying import StoredRecord

RECORDS = "position, coalesce(session_id, ''), seq, run_id, event_id, type, at, data"
RUNS = "SELECT run_id, coalesce(session_id, ''), status, ended_seq FROM runs LEFT JOIN sessions ON key = session_key"


class Source(NamedTuple):
    """A store in one moment: its id, how many records were ever stored, those that are there, its list of runs."""

    store_id: str
    stored: int
    records: Iterable[StoredRecord]
    runs: Iterable[tuple[Any, ...]]
