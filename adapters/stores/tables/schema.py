"""The tables of a store, the same in every database, and each database's types of their columns."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import uuid4

from proctor.policies.events.run_context import TOKENS
from proctor.supervisor.errors import StoreError
from proctor.supervisor.store.records import COUNTERS

CLAIMED: Final = "epoch != 0 AND status IN ('created', 'running')"
"""The condition for a claimed run that is not over."""
WAITING: Final = "state = 'requested' AND NOT ran"
"""The condition for a pending approval."""
RUNS: Final = "runs"
OWNERS: Final = "owners"
COMMANDS: Final = "commands"
BUDGETS: Final = "budgets"
NOTES: Final = "notes"
STORE: Final = "store"
SEALS: Final = (RUNS, OWNERS, COMMANDS, BUDGETS, NOTES, STORE)
"""The names of the seals: over the runs, the owners, the commands, the rows of budgets, hooks' notes beside sessions,
and the store's id.
"""


class Index(NamedTuple):
    """An index; a `whole` one only finds equal values, of any length."""

    name: str
    columns: str
    where: str = ""
    unique: bool = False
    whole: bool = False


class Table(NamedTuple):
    """A table: the kind of each column with its constraints, and other constraints.

    Kinds are `key` (a number that the database gives), `serial` (one that is never given twice), `position` (one in
    the order of commits), `int`, `figure` (a total of tokens), `real`, `text`, `id` (a text that is compared byte by
    byte), `texts`, `bytes`, `flag` and `instant`.
    """

    name: str
    columns: Mapping[str, str]
    primary: str = ""
    unique: str = ""
    indexes: tuple[Index, ...] = ()


class SchemaDialect(NamedTuple):
    """A database's type for each kind of column; columns of a kind without a type are left out."""

    types: Mapping[str, str]
    whole: str = ""
    """The column text for an index that only finds equal values."""
    keyed: str = ""
    """The text after the columns of a table whose key has several of them."""
    tables: tuple[Table, ...] = ()
    """Tables that only this database has."""


_EMPTY: Final = "text NOT NULL DEFAULT ''"
_ZERO: Final = "NOT NULL DEFAULT 0"
_SESSION: Final = "int NOT NULL REFERENCES sessions"

TABLES: Final = (
    Table("store", {"store_id": "text NOT NULL", "version": "version NOT NULL"}),
    Table(
        "sessions",
        {"key": "key", "session_id": "id NOT NULL UNIQUE", "provider": _EMPTY, "provider_session_id": "text"},
    ),
    Table(
        "runs",
        {
            "number": "key",
            "run_id": "id NOT NULL UNIQUE",
            "session_key": _SESSION,
            "provider": _EMPTY,
            "status": "text NOT NULL",
            "created_at": "text",
            "created_ms": "int",
            "spec": "bytes NOT NULL",
            "epoch": f"int {_ZERO}",
            "after": f"int {_ZERO}",
            "attempts": f"int {_ZERO}",
            "seal": "bytes NOT NULL",
            "tenant": "text",
            "labels": "json",
            "label_texts": "texts NOT NULL DEFAULT '{}'",
            "started_ms": "int",
            "ended_ms": "int",
            "started_seq": "int",
            "ended_seq": "int",
            "calls_in_flight": _EMPTY,
            **dict.fromkeys(COUNTERS.values(), f"int {_ZERO}"),
            **dict.fromkeys(TOKENS, f"figure {_ZERO}"),
            "cost_usd": f"real {_ZERO}",
        },
        indexes=(
            Index("runs_by_session", "session_key"),
            Index("runs_by_status", "status"),
            Index("runs_by_tenant", "tenant", "tenant IS NOT NULL", whole=True),
            Index("runs_claimed", "session_key", CLAIMED),
        ),
    ),
    # No foreign key: each event would look it up, and the writer has the session's row locked.
    Table(
        "events",
        {
            "position": "position",
            "session_key": "int NOT NULL",
            "seq": "int NOT NULL",
            "run_id": "text NOT NULL",
            "event_id": "text",
            "type": "text NOT NULL",
            "at": "int",
            "data": "bytes NOT NULL",
            "digest": "bytes NOT NULL",
        },
        unique="session_key, seq",
        indexes=(Index("events_by_id", "session_key, event_id", "event_id IS NOT NULL", unique=True),),
    ),
    Table(
        "owners",
        {
            "epoch": "serial",
            "owner_id": "text NOT NULL",
            "host": _EMPTY,
            "machine": _EMPTY,
            "pid": f"int {_ZERO}",
            "started": _EMPTY,
            "until": "instant",
            "seal": "bytes",
        },
    ),
    Table(
        "approvals",
        {
            "approval_id": "id NOT NULL UNIQUE",
            "session_key": _SESSION,
            "seq": "int NOT NULL",
            "run_id": "text NOT NULL",
            "state": "text NOT NULL",
            "held": "flag NOT NULL",
            "ran": "flag NOT NULL",
            "answer": "bytes",
            "answered_at": "text",
            "recorded": "flag NOT NULL DEFAULT false",
        },
        indexes=(Index("approvals_waiting", "run_id", WAITING), Index("approvals_by_session", "session_key, seq")),
    ),
    Table("instructions", {"number": "position", "data": "bytes NOT NULL"}),
    Table("blocks", {"number": "int PRIMARY KEY", "scope": "text NOT NULL", "value": "text NOT NULL"}),
    Table(
        "budgets",
        {
            "counter": "key",
            "budget": "id NOT NULL",
            "key": "id NOT NULL",
            "counts": "id NOT NULL",
            "period": "id NOT NULL",
            "most": "real NOT NULL",
            "marks": f"int {_ZERO}",
        },
        unique="budget, key, counts, period",
    ),
    Table(
        "budget_parts",
        {"counter": "int NOT NULL REFERENCES budgets", "part": "int NOT NULL", "used": "real NOT NULL"},
        primary="counter, part",
    ),
    Table(
        "budget_shares",
        {
            "counter": "int NOT NULL REFERENCES budgets",
            "run_id": "id NOT NULL",
            "epoch": "int NOT NULL",
            "used": "real NOT NULL",
            "held": "real NOT NULL",
        },
        primary="counter, run_id",
        indexes=(Index("budget_shares_by_run", "run_id"),),
    ),
    Table("seals", {"name": "text PRIMARY KEY", "marks": f"int {_ZERO}"}),
)
"""`position` counts over the whole store in the order of commits, and is never given twice, whatever is pruned."""

SQLITE: Final = SchemaDialect(
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

POSTGRES: Final = SchemaDialect(
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

FIRST_VERSION: Final = 16
"""The first released version; older ones were written by development versions."""
MIGRATIONS: tuple[tuple[str, ...], ...] = ()
"""The statements, for every database, that migrate a store from `FIRST_VERSION`, version by version, until it has
`TABLES`, which a new store has at once. Released ones never change.
"""


def schema_version() -> int:
    """The version of the tables that this package reads and writes."""
    return FIRST_VERSION + len(MIGRATIONS)


def statements(dialect: SchemaDialect, version: int = 0) -> Iterator[str]:
    """The statements that create the tables of a new store, or migrate a store of this version."""
    if version:
        for step in MIGRATIONS[version - FIRST_VERSION :]:
            yield from step
        return
    for table in (*TABLES, *dialect.tables):
        yield _create(table, dialect)
        yield from (_create_index(table.name, index, dialect) for index in table.indexes)
    yield from (f"INSERT INTO seals (name) VALUES ('{name}')" for name in SEALS)


def columns(table: str, dialect: SchemaDialect) -> Iterator[str]:
    """The columns of a table in this database."""
    [kinds] = (one.columns for one in TABLES if one.name == table)
    return (name for name, what in kinds.items() if what.partition(" ")[0] in dialect.types)


def check_version(version: int, name: str) -> None:
    """Raises StoreError for a store of a version that this package does not read."""
    if version > schema_version():
        raise StoreError(
            f"store `{name}` has schema version {version}, this proctor reads up to {schema_version()}; "
            "upgrade proctor, or restore the backup from before it was upgraded",
            kind="newer_schema",
        )
    if version < FIRST_VERSION:
        raise StoreError(
            f"store `{name}` has schema version {version}, from before the first release of proctor; "
            "move its record with `export` of the proctor that wrote it and `import` of this one",
            kind="older_schema",
        )


def new_id() -> str:
    """The id of a new store."""
    return uuid4().hex[:16]


def _create(table: Table, dialect: SchemaDialect) -> str:
    kinds = ((name, *what.partition(" ")) for name, what in table.columns.items())
    columns = [f"{name} {dialect.types[kind]} {more}" for name, kind, _, more in kinds if kind in dialect.types]
    columns += [f"UNIQUE ({table.unique})"] if table.unique else []
    columns += [f"PRIMARY KEY ({table.primary})"] if table.primary else []
    return f"CREATE TABLE {table.name} ({', '.join(columns)}){dialect.keyed if table.primary else ''}"


def _create_index(table: str, index: Index, dialect: SchemaDialect) -> str:
    unique = "UNIQUE " if index.unique else ""
    whole = dialect.whole if index.whole else ""
    where = f" WHERE {index.where}" if index.where else ""
    return f"CREATE {unique}INDEX {index.name} ON {table} {whole}({index.columns}){where}"
