"""Signals that end a run: the first one in order, a later one at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import NoReturn

import anyio

_PATIENCE = {signal.SIGINT: 2}
"""So many of a kind are taken; the next one ends the program. Of others: one."""


@asynccontextmanager
async def ended_by_signals(end: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `end` at the first Ctrl-C, SIGTERM or loss of the terminal. A second SIGTERM, or a third Ctrl-C, ends the
    program as if nobody had listened: whoever sees the store then ends the run. Under `nohup` the loss of the
    terminal stays without effect.

    The handlers are Python's own: those of an event loop wait for the loop, which an agent may hold up.
    """
    from ..stores.wakeups import current_hop

    hop, told = current_hop(), anyio.Event()
    came: dict[int, int] = {}

    def take(number: int, _: FrameType | None) -> None:
        came[number] = came.get(number, 0) + 1
        if sum(came.values()) > 1 and came[number] > _PATIENCE.get(signal.Signals(number), 1):
            _give_way(number)
        hop(told.set)

    async def listen() -> None:
        await told.wait()
        await end()

    before = {number: signal.signal(number, take) for number in _meant()}
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            yield
            tasks.cancel_scope.cancel()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _meant() -> list[signal.Signals]:
    meant = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        meant.append(signal.SIGHUP)
    return meant


def _give_way(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave(code: int) -> NoReturn:
    """End the program with this exit code, though something in it does not end."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
