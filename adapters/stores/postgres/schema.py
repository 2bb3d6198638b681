"""The tables, and how an older store becomes a current one.

`MIGRATIONS[n]` takes a store from version n to n + 1; the version stands in its table `store`. A released step never
changes; a later one alters what it made.
"""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import Connection, errors, sql

from proctor.supervisor.errors import StoreError

from ..tables.transactions import CLAIMED, WAITING

TAKE_TURN = "SELECT pg_advisory_xact_lock(1886548852, 'store'::regclass::oid::int4)"
"""What gets a place in the order of a store is written after this, and committed with it in one message: so the order
of places is the order of commits, and nobody who goes away holds the others up."""
_MAKING = 1_886_548_852
"""Whoever makes or migrates a store of a database holds the advisory lock of this number."""

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "sessions, runs, events, owners, approvals, instructions",
        (
            "CREATE TABLE store (store_id text NOT NULL, version int NOT NULL)",
            # The latest transaction of each open store: what became of a commit that was never answered.
            """CREATE TABLE writers (
                writer text PRIMARY KEY,
                committed bigint NOT NULL,
                at timestamptz NOT NULL DEFAULT now())""",
            """CREATE TABLE sessions (
                key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                session_id text COLLATE "C" NOT NULL UNIQUE,
                provider text NOT NULL DEFAULT '',
                provider_session_id text)""",
            """CREATE TABLE runs (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                run_id text COLLATE "C" NOT NULL UNIQUE,
                session_key bigint NOT NULL REFERENCES sessions,
                provider text NOT NULL DEFAULT '',
                status text NOT NULL,
                created_at text,
                created_ms bigint,
                spec bytea NOT NULL,
                epoch bigint NOT NULL DEFAULT 0,
                after bigint NOT NULL DEFAULT 0,
                tenant text,
                labels bytea,
                label_texts text[] NOT NULL DEFAULT '{}',
                started_ms bigint,
                ended_ms bigint,
                started_seq bigint,
                ended_seq bigint,
                calls bigint NOT NULL DEFAULT 0,
                violations bigint NOT NULL DEFAULT 0,
                input_tokens double precision NOT NULL DEFAULT 0,
                output_tokens double precision NOT NULL DEFAULT 0,
                cache_read_tokens double precision NOT NULL DEFAULT 0,
                cache_write_tokens double precision NOT NULL DEFAULT 0,
                reasoning_tokens double precision NOT NULL DEFAULT 0,
                cost_usd double precision NOT NULL DEFAULT 0)""",
            "CREATE INDEX runs_by_session ON runs (session_key)",
            "CREATE INDEX runs_by_status ON runs (status)",
            "CREATE INDEX runs_by_tenant ON runs USING hash (tenant)",
            f"CREATE INDEX runs_claimed ON runs (session_key) WHERE {CLAIMED}",
            # No foreign key: it would be looked up for each event, and who inserts has the session's row locked.
            """CREATE TABLE events (
                position bigint PRIMARY KEY,
                session_key bigint NOT NULL,
                seq bigint NOT NULL,
                run_id text NOT NULL,
                event_id text,
                type text NOT NULL,
                at bigint,
                data bytea NOT NULL,
                digest bytea NOT NULL,
                UNIQUE (session_key, seq))""",
            "CREATE UNIQUE INDEX events_by_id ON events (session_key, event_id) WHERE event_id IS NOT NULL",
            """CREATE TABLE owners (
                epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                owner_id text NOT NULL,
                host text NOT NULL DEFAULT '',
                machine text NOT NULL DEFAULT '',
                pid bigint NOT NULL DEFAULT 0,
                started text NOT NULL DEFAULT '',
                until timestamptz)""",
            """CREATE TABLE approvals (
                number bigint PRIMARY KEY,
                approval_id text COLLATE "C" NOT NULL UNIQUE,
                session_key bigint NOT NULL REFERENCES sessions,
                seq bigint NOT NULL,
                run_id text NOT NULL,
                state text NOT NULL,
                held boolean NOT NULL,
                ran boolean NOT NULL,
                answer bytea,
                answered_at text,
                recorded boolean NOT NULL DEFAULT false)""",
            f"CREATE INDEX approvals_waiting ON approvals (run_id) WHERE {WAITING}",
            "CREATE INDEX approvals_by_session ON approvals (session_key)",
            "CREATE TABLE instructions (number bigint PRIMARY KEY, data bytea NOT NULL)",
            "CREATE TABLE blocks (number bigint PRIMARY KEY, scope text NOT NULL, value text NOT NULL)",
            """CREATE TABLE notes (
                session_id text COLLATE "C" NOT NULL,
                name text NOT NULL,
                data bytea NOT NULL,
                PRIMARY KEY (session_id, name))""",
        ),
    ),
    (
        "budgets that runs share: what is used by parts of their windows, and what each run uses and holds",
        (
            """CREATE TABLE budgets (
                counter bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                budget text COLLATE "C" NOT NULL,
                key text COLLATE "C" NOT NULL,
                counts text COLLATE "C" NOT NULL,
                period text COLLATE "C" NOT NULL,
                most double precision NOT NULL,
                UNIQUE (budget, key, counts, period))""",
            """CREATE TABLE budget_parts (
                counter bigint NOT NULL REFERENCES budgets,
                part bigint NOT NULL,
                used double precision NOT NULL,
                PRIMARY KEY (counter, part))""",
            """CREATE TABLE budget_shares (
                counter bigint NOT NULL REFERENCES budgets,
                run_id text COLLATE "C" NOT NULL,
                epoch bigint NOT NULL,
                used double precision NOT NULL,
                held double precision NOT NULL,
                PRIMARY KEY (counter, run_id))""",
            "CREATE INDEX budget_shares_by_run ON budget_shares (run_id)",
        ),
    ),
    (
        "how often owners took a run up to start it",
        ("ALTER TABLE runs ADD COLUMN attempts bigint NOT NULL DEFAULT 0",),
    ),
    (
        "which calls of a run are in flight",
        ("ALTER TABLE runs ADD COLUMN calls_in_flight text NOT NULL DEFAULT ''",),
    ),
    (
        "digests of what no event tells of",
        (
            "ALTER TABLE runs ADD COLUMN seal bytea",
            "ALTER TABLE owners ADD COLUMN seal bytea",
            "ALTER TABLE budgets ADD COLUMN seal bytea",
            "CREATE TABLE seals (name text PRIMARY KEY, digest bytea NOT NULL)",
        ),
    ),
    ("no notes beside a session's record", ("DROP TABLE notes",)),
)
SCHEMA_VERSION = len(MIGRATIONS)


def version_of(connection: Connection[Any], name: str) -> tuple[str, int]:
    """The id and the schema version of a store, ("", 0) where there is none. Raises StoreError for a newer one."""
    found = connection.execute("SELECT to_regclass('store')").fetchone()
    if found is None or found[0] is None:
        return "", 0
    try:
        row = connection.execute("SELECT store_id, version FROM store").fetchone()
    except errors.UndefinedColumn:
        row = None
    if row is None:
        raise StoreError(
            f"`{name}` has a table `store` of another program; choose another schema", kind="not_a_store"
        )
    if row[1] > SCHEMA_VERSION:
        raise StoreError(
            f"store `{name}` has schema version {row[1]}, this proctor reads up to {SCHEMA_VERSION}; "
            "upgrade proctor, or restore the backup from before it was upgraded",
            kind="newer_schema",
        )
    return row[0], row[1]


def bring_up_to_date(connection: Connection[Any], name: str, schema: str) -> str:
    """Create the tables of a new store, or migrate an older one, in one transaction, one starter at a time; returns
    the store's id. Raises StoreError for a role that may not.
    """
    store_id, version = version_of(connection, name)
    if version == SCHEMA_VERSION:
        return store_id
    connection.execute("SET lock_timeout = 0")  # a migration of much takes its time
    connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))  # a transaction begun before sees no new schema
    try:
        with connection.transaction():
            store_id, version = version_of(connection, name)
            if not version:
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            for _name, statements in MIGRATIONS[version:]:
                for statement in statements:
                    connection.execute(statement)
            if not version:
                store_id = uuid.uuid4().hex[:16]
                connection.execute("INSERT INTO store VALUES (%s, %s)", (store_id, SCHEMA_VERSION))
            else:
                connection.execute("UPDATE store SET version = %s", (SCHEMA_VERSION,))
    except errors.InsufficientPrivilege as error:
        which = "is of an older version" if version else "has no tables yet"
        raise StoreError(
            f"store `{name}` {which}, and this role may not change that; run `proctor store --make` as their owner",
            kind="unwritable",
        ) from error
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))
    return store_id
