"""Signals that end a run: the first one in order, a later one at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, NoReturn, TypeAlias

Handlers: TypeAlias = dict[signal.Signals, Any]
_HANGUP = getattr(signal, "SIGHUP", None)
_PATIENCE = {signal.SIGINT: 2}
"""So many of a kind are taken; the next one ends the program. Of others: one."""


class EndingSignals:
    """Ctrl-C, SIGTERM and the loss of the terminal, taken from now to the end of the program.

    Until somebody listens the first one interrupts the program, as Ctrl-C does: there is no run yet. Afterwards it
    changes nothing: the run is over. A second SIGTERM, or a third Ctrl-C, ends the program as if nobody had listened:
    whoever sees the store then ends the run. Under `nohup` the loss of the terminal stays without effect.

    The handlers are Python's own: those of an event loop wait for the loop, which an agent may hold up.
    """

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        self._tell: Callable[[], object] = _interrupt
        for number in handlers():
            if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    @asynccontextmanager
    async def call(self, end: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Call `end`, within the event loop, at the first signal, also one that has come already."""
        import anyio

        from ..stores.wakeups import current_hop

        hop, received = current_hop(), anyio.Event()
        raised: Exception | None = None

        async def listen() -> None:
            await received.wait()
            await end()

        self._tell = lambda: hop(received.set)
        if self._came:  # what it interrupted then went on
            received.set()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                try:
                    yield
                except Exception as error:
                    raised = error
                tasks.cancel_scope.cancel()
        finally:
            self._tell = _do_nothing
        if raised is not None:  # itself, not one of a group
            raise raised

    def _take(self, number: int, _: FrameType | None) -> None:
        came = self._came[number] = self._came.get(number, 0) + 1
        if sum(self._came.values()) > 1 and came > _PATIENCE.get(signal.Signals(number), 1):
            _give_way(number)
        self._tell()


def handlers() -> Handlers:
    """What the signals that end a run are to do."""
    meant = (signal.SIGINT, signal.SIGTERM, _HANGUP)
    return {number: signal.getsignal(number) for number in meant if number is not None}


def put_back(before: Handlers) -> None:
    """Have signals do what they did, in a program that goes on."""
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _do_nothing() -> None:
    pass


def _give_way(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave(code: int) -> NoReturn:
    """End the program with this exit code, though something in it does not end."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
