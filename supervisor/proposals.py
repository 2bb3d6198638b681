"""The gate's side of a run: each proposed call is judged, recorded, and only then answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proctor.policies.calls import Decision, ToolCall, Violation, tell_model_default
from proctor.policies.events import (
    ErrorOccurred,
    ToolApprovalGranted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from proctor.policies.model import Approval

from . import approvals
from .approvals import Approvals, Held
from .commands import Answer, AskApproval, Command, DropApproval, RunChecks
from .core import RunCore
from .intake import flaw_in
from .open_calls import OpenCall, OpenCalls, Proposal
from .ports import ApprovalAnswer, GateAnswer
from .verdicts import denied, labelled


class GateKeeper:
    """Decides proposals.

    # INVARIANT: each key is answered once, after the record of its decision is durable, and nothing is
    # permitted once the run is being cancelled.
    """

    __slots__ = ("_approval", "_by_key", "approvals", "calls", "core")

    def __init__(self, core: RunCore, approval: Approval, standing: Iterable[ToolApprovalGranted] = ()) -> None:
        self.core = core
        self.calls = OpenCalls()
        self.approvals = Approvals(standing)
        self._approval = approval
        self._by_key: dict[int, Proposal] = {}

    def proposed(self, key: int, call: ToolCall) -> None:
        """A call wants to run."""
        flaw = flaw_in(call)
        if flaw is not None:
            self.core.blame_adapter(f"proposed a call whose {flaw}")
        else:
            call = self.core.numbered(call)
        proposal = self._by_key[key] = Proposal(key, call)
        if flaw is not None or self.core.ended:
            self._answer(proposal, self._refusal(call))
            return
        known = self.calls.get(call.id)
        if known is not None and not known.same(call.name, call.input):
            self._refuse_reused_id(proposal)
        elif known is not None and known.stage == "started":
            self._repeat(proposal)
        elif known is not None and known.stage == "requested" and self._join(key, call):
            return
        else:
            self._admit(proposal, known)

    def checked(self, key: int, answers: Mapping[str, Any]) -> None:
        """The asynchronous checks of a proposal have answered."""
        proposal = self._by_key.get(key)
        if proposal is not None and proposal.answer is None:
            self._decide(proposal, answers)

    def answered(self, approval_id: str, answer: ApprovalAnswer) -> None:
        """Somebody answered a held call; an answer for another input, or a second one, changes nothing."""
        held = self.approvals.get(approval_id)
        if held is None or not approvals.same_input(held.request, answer.input_digest):
            return
        self.approvals.take(approval_id)
        self.core.outbox.at_once(DropApproval(approval_id=approval_id))
        proposal = held.proposal
        if answer.granted:
            self.core.record(approvals.granted(held.request, by=answer.by, reason=answer.reason))
            self._judge(proposal)
        else:
            self.core.record(approvals.refused(held.request, by=answer.by, reason=answer.reason))
            self._refuse(proposal, "approval_denied", held.decision.tell_model)

    def expire(self) -> None:
        """Let the held calls expire whose time is up."""
        for held in self.approvals.due(self.core.now_ms):
            self._expired(held, "nobody answered in time")
            asked = [v for v in held.decision.violations if v.action == "request_approval"]
            if self._approval.on_timeout == "cancel" and asked:
                self._cancel_for(asked[0])
            self._refuse(held.proposal, "approval_expired", held.decision.tell_model)

    def withdrawn(self, key: int, call_id: str) -> None:
        """The provider no longer waits: the call will not run."""
        proposal = self._by_key.get(key)
        if proposal is not None and len(proposal.keys) > 1:
            proposal.keys.remove(key)
            del self._by_key[key]
        elif proposal is None or proposal.answer is not None:
            self._by_key.pop(key, None)
            self._fail(call_id, "withdrawn before it ran")
        else:
            self._drop_approval(proposal, "the provider withdrew the call")
            self._refuse(proposal, "withdrawn", None)

    def refuse_open(self, why: str, *, decision: str) -> None:
        """Refuse every proposal that has no answer yet, and take back permissions not yet given."""
        for proposal in dict.fromkeys(self._by_key.values()):
            if proposal.answer is None:
                self._drop_approval(proposal, why)
                self._refuse(proposal, decision, None)
            elif proposal.answer.allowed:
                self._fail(proposal.call.id, f"refused: {why}")
                proposal.answer = self._refusal(proposal.call)

    def _admit(self, proposal: Proposal, known: OpenCall | None) -> None:
        call = proposal.call
        if known is None or known.stage == "denied":
            self.calls.put(call.id, call.name, call.input, "requested")
            self.core.record(ToolCallRequested(**_described(call)))
        if self.core.cause is not None:
            self._refuse(proposal, "cancel", None)
        else:
            self._judge(proposal)

    def _judge(self, proposal: Proposal) -> None:
        checks = self.core.judge.async_checks(proposal.call)
        if checks:
            self.core.outbox.at_once(RunChecks(key=proposal.keys[0], call=proposal.call, checks=tuple(checks)))
        else:
            self._decide(proposal, {})

    def _decide(self, proposal: Proposal, answers: Mapping[str, Any]) -> None:
        decision = self.core.judge.propose(proposal.call, answers)
        self._note(proposal, decision)
        if decision.action in ("allow", "warn"):
            self._permit(proposal)
        elif decision.action == "request_approval":
            self._hold(proposal, decision)
        else:
            for violation in decision.violations:
                if violation.action == "cancel":
                    self.core.refuse_run(violation)
            self._refuse(proposal, decision.action, decision.tell_model)

    def _note(self, proposal: Proposal, decision: Decision) -> None:
        for violation in decision.violations:
            found_by = (violation.policy, violation.rule)
            if found_by not in proposal.noted:
                proposal.noted.add(found_by)
                self.core.note(violation)
        if decision.errors:
            failed = ", ".join(f"`{name}`" for name in decision.errors)
            self.core.record(ErrorOccurred(code="rule_failed", message=f"rules that raised: {failed}"))

    def _permit(self, proposal: Proposal) -> None:
        call = proposal.call
        self.calls.put(call.id, call.name, call.input, "started")
        self._release_findings(call.id)
        self.core.record(ToolCallStarted(**_described(call)))
        self._answer(proposal, GateAnswer(allowed=True))

    def _release_findings(self, call_id: str) -> None:
        """What held a call did not prevent it in the end, once it runs."""
        for n, violation in enumerate(self.core.findings):
            if violation.tool_call_id == call_id and violation.enforcement == "prevented":
                self.core.findings[n] = labelled(violation, "observed")

    def _hold(self, proposal: Proposal, decision: Decision) -> None:
        core = self.core
        ids = (core.new_approval_id(), core.identity.run_id, core.identity.session_id)
        request = approvals.request_for(
            decision, proposal.call, ids=ids, at=core.at, timeout_s=self._approval.timeout_s
        )
        standing = self.approvals.use_standing(proposal.call, request.input_digest)
        if standing is not None:
            request = msgspec.structs.replace(request, approval_id=standing.approval_id)
        core.record(approvals.requested(request))
        if standing is not None:
            core.record(approvals.granted(request, by=standing.by or "", reason=standing.reason))
            self._judge(proposal)
            return
        self.approvals.hold(Held(request, proposal, decision))
        core.outbox.after_record(lambda: self._ask(request.approval_id))

    def _ask(self, approval_id: str) -> Command | None:
        request = self.approvals.ask(approval_id)
        return None if request is None else AskApproval(request=request)

    def _refuse(self, proposal: Proposal, decision: str, tell_model: str | None) -> None:
        answer = self._refusal(proposal.call, tell_model)
        call = proposal.call
        self.calls.put(call.id, call.name, call.input, "denied")
        self.core.record(denied(call, decision, answer.tell_model or ""))
        self._answer(proposal, answer)

    def _refusal(self, call: ToolCall, tell_model: str | None = None) -> GateAnswer:
        said = tell_model or tell_model_default(call.name)
        stop = self.core.cause is not None or self.core.ended
        return GateAnswer(allowed=False, tell_model=said, stop=stop)

    def _refuse_reused_id(self, proposal: Proposal) -> None:
        call = proposal.call
        self.core.record(
            ErrorOccurred(
                code="call_id_reused",
                message=f"call `{call.id}` was asked for again as `{call.name}` with another tool or input",
            )
        )
        self._answer(proposal, self._refusal(call))

    def _repeat(self, proposal: Proposal) -> None:
        """The same call again while it runs counts once; after a cancel it is refused like any other."""
        if self.core.cause is not None:
            self._answer(proposal, self._refusal(proposal.call))
        else:
            self._answer(proposal, GateAnswer(allowed=True))

    def _join(self, key: int, call: ToolCall) -> bool:
        for other in self._by_key.values():
            if other.call.id == call.id and other.answer is None and other.keys[0] != key:
                other.keys.append(key)
                self._by_key[key] = other
                return True
        return False

    def _answer(self, proposal: Proposal, answer: GateAnswer) -> None:
        proposal.answer = answer
        for key in proposal.keys:
            self.core.outbox.after_record(lambda key=key: self._deliver(key))  # type: ignore[misc]

    def _deliver(self, key: int) -> Command | None:
        proposal = self._by_key.pop(key, None)
        if proposal is None:
            return None
        assert proposal.answer is not None
        return Answer(key=key, call=proposal.call, answer=proposal.answer)

    def _fail(self, call_id: str, error: str) -> None:
        known = self.calls.get(call_id)
        if known is not None and known.stage == "started" and not self.core.ended:
            self.calls.end(call_id)
            self.core.record(ToolCallFailed(tool_call_id=call_id, tool_name=known.name, error=error))

    def _drop_approval(self, proposal: Proposal, why: str) -> None:
        held = self.approvals.of(proposal)
        if held is not None:
            self._expired(held, why)

    def _expired(self, held: Held, why: str) -> None:
        self.core.outbox.at_once(DropApproval(approval_id=held.request.approval_id))
        self.core.record(approvals.expired(held.request, reason=why))

    def _cancel_for(self, violation: Violation) -> None:
        unanswered = msgspec.structs.replace(
            violation, action="cancel", message="nobody answered the request for approval in time"
        )
        self.core.note(unanswered)
        self.core.refuse_run(unanswered)


def _described(call: ToolCall) -> dict[str, Any]:
    """A call as its events tell it."""
    return {
        "tool_call_id": call.id,
        "tool_name": call.name,
        "tool_input": call.input,
        "turn": call.turn,
        "parent_tool_call_id": call.parent_tool_call_id,
    }
