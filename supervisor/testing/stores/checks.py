"""What the tests of the Store port share: how a store is opened and queried."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio

from proctor.policies.stream.events import Event, MessageReceived
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import RunInfo

from ..patience import PATIENCE_S

T = TypeVar("T")


async def stored(store: Store, session_id: str, *, after: int = 0, run_id: str | None = None) -> list[Event]:
    """All that `read` gives."""
    return [event async for event in store.read(session_id, after=after, run_id=run_id)]


def message(session_id: str, text: str, *, run_id: str = "", event_id: str = "") -> MessageReceived:
    """An event as an adapter would report it."""
    return MessageReceived(session_id=session_id, run_id=run_id, event_id=event_id, content=text)


def texts(events: Sequence[Event]) -> list[Any]:
    """The contents of messages."""
    return [event.content for event in events if isinstance(event, MessageReceived)]


async def kind_of_refusal(attempt: Any) -> str | None:
    """The kind of the StoreError that awaiting raises, or None when it raises none."""
    try:
        await attempt
    except StoreError as error:
        return error.kind
    return None


async def at_once(work: Callable[[T], Coroutine[Any, Any, object]], each: Iterable[T]) -> None:
    """Do something for each of these at the same time, in bounded time."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for one in each:
                tasks.start_soon(work, one)


async def run_of(store: Store, run_id: str) -> RunInfo:
    """A run that exists."""
    run = await store.run(run_id)
    assert run is not None
    return run


async def status_of(store: Store, run_id: str) -> str:
    """The status of a run that exists."""
    return (await run_of(store, run_id)).status


class StoreChecks:
    """The base of every group of tests. `durable` says that a store opened again holds what the first one
    acknowledged, and that two may be open at once.
    """

    durable = False

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        """Open the store of this test, empty at first; leaving the context closes it."""
        raise NotImplementedError
