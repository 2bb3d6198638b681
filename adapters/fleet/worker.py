"""A worker: one supervisor that claims runs from the queue of its store, up to a number at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from proctor.policies import parse_policies
from proctor.policies.policy import Policy
from proctor.policies.values.foreign_code import error_text, isolated
from proctor.supervisor import StartsBlockedError, StoreError, Supervisor, UsageError
from proctor.supervisor.control.ownership import end_lost_and_log
from proctor.supervisor.log import Outage, logger
from proctor.supervisor.ports.adapter import Adapter
from proctor.supervisor.ports.store import PAUSE_S, Store, wait_again
from proctor.supervisor.run.recovery import end_unowned, fail_untried
from proctor.supervisor.store.invariants import cancel_for

from ..agents.catalog import adapter_named
from ..kit.process_tree import end_orphans
from ..kit.provider import helpers
from .queue import SHARE, Waiting, is_blocked, is_free, spec_of, waiting

if TYPE_CHECKING:
    from proctor.supervisor import RunHandle, RunInfo


ATTEMPTS: Final = 3
"""How often a run is started if its workers die before it has begun."""
_KEPT: Final = 256


class Starts:
    """Starts the runs of one worker; `adapters` makes an adapter from its name and options."""

    def __init__(self, store: Store, adapters: Callable[..., Adapter] = adapter_named) -> None:
        self.epoch = 0
        self._store = store
        self._adapter_named = adapters
        self._prepared: dict[bytes, tuple[Adapter, list[Policy]]] = {}
        self._put_off: dict[str, float] = {}
        """When to try the sessions again of which no run could be started."""
        self._log = logger()

    def is_put_off(self, session_id: str) -> bool:
        """Whether no run of a session could be started a moment ago."""
        return self._put_off.get(session_id, 0.0) > anyio.current_time()

    def put_off(self, session_id: str, for_s: float) -> None:
        """Start no run of a session for so many seconds."""
        now = anyio.current_time()
        self._put_off = {session: until for session, until in self._put_off.items() if until > now}
        self._put_off[session_id] = now + for_s

    async def start(self, supervisor: Supervisor, waiting: Waiting) -> RunHandle | None:
        """Start a queued run, unless another worker was faster, or starts are blocked; end one that cannot start
        anywhere, or was tried too often, with the reason. Raises StoreError.
        """
        now = await self._store.run(waiting.run_id)
        if now is None or not is_free(now, self.epoch) or now.attempts != waiting.attempts:
            return None
        if not now.is_claimed_by(self.epoch) and is_blocked(now, await self._store.blocks()):
            return None
        try:
            run = await supervisor.claim(now.run_id, end_orphans=end_orphans)
        except UsageError:  # another worker has it, or its session
            self.put_off(waiting.session_id, RETRY_S)
            return None
        assert run.owner is not None
        self.epoch = run.owner.epoch
        if run.attempts > ATTEMPTS:
            self._log.error("run.given_up", run_id=run.run_id, session_id=run.session_id, attempts=ATTEMPTS)
            reason = f"it was tried {ATTEMPTS} times, and each time its worker went away before it had begun"
            await fail_untried(self._store, run, epoch=self.epoch, reason=reason)
            return None
        return await self._started(supervisor, run)

    async def begun(self, handle: RunHandle) -> None:
        """Wait until the record has a run's start, or its end. Raises StoreError."""
        token = 0
        while not handle.done:
            run = await self._store.run(handle.run_id)
            if run is None or run.status != "created":
                return
            token = await wait_again(self._store, token, 1.0)

    async def _started(self, supervisor: Supervisor, run: RunInfo) -> RunHandle | None:
        try:
            spec = spec_of(run)
            assert spec is not None
            adapter, policies = self._parts(spec.adapter, spec.options, spec.policies)
            return await supervisor.execute(adapter, run.run_id, policies=policies, continuation=spec.continuation)
        except StartsBlockedError:
            command = await cancel_for(self._store, run)  # else it waits until that is lifted
            if command is not None:
                await self._withdraw(run, command.reason)
        except StoreError:
            raise
        except Exception as error:  # whatever an adapter's options do, no other run is to end of it
            if not isinstance(error.__cause__, StoreError):
                why = error_text(error)
                self._log.error("run.not_started", run_id=run.run_id, session_id=run.session_id, error=why)
                await self._withdraw(run, f"it could not be started: {why}")
        return None

    async def _withdraw(self, run: RunInfo, reason: str) -> None:
        await end_unowned(self._store, run, epoch=self.epoch, reason=reason)

    def _parts(
        self, name: str, options: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]
    ) -> tuple[Adapter, list[Policy]]:
        """The adapter and the policies of a spec, shared by runs with equal ones, so that they share a plan."""
        key = msgspec.json.encode([name, options, policies])
        if key not in self._prepared:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            self._prepared[key] = (
                isolated(self._adapter_named, name, **options),
                list(parse_policies({"policies": list(policies)})),
            )
        return self._prepared[key]


POLL_S: Final = 2.0
"""How often a worker checks for lost runs, and for queued runs of which the store has not notified it."""
RETRY_S: Final = 1.0
UNREADABLE_S: Final = 10.0
"""How long a session, or what is lost, is left alone when the store could not be read or written."""
_AHEAD: Final = 2000


class Worker:
    """Claims runs, oldest first, and supervises them. Each run is claimed by one worker.

    Args:
        store: the store with the queue.
        max_running: the most runs at once.
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
        self._next_read = 0.0
        self._log = logger()

    @property
    def running(self) -> int:
        """How many runs are active here."""
        return len(self._taken)

    def drain(self) -> None:
        """Claim no more runs; `run` returns when the active ones have ended. Can be called from any thread."""
        self._drained = True

    async def run(self) -> None:
        """Work until drained, or until cancelled: that ends the runs that go on. Raises StoreError once the store is
        closed; a store that cannot be reached is tried again.
        """
        supervisor = Supervisor(self._store, max_running=self.max_running)
        async with supervisor, helpers() as beside:
            beside.start_soon(self._keep_reaping)
            async with anyio.create_task_group() as tasks:
                closed = await self._start_runs(supervisor, tasks)
                if closed is not None:
                    tasks.cancel_scope.cancel()
            if closed is not None:
                raise closed

    async def _start_runs(self, supervisor: Supervisor, tasks: TaskGroup) -> StoreError | None:
        """Start runs until drained, or until the store is closed, which gives the error."""
        token = 0
        outage = Outage(self._log, "worker.store")
        while not self._drained:
            try:
                await self._poll(supervisor, tasks)
                token = await self._news(token)
                outage.over()
            except StoreError as error:
                if error.kind == "closed":
                    return error
                outage.met(error=str(error))
                await anyio.sleep(RETRY_S)
        return None

    async def _keep_reaping(self) -> None:
        while True:
            ended = await end_lost_and_log(self._store, self._log, end_orphans=end_orphans)
            await anyio.sleep(POLL_S if ended else UNREADABLE_S)

    async def _news(self, token: int) -> int:
        """Wait until there may be something to take; gives the token for the next time."""
        await anyio.sleep(PAUSE_S)
        if not self._freed:
            with anyio.CancelScope() as self._listening:
                token = await self._store.wait(token, POLL_S)
        self._freed, self._listening = False, None
        return token

    async def _poll(self, supervisor: Supervisor, tasks: TaskGroup) -> None:
        """Claim as many runs as there are free slots."""
        now = anyio.current_time()
        if self.running < self.max_running and not self._ahead and now >= self._next_read:
            self._ahead.extend(await waiting(self._store, most=_AHEAD, mine=self._starts.epoch))
            self._next_read = anyio.current_time() + SHARE * (anyio.current_time() - now)
        while self._ahead and self.running < self.max_running and not self._drained:
            if self._ahead[0].attempts and self._starting:
                return
            run = self._ahead.popleft()
            if run.session_id in self._taken or self._starts.is_put_off(run.session_id):
                continue
            self._taken[run.session_id] = run.run_id
            self._starting += 1
            if run.attempts:  # alone: should this worker die of it, no other is to be counted with it
                await tasks.start(self._supervise, supervisor, run)
            else:
                tasks.start_soon(self._supervise, supervisor, run)

    async def _supervise(
        self, supervisor: Supervisor, run: Waiting, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Start a run and wait for its end; the task has started once the run has begun."""
        try:
            handle = await self._begun(supervisor, run, task_status)
            if handle is not None:
                await handle.wait_finished()
                self.finished += 1
        except StoreError as error:
            self._log.warning("worker.store", run_id=run.run_id, session_id=run.session_id, error=str(error))
            self._starts.put_off(run.session_id, UNREADABLE_S)
        finally:
            del self._taken[run.session_id]
            self._freed = True
            if self._listening is not None:
                self._listening.cancel()

    async def _begun(self, supervisor: Supervisor, run: Waiting, task_status: TaskStatus[None]) -> RunHandle | None:
        try:
            handle = await self._starts.start(supervisor, run)
            if handle is not None and run.attempts:
                with suppress(StoreError):  # the run goes on all the same
                    await self._starts.begun(handle)
        finally:
            self._starting -= 1
            task_status.started()
        return handle
