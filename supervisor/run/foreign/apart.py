"""Code of others in a task of its own, which can be left behind: no cancel ends code that refuses to end.

The one place with tasks outside a task group. A group waits for each of its tasks, and waiting for code that swallows
every cancel would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import anyio
from sniffio import current_async_library

from ..latch import Latch
from .isolation import own_error

T = TypeVar("T")

RELEASE_S = 5.0
"""So long may code take to end once it was cancelled."""
_tasks: set[Any] = set()
"""Those that go on: asyncio itself does not keep its tasks."""


def spawn(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function in a task outside every group; it contains what it raises. No scope cancels it.

    Lighter than a task of a group, which costs anyio two KiB on asyncio: there is one for each idle run.
    """
    if current_async_library() == "trio":
        from trio.lowlevel import spawn_system_task

        spawn_system_task(run, context=copy_context())
    else:
        task = asyncio.get_running_loop().create_task(run())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


class Apart(Generic[T]):
    """Calls something at once; `done` is set when it has ended, with its `result` or `error`, and `over` called."""

    __slots__ = ("_call", "_over", "_scope", "done", "error", "result")

    def __init__(
        self, call: Callable[[], Awaitable[T]], *, over: Callable[[Apart[T]], None] = lambda _: None
    ) -> None:
        self._call = call
        self._over = over
        self._scope = anyio.CancelScope()
        self.done = Latch()
        self.result: T | None = None
        self.error: Exception | None = None
        spawn(self._run)

    def cancel(self) -> None:
        """Tell it to end."""
        if not self.done.is_set():
            self._scope.cancel()

    async def released(self, within_s: float) -> bool:
        """Whether it ends within so many seconds, or at least once it was cancelled. False: it is left behind."""
        with anyio.move_on_after(within_s):
            await self.done.wait()
        if not self.done.is_set():
            self.cancel()
            with anyio.move_on_after(RELEASE_S):
                await self.done.wait()
        return self.done.is_set()

    async def _run(self) -> None:
        try:
            with self._scope:
                self.result = await self._call()
        except BaseException as raised:
            self.error = own_error(raised)
        finally:
            self.done.set()
            self._over(self)
