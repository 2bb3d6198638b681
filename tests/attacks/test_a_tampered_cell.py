"""Each column of each table is changed by SQL, each row removed, and a row added to each table: `audit` finds it.

The tables are those of the schema, so a new column is tested at once.
"""

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from postgres_server import needs_postgres, new_database
from stored_rows import in_store, stored_rows

from proctor.adapters.hooks.record import HookStore, store_id
from proctor.adapters.stores.audit.audit import AuditReport, audited
from proctor.adapters.stores.tables.schema import POSTGRES, SQLITE, TABLES, SchemaDialect, Table
from proctor.policies import RunContext, parse_policies
from proctor.supervisor import Block, Cancel, Store, StoreError, create_run, run_once
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover
from proctor.supervisor.testing.store_approvals import draw, money
from proctor.supervisor.testing.store_runs import begun, owner

NOT_FOUND = {
    "writers": "what became of a commit that nobody was told of; only the process that waits for it reads this",
    "sessions: a row more": "such a row is made for what is then refused, and nothing refers to it",
}
"""Changes that `audit` does not find, and why they do not matter."""


async def record(store: Store) -> None:
    """Approvals, two budgets that a run uses, commands, and runs that have ended, are active or never started."""
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")
    team = RunContext(tenant="red", labels={"team": "a"})
    for answer in (True, False):
        adapter, approver = FakeAdapter([Ask(name="bash")]), FakeApprover(answer)
        await run_once(adapter, "go", policies=policies, store=store, approver=approver, context=team)
    epoch = await owner(store)
    await owner(store)  # has no run
    await begun(store, epoch, "drawing", "s-drawing")
    for key, used in product(("", "other"), (2, 3)):
        await draw(store, epoch, "drawing", money(key=key), used=used, want=1)
    for order in (Block(scope="tenant", value="other"), Cancel(scope="all", by="ana")):
        await store.send_command(order)
    await create_run(store, "go")
    await create_run(store, "go", context=team)


def identity(table: Table) -> list[str]:
    """The columns that identify a row of a table."""
    if table.primary:
        return table.primary.split(", ")
    keys = ("key", "serial", "position")
    found = [
        n for n, what in table.columns.items() if what.split()[0] in keys or "PRIMARY" in what or "UNIQUE" in what
    ]
    return found[:1] or list(table.columns)[:1]


def others(value: Any, kind: str) -> list[Any]:
    """Other values that a column of this type could have."""
    match value:
        case None:
            of_kind: dict[str, list[Any]] = {"int": [0, 7], "text": ["", "x"], "bytes": [b"", b"x"]}
            return {**of_kind, "json": ["{}", b"{}"]}.get(kind, [0])
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, -value, 0, None]
        case str():
            return [f"{value}x", "", None]
        case bytes():
            return [value + b"x", b"", None]
        case list():
            return [[*value, "x"], []]
        case datetime():
            return [value + timedelta(days=365), None]
    raise AssertionError(f"a value of {type(value)}")


class Tampering(ABC):
    """A store that is changed by SQL, audited, and restored."""

    def __init__(self, dialect: SchemaDialect, refused: type[Exception]) -> None:
        self.dialect = dialect
        self._refused = refused

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute SQL; returns its rows."""

    @abstractmethod
    def report(self) -> AuditReport:
        """The findings of an audit."""

    def audit(self) -> bool:
        """Whether there is a finding."""
        report = self.report()
        return not (report.intact and report.complete)

    @abstractmethod
    def undo(self, table: str) -> None: ...

    def tables(self) -> Iterator[tuple[Table, list[str], list[tuple[Any, ...]]]]:
        """Each table, its columns and its rows."""
        for table in (*TABLES, *self.dialect.tables):
            columns = [name for name, what in table.columns.items() if what.split()[0] in self.dialect.types]
            order = ", ".join(identity(table))
            rows = self.execute(f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {order}")
            yield table, columns, [tuple(row) for row in rows]

    def finds(self, table: str, sql: str, values: Sequence[Any]) -> bool | None:
        """Whether a change is found; None if the database rejects it."""
        try:
            self.execute(sql, values)
        except self._refused:
            return None
        try:
            return self.audit()
        except StoreError:  # not read at all
            return True
        finally:
            self.undo(table)

    def some(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows whose columns are changed."""
        return [*rows[:1], *rows[1:][-1:]]

    def where(self, table: Table) -> str:
        """The condition for one of its rows."""
        return " AND ".join(f"{name} = {self.place}" for name in identity(table))

    place = "?"


class InAFile(Tampering):
    def __init__(self, path: Path) -> None:
        super().__init__(SQLITE, sqlite3.Error)
        self._path, self._kept = path, Path(shutil.copy(path, f"{path}.kept"))

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = stored_rows(self._path, sql, tuple(values))
        return rows

    def report(self) -> AuditReport:
        return audited(self._path)

    def undo(self, table: str) -> None:
        shutil.copy(self._kept, self._path)


class InADatabase(Tampering):
    place = "%s"

    def __init__(self, url: str) -> None:
        import psycopg

        super().__init__(POSTGRES, psycopg.Error)
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self.execute("SET search_path = proctor")
        self.execute("SET session_replication_role = replica")  # no foreign keys are checked
        self.execute("CREATE SCHEMA kept")
        for table in (*TABLES, *POSTGRES.tables):
            self.execute(f"CREATE TABLE kept.{table.name} AS TABLE {table.name}")
            for name, what in table.columns.items():
                if what.split()[0] in ("key", "serial"):
                    self.execute(f"ALTER TABLE {table.name} ALTER {name} DROP IDENTITY")

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        found = self._connection.execute(sql.encode(), values)
        return found.fetchall() if found.description else []

    def report(self) -> AuditReport:
        return audited(self._url)

    def undo(self, table: str) -> None:
        self.execute(f"DELETE FROM {table}")
        self.execute(f"INSERT INTO {table} SELECT * FROM kept.{table}")

    def close(self) -> None:
        self._connection.close()

    def some(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return rows[:1]  # audits of a database are slow


@contextmanager
def in_a_file(tmp_path: Path) -> Iterator[Tampering]:
    path = tmp_path / "s.db"
    in_store(path, record)
    hooks = HookStore(path, store_id(path))
    with hooks.record("s") as notes:
        notes.keep("judge", b"1")
    hooks.close()
    yield InAFile(path)


@contextmanager
def in_a_database(_: Path) -> Iterator[Tampering]:
    with new_database() as url:
        in_store(url, record)
        database = InADatabase(url)
        database.execute("INSERT INTO writers VALUES ('w', 1)")
        database.execute("INSERT INTO kept.writers SELECT * FROM writers")
        yield database
        database.close()


STORES = [pytest.param(in_a_file, id="sqlite"), pytest.param(in_a_database, id="postgres", marks=needs_postgres)]


@pytest.mark.parametrize("opened", STORES)
def test_a_change_of_any_cell_is_found(opened: Any, tmp_path: Path) -> None:
    """To another value of its type, to NULL, and to the value of another row."""
    missed, unchanged = set(), set()
    with opened(tmp_path) as store:
        assert not store.audit()
        for table, columns, rows in store.tables():
            assert rows, table.name
            keys = [columns.index(name) for name in identity(table)]
            for row, (n, column) in product(store.some(rows), enumerate(columns)):
                elsewhere = next((other[n] for other in rows if other[n] != row[n]), None)
                kind = table.columns[column].split()[0]
                done = False
                for value in {*map(hashable, others(row[n], kind)), hashable(elsewhere)} - {hashable(row[n])}:
                    sql = f"UPDATE {table.name} SET {column} = {store.place} WHERE {store.where(table)}"
                    found = store.finds(table.name, sql, [unhashed(value), *(row[key] for key in keys)])
                    if found is False:
                        missed.add(f"{table.name}.{column}: {row[n]!r} to {value!r}")
                    done = done or found is not None
                unchanged |= set() if done else {f"{table.name}.{column}"}
    assert {one for one in missed if one.partition(".")[0] not in NOT_FOUND} == set()
    assert unchanged == set()


def hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def unhashed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("opened", STORES)
def test_a_removed_or_added_row_of_any_table_is_found(opened: Any, tmp_path: Path) -> None:
    """An added row equals an existing one except for its key. An emptied table is found too."""
    missed = set()
    with opened(tmp_path) as store:
        for table, columns, rows in store.tables():
            keys = [columns.index(name) for name in identity(table)]
            for row in rows[:: max(1, len(rows) // 4)]:
                sql = f"DELETE FROM {table.name} WHERE {store.where(table)}"
                if not store.finds(table.name, sql, [row[key] for key in keys]):
                    missed.add(f"{table.name}: a row less")
                unique = {*keys, *(n for n, name in enumerate(columns) if name in _OF_EACH)}
                new = [another(value) if n in unique else value for n, value in enumerate(row)]
                places = ", ".join([store.place] * len(new))
                sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({places})"
                found = store.finds(table.name, sql, new)
                assert found is not None, (table.name, new)
                if not found:
                    missed.add(f"{table.name}: a row more")
            if not store.finds(table.name, f"DELETE FROM {table.name}", []):
                missed.add(f"{table.name}: no rows")
    assert {one for one in missed if one.partition(":")[0] not in NOT_FOUND} <= NOT_FOUND.keys()


def another(value: Any) -> Any:
    return f"{value}-more" if isinstance(value, str) else value and value + 1000


_OF_EACH = ("session_id", "run_id", "event_id", "seq", "approval_id", "budget")
"""Columns that are unique in some table."""


OF_SQLITE = (
    "UPDATE approvals SET state = 'granted', answer = (SELECT answer FROM approvals WHERE state = 'granted')",
    'UPDATE approvals SET answer = replace(CAST(answer AS TEXT), \'"by":"\', \'"by":"not \')',
    "UPDATE approvals SET state = 'requested', answer = NULL, recorded = 0",
    "UPDATE approvals SET held = held + 1, recorded = recorded + 1",
    """UPDATE runs SET spec = CAST(json_set(CAST(spec AS TEXT), '$.model', 'other') AS BLOB)""",
    "UPDATE owners SET host = 'other', seal = NULL",
    "UPDATE budgets SET most = most + 1, marks = 0",
    "DELETE FROM budgets; DELETE FROM budget_parts; DELETE FROM budget_shares",
    "DELETE FROM budgets WHERE counter = 1; DELETE FROM budget_parts WHERE counter = 1;"
    " DELETE FROM budget_shares WHERE counter = 1",
)
OF_POSTGRES = (
    *("CREATE RULE r AS ON INSERT TO events DO INSTEAD NOTHING", "CREATE POLICY p ON events"),
    "UPDATE runs SET spec = convert_to('{\"model\":\"x\"}', 'utf8') WHERE run_id = 'drawing'",
    "UPDATE runs SET labels = convert_to('{\"a\": \"', 'utf8') || '\\xff'::bytea || convert_to('\"}', 'utf8')",
    "UPDATE runs SET labels = convert_to('{\"a\": ' || repeat('[', 9999), 'utf8')",
    "UPDATE runs SET label_texts = label_texts || '4:team=other'::text WHERE run_id = 'drawing'",
    "DELETE FROM budget_parts; DELETE FROM budget_shares; DELETE FROM budgets",
)


@pytest.mark.parametrize(
    ("opened", "change"),
    [
        *((in_a_file, change) for change in OF_SQLITE),
        *(pytest.param(in_a_database, change, marks=needs_postgres) for change in OF_POSTGRES),
    ],
)
def test_rows_without_events_are_checked_against_what_was_written(opened: Any, change: str, tmp_path: Path) -> None:
    """Whole approvals, runs as created and their owners, owners, budgets; several cells at once."""
    with opened(tmp_path) as store:
        untouched = store.report().findings
        for statement in change.split("; "):
            store.execute(statement)
        report = store.report()

    assert untouched == ()
    assert {finding.code for finding in report.findings} == {"planted" if "CREATE" in change else "list_changed"}
    assert not report.intact
