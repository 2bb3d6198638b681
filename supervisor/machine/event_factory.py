"""The events that the supervisor records (approvals, violations, warnings), and what a session's past events say."""

import json
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import Enforcement, Violation
from proctor.policies.events.calls import LimitWarning, ToolCall, call_of, input_digest
from proctor.policies.monitor.violations import DENIES_LATER
from proctor.policies.policy import Approval, ApprovalScope
from proctor.policies.rules.per_key import KEY_SHOWN
from proctor.policies.values.model_base import UNCLEAR

from ..ports.stored_types import ApprovalAnswer, ApprovalRequest
from ..store.invariants import SHOWN_AS_RECORDED


def request_for(
    violations: Iterable[Violation],
    call: ToolCall,
    *,
    ids: tuple[str, str, str],
    at: datetime,
    timeout_s: float | None = None,
    rules: Approval | None = None,
    started_by: str | None = None,
    rules_digest: str = "",
) -> ApprovalRequest:
    """The request that approvers see for a call, with its real input, of whose violations those with
    `request_approval` count. `ids` are of the approval, the run and the session. It is held for `timeout_s`; None: it
    cannot be held. `rules` say who may answer, and how far; `rules_digest` is of what asks.
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
        rules_digest=rules_digest,
    )


def requested(request: ApprovalRequest) -> ev.ToolApprovalRequested:
    same = {name: getattr(request, name) for name in SHOWN_AS_RECORDED}
    violations = tuple(msgspec.to_builtins(violation) for violation in request.violations)
    return ev.ToolApprovalRequested(**_about(request) | same, violations=violations)


def granted(request: ApprovalRequest, *, by: str, reason: str | None) -> ev.ToolApprovalGranted:
    return ev.ToolApprovalGranted(**_about(request), by=by, reason=reason)


def covered(request: ApprovalRequest, grant: ev.ToolApprovalGranted, *, reason: str | None) -> ev.ToolApprovalGranted:
    """The event of an earlier grant that covers this call, so that no person is asked."""
    rules = tuple((violation.policy, violation.rule) for violation in request.violations)
    yes = granted(request, by=grant.by or "", reason=reason)
    return msgspec.structs.replace(yes, covered_by=grant.approval_id, asking=rules)


def answered(request: ApprovalRequest, answer: ApprovalAnswer) -> ev.ToolApprovalGranted | ev.ToolApprovalDenied:
    """The event of an answer. A grant for a call that already ran has no digest, so that it allows no later call."""
    about = {**_about(request), "by": answer.by, "reason": answer.reason}
    if request.ran:
        about["input_digest"] = None
    if not answer.granted:
        return ev.ToolApprovalDenied(**about)
    about["groups"] = answer.groups
    if answer.scope != "once":
        about |= {"scope": answer.scope, "covers": covered_by(request.violations), "like": answer.like}
        about["rules_digest"] = request.rules_digest
    return ev.ToolApprovalGranted(**about)


def answer_of(grant: ev.ToolApprovalGranted) -> ApprovalAnswer:
    """The answer that a grant was."""
    scope = cast(ApprovalScope, grant.scope)
    return ApprovalAnswer(granted=True, by=grant.by or "", groups=grant.groups, scope=scope, like=grant.like)


def covered_by(violations: Iterable[Violation]) -> tuple[str, ...]:
    """What an approval of these violations covers: the rules that ask, each with its keys; empty if a key is too long
    to be shown whole, or is not known.
    """
    asks = [v for v in violations if v.action == "request_approval"]
    keys = {(v.policy, v.rule): tuple(v.details.get("keys", ())) for v in asks}
    if any(len(key) >= KEY_SHOWN or key == UNCLEAR for given in keys.values() for key in given):
        return ()
    return tuple(
        sorted(f"{policy}/{rule}" + "".join(map(_key_text, given)) for (policy, rule), given in keys.items())
    )


def _key_text(key: str) -> str:
    """A key in what an approval covers: as JSON where it could be taken for several, or for one that is."""
    plain = "=" not in key and not key.startswith('"')
    return f"={key if plain else json.dumps(key)}"


def expired(request: ApprovalRequest, *, reason: str, withdrawn: bool = False) -> ev.ToolApprovalExpired:
    """The event of a request that nobody answered in time; `withdrawn`: its call is not held any more."""
    return ev.ToolApprovalExpired(**_about(request), reason=reason, withdrawn=withdrawn)


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


_RECORDED = tuple(name for name in Violation.__struct_fields__ if name in ev.PolicyViolated.__struct_fields__)
"""The fields of a violation that are recorded."""

SUPERVISION = "supervision"
"""Stands for the policy in violations of what always holds: the call that was decided is the call that runs."""

EnforcementReach = Literal["record", "signal", "cancel", "escalate"]


def reach(violation: Violation, *, gates_all: bool) -> EnforcementReach:
    """What to do about a violation by something that already happened: `record` it, `signal` that somebody should
    approve it, `cancel` the run, or `escalate` a deny to a cancel, as it is too late to deny.
    """
    if violation.action == "cancel":
        return "cancel"
    if violation.action == "request_approval":
        return "signal"
    if violation.action != "deny" or violation.unpreventable == "warn":
        return "record"
    return "record" if gates_all and violation.kind in DENIES_LATER else "escalate"


def labelled(violation: Violation, enforcement: Enforcement) -> Violation:
    return msgspec.structs.replace(violation, enforcement=enforcement)


def violated(violation: Violation, *, escalated: bool = False) -> ev.PolicyViolated:
    return ev.PolicyViolated(**{name: getattr(violation, name) for name in _RECORDED}, escalated=escalated)


def violation_of(event: ev.PolicyViolated) -> Violation:
    """The violation that was recorded as this event."""
    return msgspec.convert({name: getattr(event, name) for name in _RECORDED}, Violation)


def input_changed(ran: ev.ToolCallStarted) -> Violation:
    """The violation of a call whose input was changed after its decision."""
    return Violation(
        policy=SUPERVISION,
        stack=SUPERVISION,
        rule="input_changed",
        kind="input_changed",
        action="cancel",
        enforcement="observed",
        message=f"`{ran.tool_name}` ran with another input than was evaluated",
        tool_call_id=ran.tool_call_id,
        tool_name=ran.tool_name,
    )


def warned(warning: LimitWarning) -> ev.BudgetWarned:
    """The event of a limit that has passed its `warn_at`."""
    return ev.BudgetWarned(limit=warning.limit, used=warning.used, max=warning.max, fraction=warning.fraction)


CALLS_KEPT = 1_000
"""How many of the session's latest calls an error of a later run names."""


class PriorSession:
    """A session's events, taken one after another: whether a run of it has begun, the `seq` of the latest, the number
    of model responses, the latest calls that ran, and each provider's own id of the session.

    Responses of the run `of` are not counted: they are not its past.
    """

    __slots__ = ("_calls", "_grants", "_of", "created", "last_seq", "provider_sessions", "turns")

    def __init__(self, *, of: str | None = None, turns: int = 0, last_seq: int = 0) -> None:
        self._of = of
        self.turns = turns
        self.last_seq = last_seq
        self.created = False
        self.provider_sessions: dict[str, str] = {}
        self._calls: deque[ev.ToolCallStarted] = deque(maxlen=CALLS_KEPT)
        self._grants: dict[str, ev.ToolApprovalGranted] = {}

    def apply(self, event: ev.Event) -> None:
        self.last_seq = max(self.last_seq, event.seq)
        if event.run_id != self._of and isinstance(event, (ev.TurnEvent, ev.ToolEvent)):
            self.turns = max(self.turns, event.turn)
            if isinstance(event, ev.ToolCallStarted):
                self._calls.append(event)
        if isinstance(event, ev.ToolApprovalGranted):
            self._granted(event)
        elif isinstance(event, ev.SessionEvent):
            self.created = self.created or isinstance(event, ev.SessionCreated)
            if event.provider_session_id:
                self.provider_sessions[event.provider] = event.provider_session_id

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(map(call_of, self._calls))

    @property
    def grants(self) -> list[ev.ToolApprovalGranted]:
        """The grants that hold for a later run: of the session, and unused ones given after their run's end."""
        return list(self._grants.values())

    def _granted(self, event: ev.ToolApprovalGranted) -> None:
        # One that came late is recorded without a run; using it records it once more, with the run that used it.
        if event.scope == "session":
            self._grants[event.approval_id] = event
        elif event.run_id:
            self._grants.pop(event.approval_id, None)
        elif event.input_digest:
            self._grants[event.approval_id] = event
