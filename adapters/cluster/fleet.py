"""What callers ask of runs that workers execute: start, wait, cancel, subscribe, approve; and of the workers.

Which run is whose, what it did and how it ended is in the store alone. So whatever is asked here is asked of the
store, and holds for the runs of every worker and supervisor on it. Ray is asked only where workers are, and to have
more or fewer of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from proctor.adapters.stores.store_names import is_url, open_store
from proctor.supervisor import (
    ApprovalAnswer,
    ApprovalRequest,
    KillSwitch,
    Store,
    Subscription,
    UsageError,
    answer,
    pending,
)
from proctor.supervisor.arguments import check_named
from proctor.supervisor.control.approvals import grant_of
from proctor.supervisor.watch.subscriptions import Subscriptions

from .handle import FleetHandle
from .placing import Placing, WorkerStatus
from .queue import Room, enqueue
from .run_spec import RunSpec

T = TypeVar("T")
_LOOK_S: Final = 0.1


class Fleet:
    """The workers of one store. Entered, it takes runs for them; leaving it ends nothing.

    What a `Supervisor` does and this does not: `execute` and `claim` are a worker's; `cancel_all` would end what
    others put down, so `switch.kill` asks by whom and of what; `statistics` are of one process, and `store.size()`
    counts the runs of a store.

    Args:
        store: the store that the workers are on, or its name: a URL, or the path of a SQLite file.
        max_waiting: how many runs may wait for a worker; `start` waits for room.
        name: what its workers on a Ray cluster are named for.
        address: the Ray cluster's; the one that RAY_ADDRESS names if not given, else the one that runs on this
            machine. Only `up`, `status` and `drain` need a cluster.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        max_waiting: int = 10_000,
        name: str = "fleet",
        address: str | None = None,
    ) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 1:
            raise UsageError(f"max_waiting is {max_waiting!r}; it must be a whole number from 1")
        check_named(name=name)
        self._own = open_store(store) if isinstance(store, str | os.PathLike) else None
        self._named = _everywhere(store) if isinstance(store, str | os.PathLike) else None
        self._placing = Placing(name, address)
        self._store: Store = self._own or store  # type: ignore[assignment]  # a name was opened
        self._room = Room(self._store, max_waiting)
        self._subscriptions = Subscriptions(self._store)
        self.switch = KillSwitch(self._store)

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscriptions.close()
        with anyio.CancelScope(shield=True):
            await _in_thread(self._placing.disconnect)
            if self._own is not None:
                await self._own.aclose()

    async def up(self, workers: int, *, max_running: int = 100) -> list[WorkerStatus]:
        """Have so many workers on the cluster, spread over its nodes; those that are there stay. Fewer: see `drain`.

        Args:
            workers: how many there are to be.
            max_running: how many runs go on at each new one at once.

        Raises:
            UsageError: there is no cluster, or the store was not given by its name.
        """
        if self._named is None:
            raise UsageError("workers elsewhere open the store themselves: give the fleet its URL or path")
        await _in_thread(partial(self._placing.place, self._named, workers=workers, max_running=max_running))
        return await self.status()

    async def status(self) -> list[WorkerStatus]:
        """Every worker on the cluster. Raises UsageError where there is no cluster."""
        return await _in_thread(self._placing.status)

    async def drain(self, *, node: str | None = None, timeout_s: float = 3600.0) -> list[WorkerStatus]:
        """Let workers take no more runs, wait until those that go on have ended, and remove the workers.

        Args:
            node: only those on the Ray node of this id.
            timeout_s: seconds to wait; who is not done then stays, draining.

        Returns:
            Each as it was left.

        Raises:
            UsageError: there is no cluster.
        """
        left = {one.name: one for one in await self.status() if node in (None, one.node)}
        gone = await self._gone(left)  # each is told, however little time there is
        with anyio.move_on_after(timeout_s):
            while not gone:
                await anyio.sleep(_LOOK_S)
                gone = await self._gone(left)
        return list(left.values())

    async def _gone(self, left: dict[str, WorkerStatus]) -> bool:
        """Tell and remove those that are to go; whether all have gone. One that was started again is told again."""
        there = [one for one in await self.status() if one.name in left]
        for one in there:
            if left[one.name].state != "drained" or one.state == "drained":
                left[one.name] = one
            order = self._placing.remove if left[one.name].state == "drained" else self._placing.drain
            await _in_thread(partial(order, one.name))
        return not there

    async def start(self, spec: RunSpec, *, run_id: str | None = None, session_id: str | None = None) -> FleetHandle:
        """Put a run down for the workers; it waits in the store until one has room.

        Args:
            spec: the run.
            run_id: its id; by default a new one.
            session_id: the session to continue; by default a new one.

        Raises:
            UsageError: an argument makes no sense.
            StoreError: the id is taken, or it cannot be recorded.
        """
        await self._room.take()
        run = await enqueue(self._store, spec, run_id=run_id, session_id=session_id)
        return FleetHandle(run, self._store, self._subscriptions, self.switch)

    async def handle(self, run_id: str) -> FleetHandle:
        """A run that was started before, by whomever. Raises UsageError where there is none, StoreError."""
        run = await self._store.run(run_id)
        if run is None:
            raise UsageError(f"there is no run `{run_id}`")
        return FleetHandle(run, self._store, self._subscriptions, self.switch)

    def subscribe(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        tenant: str | None = None,
        after: int | str = 0,
        types: Sequence[str] | None = None,
    ) -> Subscription:
        """Events of every worker, to be entered; as `Supervisor.subscribe`."""
        return self._subscriptions.subscribe(
            session_id=session_id, run_id=run_id, tenant=tenant, after=after, types=types
        )

    async def approvals(self) -> list[ApprovalRequest]:
        """The calls that wait for a person, oldest first. Raises StoreError."""
        return await pending(self._store)

    async def approve(
        self, approval_id: str, *, by: str, reason: str | None = None, input_digest: str | None = None, **who: Any
    ) -> None:
        """Grant a held call, for the input that was shown; `who` are more fields of `ApprovalAnswer`. Raises
        ApprovalError if the answer does not count, UsageError for a field that there is not.
        """
        given = grant_of(by, reason=reason, input_digest=input_digest, **who)
        await answer(self._store, approval_id, given)

    async def deny(self, approval_id: str, *, by: str, reason: str | None = None, tell: str | None = None) -> None:
        """Refuse a held call: `reason` is for the record, `tell` is what the model is told. Raises ApprovalError when
        that does not count.
        """
        given = ApprovalAnswer(granted=False, by=by, reason=reason, tell_model=tell)
        await answer(self._store, approval_id, given)


def _everywhere(named: str | os.PathLike[str]) -> str:
    """The name of a store as other processes of this machine know it too."""
    return os.fspath(named) if is_url(named) else os.path.abspath(named)


async def _in_thread(function: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(function)
