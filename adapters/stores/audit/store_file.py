"""A store's file, read in one moment and never written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from proctor.supervisor.errors import StoreError, UsageError

from ..sqlite.file.failures import store_error
from ..sqlite.file.opening import connect
from ..sqlite.schema.tables import SCHEMA_VERSION, check_version
from .heads import Heads
from .verifying import Finding, Pruned, StoredRecord, Verifier, check_list

_BUSY_S = 10.0


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        intact: every record that is there is what was written.
        complete: every record that was written is there, or was pruned.
        anchored: how many sessions were held to heads that were kept; None where none were given.
        findings: what is not so, the first thousand.
        more: how many findings besides.
        pruned: sessions whose record was removed with `prune`.
        heads: where each session ends now.
    """

    path: str
    intact: bool
    complete: bool
    records: int
    anchored: int | None
    findings: tuple[Finding, ...]
    more: int
    pruned: tuple[Pruned, ...]
    heads: Heads


def audited(path: Path, anchor: Heads | None = None) -> AuditReport:
    """Read every record of a store. Raises StoreError where it cannot be read, UsageError where there is none."""
    try:
        with _reading(path) as connection:
            return _audit(connection, path, anchor)
    except sqlite3.Error as error:
        raise store_error(error, path) from error


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise UsageError(f"there is no store at `{path}`; `--store` names another")
    connection = connect(path, "ro", busy_timeout_s=_BUSY_S)
    try:
        connection.execute("BEGIN")  # others may write meanwhile: this is one moment
        if check_version(connection, path) < SCHEMA_VERSION:
            raise StoreError(
                f"store `{path}` is of an older version; `proctor runs` brings it up to date", kind="older_schema"
            )
        yield connection
    finally:
        connection.close()


def _audit(connection: sqlite3.Connection, path: Path, anchor: Heads | None) -> AuditReport:
    verifier = Verifier(anchor)
    store_id = _one(connection, "SELECT store_id FROM store", "")
    if anchor is not None and anchor.store_id != store_id:
        verifier.find("integrity", "replaced", "this is another store than the one that was anchored")
    for record in _records(connection):
        verifier.take(record)
    verifier.finish()
    _count(connection, verifier)
    check_list(verifier, connection.execute(_RUNS))
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    about = {finding.about for finding in verifier.findings}
    return AuditReport(
        path=str(path),
        intact="integrity" not in about,
        complete="completeness" not in about,
        records=verifier.records,
        anchored=None if anchor is None else len(anchor.sessions),
        findings=tuple(verifier.findings),
        more=verifier.more,
        pruned=tuple(verifier.pruned),
        heads=Heads(store_id=store_id, records=verifier.records, made_at=made_at, sessions=tuple(verifier.heads())),
    )


_RECORDS = (
    "SELECT position, coalesce(session_id, ''), seq, run_id, event_id, type, at, data, coalesce(digest, x'')"
    " FROM events LEFT JOIN sessions ON key = session_key ORDER BY position"
)
_RUNS = "SELECT run_id, coalesce(session_id, ''), status, ended_seq FROM runs LEFT JOIN sessions ON key = session_key"


def _records(connection: sqlite3.Connection) -> Iterator[StoredRecord]:
    for row in connection.execute(_RECORDS):
        position, session_id, seq, run_id, event_id, type, at, data, digest = row
        record = data if isinstance(data, bytes) else str(data).encode()
        yield StoredRecord(position, session_id, seq, run_id, event_id, type, at, record, digest)


def _count(connection: sqlite3.Connection, verifier: Verifier) -> None:
    """Every record got the next number of one count over the store; what was pruned before an import did not."""
    stored = _one(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'events'", 0)
    missing = stored - verifier.records
    pruned = sum(one.records for one in verifier.pruned)
    if missing > pruned:
        told = f"; {pruned} were pruned" if pruned else ""
        verifier.find("completeness", "uncounted", f"{stored} records were stored; {missing} are not there{told}")
    elif missing < 0:
        verifier.find("integrity", "uncounted", f"there are {-missing} records more than were stored")


def _one(connection: sqlite3.Connection, sql: str, default: Any) -> Any:
    row = connection.execute(sql).fetchone()
    return default if row is None else row[0]
