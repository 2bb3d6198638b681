"""The calls a run holds for a person, and the grants an earlier run of the session left behind."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from proctor.policies.calls import Decision, ToolCall, Violation, input_digest
from proctor.policies.events import (
    ApprovalEvent,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
    at_ms,
)

from .open_calls import Proposal
from .ports import ApprovalRequest


class Held:
    """One call that waits for an answer; `asked` once its request is on record."""

    __slots__ = ("asked", "decision", "expires_ms", "proposal", "request")

    def __init__(self, request: ApprovalRequest, proposal: Proposal, decision: Decision) -> None:
        self.request = request
        self.proposal = proposal
        self.decision = decision
        self.asked = False
        assert request.expires_at is not None
        self.expires_ms = at_ms(request.expires_at)


class Approvals:
    """Held calls by approval id. # INVARIANT: an answer takes its call out, so it is used once."""

    __slots__ = ("_held", "_standing")

    def __init__(self, standing: Iterable[ToolApprovalGranted] = ()) -> None:
        self._held: dict[str, Held] = {}
        self._standing = {(grant.tool_name, grant.input_digest): grant for grant in standing}

    def hold(self, held: Held) -> None:
        """Keep a call until it is answered, expires or is dropped."""
        self._held[held.request.approval_id] = held

    def ask(self, approval_id: str) -> ApprovalRequest | None:
        """The request, now on record, may be shown; None when the call does not wait any more."""
        held = self._held.get(approval_id)
        if held is None:
            return None
        held.asked = True
        return held.request

    def take(self, approval_id: str) -> Held | None:
        """The held call of that id, which is held no more."""
        return self._held.pop(approval_id, None)

    def get(self, approval_id: str) -> Held | None:
        """The held call of that id."""
        return self._held.get(approval_id)

    def of(self, proposal: Proposal) -> Held | None:
        """The held call of that proposal, which is held no more."""
        for approval_id, held in self._held.items():
            if held.proposal is proposal:
                return self._held.pop(approval_id)
        return None

    def due(self, now_ms: int) -> list[Held]:
        """The calls whose time is up, which are held no more."""
        late = [key for key, held in self._held.items() if held.expires_ms <= now_ms]
        return [self._held.pop(key) for key in late]

    def next_expiry(self) -> int | None:
        """When the next held call expires, in milliseconds since the epoch."""
        if not self._held:
            return None
        return min((held.expires_ms for held in self._held.values()), default=None)

    def use_standing(self, call: ToolCall, digest: str) -> ToolApprovalGranted | None:
        """The grant given for this tool and input after an earlier run was ended for it; used up by this."""
        return self._standing.pop((call.name, digest), None) if self._standing else None

    def requests(self) -> list[ApprovalRequest]:
        """What is waiting for an answer, in the order it was asked."""
        return [held.request for held in self._held.values() if held.asked]


def request_for(
    decision: Decision, call: ToolCall, *, ids: tuple[str, str, str], at: datetime, timeout_s: float
) -> ApprovalRequest:
    """What an approver is shown; `ids` are those of the approval, the run and the session."""
    because = _reason(decision)
    return ApprovalRequest(
        approval_id=ids[0],
        run_id=ids[1],
        session_id=ids[2],
        call=call,
        input_digest=decision.input_digest or input_digest(call.input),
        policy_name=because.policy if because else "",
        violation_kind=because.kind if because else "",
        reason=(because.reason or because.message) if because else None,
        expires_at=at + timedelta(seconds=timeout_s),
    )


def requested(request: ApprovalRequest, *, held: bool = True) -> ToolApprovalRequested:
    """The record that an approval was asked for."""
    return ToolApprovalRequested(**_about(request), held=held, expires_at=request.expires_at, reason=request.reason)


def granted(request: ApprovalRequest, *, by: str, reason: str | None) -> ToolApprovalGranted:
    """The record that somebody said yes."""
    return ToolApprovalGranted(**_about(request), by=by, reason=reason)


def refused(request: ApprovalRequest, *, by: str, reason: str | None) -> ToolApprovalDenied:
    """The record that somebody said no."""
    return ToolApprovalDenied(**_about(request), by=by, reason=reason)


def expired(request: ApprovalRequest, *, reason: str) -> ToolApprovalExpired:
    """The record that nobody answered while the call was held."""
    return ToolApprovalExpired(**_about(request), reason=reason)


def standing_grants(events: Iterable[ApprovalEvent]) -> list[ToolApprovalGranted]:
    """The grants among a session's approval events that came after their run was over and are not used.

    Such a grant is recorded without a run; using it records it once more with the run that used it.
    """
    open_grants: dict[str, ToolApprovalGranted] = {}
    for event in events:
        if isinstance(event, ToolApprovalGranted):
            if event.run_id:
                open_grants.pop(event.approval_id, None)
            else:
                open_grants[event.approval_id] = event
    return list(open_grants.values())


def same_input(request: ApprovalRequest, digest: str | None) -> bool:
    """Whether an answer is for the input that was shown; one that names no input answers what was shown."""
    return digest is None or digest == request.input_digest


def _reason(decision: Decision) -> Violation | None:
    asks = (v for v in decision.violations if v.action == "request_approval")
    return next(asks, None)


def _about(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "approval_id": request.approval_id,
        "tool_call_id": request.call.id,
        "tool_name": request.call.name,
        "tool_input": request.call.input,
        "input_digest": request.input_digest,
        "policy_name": request.policy_name,
        "violation_kind": request.violation_kind,
    }
