"""The state of all rules over one session, and how a call moves it: masks, findings, spending, endings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ..language.naming import NamingKind
from ..language.operands import OutputRef
from ..rules.machine import Finding
from ..rules.nets.shorthand import NetLine
from ..rules.nets.written import Net
from ..stack.budgets import BudgetEntry
from ..stream.calls import RunContext, Violation, check_input, input_digest
from ..values.foreign import error_text
from .identity import CallIdentity, check_id, identify
from .memory import Memory, Returned
from .program.build import Program
from .program.index import CompiledRule, Met, Visits
from .program.steps import NO_STEPS, States, Steps
from .session import HELD, LAPSED, REQUESTED, CallInFlight, ParsedOutput, RuleName, Session
from .usage.limits import Exceeded
from .violations import of_limit, of_rule, raised

STEPS_KEPT = 128
"""For how many tools a session remembers what their calls do; a model may invent any number."""


class SessionState:
    """Everything that is kept of a session; its methods move it on by one call or one outcome.

    `added_nets` and `removed_nets` are what was changed of the program while the session lived.
    """

    def __init__(self, program: Program, context: RunContext) -> None:
        self.program = program
        self.context = context
        self.tools = program.tools
        self.portable = bool(program.tools)
        self.limited = bool(program.limits.entries or program.budgets)
        self.clocked = program.limits.has_clocks
        self.session = Session()
        self.calls: dict[str, CallInFlight] = {}
        self.returned: dict[OutputRef, Returned] = {ref: Returned() for ref in program.references}
        self.rules: Mapping[int, CompiledRule] = program.by_number
        self.states = States(program.by_number)
        self.added_nets: list[str | NetLine | Net] = []
        self.removed_nets: dict[str, CompiledRule] = {}
        self._steps: dict[NamingKind | Visits, Steps] = {}
        self._due: dict[int, int] = {}
        self._due_at: dict[int, set[int]] = {}
        self.rebind()

    def adopt(self, program: Program) -> None:
        """Go on under another set of rules; a rule that is in both keeps its state, so does one that is gone."""
        self.program = program
        self.rules = self.states.rules = program.by_number
        for ref in program.references:
            self.returned.setdefault(ref, Returned())
        self.rebind()

    def rebind(self) -> None:
        """The rules or their states were replaced: work out again what calls do to them."""
        self.memory = Memory(self.returned, self.session.words, self.session.meter, self.context, self.tools)
        self._steps.clear()
        for call in self.calls.values():
            call.steps = self.bound(call.steps.visits)
        self.ordered = self.program.has_ordinals
        if self.ordered:
            for number in self.rules:
                self.reschedule(number)

    def due_next(self) -> set[int]:
        """The rules that the next call concerns whatever its name."""
        return self._due_at.get(self.session.count + 1, set()) & self.rules.keys()

    def identify(self, id: str, name: str, input: Any, turn: int, *, proposed: bool) -> CallIdentity:
        """What a call is to the calls of its run. `turn` is as the client counts; where a call is asked for, 0 is the
        response going on.
        """
        session = self.session
        if turn > 0:
            turn = session.session_turn(turn)
        elif proposed:
            turn = max(session.turn, session.begun)
        return identify(session, self.calls, id, name, input, turn)

    def request(self, id: str, name: str, input: Any, turn: int, status: str, first: bool) -> CallInFlight:
        """A call is asked for, or runs: known by its id from now on, and counted as an attempt the `first` time.

        Raises one of UNREADABLE for one that cannot be written as JSON and read back.
        """
        if type(id) is not str:
            check_id(id)
        check_input(input)
        session = self.session
        offset = session.turn_offset
        turn = session.session_turn(turn) if turn <= 0 or offset is None else turn + offset
        if self.portable:
            call = self.subject(id, name, input, turn, status)
            steps = self._steps.get(call.kind)
            call.steps = steps or NO_STEPS
        else:
            steps = self._steps.get(name)
            call = CallInFlight(id, name, input, turn, self.memory, status, steps or NO_STEPS, name)
        self.calls[id] = call
        if turn > session.turn:
            self.reach_turn(turn)
        if session.granted:
            self._grant(call)
        if steps is None or self._due_at:
            steps = call.steps = self.steps(call)
        if first:
            if steps.new:
                steps.new = False
                session.asked = True
                session.exercised |= steps.visits.exercised
            for state, mask, rule in steps.attempts:
                rule.machine.requested(state, call, mask)
        return call

    def _grant(self, call: CallInFlight) -> None:
        """Let the call have what a person granted to this tool with this input."""
        grant = self.session.granted.get(call.id)
        if grant is not None and grant.tool == call.name and grant.digest == input_digest(call.input):
            call.grant, call.shown = grant, grant.rules or ()

    def subject(self, id: str, name: str, input: Any, turn: int, status: str = REQUESTED) -> CallInFlight:
        """A call as rules look at it: under all its names, its inputs found by their portable names too."""
        kind: NamingKind = name
        if self.portable:
            kind, input = self.tools.kind(name, input), self.tools.input(name, input)
        return CallInFlight(id, name, input, turn, self.memory, status, NO_STEPS, kind)

    def steps(self, call: CallInFlight) -> Steps:
        """What a call does to the rules that it concerns."""
        plan = self.program.plan(call.kind)
        visits = plan.concerned(call)
        due = self._due_at.get(self.session.count + 1) if self._due_at else None
        if due:
            return self.bound(visits.with_due(due, self.rules))
        key = visits if plan.fixed is None else call.kind
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= STEPS_KEPT:
                self._steps.clear()
            steps = self._steps[key] = self.bound(visits)
        return steps

    def bound(self, visits: Visits) -> Steps:
        """What calls that concern these rules do to this session."""
        return Steps(visits, self.states, self.rules, self.session.broken)

    def judged(self, call: CallInFlight, errors: list[str], repeat: bool) -> list[Violation]:
        """What limits and rules find against a call; a rule that raises objects, and is named in `errors`.

        A rule that asks for an approval is content with one that its person was shown it for.
        `repeat`: also name limits that were reported in this run already.
        """
        found = self._limited(call, repeat) if self.limited else []
        now = self.session.count
        for judges in call.steps.rounds:
            for judge, state, mask, rule in judges:
                try:
                    finding = judge(state, call, mask, now)
                except Exception as error:
                    errors.append(rule.id)
                    finding = raised(rule, error)
                if finding is not None:
                    found.append(of_rule(self.program.name, rule, finding, call, self.session))
            if found and any(v.kind == "net" and v.action in ("deny", "cancel") for v in found):
                break  # no validator is asked where a net refuses
        if found and (grant := call.grant) is not None:
            return [v for v in found if v.action != "request_approval" or not grant.covers(v.policy, v.rule)]
        return found

    def come_to(self, turn: int) -> int:
        """The stream has come to the response that the client numbers so; returns the session's number."""
        number = self.session.session_turn(turn)
        if turn > 0:
            self.reach_turn(number)
        return number

    def reach_turn(self, turn: int) -> None:
        """The stream has come to this response."""
        session = self.session
        if turn > session.turn:
            session.turn = turn
        if self.limited and session.turn - session.turn_base > session.limits.turns:
            session.limits.turns = session.turn - session.turn_base

    def _limited(self, call: CallInFlight, repeat: bool) -> list[Violation]:
        session = self.session
        found = self.program.limits.judge(session.limits, session.meter, call.turn - session.turn_base)
        if found and not repeat:
            reported = session.limits.reported
            found = [each for each in found if each.number not in reported]
        violations = [self.exceeded(each, call) for each in found] if found else []
        if session.budgets.shut and repeat:
            refusing = self.program.budgets.refusing(session.budgets)
            violations += [self.used_up(entry, finding, call) for entry, finding in refusing]
        return violations

    def used_up(self, entry: BudgetEntry, finding: Finding, call: CallInFlight | None) -> Violation:
        """Nothing can be reserved of a budget."""
        return of_limit(self.program.name, entry, finding, call, self.session)

    def exceeded(self, exceeded: Exceeded, call: CallInFlight | None) -> Violation:
        """A limit is exceeded; from now on that is reported."""
        self.session.limits.reported |= {exceeded.number}
        return of_limit(
            self.program.name, self.program.limits.entries[exceeded.number], exceeded.finding, call, self.session
        )

    def mark_violated(self, violations: Iterable[Violation]) -> None:
        """Some rules are violated, for good."""
        session = self.session
        for violation in violations:
            rule = self.program.named(violation.policy, violation.rule)
            # A limit or a budget may be called what a rule is.
            if rule is not None and rule.kind == violation.kind and rule.id not in session.violated:
                session.violated |= {rule.id}

    def mark_unapproved(self, call: CallInFlight) -> None:
        """Nobody approved a held call: what asked for it, and was not answered, is violated."""
        asking = (self.program.named(policy, rule) for policy, rule in self._unanswered(call))
        self.session.violated |= {rule.id for rule in asking if rule is not None}

    def awaits_person(self, rule: CompiledRule) -> bool:
        """Whether a call waits for an approval that a rule asks for and that nobody gave."""
        held = (call for call in self.calls.values() if call.status == HELD)
        return any((rule.policy, rule.id) in self._unanswered(call) for call in held)

    def _unanswered(self, call: CallInFlight) -> list[RuleName]:
        """The rules that ask a person for a call and were not granted."""
        grant = self.session.granted.get(call.id)
        return [name for name in call.shown if grant is None or not grant.covers(*name)]

    def start(self, call: CallInFlight) -> None:
        """The call runs: every rule spends."""
        session, steps = self.session, call.steps
        if session.granted:
            session.granted.pop(call.id, None)
        now = session.count
        for spend, state, mask, rule in steps.spends:
            try:
                spend(state, call, mask, now)
            except Exception as error:
                self.broke(rule, error)
        session.count = now + 1
        if self.limited:
            session.limits.calls += 1
        if self.ordered:
            self._due_at.pop(now + 1, None)
            for number in steps.visits.ordinals:
                self.reschedule(number)

    def succeeded(self, call: CallInFlight, output: ParsedOutput) -> None:
        """Tell the rules that want to know, and remember what the call returned."""
        for state, mask, rule in call.steps.outcomes:
            try:
                rule.machine.completed(state, call, mask, output)
            except Exception as error:
                self.broke(rule, error)
        for ref, values_at in call.steps.remembers:
            self.returned[ref].add(values_at(output.value))

    def ended(self, call: CallInFlight, how: Literal["failed", "denied"]) -> list[Violation]:
        """A call is over and did not succeed; returns what that violates. An approval of it is used up."""
        del self.calls[call.id]
        self.session.granted.pop(call.id, None)
        found: list[Violation] = []
        for state, mask, rule in call.steps.outcomes:
            try:
                finding: Finding | None = getattr(rule.machine, how)(state, call, mask)
            except Exception as error:
                self.broke(rule, error)
                continue
            if finding is not None:
                found.append(of_rule(self.program.name, rule, finding, None, self.session))
        self.session.finish(call, denied=how == "denied")
        return found

    def broke(self, rule: CompiledRule, error: Exception) -> None:
        """A machine that raised while it moved cannot be trusted: it refuses from now on."""
        self.session.broken[rule.id] = f"{type(error).__name__}: {error_text(error)[:200]}"
        self._steps.clear()

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

    def describe(self, rules: Sequence[Met]) -> dict[str, str]:
        """The states of rules in words, by id."""
        return {rule.id: rule.machine.describe(self.states[rule.number]) for rule, _ in rules}
