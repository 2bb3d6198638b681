"""The monitor: one session under one compiled policy, judged call by call and event by event.

Synchronous and pure in effect: no clock, no I/O. Time arrives with events, or by `tick`. Folding the stored
events of a session into a new monitor gives the state that was live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import EventError, wrong_type
from ..language.naming import Kind
from ..policy import Policy
from ..reading.reader import check_policy
from ..rules.check import TOOL, CheckMachine
from ..rules.nets.machine import NetMachine
from ..rules.nets.status import net_status
from ..rules.nets.written import Net, NetLine
from ..stack.ids import net_name
from ..stream import events as ev
from ..stream.calls import STRICTNESS, UNREADABLE, Decision, RunContext, ToolCall, Usage, Violation, check_input
from .clocks import Limited
from .compiled import CompiledPolicy
from .decisions import decision_on, explained
from .handlers import HANDLERS
from .index import Compiled
from .report import Report, settle
from .session import ALLOWED, HELD, NO_ANSWERS, REQUESTED, RUNNING, Call, mark
from .violations import unreadable, used_before


class Monitor(Limited):
    """The state of one session. `explain` makes every decision carry its steps."""

    def __init__(self, compiled: CompiledPolicy, context: RunContext, *, explain: bool = False) -> None:
        super().__init__(compiled, context)
        self.explain = explain
        self.added_nets: list[str | NetLine | Net] = []
        self.removed_nets: dict[str, Compiled] = {}

    @property
    def usage(self) -> Usage:
        """What this run has used so far."""
        return self.session.meter.run

    @property
    def metadata(self) -> dict[str, Any]:
        """What the result should say of the judging itself: models without a price, prices used, nets ended."""
        meter = self.session.meter
        found: dict[str, Any] = {}
        if meter.unpriced:
            found["unpriced"] = list(meter.unpriced)
            found["skipped_limits"] = ["max_cost_usd"]
        if meter.priced_by:
            found["prices"] = list(meter.priced_by)
        nets = ((rule, rule.machine) for rule in self.rules.values())
        ended = [r.id for r, net in nets if isinstance(net, NetMachine) and net.ended(self.states[r.number])]
        if ended:
            found["ended_nets"] = ended
        return found

    def async_checks(self, call: ToolCall) -> list[tuple[str, Callable[[ToolCall], Any]]]:
        """The asynchronous checks that concern a call, by rule id: ask them, then propose with the answers."""
        try:
            check_input(call.input)
            turn = self.session.session_turn(call.turn)
            seen = self.subject(call.id, call.name, call.input, turn)
            steps = self.steps(seen)
        except (*UNREADABLE, AttributeError):
            return []  # `propose` refuses it
        machines = [(rule, rule.machine) for rule, mask in steps.visits.rules if mask & TOOL]
        checks = [(rule, machine) for rule, machine in machines if isinstance(machine, CheckMachine)]
        return [(r.id, m.asking(self.states[r.number], seen)) for r, m in checks if m.is_async]

    def propose(self, call: ToolCall, checks: Mapping[str, Any] = NO_ANSWERS) -> Decision:
        """Judge a call at the gate on every rule and, if it may run, spend what it spends.

        `checks` holds the answers of asynchronous checks by rule id; one that is missing refuses.
        Raises EventError for what is no call.
        """
        try:
            id = call.id
            first = id not in self.calls and id not in self.session.finished
            if not first and (known := self._known(call)):
                return known
            subject = self.request(id, call.name, call.input, call.turn, REQUESTED, first)
            if checks:
                subject.answers = checks
            errors: list[str] = []
            violations = self.judged(subject, errors, repeat=True)
            if checks:
                subject.answers = NO_ANSWERS
            if violations or self.explain:
                return self._weighed(call, subject, violations, tuple(errors))
            subject.status = ALLOWED
            self.start(subject)
            return Decision(action="allow", tool_call_id=id, tool_name=call.name, tool_input=call.input)
        except (*UNREADABLE, AttributeError) as error:
            if not isinstance(call, ToolCall):
                raise EventError(wrong_type("a tool call", call)) from None
            return decision_on(call, [unreadable(self.compiled.name, call, error)], ("input",))

    def _weighed(
        self, call: ToolCall, subject: Call, violations: list[Violation], errors: tuple[str, ...]
    ) -> Decision:
        """The decision on what was found, and what it does to the call."""
        if subject.approved:
            violations = [v for v in violations if v.action != "request_approval"]
        violations.sort(key=lambda violation: -STRICTNESS[violation.action])
        decision = decision_on(call, violations, errors)
        rules = subject.steps.visits.rules
        before = self.describe(rules) if self.explain else None
        if decision.action in ("allow", "warn"):
            subject.status = ALLOWED
            self.start(subject)
        elif decision.action == "request_approval":
            subject.status = HELD
        self.mark_violated(violations)
        if before is None:
            return decision
        return msgspec.structs.replace(decision, steps=explained(before, self.describe(rules), violations))

    def _known(self, call: ToolCall) -> Decision | None:
        """The answer to an id that was let through or is over: the same call again counts for nothing more."""
        current = self.calls.get(call.id)
        if current is not None and current.status in RUNNING:
            same = current.is_again(call.name, call.input)
        elif call.id in self.session.finished:
            same = self.session.finished[call.id] == mark(call.name, call.input)
            if same and call.id in self.session.denied:
                return None
        elif current is not None and current.name != call.name:
            same = False
        else:
            return None
        if same:
            return decision_on(call, [], ())
        if current is not None:
            self.session.clashing |= {call.id}
        return decision_on(call, [used_before(self.compiled.name, call)], ())

    def observe(self, event: ev.Event) -> list[Violation]:
        """Take in an event that happened; returns what it violates.

        Raises EventError for what is no event, or one that cannot be judged because its fields are of wrong types;
        a call like that is a violation.
        """
        try:
            handler = HANDLERS[type(event)]
        except KeyError:
            raise EventError(wrong_type("an event", event)) from None
        try:
            if self.limited:
                found = self.observe_limited(event, handler)
            else:
                found = handler(self, event) if handler is not None else []
        except (*UNREADABLE, AttributeError) as error:
            found = self._unread(event, error)
        if found:
            self.mark_violated(found)
        return found

    def _unread(self, event: ev.Event, error: Exception) -> list[Violation]:
        if not isinstance(event, ev.ToolCallRequested | ev.ToolCallStarted):
            raise EventError(f"`{event.type}` event cannot be judged: {str(error)[:200]}") from error
        if isinstance(event.tool_call_id, str):
            self.calls.pop(event.tool_call_id, None)
        if isinstance(event, ev.ToolCallRequested):
            return []  # `propose` refuses it
        call = ToolCall(id=event.tool_call_id, name=event.tool_name)
        return [unreadable(self.compiled.name, call, error, enforcement="interrupted")]

    def narrow(self, tools: Sequence[str]) -> list[str]:
        """The tools that could be called in the next response, whatever their input.

        Raises ValueError for what is no list, one text among it.
        """
        if not isinstance(tools, Iterable):
            raise ValueError(wrong_type("a list of tools", tools))
        if isinstance(tools, str):
            raise ValueError(f"expected a list of tools, got the text `{tools[:80]}`; say `[{tools[:80]!r}]`")
        session = self.session
        if self.compiled.limits.closed(session.limits, session.meter):
            return []
        return [tool for tool in tools if next(self.refusing(tool), None) is None]

    def refusing(self, tool: str) -> Iterator[str]:
        """The ids of the rules that refuse every call of a tool in the next response."""
        first, *others = (self._refusing(tool, kind) for kind in self.tools.kinds(tool))
        also = [frozenset(other) for other in others]
        return (rule for rule in first if all(rule in other for other in also))

    def _refusing(self, tool: str, kind: Kind) -> Iterator[str]:
        count = self.session.count
        ahead = Call("", tool, None, self.session.turn + 1, self.memory, kind=kind)
        visits = self.compiled.plan(kind).visits
        named = {visit.rule.number for visit in visits}
        due = [(number, 0, 0) for number in self.due_next() if number not in named]
        for number, sure, maybe in [*((v.rule.number, *v.outlook(ahead)) for v in visits), *due]:
            rule = self.rules[number]
            if STRICTNESS[rule.action] < STRICTNESS["deny"] and rule.id not in self.session.broken:
                continue
            if rule.machine.closed(self.states[number], sure, maybe, count, ahead):
                yield rule.id

    def finish(self) -> Report:
        """How each rule stands, settled as at the end of the run; the session may go on after it.

        A run that failed or was cancelled leaves what is owed pending.
        """
        return settle(self, complete=self.session.ended not in ("run_failed", "run_cancelled"))

    def report(self) -> Report:
        """How each rule stands now; what is owed is pending."""
        return settle(self, complete=False)

    def add_net(self, net: str | NetLine | Net, **attached: Any) -> None:
        """Judge by one net more from now on; one that was removed goes on where it was.

        `validate` and `on_result` may be attached. Raises ValueError for what is no net, and if one of the name is
        active; PolicyError, which is one, for a net that is wrong in itself.
        """
        if not isinstance(net, str | NetLine | Net):
            raise ValueError(wrong_type("a net", net))
        check_policy(Policy(name="added", nets=[net]))
        name = net_name(net)
        if any(rule.kind == "net" and rule.id == name for rule in self.compiled.rules):
            raise ValueError(f"a net `{name}` is active already")
        if name in self.removed_nets:
            self.adopt(self.compiled.with_rule(self.removed_nets.pop(name)))
        else:
            self.adopt(self.compiled.with_net(net, **attached))
            self.added_nets.append(net)

    def remove_net(self, name: str) -> None:
        """Judge without a net from now on; it keeps its state. Raises KeyError if no net has the name."""
        for rule in self.compiled.rules:
            if rule.kind == "net" and rule.id == name:
                self.removed_nets[name] = rule
                return self.adopt(self.compiled.without(rule.number))
        raise KeyError(name)

    def status(self) -> str:
        """Where the nets stand and what each lets through now, one a line; "" without nets.

        The words name nets, places and tools, and may be put in a prompt.
        """
        rules = [
            *((rule, "") for rule in self.compiled.rules),
            *((r, "; not active") for r in self.removed_nets.values()),
        ]
        lines = []
        for rule, note in rules:
            if isinstance(machine := rule.machine, NetMachine):
                state = self.states.get(rule.number) or machine.fresh()
                lines.append(net_status(machine.net, state.marking) + note)
        return "\n".join(lines)

    def snapshot(self) -> bytes:
        """The state written down, for `CompiledPolicy.restore`."""
        from .snapshots import write

        return write(self)
