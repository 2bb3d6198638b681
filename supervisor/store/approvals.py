"""Approvals as every store keeps them: what the events of a session say of them."""

from __future__ import annotations

from typing import TypeGuard

import msgspec
from msgspec.structs import replace

from proctor.policies.policy import SCOPES
from proctor.policies.stream.calls import ToolCall, Violation, input_digest
from proctor.policies.stream.events import (
    ApprovalEvent,
    Event,
    RunCancelled,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
)

from ..ports.facts import ApprovalAnswer, ApprovalRequest, ApprovalState, StoredApproval

_SAME = {*ApprovalRequest.__struct_fields__} & {*ToolApprovalRequested.__struct_fields__} - {
    "input_digest",
    "violations",
}
"""What a request and its record have under one name, the same in both."""


def state_after(event: ApprovalEvent) -> ApprovalState:
    """What an event makes of its approval."""
    match event:
        case ToolApprovalGranted():
            return "granted"
        case ToolApprovalDenied():
            return "denied"
        case ToolApprovalExpired():
            return "withdrawn" if event.withdrawn else "expired"
    return "requested"


def asks(event: ApprovalEvent) -> TypeGuard[ToolApprovalRequested]:
    """Whether an event asks for an approval that can be answered."""
    return isinstance(event, ToolApprovalRequested) and bool(event.input_digest)


def closed(approval: StoredApproval, event: ApprovalEvent) -> StoredApproval:
    """The approval after an event that closes it; the answer it took before stands where the event repeats it."""
    state, answer = state_after(event), approval.answer
    if event.by is None:
        answer = None
    elif answer is None or state != approval.state:
        answer = ApprovalAnswer(granted=state == "granted", by=event.by, reason=event.reason)
    return replace(approval, state=state, answer=answer, answered_at=event.at, recorded=True)


def outlives(approval: StoredApproval, end: Event) -> bool:
    """Whether an approval that waits goes on waiting when its run has ended so: where the run was ended to ask."""
    return approval.request.ran or (isinstance(end, RunCancelled) and not approval.request.held)


def objection(request: ApprovalRequest, given: ApprovalAnswer) -> str | None:
    """Why an answer does not count: who gives it, or how much it would cover; None where it counts."""
    allowed = request.approvers
    if allowed is not None and given.by not in allowed and not any(f"@{group}" in allowed for group in given.groups):
        return f"`{given.by}` may not answer; these may: {', '.join(allowed) or 'nobody'}"
    if request.started_by == "":
        return "who started the run may not answer it, and is not known: give its context a `user`"
    if request.started_by is not None and request.started_by == given.by:
        return f"`{given.by}` started the run; somebody else must answer"
    if given.granted and SCOPES.index(given.scope) > SCOPES.index(request.scope):
        return f"a yes may cover `{request.scope}` at most here, not `{given.scope}`"
    return None


def same_input(request: ApprovalRequest, digest: str | None) -> bool:
    """Whether an answer is for the input that was shown; one that names no input answers what was shown."""
    return digest is None or digest == request.input_digest


def shown(event: ToolApprovalRequested, call: ToolCall | None = None) -> ApprovalRequest:
    """What an approver is shown of a recorded request, `call` where more of it is known than the request says."""
    return ApprovalRequest(
        **{name: getattr(event, name) for name in _SAME},
        call=call or ToolCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input),
        input_digest=event.input_digest or input_digest(event.tool_input),
        violations=_violations(event),
        requested_at=event.at,
    )


def _violations(event: ToolApprovalRequested) -> tuple[Violation, ...]:
    try:
        return msgspec.convert(event.violations, tuple[Violation, ...])
    except msgspec.ValidationError:  # written by another version: the request says what it is about all the same
        return ()
