"""Processes that create, write and follow one PostgreSQL store concurrently, one of them suspended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from owning_processes import Process, process
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.tables import schema
from proctor.policies.events import MessageReceived
from proctor.supervisor import Cancel, StoreError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [needs_postgres, pytest.mark.anyio]
PROGRAM = Path(__file__).with_name("starting_process.py")
PROCESSES = 4


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with new_schema() as found:
        yield found


def starters(stack: ExitStack, place: tuple[str, str]) -> list[Process]:
    """Processes that wait for their start."""
    found = [stack.enter_context(process(*place, str(n), program=PROGRAM)) for n in range(PROCESSES)]
    for each in found:
        each.until("ready")
    return found


async def sessions(place: tuple[str, str]) -> set[str]:
    async with PostgresStore(place[0], schema=place[1]) as store:
        return {entry.session_id async for entry in store.log()}


def query(place: tuple[str, str], sql: str, *values: Any) -> list[Any]:
    import psycopg

    with psycopg.connect(place[0], autocommit=True) as connection:
        connection.execute(f"SET search_path = {place[1]}")
        return connection.execute(sql, values).fetchall()


def test_concurrent_starts_create_one_store(place: tuple[str, str]) -> None:
    """Later ones find it, and all their events are in the same store."""
    with ExitStack() as stack:
        processes = starters(stack, place)
        for each in processes:
            each.go_on()
        ids = {each.until("") for each in processes}

    assert len(ids) == 1
    assert query(place, "SELECT store_id, version FROM store") == [(*ids, schema.schema_version())]
    assert anyio.run(sessions, place) == {str(n) for n in range(PROCESSES)}


def test_a_process_killed_during_the_creation_leaves_nothing_partial(place: tuple[str, str]) -> None:
    """Those that wait for it start again, and its tables are not there."""
    import psycopg

    with psycopg.connect(place[0], autocommit=True) as connection, ExitStack() as stack:
        first, *others = starters(stack, place)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {place[1]}")
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE {place[1]}.budget_parts (in_the_way int)")  # one of the last tables
        first.go_on()
        wait_for(place, "transactionid", 1)
        for each in others:
            each.go_on()
        wait_for(place, "advisory", len(others))
        first.process.kill()
        first.process.wait()
        connection.execute("ROLLBACK")
        ids = {each.until("") for each in others}

    assert len(ids) == 1
    assert len(query(place, "SELECT FROM store")) == 1
    assert anyio.run(sessions, place) == {str(n) for n in range(1, PROCESSES)}


def test_an_older_store_is_upgraded(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contents are kept, and the next to open it finds it upgraded. A store from before the first release is
    rejected, with how to move its log.
    """
    anyio.run(sessions, place)
    before = query(place, "SELECT store_id, version FROM store")
    steps = ("ALTER TABLE runs ADD COLUMN colour text",), ("DROP INDEX runs_by_status",)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *steps))
    assert [anyio.run(sessions, place) for _ in range(2)] == [set(), set()]

    assert query(place, "SELECT store_id, version - 2 FROM store") == before
    assert query(place, "SELECT colour FROM runs") == []
    query(place, "UPDATE store SET version = %s RETURNING 1", schema.FIRST_VERSION - 1)
    with pytest.raises(StoreError, match=r"before the first release.*`export` of the proctor") as caught:
        anyio.run(sessions, place)
    assert caught.value.kind == "older_schema"


async def test_a_process_of_an_older_version_writes_nothing_to_a_store_upgraded_meanwhile(
    place: tuple[str, str],
) -> None:
    """A newer process has opened it."""
    async with PostgresStore(place[0], schema=place[1]) as store:
        await store.append([message("s", "before")])
        query(place, "UPDATE store SET version = version + 1 RETURNING 1")
        for write in (store.append([message("s", "after")]), store.send_command(Cancel(scope="all"))):
            with pytest.raises(StoreError, match="upgrade proctor") as caught:
                await write
            assert caught.value.kind == "newer_schema"
        query(place, "UPDATE store SET version = version - 1 RETURNING 1")
        await store.append([message("s", "again")])

        assert await store.last_seq("s") == 2
        assert await store.last_command() == 0


def wait_for(place: tuple[str, str], lock: str, count: int) -> None:
    waiting = """SELECT pid FROM pg_stat_activity WHERE wait_event = %s AND application_name LIKE 'proctor%%'
        AND datname = current_database()"""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := query(place, waiting, lock)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


if TYPE_CHECKING:
    import psycopg

STORED = """INSERT INTO events SELECT max(position) + 1, (SELECT key FROM sessions WHERE session_id = 'begun'),
    1, 'other', NULL, 'x', NULL, '{}', '' FROM events"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def message(session_id: str, text: str) -> MessageReceived:
    return MessageReceived(session_id=session_id, content=text)


async def _until(connection: psycopg.Connection, sql: str) -> None:
    while connection.execute(sql).fetchone() != (1,):
        await anyio.sleep(0.01)


async def test_a_transaction_that_commits_last_is_ordered_last_and_not_missed(place: tuple[str, str]) -> None:
    """While one transaction holds the order, another waits: no reader skips an event that is not visible yet."""
    import psycopg

    from proctor.adapters.stores.postgres.recording import LOCK_LOG

    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        await store.append([message("s", "first")])
        with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as looking:
            slow.execute(f'SET search_path = "{schema}"')
            slow.execute("INSERT INTO sessions (session_id) VALUES ('begun')")  # its transaction has started
            await store.append([message("t", "began later, committed first")])
            seen = [entry.position async for entry in store.log()]
            slow.execute(LOCK_LOG)
            slow.execute(STORED)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, [message("u", "waits")])
                await _until(looking, WAITING)
                between = [entry.position async for entry in store.log(after=seen[-1])]
                slow.commit()
            after = [(entry.position, entry.session_id) async for entry in store.log(after=seen[-1])]

        assert seen == [1, 2]
        assert between == []
        assert after == [(3, "begun"), (4, "u")]


async def test_commands_are_numbered_in_the_order_of_commits(place: tuple[str, str]) -> None:
    """A reader that continues after the latest number misses none."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as one, PostgresStore(url, schema=schema) as other:
        numbers: list[int] = []
        seen: list[int] = []

        async def order(store: PostgresStore) -> None:
            numbers.extend([await store.send_command(Cancel(scope="all")) for _ in range(8)])

        async with anyio.create_task_group() as tasks:
            for store in (one, other, one, other):
                tasks.start_soon(order, store)
            while len(seen) < 32:
                after = seen[-1] if seen else 0
                seen.extend(found.number for found in await one.commands(after=after))

        assert seen == sorted(numbers) == list(range(1, 33))


async def test_a_stored_event_wakes_each_waiter_once(place: tuple[str, str]) -> None:
    """Including events of the same store, through the server's notification. Polling once a second finds
    missed ones.
    """
    wakes = 0
    async with PostgresStore(place[0], schema=place[1]) as store, PostgresStore(place[0], schema=place[1]) as other:

        async def follow(followed: PostgresStore) -> None:
            nonlocal wakes
            token = await followed.wait(0, 60)
            while True:
                token = await followed.wait(token, 60)
                wakes += 1

        async with anyio.create_task_group() as tasks:
            for each in (store, other):
                tasks.start_soon(follow, each)
                await each.wait(0, 0)
            began = time.monotonic()
            for n in range(30):
                before = wakes
                await store.append([message("s", str(n))])
                while wakes < before + 2:
                    await anyio.sleep(0.005)
            looks = 2 * (1 + time.monotonic() - began)
            tasks.cancel_scope.cancel()

    assert wakes <= 60 + looks


async def test_two_writers_to_the_same_sessions_leave_no_gap_and_no_reader_behind(place: tuple[str, str]) -> None:
    """They name sessions in opposite orders, so their locks could deadlock."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as one, PostgresStore(url, schema=schema) as other:
        seen: list[tuple[str, int]] = []
        names = [f"s{n}" for n in range(4)]

        async def append(store: PostgresStore, order: list[str]) -> None:
            for n in range(25):
                await store.append([message(name, f"{n}") for name in order])

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(append, one, names)
                tasks.start_soon(append, other, names[::-1])
            position = 0
            while len(seen) < 4 * 25 * 4:
                async for entry in one.log(after=position):
                    assert entry.position == position + 1
                    position = entry.position
                    seen.append((entry.session_id, entry.seq))

        for name in names:
            assert [seq for session_id, seq in seen if session_id == name] == list(range(1, 101))


if TYPE_CHECKING:
    from proctor.adapters.stores.postgres.connection import Connection
IN_TURN = "SELECT pg_advisory_xact_lock(1886548852, 'store'::regclass::oid::int4)"
SESSION = "SELECT key FROM sessions WHERE session_id = 's' FOR NO KEY UPDATE"
TABLE = "LOCK TABLE events"


@pytest.fixture
def anyio_backend() -> str:
    """One backend: the time is the server's, and the same for both."""
    return "asyncio"


@contextmanager
def standing_still(connection: Connection, lock: str, where: str) -> Iterator[None]:
    """A suspended process as the server sees it: something was sent, and nothing follows."""
    import psycopg

    pipeline = connection.pipeline() if where == "within a message" else nullcontext()
    with suppress(psycopg.OperationalError), pipeline:
        connection.execute("BEGIN")
        connection.execute(lock)
        if where == "before a statement":  # the server then no longer counts the time of the idle transaction
            connection.pgconn.send_flush_request()
            connection.pgconn.flush()
        yield


@pytest.mark.parametrize(("lock", "where"), [
    (IN_TURN, "within a message"),
    (IN_TURN, "before a statement"),
    (TABLE, "within a message"),
    (SESSION, "between messages"),
])  # fmt: skip
async def test_a_suspended_process_loses_its_locks(place: tuple[str, str], lock: str, where: str) -> None:
    """The next writer succeeds, and nothing of the suspended transaction is stored."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        await store.append([MessageReceived(session_id="s")])
        stopped: Any = await anyio.to_thread.run_sync(partial(store._address.connect, "proctor stopped"))
        with standing_still(stopped, lock, where):
            await store.append([MessageReceived(session_id="s")])
            stopped.close()

        assert await store.last_seq("s") == 2


async def test_a_slow_connection_that_continues_is_waited_for(place: tuple[str, str]) -> None:
    """It holds the lock for longer than the lock timeout, but sends something meanwhile."""
    url, schema = place
    async with PostgresStore(url, schema=schema, patience_s=PATIENCE_S) as store, anyio.create_task_group() as tasks:
        slow: Any = await anyio.to_thread.run_sync(partial(store._address.connect, "proctor slow"))
        slow.execute("BEGIN")
        slow.execute(IN_TURN)
        tasks.start_soon(store.append, [MessageReceived(session_id="s")])
        for _ in range(7):
            await anyio.to_thread.run_sync(slow.execute, "SELECT pg_sleep(1)")
        slow.execute("COMMIT")
        slow.close()
    async with PostgresStore(url, schema=schema) as store:
        assert await store.last_seq("s") == 1
