"""The calls that are pending approval: each is requested on record, then answered, expired or withdrawn."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

import msgspec

from proctor.policies import PolicyError, compile_policy, merge_policies, parse_policies
from proctor.policies.errors import Violation
from proctor.policies.events import ToolApprovalGranted, at_ms
from proctor.policies.events.calls import Decision, ToolCall, input_digest
from proctor.policies.monitor.call_table import RuleName
from proctor.policies.policy import Approval

from ..ports.adapter import GateAnswer
from ..ports.stored_types import NOBODY_IN_TIME, ApprovalAnswer, ApprovalRequest
from ..store.invariants import objection, same_input
from . import event_factory as approvals
from .interface import CloseApproval, DropApproval, RequestApproval
from .run_state import ApprovalDue, RunState


class Proposal(msgspec.Struct, eq=False):
    """One proposed call; its caller waits under `key`.

    `pending` are the violations that a person is asked about: they are recorded if the call is denied. `noted` are
    the rules whose violations are recorded.
    """

    key: int
    call: ToolCall
    answer: GateAnswer | None = None
    noted: set[RuleName] = set()
    pending: list[Violation] = []

    def await_outcome(self, found: Iterable[Violation]) -> None:
        """Keep violations until the call is decided: their enforcement is not known before."""
        pending = {(v.policy, v.rule) for v in self.pending}
        self.pending += (v for v in found if (v.policy, v.rule) not in pending)


def is_like(call: ToolCall, entry: dict[str, Any], inputs: Collection[str]) -> bool:
    """Whether the entry of an allow list admits a call that has no other inputs than these."""
    if not call.input.keys() <= set(inputs):
        return False
    try:
        policies = parse_policies({"name": "like", "tool_rules": [{"allow": [entry]}]})
    except PolicyError:  # it was recorded by another version
        return False
    return bool(compile_policy(merge_policies(policies)).monitor().admission(call).rules)


class Held:
    """One held call; `shown` once its request is on record, `closing` once its time is up."""

    __slots__ = ("closing", "expires_ms", "proposal", "request", "shown")

    def __init__(
        self, request: ApprovalRequest, proposal: Proposal, *, shown: bool = False, closing: bool = False
    ) -> None:
        self.request = request
        self.proposal = proposal
        self.shown = shown
        self.closing = closing
        assert request.expires_at is not None
        self.expires_ms = at_ms(request.expires_at)

    def made_exact(self, tool_input: dict[str, Any] | None) -> bool:
        """Whether the call has the input that was requested. One read from the event log may be redacted or cut;
        it is then replaced by `tool_input`, if that is the one requested.
        """
        digest, call = self.request.input_digest, self.proposal.call
        if input_digest(call.input) == digest:
            return True
        if tool_input is None or input_digest(tool_input) != digest:
            return False
        self.proposal.call = msgspec.structs.replace(call, input=tool_input)
        return True


class HeldCalls:
    """The calls that are `waiting`, by approval id; `earlier_grants` are those an earlier run of the session left.

    # INVARIANT: a call is removed when it is answered, so it is answered once.
    """

    __slots__ = ("_grants", "_rules", "_state", "waiting")

    def __init__(self, state: RunState, earlier_grants: Iterable[ToolApprovalGranted], rules: Approval) -> None:
        self._state = state
        self.waiting: dict[str, Held] = {}
        self._grants: dict[tuple[str, str | tuple[str, ...] | None], list[ToolApprovalGranted]] = {}
        """By the tool, and the digest of the one input or the rules that are covered."""
        self._rules = rules
        for grant in earlier_grants:
            self.apply_grant(grant)

    def apply_grant(self, grant: ToolApprovalGranted) -> None:
        """Keep a grant for later calls: for one with this input, or for every call that it covers."""
        if grant.scope == "once":
            self._grants[grant.tool_name, grant.input_digest] = [grant]
        elif grant.covers:
            self._grants.setdefault((grant.tool_name, grant.covers), []).append(grant)

    @property
    def grants(self) -> list[ToolApprovalGranted]:
        return list(chain.from_iterable(self._grants.values()))

    def use_grant(self, proposal: Proposal, decision: Decision) -> bool:
        """Whether an earlier grant answers the call: one for this tool and input, which is then used up, or one that
        covers every rule that asks.
        """
        if not self._grants:
            return False
        request = self._request(proposal, decision, "")
        grant = self._grant_for(request, proposal.call, decision)
        if grant is None:
            return False
        if grant.scope == "once":
            del self._grants[grant.tool_name, grant.input_digest]
            approval_id, reason = grant.approval_id, grant.reason
        else:
            approval_id, reason = self._state.new_approval_id(), f"covered by approval `{grant.approval_id}`"
        request = msgspec.structs.replace(request, approval_id=approval_id)
        self._state.record(approvals.covered(request, grant, reason=reason or None))
        self._state.approved = True
        return True

    def _grant_for(self, request: ApprovalRequest, call: ToolCall, decision: Decision) -> ToolApprovalGranted | None:
        """The grant for this call, or the latest that covers it, of those that would count as an answer to the
        request: the policy may have changed since, also in what the rules say, and so may the person who started the
        run.
        """
        covers = approvals.covered_by(decision.violations)  # not the request's, in which secrets are alike
        once = self._grants.get((call.name, decision.input_digest), [])
        for grant in [*once, *reversed(self._grants.get((call.name, covers), []))]:
            if (
                objection(request, approvals.answer_of(grant)) is None
                and (grant.scope == "once" or grant.rules_digest == request.rules_digest)
                and (grant.like is None or is_like(call, grant.like, grant.tool_input))
            ):
                return grant
        return None

    def hold(self, proposal: Proposal, decision: Decision) -> None:
        """Request an approval and hold the call."""
        request = self._request(proposal, decision)
        self._state.record(approvals.requested(request))
        self.waiting[request.approval_id] = Held(request, proposal)
        self._state.outbox.after_record(ApprovalDue(request.approval_id))

    def unanswerable(self, proposal: Proposal, decision: Decision) -> None:
        """Record that an approval was requested, and that nobody can answer it."""
        request = self._request(proposal, decision)
        self._state.record(approvals.requested(request))
        self._state.record(approvals.expired(request, reason="nobody can answer it here", withdrawn=True))

    def hold_again(self, held: Held) -> None:
        """Hold a call again that an earlier machine of this run held."""
        self.waiting[held.request.approval_id] = held

    def answered(self, approval_id: str, answer: ApprovalAnswer) -> Held | None:
        """Record an answer and return its call, which is no longer held. None for an answer to another input, for a
        second answer, and for an answer to a call that was not held.
        """
        held = self.waiting.get(approval_id)
        request = held.request if held is not None else self._state.signals.get(approval_id)
        if request is None or not same_input(request, answer.input_digest) or objection(request, answer) is not None:
            return None
        if held is not None:
            self._remove(held)
        else:
            del self._state.signals[approval_id]
        if answer == NOBODY_IN_TIME:
            self._state.record(approvals.expired(request, reason=answer.reason or ""))
            return held
        record = approvals.answered(request, answer)
        if isinstance(record, ToolApprovalGranted):
            self._state.approved = True
            if record.scope != "once":
                self.apply_grant(record)
        self._state.record(record)
        return held

    def close_due(self) -> None:
        """Have the requests closed whose time is up; each is held until the answer that counts is known."""
        for approval_id, held in self.waiting.items():
            if held.expires_ms <= self._state.now_ms and not held.closing:
                held.closing = True
                self._state.outbox.at_once(CloseApproval(approval_id=approval_id))

    def drop(self, proposal: Proposal, why: str) -> None:
        """Withdraw the request of that proposal, if there is one."""
        for held in self.waiting.values():
            if held.proposal is proposal:
                self._remove(held)
                self._state.record(approvals.expired(held.request, reason=why, withdrawn=True))
                return

    def next_expiry(self) -> int | None:
        """When the next of the held calls expires, in milliseconds since the epoch."""
        return min((held.expires_ms for held in self.waiting.values() if not held.closing), default=None)

    def requests(self) -> list[ApprovalRequest]:
        """The pending requests, oldest first."""
        return [held.request for held in self.waiting.values() if held.shown]

    def _request(self, proposal: Proposal, decision: Decision, approval_id: str | None = None) -> ApprovalRequest:
        state = self._state
        approval_id = state.new_approval_id() if approval_id is None else approval_id
        ids = (approval_id, state.identity.run_id, state.identity.session_id)
        asks = [(v.policy, v.rule) for v in decision.violations if v.action == "request_approval"]
        program = state.monitor.state.program
        request = approvals.request_for(
            decision.violations,
            proposal.call,
            ids=ids,
            at=state.at,
            timeout_s=self._rules.timeout_s,
            rules=self._rules,
            started_by=state.identity.user,
            rules_digest=program.rules_digest(asks) if self._rules.scope != "once" else "",
        )
        return state.redactor.redact(request, ids[2])  # the digest is that of the exact input

    def shown(self, approval_id: str) -> RequestApproval | None:
        """Have the request shown, now that it is on record; None if its call is not held any more."""
        held = self.waiting.get(approval_id)
        if held is None:
            return None
        held.shown = True
        return RequestApproval(request=held.request)

    def _remove(self, held: Held) -> None:
        del self.waiting[held.request.approval_id]
        self._state.outbox.at_once(DropApproval(approval_id=held.request.approval_id))
