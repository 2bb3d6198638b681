"""The state of all rules over one session, and how a call moves it: masks, findings, spending, endings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .calls import Action, Enforcement, RunContext, Violation
from .compiled import CompiledPolicy
from .language.operands import OutputRef
from .limits import Exceeded
from .memory import Returned, UserWords
from .rules.machine import Finding
from .session import REQUESTED, Call, Output, Session
from .visits import Compiled, Met, Plan, Visits, visits_of


class States(dict[int, Any]):
    """The state of each rule by number, made when it is first asked for."""

    __slots__ = ("rules",)

    def __init__(self, rules: Mapping[int, Compiled]) -> None:
        self.rules = rules

    def __missing__(self, number: int) -> Any:
        state = self[number] = self.rules[number].machine.fresh()
        return state


class Judging:
    """Everything a monitor keeps; its methods move it on by one call or one outcome."""

    def __init__(self, compiled: CompiledPolicy, context: RunContext) -> None:
        self.compiled = compiled
        self.context = context
        self.limited = bool(compiled.limits.entries)
        self.session = Session()
        self.calls: dict[str, Call] = {}
        self.returned: dict[OutputRef, Returned] = {ref: Returned() for ref in compiled.references}
        self.rules: Mapping[int, Compiled] = compiled.by_number
        self.states = States(compiled.by_number)
        self._due: dict[int, int] = {}
        self._due_at: dict[int, set[int]] = {}
        self.reschedule_all()

    def adopt(self, compiled: CompiledPolicy) -> None:
        """Go on under another set of rules; a rule that is in both keeps its state, so does one that is gone."""
        self.compiled = compiled
        self.rules = self.states.rules = compiled.by_number
        for ref in compiled.references:
            self.returned.setdefault(ref, Returned())
        self.reschedule_all()

    def due_next(self) -> set[int]:
        """The rules that the next call concerns whatever its name."""
        return self._due_at.get(self.session.count + 1, set()) & self.rules.keys()

    @property
    def words(self) -> UserWords:
        """What users wrote."""
        return self.session.words

    def call(self, id: str, name: str, input: Any, turn: int) -> Call:
        """A call as rules look at it."""
        return Call(id=id, name=name, input=input, turn=self.session.session_turn(turn), memory=self)

    def request(self, id: str, name: str, input: Any, turn: int) -> tuple[Call, Visits]:
        """A call was asked for: known by its id from now on, and counted as an attempt once."""
        session = self.session
        first = id not in self.calls and id not in session.finished
        offset = session.turn_offset
        turn = session.session_turn(turn) if turn <= 0 or offset is None else turn + offset
        call = self.calls[id] = Call(id=id, name=name, input=input, turn=turn, memory=self)
        session.asked = True
        if turn > session.turn:
            session.reach_turn(turn)
        visits = self._visits(call, self.compiled.plan(name))
        if first:
            if not visits.exercised <= session.exercised:
                session.exercised |= visits.exercised
            for rule, mask in visits.attempts:
                rule.machine.asked(self.states[rule.number], call, mask)
        return call, visits

    def visits(self, call: Call) -> Visits:
        """The rules that a call concerns, in the stack's order."""
        return self._visits(call, self.compiled.plan(call.name))

    def _visits(self, call: Call, plan: Plan) -> Visits:
        due = self._due_at.get(self.session.count + 1) if self._due_at else None
        if plan.fixed is not None and not due:
            return plan.fixed
        found: list[Met] = []
        for visit in plan.visits:
            mask = visit.mask
            for bit, ask in visit.asks:
                if ask(call):
                    mask |= bit
            if mask or visit.machine.every_call:
                found.append((self.rules[visit.number], mask))
        if due:
            named = {rule.number for rule, _ in found}
            found += [(self.rules[number], 0) for number in due - named if number in self.rules]
            found.sort(key=lambda met: met[0].number)
        return visits_of(found)

    def judged(self, call: Call, visits: Visits, *, repeat: bool) -> tuple[list[Violation], list[str]]:
        """What limits and rules find against a call; a rule that raises objects, and is named.

        `repeat`: also name limits that were reported in this run already.
        """
        session = self.session
        found = self._limited(call, repeat) if self.limited else []
        errors: list[str] = []
        now, broken, states = session.count, session.broken, self.states
        for rule, mask in visits.rules:
            try:
                if broken and rule.id in broken:
                    raise RuntimeError(broken[rule.id])
                finding = rule.machine.judge(states[rule.number], call, mask, now)
            except Exception as error:
                errors.append(rule.id)
                finding = _raised(rule, error)
            if finding is not None:
                found.append(self.violation(rule, finding, call))
        return found, errors

    def _limited(self, call: Call, repeat: bool) -> list[Violation]:
        session = self.session
        turn = call.turn - session.turn_base
        reported: frozenset[int] = frozenset() if repeat else session.limits.reported
        exceeded = self.compiled.limits.judge(session.limits, session.meter, turn)
        return [self.exceeded(e, call) for e in exceeded if e.number not in reported]

    def violation(self, rule: Compiled, finding: Finding, call: Call | None) -> Violation:
        action = finding.action or rule.action
        return Violation(
            policy=rule.policy,
            stack=self.compiled.name,
            rule=rule.id,
            kind=rule.kind,
            action=action,
            enforcement=_enforcement(action, call),
            message=finding.actual,
            details=_details(finding),
            reason=rule.reason,
            tell_model=rule.tell_model,
            unpreventable=rule.unpreventable,
            tool_call_id=call.id if call else None,
            tool_name=call.name if call else None,
        )

    def exceeded(self, exceeded: Exceeded, call: Call | None) -> Violation:
        entry = self.compiled.limits.entries[exceeded.number]
        self.session.limits.reported |= {exceeded.number}
        return Violation(
            policy=entry.policy,
            stack=self.compiled.name,
            rule=entry.name,
            kind=entry.name,
            action=entry.action,
            enforcement=_enforcement(entry.action, call),
            message=exceeded.finding.actual,
            details=_details(exceeded.finding),
            reason=entry.limit.reason,
            tell_model=entry.limit.tell_model,
            tool_call_id=call.id if call else None,
            tool_name=call.name if call else None,
        )

    def mark_violated(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self.session.violated |= {violation.rule}

    def start(self, call: Call, visits: Visits, status: str) -> None:
        """The call runs: every rule spends, and those that want to know how it ends are noted."""
        session = self.session
        call.status = status
        if session.denied:
            session.denied.discard(call.id)
        if session.granted:
            session.granted.pop(call.id, None)
        now, states = session.count, self.states
        for rule, mask in visits.spending:
            try:
                rule.machine.started(states[rule.number], call, mask, now)
            except Exception as error:
                self._broke(rule, error)
        session.count = now + 1
        session.limits.calls += 1
        call.visits = visits.outcomes
        if self.compiled.has_ordinals:
            self._due_at.pop(now + 1, None)
            for rule, _ in visits.rules:
                if rule.machine.ordinals:
                    self.reschedule(rule.number)

    def ended(self, call: Call, how: str, raw_output: Any = None) -> list[Violation]:
        """A call is over: `completed`, `failed` or `denied`; returns what that violates."""
        del self.calls[call.id]
        found: list[Violation] = []
        if call.visits or self.compiled.references:
            output = Output(raw_output)
            for number, mask in call.visits:
                rule = self.rules.get(number)
                if rule is None:
                    continue
                state, finding = self.states[number], None
                try:
                    if how == "completed":
                        rule.machine.completed(state, call, mask, output)
                    else:
                        finding = getattr(rule.machine, how)(state, call, mask)
                except Exception as error:
                    self._broke(rule, error)
                if finding is not None:
                    found.append(self.violation(rule, finding, None))
            if how == "completed" and self.compiled.references:
                for ref, values_at in self.compiled.plan(call.name).remembers:
                    self.returned[ref].add(values_at(output.value))
        self.session.finish(call)
        return found

    def _broke(self, rule: Compiled, error: Exception) -> None:
        """A machine that raised while it moved cannot be trusted: it refuses from now on."""
        self.session.broken[rule.id] = f"{type(error).__name__}: {str(error)[:200]}"

    def reschedule_all(self) -> None:
        """Find out anew which rules are due when."""
        if self.compiled.has_ordinals:
            for number in self.rules:
                self.reschedule(number)

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
        return any(call.status != REQUESTED for call in self.calls.values())

    def describe(self, visits: Visits) -> dict[str, str]:
        """The states of rules in words, by id."""
        return {rule.id: rule.machine.describe(self.states[rule.number]) for rule, _ in visits.rules}


def _raised(rule: Compiled, error: Exception) -> Finding:
    return Finding(
        expected="a rule that can be judged",
        actual=f"it raised {type(error).__name__}: {str(error)[:200]}",
        action="cancel" if rule.action == "cancel" else "deny",
    )


def _details(finding: Finding) -> dict[str, Any]:
    words = {"expected": finding.expected, "actual": finding.actual, "suggestion": finding.suggestion}
    return {**{name: text for name, text in words.items() if text}, **finding.details}


def _enforcement(action: Action, call: Call | None) -> Enforcement:
    """How far it got, as far as the monitor knows: what was proposed and refused never ran."""
    if action in ("allow", "warn"):
        return "observed"
    if call is not None and not call.observed:
        return "prevented"
    return "interrupted" if action in ("deny", "cancel") else "observed"
