"""What a run asks of others while a call waits: its asynchronous checks, and somebody's approval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio

from proctor.policies.stream.calls import ToolCall

from ...machine.boundary.judge import AsyncCheck
from ...ports.adapters import ApprovalAnswer, ApprovalRequest, Approver
from .isolation import SelfCancelledError, contained

CHECK_TIMEOUT_S = 60.0
"""How long an asynchronous check may take; one that takes longer has failed, and its call is refused."""


async def ask_checks(checks: Sequence[AsyncCheck], call: ToolCall) -> dict[str, Any]:
    """Ask the checks of a call one after another; gives what each answered, or its error."""
    answers: dict[str, Any] = {}
    for name, ask in checks:
        answers[name] = TimeoutError(f"no answer within {CHECK_TIMEOUT_S:g} seconds")
        with anyio.move_on_after(CHECK_TIMEOUT_S):
            try:
                answers[name] = await contained(partial(ask, call))
            except Exception as error:  # a check that raises denies; the judge names it
                answers[name] = error
    return answers


class Approvals:
    """An approver's open questions; `failed` is called with an error of theirs."""

    __slots__ = ("_approver", "_failed", "_open")

    def __init__(self, approver: Approver, failed: Callable[[str, Exception], None]) -> None:
        self._approver = approver
        self._failed = failed
        self._open: dict[str, anyio.CancelScope] = {}

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask for an answer; None when there is none, or none is wanted any more."""
        with anyio.CancelScope() as scope:
            self._open[request.approval_id] = scope
            try:
                return await self._answer(request)
            finally:
                self._open.pop(request.approval_id, None)
        return None

    async def _answer(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        try:
            answer = await contained(partial(self._approver, request))
            if not isinstance(answer, ApprovalAnswer | None):
                raise TypeError(f"an approver gives an ApprovalAnswer or None, not `{type(answer).__name__}`")
        except SelfCancelledError:  # it has not answered; others may
            return None
        except Exception as error:  # whoever cannot be asked has not said yes
            self._failed("approver.failed", error)
            return ApprovalAnswer(granted=False, by="supervisor", reason="the approver failed")
        return answer

    def drop(self, approval_id: str) -> None:
        """The answer is not needed any more."""
        scope = self._open.pop(approval_id, None)
        if scope is not None:
            scope.cancel()
