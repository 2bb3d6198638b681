"""The tables, and how an older file becomes a current one.

`MIGRATIONS[n]` takes a file from version n to n + 1; the version stands in `PRAGMA user_version`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from proctor.supervisor.errors import StoreError

from .ordering import ORDERED_EVENTS_AND_RUN_LINES

APPLICATION_ID = 0x70726374
"""Marks a file as ours: `prct`."""

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "sessions, runs and their events",
        (
            """CREATE TABLE sessions (
                key INTEGER PRIMARY KEY,
                session_id TEXT NOT NULL UNIQUE,
                provider TEXT NOT NULL DEFAULT '',
                provider_session_id TEXT)""",
            """CREATE TABLE runs (
                number INTEGER PRIMARY KEY,
                run_id TEXT NOT NULL UNIQUE,
                session_key INTEGER NOT NULL REFERENCES sessions(key),
                provider TEXT NOT NULL DEFAULT '',
                status TEXT NOT NULL,
                created_at TEXT,
                spec BLOB NOT NULL)""",
            "CREATE INDEX runs_by_session ON runs(session_key)",
            """CREATE TABLE events (
                session_key INTEGER NOT NULL REFERENCES sessions(key),
                seq INTEGER NOT NULL,
                run_id TEXT NOT NULL,
                event_id TEXT,
                type TEXT NOT NULL,
                at INTEGER,
                data BLOB NOT NULL,
                PRIMARY KEY (session_key, seq))""",
            "CREATE UNIQUE INDEX events_by_id ON events(session_key, event_id) WHERE event_id IS NOT NULL",
        ),
    ),
    (
        "mail between processes",
        (
            """CREATE TABLE mail (
                mail_id INTEGER PRIMARY KEY AUTOINCREMENT,
                run_id TEXT NOT NULL,
                kind TEXT NOT NULL,
                at TEXT,
                body BLOB NOT NULL)""",
        ),
    ),
    (
        "what a program keeps beside a session's record",
        (
            """CREATE TABLE notes (
                session_id TEXT NOT NULL,
                name TEXT NOT NULL,
                data BLOB NOT NULL,
                PRIMARY KEY (session_id, name)) WITHOUT ROWID""",
        ),
    ),
    ("events in one order over all sessions, and what lists show of a run", ORDERED_EVENTS_AND_RUN_LINES),
)
SCHEMA_VERSION = len(MIGRATIONS)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a numeric pragma."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a store. Raises StoreError when the file is not ours or too new."""
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"`{path}` is a database of another program; choose another path", kind="not_a_store")
    version = pragma(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store `{path}` has schema version {version}, this proctor reads up to {SCHEMA_VERSION}; "
            "upgrade proctor or choose another path",
            kind="newer_schema",
        )
    return version


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction."""
    if pragma(connection, "user_version") == SCHEMA_VERSION:
        check_version(connection, path)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for _name, statements in MIGRATIONS[check_version(connection, path) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
