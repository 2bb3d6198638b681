"""Reads a PostgreSQL store for an audit, without writing."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import psycopg

from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import UsageError

from ..postgres.connection import Address, Connection, one_label, store_error, version_of
from ..postgres.recording import short_id
from ..tables.schema import POSTGRES
from .sources import RECORDS, AuditSource, changed, check_current, source_of
from .verify import StoredRecord

_PLANTED = """SELECT 'view', viewname FROM pg_views WHERE schemaname = current_schema()
    UNION ALL SELECT 'trigger', tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
    UNION ALL SELECT 'rule', rulename FROM pg_rules WHERE schemaname = current_schema()
    UNION ALL SELECT 'policy', policyname FROM pg_policies WHERE schemaname = current_schema()"""
_PAGE = 1000


class _Identified(msgspec.Struct):
    event_id: str = ""


_event_id = msgspec.json.Decoder(_Identified).decode
_labels = msgspec.json.Decoder(dict[str, Any]).decode


@contextmanager
def reading_database(url: str) -> Iterator[AuditSource]:
    """Read a database for an audit. Raises StoreError if it cannot be read, UsageError if there is no store."""
    address = Address(url, "proctor")
    try:
        with address.connect() as connection:
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            # Others may write meanwhile: this is one moment.
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _, version = version_of(connection, address.name)
            if not version:
                raise UsageError(f"there is no store at `{address.name}`; `--store` names another")
            check_current(version, address.name)
            [(stored,)] = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchall()
            yield source_of(
                connection,
                POSTGRES,
                stored=stored,
                records=_records(connection),
                planted=connection.execute(_PLANTED).fetchall(),
                changed=[*changed(connection), *_differing_labels(connection)],
            )
    except psycopg.Error as error:
        raise store_error(error, address.name) from error


def _differing_labels(connection: Connection) -> Iterator[str]:
    """The runs whose indexed labels differ from their own."""
    for run_id, labels, texts in connection.rows("SELECT run_id, labels, label_texts FROM runs ORDER BY number"):
        own: list[str] | None = None
        with suppress(*NOT_JSON):
            own = [one_label(*label) for label in _labels(labels).items()] if labels else []
        if texts != own:
            yield f"run `{run_id}` is found by other labels in the list than it has"


def _records(connection: Connection) -> Iterator[StoredRecord]:
    with connection.cursor("records", binary=True) as rows:  # a named one: the server keeps what is not read yet
        rows.itersize = _PAGE
        for position, session_id, seq, run_id, event_id, type, at, data, digest in rows.execute(RECORDS):
            whole = _whole(event_id, data)
            yield StoredRecord(position, session_id, seq, run_id, whole, type, at, data, digest)


def _whole(kept: str | None, data: bytes) -> str | None:
    """An event's id; a long one is stored as its digest."""
    if kept is None or not kept.startswith("sha256:"):
        return kept
    try:
        event_id = _event_id(data).event_id
    except NOT_JSON:
        return kept
    return event_id if short_id(event_id) == kept else kept
