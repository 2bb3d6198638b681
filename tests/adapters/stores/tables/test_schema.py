"""A new store has the current tables at once; a store of the first version has them after its migrations."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stored_rows import in_store

from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.tables import schema
from proctor.policies.events import MessageReceived
from proctor.supervisor import Store
from proctor.supervisor.ports.stored_types import RunInfo
from proctor.supervisor.store.records import COUNTERS

FIRST = Path(__file__).with_name("first_version.sql")


def made(*statements: str) -> dict[str, Any]:
    """The columns of each table and the texts of its indexes, after these statements; in SQLite any type with `INT`
    in it is the same.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.execute(statement)
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        return {
            name: {
                (column, "INTEGER" if "INT" in kind.upper() else kind.upper(), *more)
                for _, column, kind, *more in connection.execute(f"PRAGMA table_info({name})")
            }
            if sql.startswith("CREATE TABLE")
            else sql
            for name, sql in found.fetchall()
        }


async def write(store: Store) -> None:
    await store.append([MessageReceived(session_id="s")])


def test_a_migrated_store_has_the_tables_of_a_new_one() -> None:
    """If not: a column, a table or an index is new, and `MIGRATIONS` has no step for it."""
    first = [statement for statement in FIRST.read_text().splitlines() if not statement.startswith("--")]
    migrations = schema.statements(schema.SQLITE, schema.FIRST_VERSION)

    assert made(*first, *migrations) == made(*schema.statements(schema.SQLITE))


def test_a_new_store_is_not_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables are the current ones: a migration would add a column for the second time."""
    new = made(*schema.statements(schema.SQLITE))
    monkeypatch.setattr(schema, "MIGRATIONS", (("ALTER TABLE runs ADD COLUMN calls int",),))

    assert made(*schema.statements(schema.SQLITE)) == new


def test_an_audit_finds_a_migrated_store_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest column stands last, and elsewhere in a new store."""
    path = tmp_path / "s.db"
    in_store(path, write)
    tables = [
        table._replace(columns={"colour": "text", **table.columns}) if table.name == "runs" else table
        for table in schema.TABLES
    ]
    monkeypatch.setattr(schema, "TABLES", tables)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN colour TEXT",)))
    in_store(path, write)

    assert audited(path).findings == ()


@pytest.mark.parametrize("counter", COUNTERS.values())
def test_what_events_count_is_a_field_of_a_run(counter: str) -> None:
    """Every store shows it."""
    assert getattr(RunInfo(run_id="r", session_id="s"), counter) == 0
