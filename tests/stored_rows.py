"""Reading and changing the contents of stores: through a store, or through the rows of its SQLite file."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import anyio

from proctor.adapters.stores import open_store
from proctor.policies.events import Event
from proctor.supervisor import Store
from proctor.supervisor.testing.fakes import PATIENCE_S

T = TypeVar("T")


def in_store(place: Path | str, use: Callable[[Any], Awaitable[T]]) -> T:
    """The result of an operation on the store at a path or URL, in its own event loop."""

    async def used() -> T:
        async with open_store(place) as store:
            return await use(store)

    return anyio.run(used)


async def once(store: Store, look: Callable[[Store], Awaitable[T | None]]) -> T:
    """The result of a query of a store, once it is not empty."""
    token = 0
    with anyio.fail_after(PATIENCE_S):
        while not (found := await look(store)):
            token = await store.wait(token, 0.1)
    return found


async def stored_events(store: Store, session_id: str = "s") -> list[Event]:
    """The events of a session."""
    return [event async for event in store.read(session_id)]


def stored_rows(store: Path | str, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The rows of an SQL statement on the store's file; changes are committed."""
    with closing(sqlite3.connect(store)) as connection, connection:
        return connection.execute(sql, values).fetchall()
