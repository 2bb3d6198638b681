"""`Supervisor`: starts many runs, watches them, answers their approvals and cancels them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Unpack

import anyio
import msgspec
from anyio.lowlevel import current_token

from proctor.policies.errors import PolicyViolationError

from .. import arguments
from ..control import approval_inbox as inbox
from ..control.kill_switch import KillSwitch
from ..control.ownership import CommandReader, Ownership
from ..errors import StoreError, UsageError
from ..launch.history import as_child_run, check_continuation, inherited
from ..launch.launch import LaunchRequest, check_context, claim_created, claimed, let_go, run_info
from ..launch.plan import Plans
from ..log import audible, failure, logger
from ..ports.adapter import Adapter, Approver, EndOrphans, Publisher
from ..ports.store import Store, all_commands
from ..ports.stored_types import ApprovalAnswer, ApprovalRequest, Owner, RunInfo
from ..redaction import Redaction, Redactor
from ..run.provider_session import capabilities_of, end_orphans_of, name_of
from ..run.services import CancelPriority, Clock, Services, Timers, check_thread
from ..run.tasks import BackgroundTasks, OneShotEvent, calls_store, spawn
from ..watch.log_follower import Publishers
from ..watch.subscriptions import Subscription, Subscriptions
from ..watch.watchdog import Watchdog
from .active_runs import ActiveRuns, RunHandle, Statistics, deliver, why_left


class Place:
    """One run's place among `max_running`. Its agent's code runs in the context of `spawn`, by which a run that it
    starts finds this place as its `outer` one.

    `below` counts the active runs that the agent started on this supervisor; `waiting` are those still to start.
    """

    __slots__ = ("admission", "below", "outer", "over", "session_id", "waiting")

    def __init__(self, admission: Admission, session_id: str) -> None:
        self.admission = admission
        self.session_id = session_id
        self.outer = _place.get()
        self.below = 0
        self.waiting: dict[Place, None] = {}
        self.over = False

    @property
    def lender(self) -> Place | None:
        """The place of the active run on this supervisor whose agent starts this one."""
        outer = self.outer
        while outer is not None and (outer.over or outer.admission is not self.admission):
            outer = outer.outer
        return outer

    def spawn(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the task of the run; to be called in a context of its own."""
        _place.set(self)
        spawn(task)

    def end(self) -> None:
        """The run is over, or did not start."""
        self.over = True
        while self.outer is not None and self.outer.over:  # runs that each start the next are not kept
            self.outer = self.outer.outer


_place: ContextVar[Place | None] = ContextVar("place", default=None)


class Admission:
    """Limits how many runs there are at once, and to one a session.

    A run does not count while a run that its agent started here is active: runs that wait for their own children
    would otherwise fill every place, and wait for ever.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._sessions: set[str] = set()
        self._waiting: dict[Place, OneShotEvent] = {}

    async def acquire(self, session_id: str) -> Place:
        """Wait for a place. Raises UsageError if the session has a run that is not over."""
        place = Place(self, session_id)
        self._waiting[place] = admitted = OneShotEvent()
        if (lender := place.lender) is not None:
            lender.waiting[place] = None
        self._admit(lender)
        try:
            await admitted.wait()
        except BaseException:
            if self._waiting.pop(place, None) is None:
                self._leave(place)
            elif (lender := place.lender) is not None:
                del lender.waiting[place]
            raise
        if session_id in self._sessions:
            self._leave(place)
            raise UsageError(f"session `{session_id}` already has a run that is not over")
        self._sessions.add(session_id)
        return place

    @contextmanager
    def unless_taken(self, session_id: str) -> Iterator[bool]:
        """Whether the session has no run; inside the block none can start."""
        free = session_id not in self._sessions
        self._sessions.add(session_id)
        try:
            yield free
        finally:
            if free:
                self._sessions.remove(session_id)

    def release(self, place: Place) -> None:
        """Free the place, and the session, of a run that is over or did not start."""
        self._sessions.remove(place.session_id)
        self._leave(place)

    def _admit(self, lender: Place | None) -> None:
        """Admit those for which there is a place, the lender's or a free one, in the order in which they came."""
        if lender is not None and lender.waiting and not lender.below:
            self._enter(next(iter(lender.waiting)))
        while self._free > 0 and self._waiting:
            self._enter(next(iter(self._waiting)))

    def _enter(self, place: Place) -> None:
        lender = place.lender
        if lender is None or lender.below:
            self._free -= 1
        if lender is not None:
            lender.below += 1
            del lender.waiting[place]
        self._waiting.pop(place).set()

    def _leave(self, place: Place) -> None:
        place.end()
        self._free += not place.below
        lender = place.lender
        if lender is not None:
            lender.below += place.below - 1
            lender.waiting |= place.waiting
            self._free -= not lender.below
        self._admit(lender)


@contextmanager
def log_refusals(log: Any, info: RunInfo) -> Iterator[None]:
    """Log, as an error, which rules reject a run before it starts."""
    try:
        yield
    except PolicyViolationError as error:
        rules = sorted({f"{finding.policy}/{finding.rule}" for finding in error.findings})
        about = {"run_id": info.run_id, "session_id": info.session_id, "rules": rules}
        log.error("run.refused", **about, error=str(error))  # noqa: TRY400 - what refuses is told, not where
        raise


@dataclass(slots=True, eq=False, kw_only=True)
class Starting:
    """Starts the runs of a supervisor; each frees its slot when it is over.

    `check_open` raises UsageError once the supervisor is not open.
    """

    store: Store
    runs: ActiveRuns
    admission: Admission
    ownership: Ownership
    log: Any
    check_open: Callable[[], None]

    async def start(self, request: LaunchRequest, services: Services, *, created: bool) -> RunHandle:
        """Start a run once a slot is free; `created`: it is already in the store."""
        session_id = request.info.session_id
        place = await self.admission.acquire(session_id)
        try:
            self.check_open()
            self.ownership.end_orphans = end_orphans_of(request.adapter) or self.ownership.end_orphans
            owner = await self.ownership.owner()
            if request.plan.policy.budgets:
                await self.ownership.reap()  # what lost runs have set aside of them counts until they are settled
            owned = msgspec.structs.replace(request, epoch=owner.epoch, store_id=self.ownership.store_id)
            return await self._begin(owned, services, place, created=created)
        except BaseException as error:
            self.admission.release(place)
            if isinstance(error, StoreError):
                self.check_open()  # a store refuses the claim of an owner that has left
            raise

    async def claim(self, info: RunInfo, end_orphans: EndOrphans | None) -> RunInfo:
        owner = await self.ownership.owner()
        return await claim_created(self.store, info, epoch=owner.epoch, end_orphans=end_orphans)

    async def let_go(self, info: RunInfo) -> None:
        """Release a created run that was not started, unless another call starts it here."""
        with self.admission.unless_taken(info.session_id) as free:
            if free and self.ownership.epoch:
                await let_go(self.store, info.run_id, epoch=self.ownership.epoch)

    async def _begin(self, request: LaunchRequest, services: Services, place: Place, *, created: bool) -> RunHandle:
        """Claim the run and start its task; a failure before that undoes all of it."""
        if self.runs.idle:
            services.clock.follow()
        with self.runs.starting() as missed:
            async with claimed(request, services, created=created) as run:
                before = await all_commands(self.store, after=run.info.after) if created else ()
                self.check_open()
                handle = RunHandle(run)
                for command in before:
                    deliver(command, handle)
                for do in missed:
                    do(handle)
                self.log.info("run.started", run_id=handle.run_id, session_id=handle.session_id)
                task = partial(run.actor.run, run.begin, partial(self._is_over, handle, place))
                self.runs.add(handle, partial(copy_context().run, place.spawn, task))
        return handle

    def _is_over(self, run: RunHandle, place: Place) -> None:
        self.runs.remove(run)
        self.admission.release(place)


_OPTIONS = ("max_running", "approver", "publishers", "answerable", "redaction")


class Supervisor:
    """Owns runs. Leaving it normally waits for them; leaving it with an error or a cancel cancels them first.

    Args:
        store: the store of the runs.
        max_running: the most runs at once; `start` waits for its turn. A run whose agent has started others here does
            not count while one of them goes on.
        approver: answers approval requests in this process.
        publishers: functions that receive each stored event.
        answerable: whether anybody can answer a held call: the approver, this supervisor's `approve`, or another
            process through the store. If nobody can, a call that needs approval is denied at once.
        redaction: which secrets to redact from the event log, the logs and what approvers see; by default that of
            PROCTOR_REDACTION.
        bounds: how much of one run is recorded, as `RecordOptions` says.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_running: int = 100,
        approver: Approver | None = None,
        publishers: Sequence[Publisher] = (),
        answerable: bool = True,
        redaction: Redaction | None = None,
        **bounds: Unpack[arguments.RecordOptions],
    ) -> None:
        arguments.check_options("Supervisor", bounds, arguments.RecordOptions, *_OPTIONS)
        arguments.check_store(store)
        arguments.check_observers(approver, publishers)
        if approver is not None and not answerable:
            raise UsageError("an `approver` was given with `answerable=False`; leave one of them out")
        arguments.check_count("max_running", max_running)
        self._store = store
        self._approver = approver
        self._redactor = Redactor(redaction)
        self._log = logger(self._redactor)
        self.switch = KillSwitch(store, redactor=self._redactor)  # ends runs of the whole store, and blocks starts
        self._runs = ActiveRuns()
        self._reader = CommandReader(store, self._runs.deliver, self._log)
        self._ownership = Ownership(store, self._log, registered=self._listen)
        self._starting = Starting(
            store=store,
            runs=self._runs,
            admission=Admission(max_running),
            ownership=self._ownership,
            log=self._log,
            check_open=self._check_open,
        )
        self._answerable = answerable
        self._bounds = arguments.record_bounds(bounds)
        self._plans = Plans(answerable=answerable)
        self._subscriptions = Subscriptions(store)
        self._publishers = Publishers(self._subscriptions.follower, publishers, self._log)
        self._tasks = BackgroundTasks(self._break)  # no group: another task may leave than entered
        self._services: Services | None = None
        self._closing = False
        self._thread = threading.get_ident()

    async def __aenter__(self) -> Supervisor:
        if self._services is not None:
            raise UsageError("a supervisor can be opened once; create another one")
        self._loop = current_token().native_token
        self._thread = threading.get_ident()
        clock = Clock()
        timers = Timers(clock)
        self._services = Services(
            store=self._store,
            clock=clock,
            timers=timers,
            cancel_priority=CancelPriority(clock),
            publish=self._publishers.publish,
            approver=self._approver,
            answerable=self._answerable,
            redactor=self._redactor,
            bounds=self._bounds,
            log=self._log,
        )
        self._watchdog = Watchdog(self._log, lambda: [run.run_id for run in self._runs])
        self._watchdog.start()
        self._tasks.start(timers.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        reason = why_left(error)
        try:
            if error is None:
                await self._runs.drained()
        except anyio.get_cancelled_exc_class() as cancel:
            reason = why_left(cancel)
            raise
        finally:
            try:
                self._runs.cancel_all(reason)
                await self._runs.drained_for_sure()
            finally:
                self._subscriptions.close()
                self._tasks.cancel()
                try:
                    await self._ownership.leave()
                finally:
                    self._watchdog.stop()
                    with anyio.CancelScope(shield=True):
                        await self._tasks.end()

    @calls_store
    async def start(self, adapter: Adapter, prompt: str, **options: Unpack[arguments.StartOptions]) -> RunHandle:
        """Start a run and return once it has started; waits while `max_running` others are running.

        `options` are those of `RunOptions`, and `session_id`, `run_id` and `metadata` of a run that nobody created
        before.

        Raises PolicyViolationError if preflight rejects the run (the adapter is not started), PolicyError or
        UsageError for invalid arguments, StoreError if the store cannot be written.
        """
        self._check_open()
        arguments.check_adapter(adapter)
        given = arguments.checked_options("start", options, arguments.StartOptions)
        info = run_info(
            prompt,
            run_id=options.get("run_id"),
            session_id=options.get("session_id"),
            provider=name_of(adapter),
            context=given.context,
            metadata=options.get("metadata"),
        )
        return await self._start(adapter, await as_child_run(info, self._store), given, created=False)

    @calls_store
    async def execute(self, adapter: Adapter, run_id: str, **options: Unpack[arguments.RunOptions]) -> RunHandle:
        """Start a run that was created before (see `create_run`).

        Raises UsageError if it does not exist or was started before; otherwise raises as `start` does. A run that
        could not be started stays as it was, unclaimed.
        """
        self._check_open()
        info = await self._created(run_id)
        try:
            arguments.check_adapter(adapter)
            given = arguments.checked_options("execute", options, arguments.RunOptions)
            check_context(info, given.context)
            return await self._start(adapter, info, given, created=True)
        except BaseException:
            await self._starting.let_go(info)
            raise

    @calls_store
    async def claim(self, run_id: str, *, end_orphans: EndOrphans | None = None) -> RunInfo:
        """Claim a created run for this supervisor, so that no other starts it; `execute` does this itself.

        `end_orphans` ends what a lost run of its session left running on this machine. Raises as `execute` does.
        """
        self._check_open()
        info = await self._created(run_id)
        try:
            return await self._starting.claim(info, end_orphans)
        except UsageError:  # another has it
            raise
        except BaseException:
            await self._starting.let_go(info)
            raise

    async def approve(
        self, approval_id: str, *, by: str, reason: str | None = None, input_digest: str | None = None, **who: Any
    ) -> None:
        """Approve a pending call, for the input that was shown; `who` are more fields of `ApprovalAnswer`. Raises
        ApprovalError if the answer does not count, UsageError for an unknown field.
        """
        check_thread("approve", self._thread)
        given = inbox.grant_of(by, reason=reason, input_digest=input_digest, **who)
        await self._answer(approval_id, given)

    async def deny(self, approval_id: str, *, by: str, reason: str | None = None, tell: str | None = None) -> None:
        """Decline a pending call: `reason` is recorded, `tell` is the text for the model. Raises ApprovalError if the
        answer does not count.
        """
        check_thread("deny", self._thread)
        arguments.check_text(tell=tell or "")
        await self._answer(approval_id, ApprovalAnswer(granted=False, by=by, reason=reason, tell_model=tell))

    def approvals(self) -> list[ApprovalRequest]:
        """This supervisor's calls that are pending approval, oldest first."""
        return self._runs.requests()

    async def cancel_all(self, reason: str = "all runs were cancelled", *, by: str = "") -> None:
        """Cancel every run of this supervisor and wait until they have ended; `by` is the person who ordered it, if
        any. A run that is starting ends as soon as it has started.
        """
        check_thread("cancel_all", self._thread)
        arguments.check_text(reason=reason, by=by)
        ending = list(self._runs)
        self._runs.cancel_all(reason, by)
        for run in ending:
            await run.wait_finished()

    def subscribe(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        tenant: str | None = None,
        after: int | str = 0,
        types: Sequence[str] | None = None,
    ) -> Subscription:
        """A subscription to events: `async with supervisor.subscribe(...) as events`, then `async for`.

        It yields what is stored, then what is new, of every process, each event once, those of a session in order: of
        a session or a run, of which it ends with the run, of a tenant's runs, or of everything in the store. `types`
        names the wanted event types, for example `policy_violation`.

        `after` is the `cursor` of another such subscription (of a session or a run also a seq), "start", which is the
        default, or "now" for new events only. `events.cursor` is the position after the last yielded event. Entering
        raises UsageError for a run or a position that does not exist.
        """
        check_thread("subscribe", self._thread)
        return self._subscriptions.subscribe(
            session_id=session_id, run_id=run_id, tenant=tenant, after=after, types=types
        )

    def statistics(self) -> Statistics:
        """Counts of runs, approvals and observers, now and so far."""
        dropped = self._publishers.dropped
        return self._runs.statistics(subscribers=self._subscriptions.subscribers, publishers_dropped=dropped)

    async def _start(
        self, adapter: Adapter, info: RunInfo, given: arguments.CheckedOptions, *, created: bool
    ) -> RunHandle:
        with log_refusals(self._log, info):
            if not given.policies:
                why = "`policies=()`: proctor records every call and denies none"
                audible(self._log).warning("run.under_no_policy", run_id=info.run_id, message=why)
            can_resume = capabilities_of(adapter).resume
            check_continuation(given.continuation, can_resume=can_resume, provider=name_of(adapter))
            policies = given.policies or (arguments.NO_POLICY,)
            plan = await self._plans.get(adapter, (*policies, *inherited(info)), given.hooks)
            request = LaunchRequest(
                adapter=adapter, plan=plan, info=info, context=given.context, continuation=given.continuation
            )
            assert self._services is not None
            return await self._starting.start(request, self._services, created=created)

    def _check_open(self) -> None:
        if self._services is None or self._closing:
            raise UsageError("the supervisor is not open; use `async with`")
        if current_token().native_token is not self._loop:
            raise UsageError("the supervisor was opened in another event loop, which must start its runs")

    async def _created(self, run_id: str) -> RunInfo:
        arguments.check_text(run_id=run_id)
        info = await self._store.run(run_id)
        if info is None:
            raise UsageError(f"there is no run `{run_id}`; create it first")
        if info.status != "created":
            more = "" if info.status == "running" else f"; a new run of session `{info.session_id}` can continue it"
            raise UsageError(f"run `{run_id}` was started before: it is {info.status}{more}")
        return info

    def _listen(self, owner: Owner) -> None:
        """Start to renew the lease and to read commands: this supervisor owns runs from now on."""
        self._tasks.start(self._ownership.keep)
        self._tasks.start(partial(self._reader.run, owner.after))

    def _break(self, error: Exception) -> None:
        """After an internal error, no run continues without its deadlines, its lease or its commands."""
        self._closing = True
        self._log.error("supervisor.broken", **failure(error))
        self._runs.cancel_all(f"the supervisor failed: {type(error).__name__}")

    async def _answer(self, approval_id: str, given: ApprovalAnswer) -> None:
        arguments.check_text(approval_id=approval_id, by=given.by)
        arguments.check_named(by=given.by)
        approval = await inbox.record_answer(self._store, approval_id, given, self._redactor)
        if approval.answer is not None:
            self._runs.answer(approval_id, approval.answer)  # as the store has it, like one from another process
        await inbox.wait_recorded(self._store, approval)
