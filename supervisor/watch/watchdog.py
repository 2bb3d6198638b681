"""A thread that notices when a supervisor's event loop is blocked, and logs what blocks it.

While an agent's code holds the loop's thread, the loop itself handles no deadline, cancel or signal.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from traceback import extract_stack
from typing import Any

from anyio.lowlevel import current_token

from ..log import audible

BLOCKED_S = 10.0
"""A loop counts as blocked after this long without an answer; it is checked twice in that time."""
FRAMES = 16
"""How many of the innermost frames are reported."""
RUN_IDS = 20
"""How many of the runs are named."""

_watched: set[Watchdog] = set()
_thread: threading.Thread | None = None


class Watchdog:
    """Watches the event loop it is created in, from `start` to `stop`. `run_ids` returns the loop's current runs."""

    __slots__ = ("_answered", "_call", "_log", "_loop", "_pinged_at", "_reported", "_run_ids", "_whose")

    def __init__(self, log: Any, run_ids: Callable[[], list[str]]) -> None:
        token: Any = current_token()
        self._loop = token.native_token
        self._call = getattr(self._loop, "call_soon_threadsafe", None) or self._loop.run_sync_soon
        self._whose = threading.get_ident()
        self._log = log
        self._run_ids = run_ids
        self._pinged_at: float | None = None
        self._answered = True
        self._reported = False

    def start(self) -> None:
        """Start watching; one thread watches all loops of the process."""
        global _thread
        _watched.add(self)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_patrol, name="proctor-watchdog", daemon=True)
            _thread.start()

    def stop(self) -> None:
        _watched.discard(self)

    def check(self) -> None:
        """Ping the loop, and log it once it has not answered for too long."""
        now = time.monotonic()
        if self._pinged_at is None or self._answered:
            if self._reported and self._pinged_at is not None:
                self._report("loop.turns_again", seconds=round(now - self._pinged_at, 1))
            self._pinged_at, self._answered, self._reported = now, False, False
            self._call(self._answer)
        elif not self._reported and now - self._pinged_at >= BLOCKED_S and self in _watched:
            self._reported = True
            self._report(
                "loop.blocked", seconds=round(now - self._pinged_at, 1), task=self._task(), stack=_stack(self._whose)
            )

    def _answer(self) -> None:
        self._answered = True

    def _task(self) -> str | None:
        """The task that asyncio runs now; None on trio, which does not expose it."""
        if not isinstance(self._loop, asyncio.AbstractEventLoop):
            return None
        task = asyncio.current_task(self._loop)
        return None if task is None else str(getattr(task.get_coro(), "__qualname__", task.get_name()))

    def _report(self, event: str, **fields: Any) -> None:
        run_ids = self._run_ids()
        audible(self._log).error(event, runs=len(run_ids), run_ids=run_ids[:RUN_IDS], **fields)


def _stack(thread: int) -> list[str]:
    """A thread's stack, innermost frame first, without the values of variables."""
    frame = sys._current_frames().get(thread)
    frames = extract_stack(frame, limit=-FRAMES) if frame is not None else []
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]


def _patrol() -> None:
    while True:
        time.sleep(BLOCKED_S / 2)
        for one in tuple(_watched):
            try:
                one.check()
            except RuntimeError:  # its loop is closed
                one.stop()
