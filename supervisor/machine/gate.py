"""The gate of a run: each proposed call is decided, recorded, and only then answered."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import Violation
from proctor.policies.events.calls import (
    ALLOWING,
    ID_NOT_OVER,
    AsyncCheck,
    Decision,
    NeedsChecks,
    ToolCall,
    call_fields,
    own_call,
    tell_model_default,
)
from proctor.policies.monitor.call_table import REQUESTED
from proctor.policies.policy import Approval

from ..ports.adapter import GateAnswer
from ..ports.stored_types import NOBODY_IN_TIME, SUPERVISOR, ApprovalAnswer, ApprovalRequest
from .interface import NO_CALL, AnswerGate, RunChecks
from .pending_approvals import Held, HeldCalls, Proposal
from .provider_events import validation_error
from .reservations import Budgets
from .run_state import AnswerDue, RunState

DECLINED = "A person declined this call of tool '{}'."
UNASKED = "Nobody could be asked to approve this call of tool '{}'."
EXPIRED = "Nobody approved this call of tool '{}' in time."
UNKNOWN = "This call of tool '{}' was approved, but its exact input was lost in a restart. Ask again."


class GateKeeper:
    """Decides proposed calls.

    # INVARIANT: each key is answered once, after the record of its decision is durable; nothing is permitted once
    # the run is being cancelled; no two open proposals have the same call id.
    """

    __slots__ = ("_answerable", "_budgets", "_by_key", "_checked", "_on_timeout", "held_calls", "state")

    def __init__(
        self,
        state: RunState,
        approval: Approval,
        earlier_grants: Iterable[ev.ToolApprovalGranted] = (),
        *,
        answerable: bool = True,
        budgets: Budgets | None = None,
    ) -> None:
        self.state = state
        self._answerable = answerable
        self._budgets = budgets
        self.held_calls = HeldCalls(state, earlier_grants, approval)
        self._on_timeout = approval.on_timeout
        self._by_key: dict[int, Proposal] = {}
        if budgets is not None:
            # What checks answered of calls that wait for a budget; no snapshot has it, as it may be any object.
            self._checked: dict[int, Mapping[str, Any]] = {}
            budgets.on_reserved = self._on_reserved

    def proposed(self, key: int, call: object) -> None:
        if not isinstance(call, ToolCall):
            self._deny_flawed(key, NO_CALL, f"a `{type(call).__name__}`, which is not a call")
        elif (wrong := validation_error(call)) is not None:
            self._deny_flawed(key, call, f"a call whose {wrong}")
        else:
            self._admit(Proposal(key, own_call(self.state.numbered(call))))  # the agent may change its own

    def _admit(self, proposal: Proposal) -> None:
        call = proposal.call
        is_open = any(each.call.id == call.id for each in self._by_key.values() if each.answer is None)
        self._by_key[proposal.key] = proposal
        if self.state.ending is not None:
            self._answer(proposal, self._refusal(call))
            return
        calls = self.state.monitor.calls
        current = calls.get(call.id)
        again = current is not None and calls.is_same(current, call.name, call.input)
        is_free = current is None or (again and current.status == REQUESTED)
        if is_open or not is_free:
            runs = not is_open and current is not None and current.runs
            self._deny_used_id(proposal, again=again, state="runs" if runs else "waits")
            return
        if current is None or current.turn != calls.session.turn_ahead(call.turn):
            self.state.record(ev.ToolCallRequested(**call_fields(call)))
        if self.state.cause is not None:
            self._deny(proposal, "cancel", None)
        else:
            self._reserve(proposal)

    @property
    def proposals(self) -> list[Proposal]:
        """The proposals not answered yet."""
        return [*self._by_key.values()]

    def restore_proposal(self, proposal: Proposal) -> None:
        """Restore a proposal from a snapshot."""
        self._by_key[proposal.key] = proposal

    def hold_again(self, request: ApprovalRequest, proposal: Proposal) -> None:
        """Hold a call that an earlier machine of this run held; no caller waits for it."""
        proposal.key = -1 - len(self._by_key)
        self.restore_proposal(proposal)
        self.held_calls.hold_again(Held(request, proposal, shown=True))

    def checked(self, key: int, answers: Mapping[str, Any]) -> None:
        """The asynchronous checks of a proposal have answered."""
        proposal = self._by_key.get(key)
        if proposal is not None and proposal.answer is None:
            self._reserve_requested(proposal, answers)

    def answered(self, approval_id: str, answer: ApprovalAnswer, tool_input: dict[str, Any] | None = None) -> None:
        held = self.held_calls.answered(approval_id, answer)
        if held is None:
            return
        if answer == NOBODY_IN_TIME:
            self._unapproved(held.request.violations, "nobody answered the request for approval in time")
            self._deny(held.proposal, "approval_expired", _model_text(held.request, EXPIRED))
        elif not answer.granted:
            declined = UNASKED if answer.by == SUPERVISOR else DECLINED
            self._deny(held.proposal, "approval_denied", answer.tell_model or _model_text(held.request, declined))
        elif held.made_exact(tool_input):
            self._reserve_requested(held.proposal)
        else:
            self._deny(held.proposal, "input_unknown", UNKNOWN.format(held.request.call.name))

    def withdrawn(self, key: int, call_id: str) -> None:
        """The provider no longer waits, so the call will not run."""
        proposal = self._by_key.get(key)
        if proposal is not None and proposal.answer is None:
            if self._budgets is not None:
                self._budgets.withdraw(key)
                self._checked.pop(key, None)
            self.held_calls.drop(proposal, "the provider withdrew the call")
            self._deny(proposal, "withdrawn", None)
            return
        self._by_key.pop(key, None)
        self._fail(key, call_id, "withdrawn before it ran")

    def deny_open(self, why: str, *, decision: str) -> None:
        """Deny every open proposal, and those allowed whose answer was not delivered."""
        held = [each.proposal for each in self.held_calls.waiting.values()]  # the order that a resumed run knows
        for proposal in (*held, *self._by_key.values()):
            if proposal.answer is None:
                self.held_calls.drop(proposal, why)
                self._deny(proposal, decision, None)
            elif proposal.answer.allowed:
                self._fail(proposal.key, proposal.call.id, f"refused: {why}")
                proposal.answer = self._refusal(proposal.call)

    def _reserve(self, proposal: Proposal, answers: Mapping[str, Any] | None = None) -> None:
        """Decide, after the asynchronous checks have answered and then, for a shared budget, the store: it comes
        last, and once, because a reservation counts for other runs at once.
        """
        if self._budgets is None:
            self._decide(proposal, answers)
        elif answers is None and (needed := self.state.monitor.checks_of(proposal.call)):
            self._run_checks(proposal, needed)
        elif not self._budgets.wait_for_reservation(proposal.key):
            self._decide(proposal, answers)
        elif answers is not None:
            self._checked[proposal.key] = answers

    def _run_checks(self, proposal: Proposal, checks: tuple[AsyncCheck, ...]) -> None:
        self.state.outbox.at_once(RunChecks(key=proposal.key, call=proposal.call, checks=checks))

    def _reserve_requested(self, proposal: Proposal, answers: Mapping[str, Any] | None = None) -> None:
        """Go on with a call that has waited, once it is on record as requested."""
        if self._ensure_requested(proposal):
            self._reserve(proposal, answers)

    def _on_reserved(self, key: int) -> None:
        proposal, answers = self._by_key.get(key), self._checked.pop(key, None)
        if proposal is None or proposal.answer is not None or self.state.cause is not None:
            return
        if self._ensure_requested(proposal):
            self._decide(proposal, answers)

    def _ensure_requested(self, proposal: Proposal) -> bool:
        """Record a call as requested once more if something else was reported under its id while it waited, so that
        the record says what is decided on. False if that has cancelled the run; then the call is denied.
        """
        call, calls = proposal.call, self.state.monitor.calls
        current = calls.get(call.id)
        if current is not None and not current.runs and calls.is_same(current, call.name, call.input):
            return True
        self.state.record(ev.ToolCallRequested(**call_fields(call)))
        proposal.noted = set()
        if self.state.cause is not None:
            self._deny(proposal, "cancel", None)
        return self.state.cause is None

    def _decide(self, proposal: Proposal, answers: Mapping[str, Any] | None) -> None:
        decision = self.state.monitor.decide(proposal.call, answers)
        if isinstance(decision, NeedsChecks):
            self._run_checks(proposal, decision.checks)
            return
        self._report_errors(decision)
        if decision.action == "request_approval":
            self._await_approval(proposal, decision)
            return
        self._record_violations(proposal, decision.violations)
        if decision.action in ALLOWING:
            self._allow(proposal)
        else:
            for violation in decision.violations:
                if violation.action == "cancel":
                    self.state.refuse_run(violation)
            self._deny(proposal, decision.action, decision.tell_model)

    def _report_errors(self, decision: Decision) -> None:
        if decision.errors:
            failed = ", ".join(f"`{name}`" for name in decision.errors)
            self.state.record(ev.ErrorOccurred(code="rule_failed", message=f"rules that raised: {failed}"))

    def _record_violations(self, proposal: Proposal, found: Iterable[Violation]) -> None:
        for violation in found:
            found_by = (violation.policy, violation.rule)
            if found_by not in proposal.noted:
                proposal.noted.add(found_by)
                self.state.record_violation(violation)

    def _await_approval(self, proposal: Proposal, decision: Decision) -> None:
        self._record_violations(proposal, (v for v in decision.violations if v.action != "request_approval"))
        if self.held_calls.use_grant(proposal, decision):
            self._reserve(proposal)
            return
        proposal.await_outcome(v for v in decision.violations if v.action == "request_approval")
        if self._answerable:
            self.held_calls.hold(proposal, decision)
        else:
            self.held_calls.unanswerable(proposal, decision)
            self._unapproved(decision.violations, "nobody can answer a request for approval")
            self._deny(proposal, "approval_unanswerable", decision.tell_model)

    def _allow(self, proposal: Proposal) -> None:
        call = proposal.call
        current = self.state.monitor.calls.get(call.id)
        if current is not None:
            current.key = proposal.key
        self.state.record(ev.ToolCallStarted(**call_fields(call)))
        self._answer(proposal, GateAnswer(allowed=True))

    def _deny(self, proposal: Proposal, decision: str, tell_model: str | None) -> None:
        self._record_violations(proposal, proposal.pending)
        answer = self._refusal(proposal.call, tell_model)
        call = proposal.call
        text = answer.tell_model or ""
        self.state.record(
            ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name, decision=decision, tell_model=text)
        )
        self._answer(proposal, answer)

    def _refusal(self, call: ToolCall, tell_model: str | None = None) -> GateAnswer:
        blank = tell_model is None or not tell_model.strip()  # a client may take that for no denial
        text = tell_model_default(call.name) if blank else tell_model
        stop = self.state.cause is not None or self.state.ended
        return GateAnswer(allowed=False, tell_model=text, stop=stop)

    def _deny_flawed(self, key: int, call: ToolCall, what: str) -> None:
        self.state.fail_adapter(f"proposed {what}")
        proposal = self._by_key[key] = Proposal(key, call)
        self._answer(proposal, self._refusal(call))

    def _deny_used_id(self, proposal: Proposal, *, again: bool, state: str) -> None:
        """Refuse a call whose id another call has that runs or waits: the two would count as one."""
        call = proposal.call
        what = "again" if again else f"again as `{call.name}` with another tool or input"
        self.state.record(
            ev.ErrorOccurred(code="call_id_reused", message=f"call `{call.id}` was requested {what} while it {state}")
        )
        self._answer(proposal, self._refusal(call, ID_NOT_OVER.format(call.name)))

    def _answer(self, proposal: Proposal, answer: GateAnswer) -> None:
        proposal.answer = answer
        self.state.outbox.after_record(AnswerDue(proposal.key))

    def deliver(self, key: int) -> AnswerGate | None:
        """The answer for this key; None the second time."""
        proposal = self._by_key.pop(key, None)
        if proposal is None:
            return None
        assert proposal.answer is not None
        rules = tuple(sorted(f"{policy}/{rule}" for policy, rule in proposal.noted))
        return AnswerGate(key=key, call=proposal.call, answer=proposal.answer, rules=rules)

    def _fail(self, key: int, call_id: str, error: str) -> None:
        """Record that the call allowed under this key will not run; leave another call of the same id alone."""
        call = self.state.monitor.calls.get(call_id)
        if call is not None and call.runs and call.key == key and not self.state.ended:
            self.state.record(ev.ToolCallFailed(tool_call_id=call_id, tool_name=call.name, error=error))

    def _unapproved(self, violations: Sequence[Violation], message: str) -> None:
        """Cancel the run for a call that nobody approved, if `on_timeout` says so."""
        if self._on_timeout == "cancel" and violations:
            violation = msgspec.structs.replace(violations[0], action="cancel", message=message)
            self.state.record_violation(violation)
            self.state.refuse_run(violation)


def _model_text(request: ApprovalRequest, sentence: str) -> str:
    """The text for the model about a held call that nobody approved: the rule's own, if it has one."""
    own = (violation.tell_model for violation in request.violations if violation.tell_model)
    return next(own, sentence.format(request.call.name))
