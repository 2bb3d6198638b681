"""Code of others in a task of its own, which can be left behind: no cancel makes it end that will not.

The one place with tasks outside a task group. A group waits for each of its tasks, and who waits for code that
swallows every cancel waits for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import anyio
from sniffio import current_async_library

from ..latch import Latch
from .isolation import own_error

T = TypeVar("T")

RELEASE_S = 5.0
"""So long may code take to end once it was cancelled."""
_left: set[Any] = set()
"""What was told to end and has not: asyncio itself does not keep its tasks."""


class Apart(Generic[T]):
    """Calls something at once; `done` is set when it has ended, with its `result` or `error`."""

    __slots__ = ("_call", "_scope", "_task", "done", "error", "result")

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._scope = anyio.CancelScope()
        self.done = Latch()
        self.result: T | None = None
        self.error: Exception | None = None
        self._task: Any = None
        if current_async_library() == "trio":
            from trio.lowlevel import spawn_system_task

            spawn_system_task(self._run, name=repr(call), context=copy_context())
        else:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Tell it to end."""
        if not self.done.is_set():
            _left.add(self)
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
            _left.discard(self)
            self.done.set()
