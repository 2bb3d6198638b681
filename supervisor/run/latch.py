"""Something that happens once and can be waited for; nearly free, also while somebody waits."""

from __future__ import annotations

import asyncio

import anyio
from anyio.lowlevel import checkpoint
from sniffio import current_async_library


class Latch:
    """Like `anyio.Event`, which holds a queue of its own on asyncio: thousands of idle runs wait for several."""

    __slots__ = ("_event", "_futures", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None
        self._futures: tuple[asyncio.Future[None], ...] = ()

    def set(self) -> None:
        """It has happened: let all waiters go."""
        self._set = True
        if self._event is not None:
            self._event.set()
        for future in self._futures:
            if not future.done():
                future.set_result(None)

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    async def wait(self) -> None:
        """Return once it has happened."""
        if self._set:
            await checkpoint()
        elif current_async_library() == "asyncio":
            future = asyncio.get_running_loop().create_future()
            self._futures = (*self._futures, future)
            try:
                await future
            finally:
                self._futures = tuple(one for one in self._futures if one is not future)
        else:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
