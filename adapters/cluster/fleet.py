"""What callers ask of runs that workers execute: start, wait, cancel, subscribe, approve.

Which run is whose, what it did and how it ended is in the store alone. So whatever is asked here is asked of the
store, and holds for the runs of every worker and supervisor on it.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import anyio

from proctor.adapters.stores.naming import open_store
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
from proctor.supervisor.watch.subscriptions import Subscriptions

from .handle import FleetHandle
from .queue import Room, enqueue
from .run_spec import RunSpec


class Fleet:
    """The workers of one store. Entered, it takes runs for them; leaving it ends nothing.

    Args:
        store: the store that the workers are on, or its name: a URL, or the path of a SQLite file.
        max_waiting: how many runs may wait for a worker; `start` waits for room.
    """

    def __init__(self, store: Store | str | os.PathLike[str], *, max_waiting: int = 10_000) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 1:
            raise UsageError(f"max_waiting is {max_waiting!r}; it must be a whole number from 1")
        self._own = open_store(store) if isinstance(store, str | os.PathLike) else None
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
        if self._own is not None:
            with anyio.CancelScope(shield=True):
                await self._own.aclose()

    async def start(self, spec: RunSpec, *, run_id: str | None = None, session_id: str | None = None) -> FleetHandle:
        """Put a run down for the workers; it waits in the store until one has room.

        Args:
            spec: the run.
            run_id: its id; a new one if not given.
            session_id: the session to go on with; a new one if not given.

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
    ) -> Subscription:
        """Events of every worker, to be entered; as `Supervisor.subscribe`."""
        return self._subscriptions.subscribe(session_id=session_id, run_id=run_id, tenant=tenant, after=after)

    async def approvals(self) -> list[ApprovalRequest]:
        """The calls that wait for a person, oldest first. Raises StoreError."""
        return await pending(self._store)

    async def approve(
        self, approval_id: str, *, by: str, reason: str | None = None, input_digest: str | None = None, **who: Any
    ) -> None:
        """Grant a held call for the input it was asked with; `who` are more fields of `ApprovalAnswer`. Raises
        ApprovalError when that does not count.
        """
        given = ApprovalAnswer(granted=True, by=by, reason=reason, input_digest=input_digest, **who)
        await answer(self._store, approval_id, given)

    async def deny(self, approval_id: str, *, by: str, reason: str | None = None, tell: str | None = None) -> None:
        """Refuse a held call: `reason` is for the record, `tell` is what the model is told. Raises ApprovalError when
        that does not count.
        """
        given = ApprovalAnswer(granted=False, by=by, reason=reason, tell_model=tell)
        await answer(self._store, approval_id, given)
