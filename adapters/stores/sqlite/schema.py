"""The tables, and how an older file becomes a current one.

`MIGRATIONS[n]` takes a file from version n to n + 1; the version stands in `PRAGMA user_version`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from proctor.policies.events.run_context import FIGURES, TOKENS
from proctor.supervisor.errors import StoreError
from proctor.supervisor.store import codec

from ..tables.transactions import CLAIMED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import TypeAlias


_OPEN = "run_id = new.run_id AND ended_seq IS NULL"


_ENDS = "('run_completed', 'run_failed', 'run_cancelled')"


_MS = "CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER)"


def _from_context(blob: str, path: str) -> str:
    """Assignments of what the run's context says, where it was not known before."""
    json, tenant, labels = f"CAST({blob} AS TEXT)", f"'$.{path}.tenant'", f"'$.{path}.labels'"
    return (
        f"tenant = coalesce(tenant, CASE WHEN json_type({json}, {tenant}) = 'text'"
        f" THEN json_extract({json}, {tenant}) END),"
        f" labels = coalesce(labels, CASE WHEN json_type({json}, {labels}) = 'object'"
        f" THEN nullif(json_extract({json}, {labels}), '{{}}') END)"
    )


def _figure(name: str, path: str) -> str:
    """A figure of the event as the number it is, whatever somebody wrote there; NULL without it."""
    return f"CAST(json_extract(CAST(new.data AS TEXT), '$.{path}') AS {'REAL' if name == 'cost_usd' else 'INTEGER'})"


def _reported(name: str) -> str:
    """One total after a report of usage: a delta is added, a cumulative figure stands for all before it."""
    figure = f"coalesce({_figure(name, name)}, 0)"
    cumulative = "json_extract(CAST(new.data AS TEXT), '$.scope') = 'cumulative'"
    return f"{name} = CASE WHEN {cumulative} THEN max({name}, {figure}) ELSE {name} + {figure} END"


def _settled(name: str) -> str:
    """One total as the run's end states it; without that, as it was reported."""
    return f"{name} = coalesce({_figure(name, f'usage.{name}')}, {name})"


_COLUMNS: tuple[str, ...] = (
    *(f"{name} TEXT" for name in ("tenant", "labels")),
    *(f"{name} INTEGER" for name in ("created_ms", "started_ms", "ended_ms", "started_seq", "ended_seq")),
    *(f"{name} INTEGER NOT NULL DEFAULT 0" for name in ("calls", "violations", *TOKENS)),
    "cost_usd REAL NOT NULL DEFAULT 0",
)


_COUNTING: dict[str, str] = {
    "run_starts": f"""AFTER INSERT ON events WHEN new.type = 'run_started' BEGIN
        UPDATE runs SET started_ms = new.at, started_seq = new.seq, {_from_context("new.data", "metadata.context")}
        WHERE run_id = new.run_id AND started_seq IS NULL; END""",
    "run_ends": f"""AFTER INSERT ON events WHEN new.type IN {_ENDS} BEGIN
        UPDATE runs SET ended_ms = new.at, ended_seq = new.seq, {", ".join(map(_settled, FIGURES))}
        WHERE {_OPEN}; END""",
    "run_uses": f"""AFTER INSERT ON events WHEN new.type = 'token_usage_updated' BEGIN
        UPDATE runs SET {", ".join(map(_reported, FIGURES))} WHERE {_OPEN}; END""",
    "run_acts": """AFTER INSERT ON events WHEN new.type IN ('tool_call_started', 'policy_violation') BEGIN
        UPDATE runs SET calls = calls + (new.type = 'tool_call_started'),
            violations = violations + (new.type = 'policy_violation')
        WHERE run_id = new.run_id; END""",
}
"""Triggers that count the events of before on their way into their new table."""


ORDERED_EVENTS_AND_RUN_LINES: tuple[str, ...] = (
    *(f"ALTER TABLE runs ADD COLUMN {column}" for column in _COLUMNS),
    "CREATE INDEX runs_by_status ON runs(status)",
    "CREATE INDEX runs_by_tenant ON runs(tenant) WHERE tenant IS NOT NULL",
    f"UPDATE runs SET {_from_context('spec', 'context')}, created_ms = {_MS}",
    "ALTER TABLE events RENAME TO events_without_order",
    "DROP INDEX events_by_id",
    """CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key INTEGER NOT NULL REFERENCES sessions(key),
        seq INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        event_id TEXT,
        type TEXT NOT NULL,
        at INTEGER,
        data BLOB NOT NULL,
        UNIQUE (session_key, seq))""",
    "CREATE UNIQUE INDEX events_by_id ON events(session_key, event_id) WHERE event_id IS NOT NULL",
    *(f"CREATE TRIGGER {name} {what}" for name, what in _COUNTING.items()),
    """INSERT INTO events (session_key, seq, run_id, event_id, type, at, data)
        SELECT session_key, seq, run_id, event_id, type, at, data FROM events_without_order ORDER BY rowid""",
    *(f"DROP TRIGGER {name}" for name in _COUNTING),
    "DROP TABLE events_without_order",
    "CREATE TABLE store (store_id TEXT NOT NULL)",
    "INSERT INTO store VALUES (lower(hex(randomblob(8))))",
)
"""`position` counts over the whole store in the order of commits, and is never given twice, whatever is pruned."""


_PAGE = 1000


def chain_records(connection: sqlite3.Connection) -> None:
    """Give every row the digest it would have had. Says nothing of what became of a record before."""
    connection.execute("ALTER TABLE events ADD COLUMN digest BLOB")
    for key, session_id in connection.execute("SELECT key, session_id FROM sessions").fetchall():
        head, seq = codec.root(session_id), 0
        while page := _page(connection, key, seq):
            made = codec.links(head, [data for _, _, data in page])
            rows = zip(made, (position for position, _, _ in page), strict=True)
            connection.executemany("UPDATE events SET digest = ? WHERE position = ?", rows)
            head, seq = made[-1], page[-1][1]


def _page(connection: sqlite3.Connection, key: int, after: int) -> list[tuple[int, int, bytes]]:
    sql = "SELECT position, seq, data FROM events WHERE session_key = ? AND seq > ? ORDER BY seq LIMIT ?"
    return connection.execute(sql, (key, after, _PAGE)).fetchall()


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
    ("no notes beside a session's record", ("DROP TABLE notes",)),
    (
        "what hooks keep beside a session's record",
        (
            """CREATE TABLE hook_notes (
                session_id TEXT NOT NULL,
                name TEXT NOT NULL,
                data BLOB NOT NULL,
                PRIMARY KEY (session_id, name)) WITHOUT ROWID""",
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
