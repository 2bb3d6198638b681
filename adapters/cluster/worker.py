"""A worker: one supervisor that takes runs from the queue of its store, as many at once as it has room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from proctor.adapters.agents.registry import adapter_named
from proctor.adapters.kit.processes.remains import end_remains
from proctor.policies.policy import Policy
from proctor.supervisor import RunHandle, RunInfo, StartsBlockedError, StoreError, Supervisor
from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapters import Adapter, Store
from proctor.supervisor.run.orphans import end_lost_runs, end_unowned, passing_owner

from .queue import is_free, spec_of, waiting

LOOK_S: Final = 2.0
"""How often a worker looks for lost runs, and for those that wait where the store tells it of nothing new."""
PAUSE_S: Final = 0.05
"""The least time between two looks at a busy store."""
RETRY_S: Final = 1.0
_SHARE: Final = 10
"""Reading the queue takes at most this part of a worker's time, one in so many, however long the queue is."""
_AHEAD: Final = 2000
_KEPT: Final = 256


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
        self._adapter_named = adapters
        self._prepared: dict[bytes, tuple[Adapter, list[Policy]]] = {}
        self._taken: dict[str, str] = {}  # the runs that are started or go on here, by session
        self._ahead: deque[tuple[str, str]] = deque()  # the runs that were seen to wait, with their sessions
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
            found = await waiting(self._store, most=_AHEAD)
            self._ahead.extend((run.run_id, run.session_id) for run in found)
            self._next_read = anyio.current_time() + _SHARE * (anyio.current_time() - now)
        while self._ahead and self.running < self.max_running and not self._drained:
            run_id, session_id = self._ahead.popleft()
            if session_id not in self._taken:
                self._taken[session_id] = run_id
                tasks.start_soon(self._supervise, supervisor, run_id, session_id)

    async def _supervise(self, supervisor: Supervisor, run_id: str, session_id: str) -> None:
        try:
            handle = await self._start(supervisor, run_id)
            if handle is not None:
                await handle.wait_finished()
                self.finished += 1
        except StoreError as error:
            self._log.warning("worker.store", run_id=run_id, session_id=session_id, error=str(error))
        finally:
            del self._taken[session_id]
            self._freed = True
            if self._listening is not None:
                self._listening.cancel()

    async def _start(self, supervisor: Supervisor, run_id: str) -> RunHandle | None:
        """Start a run, unless another worker has it; one that can start nowhere is ended with the reason."""
        run = await self._store.run(run_id)
        if run is None or not is_free(run):
            return None
        try:
            spec = spec_of(run)
            assert spec is not None
            adapter, policies = self._parts(spec.adapter, spec.options, spec.policies)
            return await supervisor.execute(adapter, run_id, policies=policies, continuation=spec.continuation)
        except StartsBlockedError:
            return None  # it waits until that is lifted
        except StoreError:
            raise
        except Exception as error:  # whatever an adapter's options do, no other run is to end of it
            if not isinstance(error.__cause__, StoreError):  # else another worker has it, or its session
                await self._refuse(run, error)
            return None

    async def _refuse(self, run: RunInfo, error: Exception) -> None:
        self._log.error("run.not_started", run_id=run.run_id, session_id=run.session_id, error=str(error))
        async with passing_owner(self._store) as owner:
            await end_unowned(self._store, run, epoch=owner.epoch, reason=f"it could not be started: {error}")

    def _parts(
        self, name: str, options: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]
    ) -> tuple[Adapter, list[Policy]]:
        """The adapter and the policies of a spec, shared by runs with the same: one plan is made for all of them."""
        from proctor.policies import parse_policies

        key = msgspec.json.encode([name, options, policies])
        if key not in self._prepared:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            self._prepared[key] = (
                self._adapter_named(name, **options),
                list(parse_policies({"policies": list(policies)})),
            )
        return self._prepared[key]
