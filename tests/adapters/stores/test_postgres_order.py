"""Places in the log of a PostgreSQL store: their order is the order of commits, whoever commits when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import pytest
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore
from proctor.policies.events import MessageReceived
from proctor.supervisor.ports.stored_types import Cancel
from proctor.supervisor.testing.fakes import PATIENCE_S

if TYPE_CHECKING:
    import psycopg

pytestmark = needs_postgres

STORED = """INSERT INTO events SELECT max(position) + 1, (SELECT key FROM sessions WHERE session_id = 'begun'),
    1, 'other', NULL, 'x', NULL, '{}', '' FROM events"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with new_schema() as found:
        yield found


def message(session_id: str, text: str) -> MessageReceived:
    return MessageReceived(session_id=session_id, content=text)


async def _until(connection: psycopg.Connection, sql: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while connection.execute(sql).fetchone() != (1,):
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_what_began_first_and_commits_last_stands_last_and_is_not_missed(place: tuple[str, str]) -> None:
    """While one transaction has the order, another waits for its place: no reader goes past what is not seen yet."""
    import psycopg

    from proctor.adapters.stores.postgres.recording import TAKE_TURN

    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        await store.append([message("s", "first")])
        with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as looking:
            slow.execute(f'SET search_path = "{schema}"')
            slow.execute("INSERT INTO sessions (session_id) VALUES ('begun')")  # its transaction has begun
            await store.append([message("t", "began later, committed first")])
            seen = [entry.position async for entry in store.log()]
            slow.execute(TAKE_TURN)
            slow.execute(STORED)
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.append, [message("u", "waits")])
                    await _until(looking, WAITING)
                    between = [entry.position async for entry in store.log(after=seen[-1])]
                    slow.commit()
            after = [(entry.position, entry.session_id) async for entry in store.log(after=seen[-1])]

        assert seen == [1, 2]
        assert between == []
        assert after == [(3, "begun"), (4, "u")]


@pytest.mark.anyio
async def test_instructions_are_numbered_in_the_order_of_commits(place: tuple[str, str]) -> None:
    """Whoever reads on after the latest number misses none."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as one, PostgresStore(url, schema=schema) as other:
        numbers: list[int] = []
        seen: list[int] = []

        async def order(store: PostgresStore) -> None:
            numbers.extend([await store.send_command(Cancel(scope="all")) for _ in range(20)])

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for store in (one, other, one, other):
                    tasks.start_soon(order, store)
                while len(seen) < 80:
                    after = seen[-1] if seen else 0
                    seen.extend(found.number for found in await one.commands(after=after))

        assert seen == sorted(numbers) == list(range(1, 81))


@pytest.mark.anyio
async def test_two_that_append_to_the_same_sessions_leave_no_gap_and_no_reader_behind(place: tuple[str, str]) -> None:
    """Sessions are named in opposite orders, so that their locks could cross."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as one, PostgresStore(url, schema=schema) as other:
        seen: list[tuple[str, int]] = []
        names = [f"s{n}" for n in range(4)]

        async def append(store: PostgresStore, order: list[str]) -> None:
            for n in range(25):
                await store.append([message(name, f"{n}") for name in order])

        with anyio.fail_after(PATIENCE_S):
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
