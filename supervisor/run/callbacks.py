"""Carries out the effects that others answer: reservations by the store, asynchronous checks, approvals."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from msgspec.structs import replace

from proctor.policies.events import at_ms
from proctor.policies.events.calls import AsyncCheck, ToolCall, own_call
from proctor.policies.values.foreign_code import named_error

from ..arguments import checked_answer
from ..errors import StoreError
from ..log import RunLog
from ..machine import interface
from ..machine.interface import CloseApproval, DropApproval, RequestApproval, Reserve, RunChecks, Settle
from ..ports.adapter import Approver
from ..ports.budget_ledger import ReservationResult
from ..ports.stored_types import NOBODY_IN_TIME, SUPERVISOR, ApprovalAnswer, ApprovalRequest
from .journal import ANSWER_S, NEVER, Journal
from .services import Services
from .tasks import OneShotEvent, SelfCancelledError, call_isolated, call_within, store_timeout

_SETTLE_AGAIN_S = (1.0, 2.0, 4.0, 8.0)
"""How long to wait after each failure before the store is asked to settle again."""

CHECK_TIMEOUT_S = 60.0
"""How long an asynchronous check may take; one that takes longer has failed, and its call is refused."""


_NOT_STORED = ApprovalAnswer(granted=False, by=SUPERVISOR, reason="the store did not accept an answer")


async def call_checks(checks: Sequence[AsyncCheck], call: ToolCall) -> dict[str, Any]:
    """Call the checks of a call one after another; returns each one's answer, or its error. One that is deaf to its
    cancel is left behind.
    """
    answers: dict[str, Any] = {}
    for name, check in checks:
        try:
            answers[name] = await call_within(CHECK_TIMEOUT_S, partial(check, own_call(call)))
        except Exception as error:  # a check that raises denies; the monitor names it
            answers[name] = error
    return answers


CallbackEffect: TypeAlias = Reserve | Settle | RunChecks | RequestApproval | DropApproval | CloseApproval
"""The effects that the store, a check or an approver answers; `DropApproval` withdraws a request."""


@dataclass(slots=True, eq=False, kw_only=True)
class CallbackRunner:
    """Carries out these effects of one run, and feeds the answers to its machine.

    `start` starts a background task, `feed` feeds the machine an input.
    """

    services: Services
    journal: Journal
    run_id: str
    epoch: int
    start: Callable[[Callable[[], Awaitable[None]]], None]
    feed: Callable[[interface.Input], None]
    now_ms: Callable[[], int]
    log: RunLog
    _first_reservation: OneShotEvent | None = None
    _scopes: dict[str, anyio.CancelScope] = field(default_factory=dict)  # by approval, the approver's scope

    def carry_out(self, effect: CallbackEffect) -> None:
        """Start what the effect asks for; its answer is fed to the machine later."""
        match effect:
            case Reserve():
                answered = self._first_reservation = self._first_reservation or OneShotEvent()
                self.start(partial(self._reserve, effect, answered))
            case Settle():
                self.start(partial(self._settle, effect))
            case RunChecks():
                self.start(partial(self._check, effect))
            case RequestApproval():
                self.log.log("info", "approval.requested", effect.request.call, id=effect.request.approval_id)
                if self.services.approver is not None:
                    asking = self._scopes[effect.request.approval_id] = anyio.CancelScope()
                    self.start(partial(self._request_approval, effect.request, self.services.approver, asking))
            case CloseApproval():
                self.start(partial(self._answer_first, effect.approval_id, NOBODY_IN_TIME))
            case DropApproval():
                if (scope := self._scopes.pop(effect.approval_id, None)) is not None:
                    scope.cancel()

    async def wait_reserved(self) -> None:
        """Wait until the store has answered the first reservation of a shared budget, if there was one."""
        if self._first_reservation is not None:
            await self._first_reservation.wait()

    async def _reserve(self, effect: Reserve, answered: OneShotEvent) -> None:
        store = self.services.store
        results, error = await self._answer(lambda: store.reserve(self.run_id, effect.reservations, epoch=self.epoch))
        try:
            self.feed(interface.Reserved(now_ms=self.now_ms(), results=results, error=error))
        finally:
            answered.set()

    async def _settle(self, effect: Settle) -> None:
        """Settle, and retry if the store fails: nobody else settles an ended run. If it fails to the last, the run's
        end is stored only after another retry.
        """
        store, journal = self.services.store, self.journal
        journal.used = effect.used
        for pause in (*_SETTLE_AGAIN_S, None):
            results, error = await self._answer(lambda: store.settle(self.run_id, effect.used, epoch=self.epoch))
            journal.settles_first = error is not None and getattr(error, "kind", None) not in NEVER
            if pause is None or not journal.settles_first:
                break
            await anyio.sleep(pause)
        self.feed(interface.Settled(now_ms=self.now_ms(), results=results, error=error))

    async def _answer(
        self, call: Callable[[], Awaitable[list[ReservationResult]]]
    ) -> tuple[tuple[ReservationResult, ...], Exception | None]:
        try:
            return tuple(await call_within(ANSWER_S, call)), None
        except TimeoutError:
            return (), store_timeout(ANSWER_S)
        except Exception as error:
            self.log.failed("budgets.failed", error)
            return (), error

    async def _check(self, effect: RunChecks) -> None:
        answers = await call_checks(effect.checks, effect.call)
        self.feed(interface.Checked(now_ms=self.now_ms(), key=effect.key, answers=answers))

    async def _request_approval(self, request: ApprovalRequest, approver: Approver, scope: anyio.CancelScope) -> None:
        answer = None
        with scope:
            try:
                await checkpoint_if_cancelled()  # the request may have been dropped before this task began
                answer = await self._answer_of(approver, request)
            finally:
                self._scopes.pop(request.approval_id, None)
        late = request.expires_at is not None and at_ms(request.expires_at) <= self.now_ms()
        if answer is not None and not late:  # else the request is being closed
            await self._answer_first(request.approval_id, self.services.redactor.redact(answer, request.session_id))

    async def _answer_of(self, approver: Approver, request: ApprovalRequest) -> ApprovalAnswer | None:
        """An approver's answer; None if it gives none. One that raises has declined."""
        try:
            answer = await call_isolated(partial(approver, replace(request, call=own_call(request.call))))
            answer = None if answer is None else checked_answer(answer)
        except SelfCancelledError:  # it has not answered; others may
            return None
        except Exception as error:  # no answer is no approval
            self.log.failed("approver.failed", error)
            return ApprovalAnswer(granted=False, by=SUPERVISOR, reason=f"the approver failed: {named_error(error)}")
        return answer and replace(answer, expired=False)  # only the owner of the run says that the time is up

    async def _answer_first(self, approval_id: str, answer: ApprovalAnswer) -> None:
        """Feed this answer, or the one that the store accepted before it. If the store fails, it may have accepted a
        denial: then nobody grants.
        """
        counts = _NOT_STORED if answer.granted else answer
        try:
            counts = await call_within(ANSWER_S, partial(self._accepted, approval_id, answer))
        except Exception as error:
            self.log.failed("approval.not_stored", error)
        self.feed(interface.ApprovalAnswered(now_ms=self.now_ms(), approval_id=approval_id, answer=counts))

    async def _accepted(self, approval_id: str, answer: ApprovalAnswer) -> ApprovalAnswer:
        store = self.services.store
        try:
            await store.answer(approval_id, answer, at=datetime.now(UTC))
        except StoreError as error:
            if error.kind == "answered":
                approval = await store.approval(approval_id)
                return answer if approval is None or approval.answer is None else approval.answer
            if error.kind not in ("not_allowed", "other_input"):  # the machine ignores these two
                raise
            self.log.failed("approval.not_accepted", error)
        return answer
