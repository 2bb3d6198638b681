"""The records of an approval: requested, granted, denied, expired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from proctor.policies.policy import Approval
from proctor.policies.rules.keyed import KEY_SHOWN
from proctor.policies.stream.calls import ToolCall, Violation, input_digest
from proctor.policies.stream.events import (
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
)

from ...ports.adapters import ApprovalAnswer, ApprovalRequest


def request_for(
    violations: Iterable[Violation],
    call: ToolCall,
    *,
    ids: tuple[str, str, str],
    at: datetime,
    timeout_s: float | None = None,
    rules: Approval | None = None,
    started_by: str | None = None,
) -> ApprovalRequest:
    """What an approver is shown of a call that violates these.

    Args:
        violations: what was found; those that ask count.
        call: the call, with its real input.
        ids: of the approval, the run and the session.
        at: now.
        timeout_s: how long it is held; None for one that cannot be held.
        rules: who may answer, and how far.
        started_by: who started the run, where that is known.
    """
    rules = rules or Approval()
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
        approvers=rules.approvers,
        started_by=(started_by or "") if rules.four_eyes else None,
        scope=rules.scope,
    )


def requested(request: ApprovalRequest) -> ToolApprovalRequested:
    """The record that an approval was requested."""
    return ToolApprovalRequested(
        **_about(request),
        held=request.held,
        ran=request.ran,
        expires_at=request.expires_at,
        reason=request.reason,
        violations=tuple(msgspec.to_builtins(violation) for violation in request.violations),
        approvers=request.approvers,
        started_by=request.started_by,
        scope=request.scope,
    )


def granted(request: ApprovalRequest, *, by: str, reason: str | None) -> ToolApprovalGranted:
    """The record that somebody said yes."""
    return ToolApprovalGranted(**_about(request), by=by, reason=reason)


def covered(request: ApprovalRequest, grant: ToolApprovalGranted, *, reason: str | None) -> ToolApprovalGranted:
    """The record that an earlier yes counts for this call, so that no person is asked."""
    asking = tuple((violation.policy, violation.rule) for violation in request.violations)
    yes = granted(request, by=grant.by or "", reason=reason)
    return msgspec.structs.replace(yes, covered_by=grant.approval_id, asking=asking)


def answered(request: ApprovalRequest, answer: ApprovalAnswer) -> ToolApprovalGranted | ToolApprovalDenied:
    """The record of somebody's answer. A yes to what ran already permits nothing later: it has no digest."""
    about = {**_about(request), "by": answer.by, "reason": answer.reason}
    if request.ran:
        about["input_digest"] = None
    if not answer.granted:
        return ToolApprovalDenied(**about)
    if answer.scope != "once":
        about |= {"scope": answer.scope, "covers": covered_by(request.violations)}
    return ToolApprovalGranted(**about)


def covered_by(violations: Iterable[Violation]) -> tuple[str, ...]:
    """What a yes to these covers: the rules that ask, each with its keys; empty where a key is too long to be told
    whole.
    """
    asks = [v for v in violations if v.action == "request_approval"]
    keys = {(v.policy, v.rule): tuple(v.details.get("keys", ())) for v in asks}
    if any(len(key) >= KEY_SHOWN for given in keys.values() for key in given):
        return ()
    return tuple(
        sorted(f"{policy}/{rule}" + "".join(f"={key}" for key in given) for (policy, rule), given in keys.items())
    )


def expired(request: ApprovalRequest, *, reason: str, withdrawn: bool = False) -> ToolApprovalExpired:
    """The record that nobody answered while the call was held; `withdrawn` where that is because it is over."""
    return ToolApprovalExpired(**_about(request), reason=reason, withdrawn=withdrawn)


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
