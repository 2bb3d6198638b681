"""Processes that open one store at the same time, where it has to be made first; one that is brought up to date."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.tables import schema
from proctor.supervisor.errors import StoreError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = needs_postgres
PROGRAM = Path(__file__).with_name("starting_process.py")
PROCESSES = 4


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with new_schema() as found:
        yield found


@contextmanager
def ready(place: tuple[str, str], name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for its start."""
    command = [sys.executable, str(PROGRAM), *place, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def sessions(place: tuple[str, str]) -> set[str]:
    async with PostgresStore(place[0], schema=place[1]) as store:
        return {entry.session_id async for entry in store.log()}


def query(place: tuple[str, str], sql: str, *values: Any) -> list[Any]:
    import psycopg

    with psycopg.connect(place[0], autocommit=True) as connection:
        connection.execute(f"SET search_path = {place[1]}")
        return connection.execute(sql, values).fetchall()


def test_starts_at_the_same_time_make_one_store(place: tuple[str, str]) -> None:
    """Whoever comes later finds it made; what each stores is in the same one."""
    with ExitStack() as stack:
        processes = [stack.enter_context(ready(place, str(n))) for n in range(PROCESSES)]
        for process in processes:
            go(process)
        ids = {next_line(process) for process in processes}

    assert len(ids) == 1
    assert query(place, "SELECT store_id, version FROM store") == [(*ids, schema.schema_version())]
    assert anyio.run(sessions, place) == {str(n) for n in range(PROCESSES)}


def test_a_starter_that_is_killed_in_the_middle_leaves_nothing_half_made(place: tuple[str, str]) -> None:
    """Those that wait for it begin anew, and what it had made is not there."""
    import psycopg

    with psycopg.connect(place[0], autocommit=True) as connection, ExitStack() as stack:
        first, *others = [stack.enter_context(ready(place, str(n))) for n in range(PROCESSES)]
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {place[1]}")
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE {place[1]}.budget_parts (in_the_way int)")  # one of the last tables
        go(first)
        wait_for(place, "transactionid", 1)
        for process in others:
            go(process)
        wait_for(place, "advisory", len(others))
        first.kill()
        first.wait(PATIENCE_S)
        connection.execute("ROLLBACK")
        ids = {next_line(process) for process in others}

    assert len(ids) == 1
    assert len(query(place, "SELECT FROM store")) == 1
    assert anyio.run(sessions, place) == {str(n) for n in range(1, PROCESSES)}


def test_an_older_store_is_brought_up_to_date(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it held is there, and another that opens it finds it up to date."""
    anyio.run(sessions, place)
    before = query(place, "SELECT store_id, version FROM store")
    monkeypatch.setattr(
        schema, "MIGRATIONS", (("ALTER TABLE runs ADD COLUMN colour text",), ("DROP INDEX runs_by_status",))
    )
    assert [anyio.run(sessions, place) for _ in range(2)] == [set(), set()]

    assert query(place, "SELECT store_id, version - 2 FROM store") == before
    assert query(place, "SELECT colour FROM runs") == []


def test_a_store_from_before_the_first_release_is_refused(place: tuple[str, str]) -> None:
    """It is told how its record is moved."""
    anyio.run(sessions, place)
    query(place, "UPDATE store SET version = %s RETURNING 1", schema.FIRST_VERSION - 1)
    with pytest.raises(StoreError, match=r"before the first release.*`export` of the proctor") as caught:
        anyio.run(sessions, place)

    assert caught.value.kind == "older_schema"


def wait_for(place: tuple[str, str], lock: str, count: int) -> None:
    """Wait until a given number of the processes wait for a lock of this kind."""
    waiting = """SELECT pid FROM pg_stat_activity WHERE wait_event = %s AND application_name LIKE 'proctor%%'
        AND datname = current_database()"""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := query(place, waiting, lock)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
