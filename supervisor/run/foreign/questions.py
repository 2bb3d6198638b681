"""What the machine of a run asks others: the store about shared budgets, its checks, and its approver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from ...log import RunLog
from ...machine.boundary import inputs
from ...machine.boundary.commands import AskApproval, DropApproval, Reserve, RunChecks, Settle
from ...ports.adapters import ApprovalRequest
from ..services import Services
from .callouts import Approvals, ask_checks
from .reserving import Reserving

Question: TypeAlias = Reserve | Settle | RunChecks | AskApproval | DropApproval
"""The commands that somebody else answers, or is asked no more."""


class Questions:
    """Asks for one run, and feeds the answers to its machine.

    Args:
        services: the store and the approver.
        run_id: the run.
        epoch: of its owner.
        within_s: seconds that the store may take to answer.
        start: begins an errand.
        feed: takes an input for the machine.
        now_ms: the moment.
        log: is told of requests and of errors.
    """

    __slots__ = (
        "_approvals",
        "_epoch",
        "_feed",
        "_log",
        "_now_ms",
        "_reserving",
        "_run_id",
        "_start",
        "_store",
        "_within_s",
    )

    def __init__(
        self,
        services: Services,
        run_id: str,
        epoch: int,
        *,
        within_s: float,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        feed: Callable[[inputs.Input], None],
        now_ms: Callable[[], int],
        log: RunLog,
    ) -> None:
        self._store = services.store
        self._approvals = Approvals(services.approver, log.failed) if services.approver is not None else None
        self._reserving: Reserving | None = None
        self._run_id = run_id
        self._epoch = epoch
        self._within_s = within_s
        self._start = start
        self._feed = feed
        self._now_ms = now_ms
        self._log = log

    def carry_out(self, command: Question) -> None:
        """Ask, and do not wait for the answer."""
        match command:
            case Reserve():
                self._start(partial(self._budgets().reserve, command))
            case Settle():
                self._start(partial(self._budgets().settle, command))
            case RunChecks():
                self._start(partial(self._check, command))
            case AskApproval():
                self._log.tell("info", "approval.requested", command.request.call, id=command.request.approval_id)
                if self._approvals is not None:
                    self._start(partial(self._ask, command.request, self._approvals))
            case DropApproval():
                if self._approvals is not None:
                    self._approvals.drop(command.approval_id)

    async def drawn(self) -> None:
        """Wait until the store has answered the first draw on a shared budget, if there was one."""
        if self._reserving is not None:
            await self._reserving.answered()

    def _budgets(self) -> Reserving:
        """Made when a run first draws on a shared budget."""
        if self._reserving is None:
            self._reserving = Reserving(
                self._store,
                self._run_id,
                self._epoch,
                within_s=self._within_s,
                feed=self._feed,
                now_ms=self._now_ms,
                failed=self._log.failed,
            )
        return self._reserving

    async def _check(self, command: RunChecks) -> None:
        answers = await ask_checks(command.checks, command.call)
        self._feed(inputs.Checked(now_ms=self._now_ms(), key=command.key, answers=answers))

    async def _ask(self, request: ApprovalRequest, approvals: Approvals) -> None:
        answer = await approvals.ask(request)
        if answer is not None:
            self._feed(inputs.ApprovalAnswered(now_ms=self._now_ms(), approval_id=request.approval_id, answer=answer))
