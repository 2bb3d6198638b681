"""Helper tasks beside a body of code, and notifications across threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import anyio
from sniffio import current_async_library


@asynccontextmanager
async def helpers() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group that is cancelled when the body is left; the body's exception is raised unwrapped, even if a
    helper has failed too.
    """
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # raised again below, outside the group that would wrap it
                failure = error
            finally:
                tasks.cancel_scope.cancel()
    except Exception as of_helpers:
        if failure is None:
            raise
        raise failure from of_helpers
    if failure is not None:
        raise failure


Hop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Runs a callable soon in an event loop, called from any thread; raises RuntimeError if the loop is gone."""


def current_hop() -> Hop:
    """A function that runs a callable soon in this event loop, from any thread."""
    if current_async_library() == "trio":  # `trio` may stand in sys.modules half imported by another thread
        from trio.lowlevel import current_trio_token

        return current_trio_token().run_sync_soon
    return asyncio.get_running_loop().call_soon_threadsafe


def set_all(waiting: Iterable[tuple[Hop, anyio.Event]]) -> None:
    """Set events from any thread, with one hop for each event loop."""
    by_loop: dict[Hop, list[anyio.Event]] = {}
    for hop, event in waiting:
        by_loop.setdefault(hop, []).append(event)
    for hop, events in by_loop.items():
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            hop(partial(_set_here, events))


def _set_here(events: list[anyio.Event]) -> None:
    for event in events:
        event.set()


class Notifier:
    """Counts what was stored; notified from any thread, waited for in any event loop."""

    def __init__(self) -> None:
        self.version = 1
        self._lock = threading.Lock()
        self._waiting: list[tuple[Hop, anyio.Event]] = []

    def notify(self) -> None:
        """Wake all waiters."""
        with self._lock:
            self.version += 1
            waiting, self._waiting = self._waiting, []
        if waiting:
            set_all(waiting)

    @contextmanager
    def listening(self, token: int) -> Iterator[anyio.Event | None]:
        """An event that is set at the next notice, or None if there was one since `token`."""
        entry = (current_hop(), anyio.Event())
        with self._lock:
            is_news = token != self.version
            if not is_news:
                self._waiting.append(entry)
        try:
            yield None if is_news else entry[1]
        finally:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
