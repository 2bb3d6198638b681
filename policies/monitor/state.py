"""The state of all rules over one session, and how it changes by a call: its request, start and end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, Literal

from .. import events as ev
from ..errors import Violation
from ..events.calls import check_input, input_digest
from ..events.run_context import RunContext
from ..language.conditions import OutputRef
from ..language.facts import NamingKind, SeenValues
from ..rules.machine import NO_ANSWERS, STARTED, Finding, ToolReturn
from ..rules.memory import SessionFacts
from ..rules.net_shorthand import NetLine
from ..rules.petri_net import Net
from ..stack.merge import BudgetEntry, LimitEntry
from ..values.foreign_code import error_text
from .call_table import (
    DECIDED,
    HELD,
    LAPSED,
    REQUESTED,
    SPENT,
    BoundPlan,
    CallState,
    CallTable,
    Relation,
    RuleName,
    Session,
    States,
    check_id,
)
from .limit_checker import Exceeded
from .program import CallPlan, CompiledRule, MatchedRule, Program
from .violations import raised, violation_of

PLANS_BOUND = 128
"""How many tools' bound plans a session keeps; a model may invent any number of names."""

NONE_REMOVED: Mapping[str, CompiledRule] = {}
"""Shared by all sessions without removed nets; never changed."""
NOTHING_DUE: Final[dict[int, Any]] = {}
"""Shared by all sessions without a rule that depends on the order of calls; never changed."""


class MonitorState:
    """The whole state of a session's monitor.

    `added_nets` and `removed_nets` are the session's changes of the program. `latest` is the call that was requested
    last, if nothing has happened since.
    """

    def __init__(self, program: Program, context: RunContext) -> None:
        self.program = program
        self.context = context
        self.tools = program.tools
        self.portable = bool(program.tools)
        self.limited = bool(program.limits.entries or program.budgets)
        self.clocked = program.limits.has_clocks
        self.session = Session()
        self.calls = CallTable()
        self.latest: CallState | None = None
        self.returned: dict[OutputRef, SeenValues] = {ref: SeenValues() for ref in program.references}
        self.rules: Mapping[int, CompiledRule] = program.by_number
        self.states = States(program.by_number)
        self.added_nets: tuple[str | NetLine | Net, ...] = ()
        self.removed_nets: Mapping[str, CompiledRule] = NONE_REMOVED
        self._bound: dict[NamingKind | CallPlan, BoundPlan] = {}
        self._due: dict[int, int] = NOTHING_DUE
        self._due_at: dict[int, set[int]] = NOTHING_DUE
        self.redact: Callable[[Any], Any] | None = None
        self.rebind()

    def adopt(self, program: Program) -> None:
        """Continue with another program; every rule keeps its state, even one that is not in it."""
        self.program = program
        self.rules = self.states.rules = program.by_number
        for ref in program.references:
            self.returned.setdefault(ref, SeenValues())
        self.rebind()

    def rebind(self) -> None:
        """Bind the plans of the calls again, after rules or states were replaced."""
        self.memory = SessionFacts(
            self.returned, self.session.user_text, self.session.meter, self.context, self.tools, self.redact
        )
        self.calls.session, self.calls.memory, self.latest = self.session, self.memory, None
        self._bound.clear()
        for call in self.calls.values():
            call.bound = self.bound(call.bound.plan)
        self.ordered = self.program.has_order_dependent
        if self.ordered:
            if self._due is NOTHING_DUE:
                self._due, self._due_at = {}, {}
            for number in self.rules:
                self.reschedule(number)

    def compare_redacted(self, redact: Callable[[Any], Any]) -> None:
        """From now on, inputs are compared with those of other calls as the event log has them."""
        self.redact = self.memory.redact = redact

    def due_next(self) -> set[int]:
        """The rules that are due at the next call, whatever its tool."""
        return self._due_at.get(self.session.count + 1, set()) & self.rules.keys()

    def relate(self, id: str, name: str, input: Any, turn: int, *, proposed: bool) -> Relation:
        """The relation of a call to others of its run; `turn` is the client's, 0 for the current response."""
        session = self.session
        if turn > 0:
            turn = session.session_turn(turn)
        elif proposed:
            turn = max(session.turn, session.begun)
        return self.calls.relate(id, name, input, turn)

    def request(
        self, id: str, name: str, input: Any, turn: int, status: str, first: bool, parent: str | None = None
    ) -> CallState:
        """Add a call that was requested or has started to the table; the `first` time, it counts as an attempt.

        Raises one of UNREADABLE for a call that JSON cannot hold.
        """
        if type(id) is not str:
            check_id(id)
        check_input(input)
        session = self.session
        offset = session.turn_offset
        turn = turn + offset if turn > 0 and offset is not None else session.session_turn(turn)
        if self.portable:
            call = self.subject(id, name, input, turn, status, parent)
        else:
            call = CallState(id, name, input, turn, self.memory, status, name, input, parent)
        self.calls[id] = call
        if session.denied:
            session.denied.pop(id, None)
        if turn > session.turn:
            session.turn = turn
            if self.limited:
                self.count_turns()
        if session.granted:
            self._grant(call)
        bound = self._bound.get(call.kind)
        if bound is None or self._due_at:
            bound = self.bound_for(call)
        call.bound = bound
        if first:
            if bound.new:
                bound.new = False
                session.any_requested = True
                session.exercised |= bound.plan.exercised
            for state, mask, rule in bound.attempts:
                rule.machine.requested(state, call, mask)
        return call

    def _grant(self, call: CallState) -> None:
        """Give the call the approval that was granted for its id, tool and input, if there is one."""
        grant = self.session.granted.get(call.id)
        if grant is not None and grant.tool == call.name and grant.digest == input_digest(call.input):
            call.grant, call.approved, call.shown = grant, True, grant.rules or ()

    def subject(
        self, id: str, name: str, input: Any, turn: int, status: str = REQUESTED, parent: str | None = None
    ) -> CallState:
        """A call as rules see it: with all its names, and its inputs under their portable names too."""
        kind: NamingKind = name
        given = input
        if self.portable:
            kind, input = self.tools.kind(name, input), self.tools.input(name, input)
        return CallState(id, name, input, turn, self.memory, status, kind, given, parent)

    def bound_for(self, call: CallState) -> BoundPlan:
        """The bound plan of a call: the rules that it concerns, with their states."""
        plan = self.program.plan(call.kind, call)
        due = self._due_at.get(self.session.count + 1) if self._due_at else None
        if due:
            return self.bound(plan.with_due(due, self.rules))
        key = call.kind if plan.by_name else plan
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) >= PLANS_BOUND:
                self._bound.clear()
            bound = self._bound[key] = self.bound(plan)
        return bound

    def bound(self, plan: CallPlan) -> BoundPlan:
        return BoundPlan(plan, self.states, self.rules, self.session.failed_rules)

    def evaluate(
        self, call: CallState, errors: list[str], repeat: bool, answers: Mapping[str, Any] = NO_ANSWERS
    ) -> list[Violation]:
        """The violations of limits and rules by a call; a rule that raises denies, and is named in `errors`.

        A rule that requests approval is satisfied by a grant with this rule shown. `repeat`: also name limits that
        were already reported in this run. `answers` are those of asynchronous checks.
        """
        if answers is not NO_ANSWERS and answers:
            call = copy(call)  # so that the answers are let go once it is decided on
            call.answers = answers
        found = self._limited(call, repeat) if self.limited else []
        now = self.session.count
        for evaluations in call.bound.rounds:
            for evaluate, state, mask, rule in evaluations:
                try:
                    finding = evaluate(state, call, mask, now)
                except Exception as error:
                    errors.append(rule.id)
                    finding = raised(rule, error)
                if finding is not None:
                    found.append(self.violation(rule, finding, call))
            if found and any(v.kind == "net" and v.action in ("deny", "cancel") for v in found):
                break  # no validator is asked where a net denies
        if found and (grant := call.grant) is not None:
            return [v for v in found if v.action != "request_approval" or not grant.covers(v.policy, v.rule)]
        return found

    def come_to(self, turn: int) -> int:
        """Note that the client has reached this turn; returns the session's number of it."""
        number = self.session.session_turn(turn)
        if turn > 0:
            self.reach_turn(number)
        return number

    def reach_turn(self, turn: int) -> None:
        """Note that the session has reached this turn."""
        if turn > self.session.turn:
            self.session.turn = turn
            if self.limited:
                self.count_turns()

    def count_turns(self) -> None:
        """Update the turns that limits count."""
        session = self.session
        session.limits.turns = max(session.limits.turns, session.turn - session.turn_base)

    def _limited(self, call: CallState, repeat: bool) -> list[Violation]:
        session = self.session
        found = self.program.limits.evaluate(session.limits, session.meter, call.turn - session.turn_base)
        if found and not repeat:
            reported = session.limits.reported
            found = [each for each in found if each.number not in reported]
        violations = [self.exceeded(each, call) for each in found] if found else []
        if session.budgets.exhausted and repeat:
            denying = self.program.budgets.denying(session.budgets)
            violations += [self.violation(entry, finding, call) for entry, finding in denying]
        return violations

    def violation(
        self, broken: CompiledRule | LimitEntry | BudgetEntry, finding: Finding, call: CallState | None = None
    ) -> Violation:
        """The violation of a rule, a limit or a budget of which nothing can be reserved, about a call or not."""
        return violation_of(self.program.name, broken, finding, call, self.session)

    def exceeded(self, exceeded: Exceeded, call: CallState | None) -> Violation:
        """The violation of a limit that is exceeded, which counts as reported from now on."""
        self.session.limits.reported |= {exceeded.number}
        return self.violation(self.program.limits.entries[exceeded.number], exceeded.finding, call)

    def mark_violated(self, violations: Iterable[Violation]) -> None:
        session = self.session
        for violation in violations:
            rule = self.program.named(violation.policy, violation.rule)
            # A limit or a budget may be called what a rule is.
            if rule is not None and rule.kind == violation.kind and rule.id not in session.violated:
                session.violated |= {rule.id}

    def mark_unapproved(self, call: CallState) -> None:
        """Mark the rules as violated that requested an approval of this call and got none."""
        rules = (self.program.named(policy, rule) for policy, rule in self._unanswered(call))
        self.session.violated |= {rule.id for rule in rules if rule is not None}

    def awaiting_person(self) -> set[RuleName]:
        """The rules that request an approval which a call is pending."""
        return {rule for call in self.calls.values() if call.status == HELD for rule in self._unanswered(call)}

    def _unanswered(self, call: CallState) -> list[RuleName]:
        """The rules that request an approval of the call which was not granted."""
        grant = self.session.granted.get(call.id)
        return [name for name in call.shown if grant is None or not grant.covers(*name)]

    def start(self, call: CallState) -> None:
        """Start a call: every rule that it concerns counts it."""
        session, bound = self.session, call.bound
        if session.granted:
            session.granted.pop(call.id, None)
        now = session.count
        for spend, state, mask, rule in bound.spends:
            try:
                spend(state, call, mask, now)
            except Exception as error:
                self.broke(rule, error)
        session.count = now + 1
        if self.limited:
            session.limits.calls += 1
        if self.ordered:
            self._due_at.pop(now + 1, None)
            for number in bound.plan.order_dependent:
                self.reschedule(number)

    def ended(self, call: CallState, how: Literal["failed", "denied"]) -> list[Violation]:
        """End a call that failed or was denied, and use up its approval; returns violations."""
        self.session.granted.pop(call.id, None)
        found: list[Violation] = []
        for _, state, mask, rule in call.bound.outcomes:
            try:
                finding: Finding | None = getattr(rule.machine, how)(state, call, mask)
            except Exception as error:
                self.broke(rule, error)
                continue
            if finding is not None:
                found.append(self.violation(rule, finding))
        self.calls.finish(call, denied=how == "denied")
        return found

    def on_requested(self, event: ev.ToolCallRequested) -> None:
        """Admit a call that was requested; `decide` evaluates it."""
        id, name, input = event.tool_call_id, event.tool_name, event.tool_input
        session, current = self.session, self.calls.get(id)
        if current is None and id not in session.finished and id not in session.earlier:
            self.latest = self.request(id, name, input, event.turn, REQUESTED, True, event.parent_tool_call_id)
            return
        relation = self.relate(id, name, input, event.turn, proposed=True)
        if relation in ("conflict", "running"):
            self.come_to(event.turn)
            if relation == "conflict" or (current is not None and current.status == STARTED):
                session.conflicting |= {id}  # it will be denied, for having the id of another call
        elif current is None or current.status == REQUESTED or relation == "changed":
            self.latest = self.request(
                id, name, input, event.turn, REQUESTED, relation != "repeat", event.parent_tool_call_id
            )

    def on_started(self, event: ev.ToolCallStarted) -> list[Violation]:
        """A call started. If it was not allowed with this input, it is evaluated as something that happened."""
        id, name, input = event.tool_call_id, event.tool_name, event.tool_input
        session, first = self.session, True
        current = self.calls.get(id)
        if current is not None or id in session.finished or id in session.earlier:
            decided = (
                current is not None and current.status == DECIDED and current.given is input and current.name == name
            )
            relation = "running" if decided else self.relate(id, name, input, event.turn, proposed=False)
            if current is not None and relation == "running":
                if current.status == DECIDED:
                    self.start(current)
                current.status = STARTED
                return []
            if relation == "ended":
                return []
            first = relation not in ("repeat", "denied")
        call = self.request(id, name, input, event.turn, STARTED, first, event.parent_tool_call_id)
        violations = self.evaluate(call, [], False)
        self.start(call)
        return violations

    def on_completed(self, event: ev.ToolCallCompleted) -> None:
        """A call succeeded; the outcome of an unknown id is ignored. If what it started goes on, its output
        counts, and its success does not: nobody knows how that ends.
        """
        call = self.calls.get(event.tool_call_id)
        if call is None or call.status not in SPENT:
            return
        bound = call.bound
        if bound.outcomes or bound.remembers:
            output = ToolReturn(event.tool_output, event.unfinished)
            for completed, state, mask, rule in bound.outcomes:
                if event.unfinished and not rule.machine.hears_unfinished:
                    continue
                try:
                    completed(state, call, mask, output)
                except Exception as error:
                    self.broke(rule, error)
            for ref, values_at in bound.remembers:
                self.returned[ref].add(values_at(output.value))
        self.calls.finish(call)

    def on_failed(self, event: ev.ToolCallFailed) -> list[Violation]:
        call = self.calls.get(event.tool_call_id)
        return self.ended(call, "failed") if call is not None and call.status in SPENT else []

    def on_denied(self, event: ev.ToolCallDenied) -> list[Violation]:
        """A call was denied and never ran; one that had been allowed here counts as failed."""
        call = self.calls.get(event.tool_call_id)
        if event.tool_call_id in self.session.conflicting:
            self.session.conflicting -= {event.tool_call_id}
            if call is None:
                self.session.deny(event.tool_call_id)
            return []  # another call was denied, for having this one's id
        if call is None:
            return []
        if call.status in SPENT:
            return self.ended(call, "failed")
        if call.status == HELD:
            self.mark_unapproved(call)
        call.bound = self.bound_for(call)
        return self.ended(call, "denied")

    def broke(self, rule: CompiledRule, error: Exception) -> None:
        """Have a rule deny from now on, as its machine raised while it changed its state."""
        self.session.failed_rules[rule.id] = f"{type(error).__name__}: {error_text(error)[:200]}"
        self._bound.clear()

    def reschedule(self, number: int) -> None:
        old = self._due.pop(number, None)
        if old is not None and old in self._due_at:
            self._due_at[old].discard(number)
        due = self.rules[number].machine.due(self.states[number], self.session.count)
        if due is not None:
            self._due[number] = due
            self._due_at.setdefault(due, set()).add(number)

    def waiting(self) -> bool:
        """Whether a call runs or is held."""
        return any(call.status not in (REQUESTED, LAPSED) for call in self.calls.values())

    def describe(self, rules: Sequence[MatchedRule]) -> dict[str, str]:
        """The states of rules as text, by id."""
        return {rule.id: rule.machine.describe(self.states[rule.number]) for rule, _ in rules}
