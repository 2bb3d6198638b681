"""The monitor: one session under one compiled policy, evaluated call by call and event by event.

Synchronous and pure in effect: no clock, no I/O. Time arrives with events, or by `tick`. Folding the stored
events of a session into a new monitor gives the state that was live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from .. import events as ev
from ..errors import EventError, Violation, wrong_type
from ..events.calls import (
    ALLOWING,
    STRICTNESS,
    UNREADABLE,
    AsyncCheck,
    Decision,
    LimitWarning,
    NeedsChecks,
    ToolCall,
    check_input,
    tell_model_default,
)
from ..events.run_context import Usage
from ..language.conditions import Condition
from ..language.facts import NamingKind
from ..language.selectors import ToolWhere
from ..language.shell_commands import commands_of
from ..limits import BudgetAccount
from ..rules.lists import AllowlistMachine
from ..rules.machine import NO_ANSWERS
from ..rules.net_shorthand import NetLine
from ..rules.petri_net import Net, NetMachine, Stance, net_status
from ..shell.words import Shell
from ..values.globs import matcher
from ..values.json_values import is_number
from ..values.paths import compile_path
from . import handlers
from .call_table import ALLOWED, DECIDED, HELD, REQUESTED, CallState, RuleName
from .handlers import HANDLERS, add_net, remove_net
from .limit_checker import LimitStatus
from .program import CompiledRule, Probe
from .snapshots import write
from .state import MonitorState
from .violations import id_in_use, unreadable


def decision_on(call: ToolCall, violations: Sequence[Violation], errors: tuple[str, ...]) -> Decision:
    """The decision on a call: its strictest violations first; those that deny it carry the text for the model."""
    action = violations[0].action if violations else "allow"
    text = None
    if action not in ALLOWING:
        denying = [v for v in violations if v.action == action]
        own = (v.tell_model for v in denying if v.tell_model)
        text = next(own, tell_model_default(call.name, denying[0].cause))
        if action != "request_approval":
            violations = [_with_text(v, text) if v.action == action else v for v in violations]
    return Decision(
        action=action,
        tool_call_id=call.id,
        tool_name=call.name,
        tool_input=call.input,
        violations=tuple(violations),
        tell_model=text,
        errors=errors,
    )


def _with_text(violation: Violation, text: str) -> Violation:
    return msgspec.structs.replace(violation, details={**violation.details, "tell_model": text})


def explained(
    before: Mapping[str, str], after: Mapping[str, str], violations: Sequence[Violation]
) -> tuple[str, ...]:
    """The state of each rule before and after, and what it answered."""
    found = {violation.rule: violation for violation in violations}
    steps = [f"{v.rule}: {v.action}, {v.message}" for id, v in found.items() if id not in before]
    for id, state in before.items():
        objecting = found.get(id)
        answer = f"{objecting.action}, {objecting.message}" if objecting else "agrees"
        change = f" -> {after[id]}" if after[id] != state else ""
        steps.append(f"{id}: {answer} [{state}{change}]" if state else f"{id}: {answer}")
    return tuple(steps)


Status: TypeAlias = Literal["held", "violated", "not_exercised", "pending"]


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rule at the end.

    Attributes:
        status: `held`, `violated`, `not_exercised` (no call that it restricts was requested) or `pending` (not
            decided yet).
        kind: The rule's type, or `net`.
        policy: The policy that the rule is in.
    """

    status: Status
    kind: str
    policy: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Each rule's status at the end.

    Attributes:
        rules: Every rule by id.
        violations: The violations found at the end of the run.
    """

    rules: dict[str, RuleReport]
    violations: tuple[Violation, ...] = ()


class Monitor:
    """Evaluates one session. With `explain`, each decision has its steps; `calls` are the open calls."""

    def __init__(self, state: MonitorState, *, explain: bool = False) -> None:
        self.state = state
        self.calls = state.calls
        self.explain = explain

    @property
    def usage(self) -> Usage:
        """This run's usage so far."""
        return self.state.session.meter.run

    @property
    def metadata(self) -> dict[str, Any]:
        """Notes for the result: models without a price, prices used, budgets that the store did not answer for, nets
        that ended.
        """
        on = self.state
        meter = on.session.meter
        found: dict[str, Any] = {}
        if meter.unpriced:
            found["unpriced"] = list(meter.unpriced)
            found["skipped_limits"] = ["max_cost_usd"]
            if money := [e.id for e in on.program.budgets.entries if e.budget.kind.is_money]:
                found["skipped_budgets"] = money
        if meter.priced_by:
            found["prices"] = list(meter.priced_by)
        budgets = on.session.budgets
        if uncounted := [claim.budget for claim in self.budgets if not budgets.answered(claim)]:
            found["uncounted_budgets"] = uncounted
        nets = ((rule, rule.machine) for rule in on.rules.values())
        ended = [r.id for r, net in nets if isinstance(net, NetMachine) and net.ended(on.states[r.number])]
        if ended:
            found["ended_nets"] = ended
        return found

    @property
    def calls_started(self) -> int:
        """How many calls this run has started, if a limit or budget counts them."""
        return self.state.session.limits.calls

    @property
    def budgets(self) -> tuple[BudgetAccount, ...]:
        """The budgets this run shares with others; the store knows how much is left of them."""
        return self.state.program.budgets.claims(self.state.context)

    def decide(self, call: ToolCall, checks: Mapping[str, Any] | None = None) -> Decision | NeedsChecks:
        """Decide on a requested call; nothing is spent until its start is observed.

        If asynchronous checks concern it, returns them; call again with their answers, by rule id. A missing answer
        denies. Raises EventError for anything that is not a call.
        """
        on = self.state
        try:
            subject = self._requested(call)
            if subject is None:
                return self._deny_used_id(call)
            if checks is None:
                if subject.bound.plan.async_checks and (needed := self._needed(subject)):
                    return NeedsChecks(checks=needed)
                checks = NO_ANSWERS
            errors: list[str] = []
            violations = on.evaluate(subject, errors, True, checks)
            if not violations and not self.explain:
                subject.status = DECIDED
                return Decision(action="allow", tool_call_id=call.id, tool_name=call.name, tool_input=call.input)
            decision = self._decision(call, subject, violations, errors)
        except (*UNREADABLE, AttributeError) as error:
            return self._unreadable_call(call, error)
        if decision.action in ALLOWING:
            subject.status = DECIDED
        return decision

    def checks_of(self, call: ToolCall) -> tuple[AsyncCheck, ...]:
        """The asynchronous checks that `decide` needs for this call."""
        try:
            subject = self._requested(call)
        except (*UNREADABLE, AttributeError):
            return ()
        return self._needed(subject) if subject is not None and subject.bound.plan.async_checks else ()

    def propose(self, call: ToolCall, checks: Mapping[str, Any] = NO_ANSWERS) -> Decision:
        """Evaluate a call under every rule and, if it is allowed, count it.

        `checks` are the answers of asynchronous checks by rule id; a missing answer denies.
        Raises EventError for anything that is not a call.
        """
        on = self.state
        session = on.session
        try:
            id = call.id
            if id in on.calls or id in session.finished or id in session.earlier:
                subject = self._subject_of(call)
                if subject is None:
                    return self._deny_used_id(call)
            else:
                subject = on.request(id, call.name, call.input, call.turn, REQUESTED, True, call.parent_tool_call_id)
            errors: list[str] = []
            violations = on.evaluate(subject, errors, True, checks)
            if violations or self.explain:
                return self._enforced(subject, self._decision(call, subject, violations, errors))
            subject.status = ALLOWED
            on.start(subject)
            return Decision(action="allow", tool_call_id=id, tool_name=call.name, tool_input=call.input)
        except (*UNREADABLE, AttributeError) as error:
            return self._unreadable_call(call, error)

    def _subject_of(self, call: ToolCall) -> CallState | None:
        """The call in the table, with the input requested now; None if its id is another call's, or it runs."""
        relation = self.state.relate(call.id, call.name, call.input, call.turn, proposed=True)
        if relation in ("running", "conflict"):
            return None
        first, parent = relation != "repeat", call.parent_tool_call_id
        return self.state.request(call.id, call.name, call.input, call.turn, REQUESTED, first, parent)

    def _requested(self, call: ToolCall) -> CallState | None:
        """The same, with a shortcut for the call that was recorded last."""
        subject = self.state.latest
        if subject is None or subject.status != REQUESTED or subject.given is not call.input:
            return self._subject_of(call)
        return subject

    def _needed(self, subject: CallState) -> tuple[AsyncCheck, ...]:
        states = self.state.states
        return tuple((r.id, m.bound_check(states[r.number], subject)) for r, m in subject.bound.plan.async_checks)

    def _unreadable_call(self, call: ToolCall, error: Exception) -> Decision:
        if not isinstance(call, ToolCall):
            raise EventError(wrong_type("a tool call", call)) from None
        return decision_on(call, [unreadable(self.state.program.name, call, error)], ("input",))

    def admission(self, call: ToolCall) -> ListAdmission:
        """The allow lists that would allow a call, as far as it can be read; nothing else is evaluated or counted."""
        on = self.state
        try:
            check_input(call.input)
            subject = on.subject(call.id, call.name, call.input, call.turn)
            unread, several = _line_of(subject)
            return (
                ListAdmission(why_not=unread, unread=True)
                if unread
                else _list_admission(on, subject, several=several)
            )
        except UNREADABLE:
            return ListAdmission(why_not="its input cannot be read", unread=True)

    def _decision(
        self, call: ToolCall, subject: CallState, violations: list[Violation], errors: Sequence[str]
    ) -> Decision:
        """The decision on what was found."""
        violations.sort(key=lambda violation: -STRICTNESS[violation.action])
        decision = decision_on(call, violations, tuple(errors))
        if not self.explain:
            return decision
        states = self.state.describe(subject.bound.plan.rules)
        return msgspec.structs.replace(decision, steps=explained(states, states, violations))

    def _enforced(self, subject: CallState, decision: Decision) -> Decision:
        """Apply a decision to its call, which runs or is held."""
        on, violations = self.state, decision.violations
        before = on.describe(subject.bound.plan.rules) if self.explain else None
        if decision.action in ALLOWING:
            subject.status = ALLOWED
            on.start(subject)
        elif decision.action == "request_approval":
            subject.status = HELD
            requesting = {(v.policy, v.rule): None for v in violations if v.action == "request_approval"}
            subject.shown = tuple({**dict.fromkeys(subject.shown), **requesting})
        on.mark_violated(v for v in violations if v.action != "request_approval" or subject.status != HELD)
        if before is None:
            return decision
        after = on.describe(subject.bound.plan.rules)
        return msgspec.structs.replace(decision, steps=explained(before, after, violations))

    def _deny_used_id(self, call: ToolCall) -> Decision:
        """Deny a call whose id belongs to an open call."""
        on = self.state
        on.come_to(call.turn)
        on.session.conflicting |= {call.id}
        return decision_on(call, [id_in_use(on.program.name, call, on.calls[call.id])], ())

    def observe(self, event: ev.Event) -> list[Violation]:
        """Observe an event that happened; returns its violations.

        Raises EventError for anything that is not an event, and for one whose fields have wrong types; a call like
        that is a violation.
        """
        try:
            handler = HANDLERS[type(event)]
        except KeyError:
            raise EventError(wrong_type("an event", event)) from None
        on = self.state
        on.latest = None
        try:
            found = handlers.observe_limited(on, event, handler) if on.limited else handler(on, event)
        except (*UNREADABLE, AttributeError) as error:
            found = self._unreadable_event(event, error)
        if found:
            on.mark_violated(found)
        return [] if found is None else found

    def _unreadable_event(self, event: ev.Event, error: Exception) -> list[Violation]:
        if not isinstance(event, ev.ToolCallRequested | ev.ToolCallStarted):
            raise EventError(f"`{event.type}` event cannot be evaluated: {str(error)[:200]}") from error
        if isinstance(event.tool_call_id, str):
            self.state.calls.pop(event.tool_call_id, None)
        if isinstance(event, ev.ToolCallRequested):
            return []  # `propose` denies it
        call = ToolCall(id=event.tool_call_id, name=event.tool_name)
        return [unreadable(self.state.program.name, call, error, enforcement="interrupted")]

    def narrow(self, tools: Sequence[str]) -> list[str]:
        """The tools that could be called in the next turn, whatever their input.

        Raises ValueError for anything that is not a list of names; a single text is not one.
        """
        if not isinstance(tools, Iterable):
            raise ValueError(wrong_type("a list of tools", tools))
        if isinstance(tools, str):
            raise ValueError(f"expected a list of tools, got the text `{tools[:80]}`; use `[{tools[:80]!r}]`")
        tools = list(tools)
        if others := [each for each in tools if not isinstance(each, str)]:
            raise ValueError(wrong_type("a tool's name", others[0]))
        session, program = self.state.session, self.state.program
        exhausted = any(e.action in ("deny", "cancel") for e, _ in program.budgets.denying(session.budgets))
        if exhausted or program.limits.denies_all(session.limits, session.meter):
            return []
        return [tool for tool in tools if next(self.denying(tool), None) is None]

    def denying(self, tool: str) -> Iterator[str]:
        """The ids of the rules that deny every call of a tool in the next turn."""
        first, *others = (self._denying(tool, kind) for kind in self.state.tools.kinds(tool))
        also = [frozenset(other) for other in others]
        return (rule for rule in first if all(rule in other for other in also))

    def _denying(self, tool: str, kind: NamingKind) -> Iterator[str]:
        on = self.state
        session = on.session
        ahead = CallState("", tool, None, session.turn + 1, on.memory, kind=kind)
        probes = on.program.probes(kind)
        if due := on.due_next():
            due -= {probe.rule.number for probe in probes}
            probes = (*probes, *(Probe(on.rules[number], 0, (), 0) for number in due))
        for probe in probes:
            rule = probe.rule
            if STRICTNESS[rule.action] < STRICTNESS["deny"] and rule.id not in session.failed_rules:
                continue
            sure, maybe = probe.forecast(ahead)
            if rule.machine.denies_all(on.states[rule.number], sure, maybe, session.count, ahead):
                yield rule.id

    def finish(self) -> Report:
        """Each rule's status as at the end of the run; the session can continue afterwards.

        The obligations of a run that failed or was cancelled stay pending.
        """
        return self._report(complete=self.state.session.ended not in ("run_failed", "run_cancelled"))

    def report(self) -> Report:
        """Each rule's status now; rules that aren't decided yet are pending."""
        return self._report(complete=False)

    def _report(self, *, complete: bool) -> Report:
        on = self.state
        rules: dict[str, RuleReport] = {}
        violations: list[Violation] = []
        awaiting = on.awaiting_person()
        for rule in on.rules.values():
            finding = rule.machine.finding_at_end(on.states[rule.number])
            if finding is not None and complete:
                violation = on.violation(rule, finding)
                violations.append(msgspec.structs.replace(violation, enforcement="observed", at_end=True))
            unmet = finding is not None or (rule.policy, rule.id) in awaiting
            status = self._status(rule, unmet=unmet, complete=complete)
            rules[rule.id] = RuleReport(status=status, kind=rule.kind, policy=rule.policy)
        return Report(rules=rules, violations=tuple(violations))

    def _status(self, rule: CompiledRule, *, unmet: bool, complete: bool) -> Status:
        session, machine = self.state.session, rule.machine
        if rule.id in session.violated or (unmet and complete):
            return "violated"
        if unmet:
            return "pending"
        exercised = rule.id in session.exercised or machine.always_exercised
        return "held" if exercised or (machine.restricts_all and session.any_requested) else "not_exercised"

    def add_net(self, net: str | NetLine | Net, **attached: Any) -> None:
        """Add a net. A net that was removed before continues with its state.

        `validate`, `on_result` and `mapper` may be attached, in place of what a removed net had. Raises ValueError
        for anything that is not a net, and for a name that is in use or of another removed net; PolicyError, a
        ValueError, for an invalid net.
        """
        add_net(self.state, net, **attached)

    def remove_net(self, name: str) -> None:
        """Remove a net; its state is kept. Raises KeyError if no net has the name."""
        remove_net(self.state, name)

    def tick(self, now_ms: int) -> list[Violation]:
        """Set the time, in milliseconds since the epoch. Raises EventError for another type."""
        if not is_number(now_ms):
            raise EventError(wrong_type("milliseconds since the epoch", now_ms))
        handlers.passed(self.state, int(now_ms))
        return handlers.newly_exceeded(self.state, self.state.program.limits.clocks)

    def deadline(self) -> int | None:
        """When to tick if nothing happens before, in milliseconds since the epoch."""
        on = self.state
        if on.session.ended or not on.clocked:
            return None
        limits = on.program.limits
        return limits.deadline(on.session.limits, waiting=not limits.has_idle or on.waiting())

    def warnings(self) -> list[LimitWarning]:
        """The limits that passed their `warn_at` since the last call."""
        session = self.state.session
        return list(self.state.program.limits.warnings(session.limits, session.meter))

    def limits(self) -> tuple[LimitStatus, ...]:
        """Every limit with its use; clocks as of the last event or `tick`."""
        on = self.state
        return on.program.limits.uses(on.session.limits, on.session.meter)

    def status(self) -> str:
        """The marking of each net and the tools it allows now, a net a line; "" without nets. Fit for a prompt."""
        on = self.state
        rules = [*((rule, "") for rule in on.program.rules), *((r, "; not active") for r in on.removed_nets.values())]
        lines = []
        for rule, note in rules:
            if isinstance(machine := rule.machine, NetMachine):
                state = on.states.get(rule.number) or machine.initial_state()
                lines.append(net_status(machine.net, state.marking) + note)
        return "\n".join(lines)

    def resolve(self, tool: str, input: dict[str, Any] | None = None) -> dict[str, Stance]:
        """Each net's answer to a call of a tool now, by the net's id; the input is empty unless given.

        `free`: the net leaves the tool alone; `abstain`: no transition names it; `gated`: an enabled transition
        covers it, so that it may run, after an approval if the transition is manual; `blocked`: none does. Validators
        are not called. Raises ValueError for anything that is not a tool's name and an input.
        """
        on = self.state
        given = {} if input is None else input
        try:
            check_input(given)
            call = on.subject("", tool, given, on.session.turn_ahead(0))
            masks = {rule.number: mask for rule, mask in on.bound_for(call).plan.rules}
        except (*UNREADABLE, AttributeError) as error:
            raise ValueError(f"not a tool's name and an input: {error}") from None
        nets = [(rule, rule.machine) for rule in on.program.rules]
        return {
            rule.id: "blocked"
            if rule.id in on.session.failed_rules
            else net.resolve(on.states[rule.number], call, masks.get(rule.number, 0))
            for rule, net in nets
            if isinstance(net, NetMachine)
        }

    def snapshot(self) -> bytes:
        """The state as bytes, for `CompiledPolicy.restore`."""
        return write(self.state)


_RUNS_COMMANDS = matcher(["bash"])
"""Whether a tool's name is the portable one of what runs a command line."""
_LINES = compile_path("$.command")


class ListAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether allow lists allow a call.

    Attributes:
        rules: The allow lists that allow it, each by its policy and its id.
        why_not: Why none does, if none does.
        unread: Whether that is because part of the call cannot be read.
    """

    rules: tuple[RuleName, ...] = ()
    why_not: str = ""
    unread: bool = False


def _list_admission(on: MonitorState, subject: CallState, *, several: bool) -> ListAdmission:
    lists = [(r, r.machine) for r in on.rules.values() if isinstance(r.machine, AllowlistMachine)]
    if not lists:
        return ListAdmission(why_not="the policy has no allow list")
    found: list[RuleName] = []
    for rule, machine in lists:
        items = [item for slot in machine.slots for item in slot.items_met(subject.names, subject)]
        if not items:
            return ListAdmission(why_not=f"rule `{rule.id}` does not allow it")
        if several and not any(_reads_all(item) for item in items):
            why = f"rule `{rule.id}` allows it by its text, and it is several commands; use `runs`"
            return ListAdmission(why_not=why)
        found.append((rule.policy, rule.id))
    return ListAdmission(rules=tuple(found))


def _line_of(subject: CallState) -> tuple[str, bool]:
    """Why a call's command line, if it has one, cannot be read; and whether it is several commands."""
    names = subject.names
    if names.in_part:
        return "not all of its input can be read", False
    if not names.any(_RUNS_COMMANDS):
        return "", False
    lines = _LINES(subject.input)
    if not lines or not all(isinstance(line, str) for line in lines):
        return "its command line cannot be read", False
    shell: Shell = "bash" if subject.directories.shell == "bash" else "sh"
    commands = [command for line in lines for command in commands_of(line, shell)]
    if not commands or any(words[0] is None for words, _ in commands):
        return "what its command line runs is known only when it runs", False
    return "", len(commands) > 1 or len(names.acts) > 1


def _reads_all(item: str | ToolWhere) -> bool:
    """Whether an item that matches a call of several commands constrains each of them."""
    return isinstance(item, str) or not item.where or any(map(_names_commands, item.where))


def _names_commands(condition: Condition) -> bool:
    if condition.any_of is not UNSET:
        return all(map(_names_commands, condition.any_of))
    return condition.runs is not UNSET
