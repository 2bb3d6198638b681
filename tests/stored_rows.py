"""Reads and changes what stores hold: by a store, or the rows of a SQLite file behind its back."""

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
    """What a use of the store at a path or URL gives, in an event loop of its own."""

    async def used() -> T:
        async with open_store(place) as store:
            return await use(store)

    return anyio.run(used)


async def once(store: Store, look: Callable[[Store], Awaitable[T | None]]) -> T:
    """What a look at a store finds, as soon as it finds something."""
    token = 0
    with anyio.fail_after(PATIENCE_S):
        while not (found := await look(store)):
            token = await store.wait(token, 0.1)
    return found


async def stored_events(store: Store, session_id: str = "s") -> list[Event]:
    """The record of a session."""
    return [event async for event in store.read(session_id)]


def stored_rows(store: Path | str, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The rows that a statement gives on the store's file; what it changes is committed."""
    with closing(sqlite3.connect(store)) as connection, connection:
        return connection.execute(sql, values).fetchall()
