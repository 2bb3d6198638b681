"""The fixture of the Store tests: how a store is opened and queried."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import anyio

from proctor.policies.events import Event, MessageReceived

from ..errors import StoreError, StoreErrorKind
from ..ports.store import Store
from ..ports.stored_types import LogEntry, RunInfo
from ..store.memory_store import MemoryStore
from .fakes import PATIENCE_S

T = TypeVar("T")


async def stored(store: Store, session_id: str, *, after: int = 0, run_id: str | None = None) -> list[Event]:
    """All that `read` gives."""
    return [event async for event in store.read(session_id, after=after, run_id=run_id)]


async def logged(store: Store, **how: Any) -> list[LogEntry]:
    """All that `log` gives."""
    return [entry async for entry in store.log(**how)]


def message(session_id: str, text: str, *, run_id: str = "", event_id: str = "") -> MessageReceived:
    """An event as an adapter would report it."""
    return MessageReceived(session_id=session_id, run_id=run_id, event_id=event_id, content=text)


def texts(events: Sequence[Event]) -> list[Any]:
    return [event.content for event in events if isinstance(event, MessageReceived)]


async def kind_of_refusal(attempt: Any) -> StoreErrorKind | None:
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
    run = await store.run(run_id)
    assert run is not None
    return run


async def status_of(store: Store, run_id: str) -> str:
    return (await run_of(store, run_id)).status


class StoreChecks:
    """The base of every group of tests. A test that takes a `store` is given the one that `open_store` opens.

    `durable` says that a store opened again holds what the first one acknowledged, and that two may be open at once.
    """

    durable = False

    def __init_subclass__(cls) -> None:
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and "store" in signature(test).parameters:
                setattr(cls, name, _with_store(test))

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        """Open the store of this test, empty at first; leaving the context closes it."""
        raise NotImplementedError


def _with_store(test: Any) -> Any:
    @wraps(test)
    async def opened(self: StoreChecks) -> None:
        async with self.open_store() as store:
            await test(self, store)

    del opened.__wrapped__  # a runner is not to look for a fixture of that name
    return opened


class FaultyStore(MemoryStore):
    """In memory; append number `fails_at` (with `stays_broken`, every later one too) raises StoreError."""

    def __init__(self, fails_at: int, *, stays_broken: bool = False) -> None:
        super().__init__()
        self.appends = 0
        self._fails_at = fails_at
        self._stays_broken = stays_broken

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        """Store events, or raise StoreError when it is due."""
        self.appends += 1
        if self.appends == self._fails_at or (self._stays_broken and self.appends > self._fails_at):
            raise StoreError("the disk is full", kind="unwritable")
        return await super().append(events, epoch=epoch)
