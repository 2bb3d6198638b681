"""What the machine of a run asks others: the store about shared budgets, its checks, and its approver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio

from ...log import RunLog
from ...machine.boundary import inputs
from ...machine.boundary.commands import AskApproval, DropApproval, Reserve, RunChecks, Settle
from ...ports.facts import ApprovalRequest
from ...ports.ledger import Drawn
from ..latch import Latch
from ..services import Services
from .callouts import Approvals, ask_checks
from .isolation import contained, silence

Question: TypeAlias = Reserve | Settle | RunChecks | AskApproval | DropApproval
"""The commands that somebody else answers, or is asked no more."""


@dataclass(slots=True, eq=False, kw_only=True)
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

    services: Services
    run_id: str
    epoch: int
    within_s: float
    start: Callable[[Callable[[], Awaitable[None]]], None]
    feed: Callable[[inputs.Input], None]
    now_ms: Callable[[], int]
    log: RunLog
    _approvals: Approvals | None = None
    _first_draw: Latch | None = None

    def __post_init__(self) -> None:
        if self.services.approver is not None:
            self._approvals = Approvals(self.services.approver, self.log.failed)

    def carry_out(self, command: Question) -> None:
        """Ask, and do not wait for the answer."""
        match command:
            case Reserve():
                answered = self._first_draw = self._first_draw or Latch()
                self.start(partial(self._reserve, command, answered))
            case Settle():
                self.start(partial(self._settle, command))
            case RunChecks():
                self.start(partial(self._check, command))
            case AskApproval():
                self.log.tell("info", "approval.requested", command.request.call, id=command.request.approval_id)
                if self._approvals is not None:
                    self.start(partial(self._ask, command.request, self._approvals))
            case DropApproval():
                if self._approvals is not None:
                    self._approvals.drop(command.approval_id)

    async def drawn(self) -> None:
        """Wait until the store has answered the first draw on a shared budget, if there was one."""
        if self._first_draw is not None:
            await self._first_draw.wait()

    async def _reserve(self, command: Reserve, answered: Latch) -> None:
        store = self.services.store
        drawn, error = await self._answer(lambda: store.reserve(self.run_id, command.draws, epoch=self.epoch))
        try:
            self.feed(inputs.Reserved(now_ms=self.now_ms(), drawn=drawn, error=error))
        finally:
            answered.set()

    async def _settle(self, command: Settle) -> None:
        store = self.services.store
        drawn, error = await self._answer(lambda: store.settle(self.run_id, command.used, epoch=self.epoch))
        self.feed(inputs.Settled(now_ms=self.now_ms(), drawn=drawn, error=error))

    async def _answer(self, ask: Callable[[], Awaitable[list[Drawn]]]) -> tuple[tuple[Drawn, ...], Exception | None]:
        """What the store answers, or how it failed to."""
        with anyio.move_on_after(self.within_s):
            try:
                return tuple(await contained(ask)), None
            except Exception as error:
                self.log.failed("budgets.failed", error)
                return (), error
        return (), silence(self.within_s)

    async def _check(self, command: RunChecks) -> None:
        answers = await ask_checks(command.checks, command.call)
        self.feed(inputs.Checked(now_ms=self.now_ms(), key=command.key, answers=answers))

    async def _ask(self, request: ApprovalRequest, approvals: Approvals) -> None:
        answer = await approvals.ask(request)
        if answer is not None:
            self.feed(inputs.ApprovalAnswered(now_ms=self.now_ms(), approval_id=request.approval_id, answer=answer))
