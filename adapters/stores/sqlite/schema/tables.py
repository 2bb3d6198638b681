"""The tables, and how an older file becomes a current one.

`MIGRATIONS[n]` takes a file from version n to n + 1; the version stands in `PRAGMA user_version`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from proctor.supervisor.errors import StoreError

from ...tables.asking import CLAIMED, WAITING
from .chaining import chain_records
from .ordering import ORDERED_EVENTS_AND_RUN_LINES

APPLICATION_ID = 0x70726374
"""Marks a file as ours: `prct`."""


Statement: TypeAlias = str | Callable[[sqlite3.Connection], None]
"""In SQL, or what Python does."""
MIGRATIONS: tuple[tuple[str, tuple[Statement, ...]], ...] = (
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
    (
        "owners of runs, approvals and instructions in place of mail",
        (
            """CREATE TABLE owners (
                epoch INTEGER PRIMARY KEY AUTOINCREMENT,
                owner_id TEXT NOT NULL,
                host TEXT NOT NULL DEFAULT '',
                machine TEXT NOT NULL DEFAULT '',
                pid INTEGER NOT NULL DEFAULT 0,
                started TEXT NOT NULL DEFAULT '',
                until REAL)""",
            "ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE runs ADD COLUMN after INTEGER NOT NULL DEFAULT 0",
            f"CREATE INDEX runs_claimed ON runs(session_key) WHERE {CLAIMED}",
            "INSERT INTO owners (owner_id) VALUES ('from before owners were recorded')",
            """UPDATE runs SET epoch = (SELECT max(epoch) FROM owners)
                WHERE status = 'running' AND json_extract(CAST(spec AS TEXT), '$.asks') IS NULL""",
            """CREATE TABLE approvals (
                number INTEGER PRIMARY KEY,
                approval_id TEXT NOT NULL UNIQUE,
                session_key INTEGER NOT NULL REFERENCES sessions(key),
                seq INTEGER NOT NULL,
                run_id TEXT NOT NULL,
                state TEXT NOT NULL,
                held INTEGER NOT NULL,
                ran INTEGER NOT NULL,
                answer BLOB,
                answered_at TEXT,
                recorded INTEGER NOT NULL DEFAULT 0)""",
            f"CREATE INDEX approvals_waiting ON approvals(run_id) WHERE {WAITING}",
            """INSERT OR IGNORE INTO approvals (approval_id, session_key, seq, run_id, state, held, ran)
                SELECT json_extract(text, '$.approval_id'), session_key, seq, run_id, 'requested',
                    coalesce(json_extract(text, '$.held'), 1), coalesce(json_extract(text, '$.ran'), 0)
                FROM (SELECT session_key, seq, run_id, CAST(data AS TEXT) AS text FROM events
                    WHERE type = 'tool_approval_requested' ORDER BY session_key, seq)
                WHERE json_extract(text, '$.input_digest') IS NOT NULL""",
            """UPDATE approvals SET recorded = 1, state = closed.state, answered_at = closed.at,
                    answer = iif(closed.by IS NULL, NULL, json_object(
                        'granted', json(iif(closed.state = 'granted', 'true', 'false')),
                        'by', closed.by, 'reason', closed.reason))
                FROM (SELECT json_extract(text, '$.approval_id') AS id, substr(type, 15) AS state,
                        json_extract(text, '$.by') AS by, json_extract(text, '$.reason') AS reason,
                        json_extract(text, '$.at') AS at
                    FROM (SELECT type, CAST(data AS TEXT) AS text FROM events WHERE type IN
                        ('tool_approval_granted', 'tool_approval_denied', 'tool_approval_expired'))) AS closed
                WHERE approval_id = closed.id""",
            f"""UPDATE approvals SET state = 'withdrawn' WHERE {WAITING} AND run_id IN (SELECT run_id FROM runs
                WHERE status IN ('completed', 'failed') OR (status = 'cancelled' AND held))""",
            """CREATE TABLE instructions (
                number INTEGER PRIMARY KEY AUTOINCREMENT,
                data BLOB NOT NULL)""",
            """INSERT INTO instructions (data) SELECT CAST(json_object(
                    'type', 'cancel', 'scope', 'run', 'value', run_id,
                    'by', CAST(coalesce(json_extract(text, '$.by'), '') AS TEXT),
                    'reason', CAST(coalesce(json_extract(text, '$.reason'), '') AS TEXT), 'at', at) AS BLOB)
                FROM (SELECT mail_id, run_id, at, CAST(body AS TEXT) AS text FROM mail WHERE kind = 'cancel'
                    AND run_id IN (SELECT run_id FROM runs WHERE status = 'created'))
                ORDER BY mail_id""",
            "DROP TABLE mail",
        ),
    ),
    ("records tied together by digests", (chain_records,)),
    (
        "which instructions block starts and were not lifted",
        ("CREATE TABLE blocks (number INTEGER PRIMARY KEY REFERENCES instructions(number))",),
    ),
    (
        "budgets that runs share: what is used by parts of their windows, and what each run uses and holds",
        (
            """CREATE TABLE budgets (
                counter INTEGER PRIMARY KEY,
                budget TEXT NOT NULL,
                key TEXT NOT NULL,
                counts TEXT NOT NULL,
                window TEXT NOT NULL,
                max REAL NOT NULL,
                UNIQUE (budget, key, counts, window))""",
            """CREATE TABLE budget_parts (
                counter INTEGER NOT NULL REFERENCES budgets(counter),
                part INTEGER NOT NULL,
                used REAL NOT NULL,
                PRIMARY KEY (counter, part)) WITHOUT ROWID""",
            """CREATE TABLE budget_shares (
                counter INTEGER NOT NULL REFERENCES budgets(counter),
                run_id TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                used REAL NOT NULL,
                held REAL NOT NULL,
                PRIMARY KEY (counter, run_id)) WITHOUT ROWID""",
            "CREATE INDEX budget_shares_by_run ON budget_shares(run_id)",
        ),
    ),
    (
        "how often owners took a run up to start it",
        ("ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",),
    ),
    (
        "which calls of a run are in flight",
        ("ALTER TABLE runs ADD COLUMN calls_in_flight TEXT NOT NULL DEFAULT ''",),
    ),
    (
        "digests of what no event tells of",
        (
            "ALTER TABLE runs ADD COLUMN seal BLOB",
            "ALTER TABLE owners ADD COLUMN seal BLOB",
            "ALTER TABLE budgets ADD COLUMN seal BLOB",
            "CREATE TABLE seals (name TEXT PRIMARY KEY, digest BLOB NOT NULL)",
        ),
    ),
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
            "upgrade proctor, or restore the backup from before it was upgraded",
            kind="newer_schema",
        )
    return version


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction: nobody sees a file half made."""
    if pragma(connection, "user_version") == SCHEMA_VERSION:
        check_version(connection, path)
        return
    is_new = pragma(connection, "page_count") == 0
    connection.execute("BEGIN" if is_new else "BEGIN IMMEDIATE")
    try:
        if is_new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the first write, as it decides on the first page
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for _name, statements in MIGRATIONS[check_version(connection, path) :]:
            take_step(connection, statements)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def take_step(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Take a file from its version to the next."""
    for statement in statements:
        if callable(statement):
            statement(connection)
        else:
            connection.execute(statement)
