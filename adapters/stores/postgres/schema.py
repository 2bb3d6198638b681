"""A store in a schema of a database: its tables are made or brought up to date; `store` has their version."""

from __future__ import annotations

import uuid
from typing import Any, Final

from psycopg import Connection, errors, sql

from proctor.supervisor.errors import StoreError

from ..tables.schema import SchemaDialect, Table, check_version, schema_version, statements

TAKE_TURN = "SELECT pg_advisory_xact_lock(1886548852, 'store'::regclass::oid::int4)"
"""Rows that need a place in the order of a store are written after this, and committed with it in one message: so the
order of places is the order of commits, and a client that goes away cannot hold the others up."""
_MAKING = 1_886_548_852
"""Whoever makes or migrates a store of a database holds the advisory lock of this number."""

_DIALECT: Final = SchemaDialect(
    types={
        "key": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "serial": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "position": "bigint PRIMARY KEY",
        "version": "int",
        "int": "bigint",
        "figure": "double precision",
        "real": "double precision",
        "text": "text",
        "json": "bytea",
        "id": 'text COLLATE "C"',
        "texts": "text[]",
        "bytes": "bytea",
        "flag": "boolean",
        "instant": "timestamptz",
    },
    whole="USING hash ",
    tables=(
        # The latest transaction of each open store: what became of a commit that was never answered.
        Table(
            "writers",
            {"writer": "text PRIMARY KEY", "committed": "int NOT NULL", "at": "instant NOT NULL DEFAULT now()"},
        ),
    ),
)


def version_of(connection: Connection[Any], name: str) -> tuple[str, int]:
    """The id and the schema version of a store, ("", 0) where there is none. Raises StoreError for one that
    is not read.
    """
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
    check_version(row[1], name)
    return row[0], row[1]


def bring_up_to_date(connection: Connection[Any], name: str, schema: str) -> str:
    """Create the tables of a new store, or migrate an older one, in one transaction, one starter at a time; returns
    the store's id. Raises StoreError for a role that may not.
    """
    store_id, version = version_of(connection, name)
    if version == schema_version():
        return store_id
    connection.execute("SET lock_timeout = 0")  # a migration of much takes its time
    connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))  # a transaction begun before sees no new schema
    try:
        with connection.transaction():
            store_id, version = version_of(connection, name)
            if not version:
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            for statement in statements(_DIALECT, version):
                connection.execute(statement)
            if not version:
                store_id = uuid.uuid4().hex[:16]
                connection.execute("INSERT INTO store VALUES (%s, %s)", (store_id, schema_version()))
            else:
                connection.execute("UPDATE store SET version = %s", (schema_version(),))
    except errors.InsufficientPrivilege as error:
        which = "is of an older version" if version else "has no tables yet"
        raise StoreError(
            f"store `{name}` {which}, and this role may not change that; run `proctor store --make` as their owner",
            kind="unwritable",
        ) from error
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))
    return store_id
