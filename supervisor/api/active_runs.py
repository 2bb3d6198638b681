"""The runs of one supervisor that have started and are not over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from proctor.policies.events import NetJoined, NetLeft
from proctor.policies.rules.net_shorthand import NetLine
from proctor.policies.rules.petri_net import Net
from proctor.policies.stack.clauses import net_name

from ..arguments import check_text
from ..control.approval_inbox import requested_at
from ..machine.interface import RunResult
from ..ports.stored_types import AnswerGiven, ApprovalAnswer, ApprovalRequest, Cancel, Command

if TYPE_CHECKING:
    from ..launch.launch import Claimed


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of runs, calls and observers since the supervisor was opened.

    Attributes:
        running: Active runs.
        started: Runs that were started.
        completed: Runs that completed.
        failed: Runs that failed.
        cancelled: Runs that were cancelled.
        refused: Runs that a policy cancelled.
        approvals: Calls with a pending approval.
        subscribers: How many subscriptions are open.
        publishers_dropped: How many publishers raised an error and were removed.
    """

    running: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    approvals: int = 0
    subscribers: int = 0
    publishers_dropped: int = 0


class RunHandle:
    """A started run. Its methods belong to the run's event loop: those that change the run or wait for it raise
    UsageError in another thread.
    """

    __slots__ = ("_actor", "_after", "_context", "run_id", "session_id")

    def __init__(self, run: Claimed) -> None:
        self._actor = run.actor
        self._after = run.info.after
        self._context: dict[str, Any] = run.begin.metadata.get("context", {})
        self.run_id = run.info.run_id
        self.session_id = run.info.session_id

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._actor.task_finished.is_set()

    @property
    def released(self) -> bool:
        """False if the agent did not end and was left behind; closing the event loop then waits for it."""
        return self._actor.agent_ended

    async def cancel(self, *, reason: str = "user", by: str = "") -> None:
        """Cancel the run; `by` names the person who decided it. `wait` returns how it ended."""
        check_text(reason=reason, by=by)
        self._actor.check_thread("cancel")
        self._actor.cancel(reason, person=by)
        await checkpoint()

    async def cancel_for_approval(self, request: ApprovalRequest, *, by: str = "") -> None:
        """Cancel the run so that this call can be approved first; `by` is the person who ordered it, if any."""
        check_text(by=by)
        self._actor.check_thread("cancel_for_approval")
        self._actor.cancel("waiting for approval", person=by, approval=request)
        await checkpoint()

    def add_net(self, net: str | NetLine | Net, **attached: Any) -> None:
        """Add a net to this run. A net that was removed before continues with its state.

        `validate`, `on_result` and `mapper` may be attached. The net is recorded as `net_joined`; what the attached
        callables do is not recorded. Raises ValueError for anything that is not a net, and if a rule, a net or
        another removed net has the name.
        """
        self._actor.check_thread("add_net")
        self._actor.monitor.add_net(net, **attached)
        written: Any = net if isinstance(net, str) else msgspec.to_builtins(net)
        given = tuple(sorted(name for name, function in attached.items() if function is not None))
        self._actor.record_net(NetJoined(name=net_name(net), net=written, attached=given))

    def remove_net(self, name: str) -> None:
        """Remove a net from this run; its state is kept. Raises KeyError if no net has the name."""
        self._actor.check_thread("remove_net")
        self._actor.monitor.remove_net(name)
        self._actor.record_net(NetLeft(name=name))

    def status(self) -> str:
        """The state of the run's nets and the tools that each allows now, in words suitable for a prompt."""
        return self._actor.monitor.status()

    def resolve(self, tool: str, input: dict[str, Any] | None = None) -> dict[str, str]:
        """What each net of the run would decide for a call now, by the net's id: `free`, `abstain`, `gated` or
        `blocked`.

        Raises ValueError for anything that is not a tool's name and an input.
        """
        return {**self._actor.monitor.resolve(tool, input)}

    async def wait_finished(self) -> None:
        """Wait until the run has ended."""
        if not self.done:
            self._actor.check_thread("wait")
        await self._actor.task_finished.wait()

    async def wait(self) -> RunResult:
        """The result, once the run is over.

        Raises PolicyViolationError if a policy cancelled it, StoreError if it could not be recorded, else the
        provider's own error, with the policy report as its `policy`. Each carries the result so far as its
        `partial`.
        """
        await self.wait_finished()
        return self._actor.result()


def deliver(command: Command, run: RunHandle) -> None:
    """Carry out a command, if it is for this run."""
    if isinstance(command, AnswerGiven):
        if command.run_id == run.run_id:
            run._actor.answer(command.approval_id, command.answer)
    elif isinstance(command, Cancel) and command.number > run._after:
        about = {"tenant": run._context.get("tenant"), "labels": run._context.get("labels")}
        if command.covers(run_id=run.run_id, session_id=run.session_id, **about):
            run._actor.cancel(command.reason or "cancelled", person=command.by, approval=command.approval)


Late: TypeAlias = Callable[[RunHandle], None]
"""A command given while a run was starting, carried out once the run exists."""


class ActiveRuns:
    """The current runs by id, the commands that starting runs have missed, and how ended runs ended."""

    def __init__(self) -> None:
        self._running: dict[str, RunHandle] = {}
        self._starting: dict[int, list[Late]] = {}  # by identity: two that have missed nothing are equal
        self._idle: anyio.Event | None = None
        self._counts = {"started": 0, "completed": 0, "failed": 0, "cancelled": 0, "refused": 0}

    def __iter__(self) -> Iterator[RunHandle]:
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        return len(self._running)

    @property
    def idle(self) -> bool:
        """Whether no run is active or starting."""
        return not self._running and not self._starting

    @contextmanager
    def starting(self) -> Iterator[list[Late]]:
        """Collect the commands that come while a run starts."""
        missed: list[Late] = []
        self._starting[id(missed)] = missed
        try:
            yield missed
        finally:
            del self._starting[id(missed)]

    def add(self, run: RunHandle, start: Callable[[], None]) -> None:
        """Add a run and call `start`, which starts the task that calls `remove`; not added if it raises."""
        self._running[run.run_id] = run
        try:
            start()
        except BaseException:
            del self._running[run.run_id]
            raise
        self._counts["started"] += 1

    def remove(self, run: RunHandle) -> None:
        """Remove a run that is over, and count how it ended."""
        del self._running[run.run_id]
        outcome = run._actor.outcome
        if outcome is not None:
            self._counts["refused" if outcome.refused else outcome.status] += 1
        if not self._running and self._idle is not None:
            self._idle.set()

    async def drained(self) -> None:
        """Wait until no run is left."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def drained_for_sure(self) -> None:
        """Wait until no run is left, even if asyncio's `Task.cancel` comes, which passes shields."""
        interrupted: BaseException | None = None
        while self._running:
            try:
                with anyio.CancelScope(shield=True):
                    await self.drained()
            except anyio.get_cancelled_exc_class() as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def cancel_all(self, reason: str, person: str = "") -> None:
        """Cancel every run, also those that are starting; `person` is who ordered it."""
        self._to_all(lambda run: run._actor.cancel(reason, person=person))

    def deliver(self, command: Command) -> None:
        self._to_all(partial(deliver, command))

    def _to_all(self, do: Late) -> None:
        """Do it to every run, even if it fails for one."""
        for missed in self._starting.values():
            missed.append(do)
        failed: list[Exception] = []
        for run in self:
            try:
                do(run)
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def requests(self) -> list[ApprovalRequest]:
        """The calls that are pending approval, oldest first."""
        return sorted((request for run in self for request in run._actor.requests), key=requested_at)

    def answer(self, approval_id: str, given: ApprovalAnswer) -> None:
        """Answer a pending approval, if it is one of these runs'."""
        for run in self:
            if any(request.approval_id == approval_id for request in run._actor.requests):
                run._actor.answer(approval_id, given)

    def statistics(self, *, subscribers: int, publishers_dropped: int) -> Statistics:
        return Statistics(
            running=len(self._running),
            approvals=sum(len(run._actor.requests) for run in self),
            subscribers=subscribers,
            publishers_dropped=publishers_dropped,
            **self._counts,
        )


def why_left(error: BaseException | None) -> str:
    """The recorded reason why a supervisor cancels its runs."""
    if error is None:
        return "the supervisor is closing"
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "its caller was cancelled"
    return f"its caller failed: {type(error).__name__}"
