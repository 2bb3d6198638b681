"""The records of an approval: asked for, granted, refused, expired; and the grants an earlier run left behind."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from proctor.policies.stream.calls import ToolCall, Violation, input_digest
from proctor.policies.stream.events import (
    ApprovalEvent,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
)

from ..ports import ApprovalAnswer, ApprovalRequest


def request_for(
    violations: Iterable[Violation],
    call: ToolCall,
    *,
    ids: tuple[str, str, str],
    at: datetime,
    timeout_s: float | None = None,
) -> ApprovalRequest:
    """What an approver is shown of a call that violates these.

    Args:
        violations: what was found; those that ask count.
        call: the call, with its real input.
        ids: of the approval, the run and the session.
        at: now.
        timeout_s: how long it is held; None for one that cannot be held.
    """
    asks = tuple(v for v in violations if v.action == "request_approval")
    because = asks[0] if asks else None
    return ApprovalRequest(
        approval_id=ids[0],
        run_id=ids[1],
        session_id=ids[2],
        call=call,
        input_digest=input_digest(call.input) if call.id else "",
        policy_name=because.policy if because else "",
        violation_kind=because.kind if because else "",
        reason=(because.reason or because.message) if because else None,
        violations=asks,
        requested_at=at,
        expires_at=None if timeout_s is None else at + timedelta(seconds=timeout_s),
        held=timeout_s is not None,
    )


def requested(request: ApprovalRequest) -> ToolApprovalRequested:
    """The record that an approval was asked for."""
    return ToolApprovalRequested(
        **_about(request),
        held=request.held,
        ran=request.ran,
        expires_at=request.expires_at,
        reason=request.reason,
        violations=tuple(msgspec.to_builtins(violation) for violation in request.violations),
    )


def granted(request: ApprovalRequest, *, by: str, reason: str | None) -> ToolApprovalGranted:
    """The record that somebody said yes."""
    return ToolApprovalGranted(**_about(request), by=by, reason=reason)


def answered(request: ApprovalRequest, answer: ApprovalAnswer) -> ToolApprovalGranted | ToolApprovalDenied:
    """The record of somebody's answer. A yes to what ran already permits nothing later: it has no digest."""
    record = ToolApprovalGranted if answer.granted else ToolApprovalDenied
    about = {**_about(request), "by": answer.by, "reason": answer.reason}
    if request.ran:
        about["input_digest"] = None
    return record(**about)


def expired(request: ApprovalRequest, *, reason: str, withdrawn: bool = False) -> ToolApprovalExpired:
    """The record that nobody answered while the call was held; `withdrawn` where that is because it is over."""
    return ToolApprovalExpired(**_about(request), reason=reason, withdrawn=withdrawn)


def standing_grants(events: Iterable[ApprovalEvent]) -> list[ToolApprovalGranted]:
    """The grants among a session's approval events that came after their run was over and are not used.

    Such a grant is recorded without a run; using it records it once more with the run that used it.
    """
    open_grants: dict[str, ToolApprovalGranted] = {}
    for event in events:
        if isinstance(event, ToolApprovalGranted):
            if event.run_id:
                open_grants.pop(event.approval_id, None)
            elif event.input_digest:
                open_grants[event.approval_id] = event
    return list(open_grants.values())


def _about(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "approval_id": request.approval_id,
        "tool_call_id": request.call.id,
        "tool_name": request.call.name,
        "tool_input": request.call.input,
        "input_digest": request.input_digest or None,
        "policy_name": request.policy_name,
        "violation_kind": request.violation_kind,
    }
