"""How a run starts: it takes its room, its owner claims it, and it gets the orders given meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ..control.ownership import Ownership
from ..errors import PolicyViolationError, StoreError
from ..launch.claiming import claim_created, claimed
from ..launch.launch import Order
from ..ports.adapters import Remains, RunInfo, Store
from ..run.foreign.apart import spawn
from ..run.orphans import remains_of
from ..run.services import Services
from .active_runs import ActiveRuns, Running
from .admission import Admission
from .handle import RunHandle


@contextmanager
def refusals_told(log: Any, info: RunInfo) -> Iterator[None]:
    """Log, as an error, that a policy refuses the run before it starts, and which rules do."""
    try:
        yield
    except PolicyViolationError as error:
        rules = sorted({f"{finding.policy}/{finding.rule}" for finding in error.findings})
        about = {"run_id": info.run_id, "session_id": info.session_id, "rules": rules}
        log.error("run.refused", **about, error=str(error))  # noqa: TRY400 - what refuses is told, not where
        raise


@dataclass(slots=True, eq=False, kw_only=True)
class Starting:
    """Starts the runs of a supervisor; each gives back its room when it is over.

    Args:
        store: where runs are recorded.
        runs: those that go on.
        admission: the room that they take.
        ownership: claims runs for the supervisor.
        log: logs each start.
        check_open: raises UsageError once the supervisor is not open.
    """

    store: Store
    runs: ActiveRuns
    admission: Admission
    ownership: Ownership
    log: Any
    check_open: Callable[[], None]

    async def start(self, order: Order, services: Services, *, created: bool) -> RunHandle:
        """Start a run once there is room for it; `created` says that it is already in the store."""
        session_id = order.info.session_id
        await self.admission.take(session_id)
        try:
            self.check_open()
            self.ownership.remains = remains_of(order.adapter) or self.ownership.remains
            owner = await self.ownership.owner()
            if order.plan.policy.budgets:
                await self.ownership.reap()  # what lost runs have set aside of them counts until they are settled
            owned = msgspec.structs.replace(order, epoch=owner.epoch, store_id=self.ownership.store_id)
            return await self._begin(owned, services, created=created)
        except BaseException as error:
            self.admission.give_back(session_id)
            if isinstance(error, StoreError):
                self.check_open()  # a store refuses the claim of an owner that has left
            raise

    async def claim(self, info: RunInfo, remains: Remains | None) -> RunInfo:
        """Make a created run the supervisor's before it is started."""
        owner = await self.ownership.owner()
        return await claim_created(self.store, info, epoch=owner.epoch, remains=remains)

    async def _begin(self, order: Order, services: Services, *, created: bool) -> RunHandle:
        """One unit: what fails before the run's task has begun undoes all of it."""
        with self.runs.starting() as missed:
            async with claimed(order, services, created=created) as run:
                before = await self.store.instructions(after=run.info.after) if created else ()
                self.check_open()
                running = Running.of(run)
                for instruction in before:
                    running.deliver(instruction)
                for do in missed:
                    do(running)
                handle = RunHandle(run.actor, run_id=running.run_id, session_id=running.session_id)
                self.log.info("run.started", run_id=running.run_id, session_id=running.session_id)
                task = partial(running.actor.run, run.begin, partial(self._is_over, running))
                self.runs.add(running, partial(spawn, task))
        return handle

    def _is_over(self, running: Running) -> None:
        self.runs.remove(running)
        self.admission.give_back(running.session_id)
