"""A writer of a PostgreSQL store that stands still, wherever it does, holds the others up for seconds only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore
from proctor.policies.events import MessageReceived
from proctor.supervisor.testing.fakes import PATIENCE_S

if TYPE_CHECKING:
    from proctor.adapters.stores.postgres.connection import Connection

pytestmark = needs_postgres
IN_TURN = "SELECT pg_advisory_xact_lock(1886548852, 'store'::regclass::oid::int4)"
SESSION = "SELECT key FROM sessions WHERE session_id = 's' FOR NO KEY UPDATE"
TABLE = "LOCK TABLE events"


@pytest.fixture
def anyio_backend() -> str:
    """One: the server's time passes, and it is the same for both."""
    return "asyncio"


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with new_schema() as found:
        yield found


@contextmanager
def standing_still(connection: Connection, lock: str, where: str) -> Iterator[None]:
    """What a stopped process is to the server: something was sent, and no more comes."""
    import psycopg

    pipeline = connection.pipeline() if where == "within a message" else nullcontext()
    with suppress(psycopg.OperationalError), pipeline:
        connection.execute("BEGIN")
        connection.execute(lock)
        if where == "before a statement":  # the server then no longer counts the time of the idle transaction
            connection.pgconn.send_flush_request()
            connection.pgconn.flush()
        yield


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("lock", "where"),
    [
        (IN_TURN, "within a message"),
        (IN_TURN, "before a statement"),
        (TABLE, "within a message"),
        (SESSION, "between messages"),
    ],
)
async def test_whoever_stands_still_loses_its_locks(place: tuple[str, str], lock: str, where: str) -> None:
    """The next that needs them has its write done, and nothing of the other is there."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        await store.append([MessageReceived(session_id="s")])
        stopped: Any = await anyio.to_thread.run_sync(partial(store._address.connect, "proctor stopped"))
        with standing_still(stopped, lock, where):
            with anyio.fail_after(PATIENCE_S):
                await store.append([MessageReceived(session_id="s")])
            stopped.close()

        assert await store.last_seq("s") == 2


@pytest.mark.anyio
async def test_a_slow_connection_that_continues_is_waited_for(place: tuple[str, str]) -> None:
    """It has its turn for longer than a lock is waited for, and says something meanwhile."""
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
