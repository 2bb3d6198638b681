"""The supervisor's own clock: monotonic, and mapped once to the time of day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import anyio
from anyio.lowlevel import current_token


def _now() -> Callable[[], float]:
    """What `anyio.current_time` calls, looked up once: it is asked for every event."""
    token: object = current_token()
    native = getattr(getattr(token, "native_token", None), "time", None)
    if getattr(native, "__func__", None) is asyncio.BaseEventLoop.time:
        return time.monotonic  # which is all that it calls
    return native if callable(native) else anyio.current_time


class Clock:
    """Milliseconds since the epoch, from the event loop's monotonic clock; virtual where that is virtual.

    Made within a running event loop. A step of the wall clock moves no deadline.
    """

    __slots__ = ("_monotonic", "_offset_ms")

    def __init__(self) -> None:
        self._monotonic = _now()
        self._offset_ms = (time.time() - self._monotonic()) * 1000

    def now_ms(self) -> int:
        """The moment, in milliseconds since the epoch."""
        return int(self._monotonic() * 1000 + self._offset_ms)

    def monotonic(self) -> float:
        """Seconds on the event loop's clock."""
        return self._monotonic()

    def until(self, at_ms: int) -> float:
        """Seconds from now until a moment, not below 0."""
        return max((at_ms - self._offset_ms) / 1000 - self._monotonic(), 0.0)
