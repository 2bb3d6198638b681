"""What a run asks of others while a call waits: its asynchronous checks, and somebody's approval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from proctor.policies.calls import ToolCall

from .judge import AsyncCheck
from .ports import ApprovalAnswer, ApprovalRequest, Approver

CHECK_TIMEOUT_S = 60.0
"""How long an asynchronous check may take; one that takes longer has failed, and its call is refused."""


async def ask_checks(checks: Sequence[AsyncCheck], call: ToolCall, told: Callable[[Mapping[str, Any]], None]) -> None:
    """Ask the checks of a call one after another, and tell what each answered; one that raised is its error.

    It is told whatever happens: on asyncio a check may end with a cancel that nobody ordered.
    """
    answers: dict[str, Any] = {name: RuntimeError("was cancelled") for name, _ in checks}
    try:
        for name, ask in checks:
            with anyio.move_on_after(CHECK_TIMEOUT_S) as time:
                try:
                    answers[name] = await ask(call)
                except Exception as error:  # a check that raises denies; the judge names it
                    answers[name] = error
            if time.cancelled_caught:
                answers[name] = TimeoutError(f"no answer within {CHECK_TIMEOUT_S:g} seconds")
    finally:
        told(answers)


class Approvals:
    """The approver's open questions; `failed` is called while handling an error of theirs."""

    __slots__ = ("_failed", "_open")

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._open: dict[str, anyio.CancelScope] = {}

    async def ask(self, request: ApprovalRequest, approver: Approver) -> ApprovalAnswer | None:
        """Ask for an answer; None when there is none, or none is wanted any more."""
        answer: ApprovalAnswer | None = None
        with anyio.CancelScope() as asking:
            self._open[request.approval_id] = asking
            try:
                answer = await approver(request)
            except Exception:  # whoever cannot be asked has not said yes
                self._failed("approver.failed")
                answer = ApprovalAnswer(granted=False, by="supervisor", reason="the approver failed")
            finally:
                self._open.pop(request.approval_id, None)
        return answer

    def drop(self, approval_id: str) -> None:
        """Its answer is not wanted any more."""
        asking = self._open.pop(approval_id, None)
        if asking is not None:
            asking.cancel()
