"""A store in a file: its tables are made or brought up to date; `PRAGMA user_version` has their version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proctor.supervisor.errors import StoreError

from ..tables import schema
from ..tables.schema import SchemaDialect, Table, schema_version, statements

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path


APPLICATION_ID: Final = 0x70726374
"""Marks a file as ours: `prct`."""
_DIALECT: Final = SchemaDialect(
    types={
        "key": "INTEGER PRIMARY KEY",
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "position": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "int": "INTEGER",
        "figure": "INTEGER",
        "real": "REAL",
        "text": "TEXT",
        "json": "TEXT",
        "id": "TEXT",
        "bytes": "BLOB",
        "flag": "INTEGER",
        "instant": "REAL",
    },
    keyed=" WITHOUT ROWID",
    tables=(
        # What hooks keep beside a session's record.
        Table(
            "hook_notes",
            {"session_id": "text NOT NULL", "name": "text NOT NULL", "data": "bytes NOT NULL"},
            primary="session_id, name",
        ),
    ),
)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a numeric pragma."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a store. Raises StoreError for a file that is not ours, or not read."""
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"`{path}` is a database of another program; choose another path", kind="not_a_store")
    version = pragma(connection, "user_version")
    schema.check_version(version, str(path))
    return version


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction: nobody sees a file half made."""
    if pragma(connection, "user_version") == schema_version():
        check_version(connection, path)
        return
    is_new = pragma(connection, "page_count") == 0
    connection.execute("BEGIN" if is_new else "BEGIN IMMEDIATE")
    try:
        if is_new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the first write, as it decides on the first page
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            version = 0
        else:
            version = check_version(connection, path)
        for statement in statements(_DIALECT, version):
            connection.execute(statement)
        if not version:
            connection.execute("INSERT INTO store VALUES (lower(hex(randomblob(8))))")
        connection.execute(f"PRAGMA user_version = {schema_version()}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
