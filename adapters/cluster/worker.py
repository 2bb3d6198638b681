"""A worker: one supervisor that takes runs from the queue of its store, as many at once as it has room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from proctor.adapters.agents.registry import adapter_named
from proctor.adapters.kit.processes.remains import end_remains
from proctor.supervisor import RunHandle, StoreError, Supervisor
from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapters import Adapter, Store
from proctor.supervisor.run.orphans import end_lost_runs

from .queue import Waiting, waiting
from .starts import Starts

LOOK_S: Final = 2.0
"""How often a worker looks for lost runs, and for those that wait where the store tells it of nothing new."""
PAUSE_S: Final = 0.05
"""The least time between two looks at a busy store."""
RETRY_S: Final = 1.0
_SHARE: Final = 10
"""Reading the queue takes at most this part of a worker's time, one in so many, however long the queue is."""
_AHEAD: Final = 2000


class Worker:
    """Takes runs, oldest first, and supervises them. Of several workers that want one run, one gets it.

    Args:
        store: where runs wait and are recorded.
        max_running: how many go on here at once.
        adapters: makes an adapter from its name and options; the adapters of this package if not given.
    """

    def __init__(
        self, store: Store, *, max_running: int = 100, adapters: Callable[..., Adapter] = adapter_named
    ) -> None:
        self.max_running = max_running
        self.finished = 0
        self._store = store
        self._starts = Starts(store, adapters)
        self._taken: dict[str, str] = {}  # the runs that are started or go on here, by session
        self._ahead: deque[Waiting] = deque()
        self._starting = 0
        self._drained = False
        self._freed = False
        self._listening: anyio.CancelScope | None = None
        self._next_reap = self._next_read = 0.0
        self._log = logger()

    @property
    def running(self) -> int:
        """How many runs go on here."""
        return len(self._taken)

    def drain(self) -> None:
        """Take no more runs; `run` returns when those that go on have ended. May be called from any thread."""
        self._drained = True

    async def run(self) -> None:
        """Work until drained, or until cancelled: that ends the runs that go on. Raises StoreError once the store is
        closed; a store that cannot be reached is tried again.
        """
        supervisor = Supervisor(self._store, max_running=self.max_running)
        async with supervisor, anyio.create_task_group() as tasks:
            token = 0
            while not self._drained:
                try:
                    await self._look(supervisor, tasks)
                    token = await self._news(token)
                except StoreError as error:
                    if error.kind == "closed":
                        raise
                    self._log.warning("worker.store", error=str(error))
                    await anyio.sleep(RETRY_S)

    async def _news(self, token: int) -> int:
        """Wait until there may be something to take; gives the token for the next time."""
        await anyio.sleep(PAUSE_S)
        if not self._freed:
            with anyio.CancelScope() as self._listening:
                token = await self._store.wait(token, LOOK_S)
        self._freed, self._listening = False, None
        return token

    async def _look(self, supervisor: Supervisor, tasks: TaskGroup) -> None:
        """End lost runs when it is time, and take what there is room for."""
        now = anyio.current_time()
        if now >= self._next_reap:
            self._next_reap = now + LOOK_S
            await end_lost_runs(self._store, remains=end_remains)
        if self.running < self.max_running and not self._ahead and now >= self._next_read:
            self._ahead.extend(await waiting(self._store, most=_AHEAD, mine=self._starts.epoch))
            self._next_read = anyio.current_time() + _SHARE * (anyio.current_time() - now)
        while self._ahead and self.running < self.max_running and not self._drained:
            if self._ahead[0].attempts and self._starting:
                return
            run = self._ahead.popleft()
            if run.session_id in self._taken:
                continue
            self._taken[run.session_id] = run.run_id
            self._starting += 1
            if run.attempts:  # alone: should this worker die of it, no other is to be counted with it
                await tasks.start(self._supervise, supervisor, run)
            else:
                tasks.start_soon(self._supervise, supervisor, run)

    async def _supervise(
        self,
        supervisor: Supervisor,
        run: Waiting,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start a run and wait for its end; the task has started once the run has begun."""
        try:
            handle = await self._begun(supervisor, run, task_status)
            if handle is not None:
                await handle.wait_finished()
                self.finished += 1
        except StoreError as error:
            self._log.warning("worker.store", run_id=run.run_id, session_id=run.session_id, error=str(error))
        finally:
            del self._taken[run.session_id]
            self._freed = True
            if self._listening is not None:
                self._listening.cancel()

    async def _begun(self, supervisor: Supervisor, run: Waiting, task_status: TaskStatus[None]) -> RunHandle | None:
        try:
            handle = await self._starts.start(supervisor, run)
            if handle is not None and run.attempts:
                await self._starts.begun(handle)
        finally:
            self._starting -= 1
            task_status.started()
        return handle
