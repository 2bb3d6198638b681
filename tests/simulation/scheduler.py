"""Deterministic event loops: with the same seed they do the same. Time advances only while every task waits.

On trio, the seed chooses at every step which of the ready tasks runs first, and an owner can be suspended: none of
its tasks runs until it continues, as in a process stopped by SIGSTOP. On asyncio, ready tasks run in asyncio's order,
and the seed chooses the delays at each boundary.
"""

import asyncio
import math
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import anyio
import pytest
import trio
from trio._core import _run as trio_run

from proctor.supervisor.store import memory_tables
from proctor.supervisor.watch.watchdog import Watchdog

T = TypeVar("T")
OWNER: Final[ContextVar[int]] = ContextVar("OWNER", default=-1)
"""The number of the supervisor to which this task belongs; -1 for others."""


class StuckError(Exception):
    """Every task waits, and nothing will ever wake one."""


class Freezer:
    """Suspends the tasks of owners. Instead of its own random numbers, trio asks it which task runs next."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._kept: dict[int, list[trio.lowlevel.Task]] = {}

    def random(self) -> float:
        """A number from 0 to 1."""
        return self._random.random()

    def uniform(self, low: float, high: float) -> float:
        """A number between two others."""
        return self._random.uniform(low, high)

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Put ready tasks in the order of this seed, and hold back those of suspended owners."""
        if self._kept:
            for task in [task for task in batch if task.context.get(OWNER, -1) in self._kept]:
                self._kept[task.context[OWNER]].append(task)
                batch.remove(task)
        if len(batch) > 1:
            self._random.shuffle(batch)

    def freeze(self, owner: int) -> None:
        """Suspend an owner: none of its tasks runs."""
        self._kept.setdefault(owner, [])

    def thaw(self, owner: int) -> None:
        """Resume it."""
        for task in self._kept.pop(owner, []):
            trio_run.GLOBAL_RUN_CONTEXT.runner.runq.append(task)

    def is_frozen(self, owner: int) -> bool:
        return owner in self._kept


class VirtualClock(trio.abc.Clock):
    """Time that jumps to the next deadline once no task is ready, which is when trio asks how long to sleep."""

    def __init__(self) -> None:
        self._virtual = 0.0

    def start_clock(self) -> None:
        """Time stands still until every task waits."""

    def current_time(self) -> float:
        return self._virtual

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Do not sleep, and jump to the deadline. Without a deadline, trio wakes up for work of its own."""
        if deadline == math.inf:
            return deadline
        self._virtual = max(self._virtual, deadline)
        return 0.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next deadline once no task is ready."""

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__()

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready:
            waiting = [handle._when for handle in loop._scheduled if not handle._cancelled]
            if not waiting:
                raise StuckError("every task waits, and nothing will ever wake one")
            self._virtual = max(self._virtual, min(waiting))
        super()._run_once()  # type: ignore[misc]


@contextmanager
def changed(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes while the context is active: (owner, name, value)."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in changes:
            patch.setattr(owner, name, value)
        yield


@contextmanager
def _same_each_time(seed: int, freezer: Freezer) -> Iterator[None]:
    """Ids derived from the seed; no threads; owners known only by their leases."""
    ids = random.Random(seed)
    kept = {
        (uuid, "uuid4"): lambda: uuid.UUID(int=ids.getrandbits(128), version=4),
        (Watchdog, "start"): lambda self: None,
        (memory_tables, "is_gone"): lambda owner: False,
        (trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING"): True,
        (trio_run, "_r"): freezer,
    }
    with changed(*((where, name, value) for (where, name), value in kept.items())):
        yield


def run_seeded(main: Callable[[Freezer], Awaitable[T]], seed: int, *, backend: str = "trio") -> T:
    """Run an async function in virtual time. Two runs with one seed are identical.

    Raises StuckError if every task waits for ever.
    """
    freezer = Freezer(seed)
    found: list[T] = []

    async def all_of_it() -> None:
        found.append(await main(freezer))

    with _same_each_time(seed, freezer):
        if backend == "trio":
            trio.run(all_of_it, clock=VirtualClock())
        else:
            anyio.run(all_of_it, backend="asyncio", backend_options={"loop_factory": VirtualLoop})
    return found[0]
