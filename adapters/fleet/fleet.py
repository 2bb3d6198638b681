"""Callers' interface to runs that workers execute (start, wait, cancel, subscribe, approve), and to the workers.

Everything about runs is in the store, so this reads the store and covers the runs of every worker and supervisor on
it. Ray is used only to find, add and remove workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.to_thread import run_sync

from proctor.policies import events as ev
from proctor.policies.errors import Violation
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import ApprovalAnswer, KillSwitch, UsageError, answer, pending
from proctor.supervisor.arguments import check_count, check_named
from proctor.supervisor.control.approval_inbox import grant_of
from proctor.supervisor.errors import OwnerLostError, ProviderError
from proctor.supervisor.machine.event_factory import PriorSession, violation_of
from proctor.supervisor.machine.interface import Outcome, PolicyReport, RunResult, conclude, reported_action
from proctor.supervisor.machine.run_state import estimated_size
from proctor.supervisor.ports.store import EventLog, Store, closing, wait_again
from proctor.supervisor.ports.stored_types import NOT_OVER, RunInfo
from proctor.supervisor.run.journal import KeptEvents
from proctor.supervisor.store.invariants import latest
from proctor.supervisor.store.records import ENDINGS
from proctor.supervisor.watch.subscriptions import Subscriptions

from ..stores.store_names import is_url, open_store
from .placement import Placement, WorkerStatus
from .queue import QueueCapacity, RunSpec, enqueue

if TYPE_CHECKING:
    from proctor.supervisor import ApprovalRequest, KillOutcome, Subscription


class Followed:
    """Collects the events of a run as they come."""

    def __init__(self) -> None:
        self._kept = KeptEvents()
        self._violations: list[Violation] = []
        self._end: ev.Event | None = None
        self._approved = False

    def apply(self, event: ev.Event) -> None:
        self._kept.add((event,), estimated_size(event))
        if isinstance(event, ev.PolicyViolated):
            self._violations.append(violation_of(event))
        elif isinstance(event, ev.TERMINAL):
            self._end = event
        elif isinstance(event, ev.ToolApprovalGranted):
            self._approved = True

    def result(self, run: RunInfo, calls_before: tuple[ToolCall, ...]) -> RunResult:
        """The result of the run, which is over; raises as `RunHandle.wait` does."""
        return conclude(
            self._outcome(run),
            run_id=run.run_id,
            session_id=run.session_id,
            events=self._kept.latest(),
            events_before=self._kept.before,
            calls_before=calls_before,
        )

    def _outcome(self, run: RunInfo) -> Outcome:
        end = self._end
        status = ENDINGS[type(end)] if end is not None else "failed"
        refusal = next(filter(_ended_it, self._violations), None) if status == "cancelled" else None
        action = reported_action(self._violations, refused=refusal is not None, approved=self._approved)
        return Outcome(
            status=status,
            policy=PolicyReport(action=action, violations=tuple(self._violations)),
            usage=run.usage,
            output=end.output if isinstance(end, ev.RunCompleted) else None,
            reason=end.reason if isinstance(end, ev.RunCancelled) else "",
            refusal=refusal,
            error=_error(end.error if isinstance(end, ev.RunFailed) else None) if status == "failed" else None,
        )


def _ended_it(violation: Violation) -> bool:
    """Whether a violation ended its run; one found after another cause had cancelled it was only observed."""
    how = violation.enforcement
    return how == "interrupted" or (violation.action == "cancel" and how == "prevented")


def _error(recorded: Any) -> Exception:
    described: dict[str, Any] = (
        recorded if isinstance(recorded, dict) else {"message": str(recorded or "the run failed")}
    )
    message = str(described.get("message") or "the run failed")
    if described.get("code") == OwnerLostError.code:
        return OwnerLostError(message, details=described.get("details"))
    return ProviderError(message, details=described)


async def _calls_before(store: EventLog, run: RunInfo) -> tuple[ToolCall, ...]:
    """The latest calls that ran in the session before a run. Raises StoreError."""
    past = PriorSession(of=run.run_id)
    async with closing(store.read(run.session_id)) as events:
        async for event in events:
            if event.run_id == run.run_id:
                break
            past.apply(event)
    return past.calls


class FleetHandle:
    """One run. If its worker dies, the handle follows its retry."""

    __slots__ = ("_store", "_subscriptions", "_switch", "run_id", "session_id")

    def __init__(self, run: RunInfo, store: Store, subscriptions: Subscriptions, switch: KillSwitch) -> None:
        self.run_id = run.run_id
        self.session_id = run.session_id
        self._store = store
        self._subscriptions = subscriptions
        self._switch = switch

    async def info(self) -> RunInfo:
        """The run as the store has it now, or its last retry. Raises StoreError, or UsageError if its record was
        pruned.
        """
        run = await self._store.run(self.run_id)
        if run is None:
            raise UsageError(f"there is no run `{self.run_id}`")
        return await latest(self._store, run)

    async def wait_finished(self) -> None:
        """Wait until the run has ended. Raises StoreError."""
        await self._followed()

    async def wait(self) -> RunResult:
        """The result, once the run is over. How each rule ended is not recorded: `policy.rules` is empty.

        Raises:
            PolicyViolationError: a policy cancelled it.
            OwnerLostError: its worker died, and there is no retry.
            ProviderError: the agent failed; each of these has the result so far as its `partial`.
            StoreError: the record cannot be read.
        """
        run, followed = await self._followed()
        return followed.result(run, await _calls_before(self._store, run))

    async def cancel(self, *, by: str, reason: str = "user", wait_s: float = 30.0) -> list[KillOutcome]:
        """Cancel the run, also one that waits for a worker; returns how it ended within `wait_s` seconds, or nothing
        if it was already over. Raises StoreError.
        """
        return await self._switch.kill(by=by, reason=reason, run_id=self.run_id, wait_s=wait_s)

    async def _followed(self) -> tuple[RunInfo, Followed]:
        token = 0
        while True:
            run, followed = await self.info(), Followed()
            if run.status != "lost":
                async with self._subscriptions.subscribe(run_id=run.run_id) as events:
                    async for event in events:
                        followed.apply(event)
                now = await self.info()
                if now.run_id == run.run_id and now.status not in NOT_OVER:
                    return now, followed
            token = await wait_again(self._store, token)


_POLL_S: Final = 0.1


class Fleet:
    """The workers of one store. Inside `async with`, it queues runs for them; leaving it ends nothing.

    Unlike a `Supervisor` it has no `execute` and `claim`, which are for workers; no `cancel_all`, as others' runs are
    in the queue too (`switch.kill` takes a scope and a name); and no `statistics`, which are one process's
    (`store.size()` counts the runs of a store).

    Args:
        store: the store of the workers, or its name: a URL, or the path of a SQLite file.
        max_waiting: how many runs may wait for a worker; beyond that, `start` waits. Runs that a freeze keeps from
            starting are counted apart.
        name: the prefix of its workers' names on a Ray cluster.
        address: the Ray cluster's; by default RAY_ADDRESS, else the cluster on this machine. Only `up`, `status` and
            `drain` need a cluster.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        max_waiting: int = 10_000,
        name: str = "fleet",
        address: str | None = None,
    ) -> None:
        check_count("max_waiting", max_waiting)
        check_named(name=name)
        self._own = open_store(store) if isinstance(store, str | os.PathLike) else None
        self._named = _everywhere(store) if isinstance(store, str | os.PathLike) else None
        self._placement = Placement(name, address)
        self._store: Store = self._own or store  # type: ignore[assignment]  # a name was opened
        self._capacity = QueueCapacity(self._store, max_waiting)
        self._subscriptions = Subscriptions(self._store)
        self.switch = KillSwitch(self._store)

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscriptions.close()
        with anyio.CancelScope(shield=True):
            try:
                await run_sync(self._placement.disconnect)
            finally:
                if self._own is not None:
                    await self._own.aclose()

    async def up(self, workers: int, *, max_running: int = 100) -> list[WorkerStatus]:
        """Start workers until there are this many, spread over the nodes. To remove workers, use `drain`.

        Args:
            workers: the number of workers.
            max_running: the most runs at once in each new worker.

        Raises:
            UsageError: there is no cluster, or the store was not given by its name.
        """
        if self._named is None:
            raise UsageError("workers elsewhere open the store themselves: give the fleet its URL or path")
        await run_sync(partial(self._placement.place, self._named, workers=workers, max_running=max_running))
        return await self.status()

    async def status(self) -> list[WorkerStatus]:
        """Every worker on the cluster. Raises UsageError if there is no cluster."""
        return await run_sync(self._placement.status)

    async def drain(self, *, node: str | None = None, timeout_s: float = 3600.0) -> list[WorkerStatus]:
        """Stop workers from claiming runs, wait until their runs have ended, and remove them.

        Args:
            node: only those on the Ray node of this id.
            timeout_s: seconds to wait; workers that are not done then stay, draining.

        Returns:
            The last status of each.

        Raises:
            UsageError: there is no cluster.
        """
        left = {one.name: one for one in await self.status() if node in (None, one.node)}
        gone = await self._gone(left)  # each is told, however little time there is
        with anyio.move_on_after(timeout_s):
            while not gone:
                await anyio.sleep(_POLL_S)
                gone = await self._gone(left)
        return list(left.values())

    async def _gone(self, left: dict[str, WorkerStatus]) -> bool:
        """Drain these workers, remove those that are drained, and return whether all are gone. A worker that Ray
        restarted is drained again.
        """
        there = [one for one in await self.status() if one.name in left]
        for one in there:
            if left[one.name].state != "drained" or one.state == "drained":
                left[one.name] = one
            act = self._placement.remove if left[one.name].state == "drained" else self._placement.drain
            await run_sync(partial(act, one.name))
        return not there

    async def start(self, spec: RunSpec, *, run_id: str | None = None, session_id: str | None = None) -> FleetHandle:
        """Queue a run for the workers; it waits in the store until one is free.

        Args:
            spec: the run.
            run_id: its id; by default a new one.
            session_id: the session to continue; by default a new one.

        Raises:
            UsageError: an argument is wrong.
            StoreError: the id is taken, or the store cannot be written.
        """
        run = await enqueue(self._store, spec, run_id=run_id, session_id=session_id, capacity=self._capacity)
        return FleetHandle(run, self._store, self._subscriptions, self.switch)

    async def handle(self, run_id: str) -> FleetHandle:
        """The handle of any stored run. Raises StoreError, and UsageError for an unknown run."""
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
        """Subscribe to events of every worker; as `Supervisor.subscribe`."""
        return self._subscriptions.subscribe(
            session_id=session_id, run_id=run_id, tenant=tenant, after=after, types=types
        )

    async def approvals(self) -> list[ApprovalRequest]:
        """The pending approval requests, oldest first. Raises StoreError."""
        return await pending(self._store)

    async def approve(
        self, approval_id: str, *, by: str, reason: str | None = None, input_digest: str | None = None, **who: Any
    ) -> None:
        """Approve a pending call, for the input that was shown; `who` are more fields of `ApprovalAnswer`. Raises
        ApprovalError if the answer does not count, UsageError for an unknown field.
        """
        given = grant_of(by, reason=reason, input_digest=input_digest, **who)
        await answer(self._store, approval_id, given)

    async def deny(self, approval_id: str, *, by: str, reason: str | None = None, tell: str | None = None) -> None:
        """Decline a pending call: `reason` is recorded, `tell` is the text for the model. Raises ApprovalError if the
        answer does not count.
        """
        given = ApprovalAnswer(granted=False, by=by, reason=reason, tell_model=tell)
        await answer(self._store, approval_id, given)


def _everywhere(named: str | os.PathLike[str]) -> str:
    """The name of a store for other processes of this machine: a path is absolute."""
    return os.fspath(named) if is_url(named) else os.path.abspath(named)
