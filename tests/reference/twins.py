"""The compiled monitor and the reference on the same session, compared at every step.

Ids are reused, approvals come late or never, and inputs are rewritten.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies import Event, Monitor, RunContext, Violation, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.policies.monitor.compiled_policy import CompiledPolicy
from proctor.policies.rules.petri_net import Net, NetState, Transition
from proctor.supervisor.machine.event_factory import violated

from .engine import Engine
from .nets import VALIDATED, valid
from .stacks import strictest
from .trace import Call, Rule, World

Outcome: TypeAlias = Literal["completed", "failed", "in flight", "refused by the provider"]
Variant: TypeAlias = Literal["live", "snapshot", "fold"]


@dataclass(frozen=True)
class Step:
    """One step: a call proposed or observed, an end of the n-th call in flight, a user message, or the end of the
    run, after which another run of the session starts.

    `sub`: the call is a subagent's, of the last call in flight. `over` is how the run ends, "" if it is lost; `anew`:
    the next one numbers its turns from 1 again. `reuse` gives a call the id of an earlier one, `ran` is the input it
    starts with instead of the allowed one, `begins` says that the stream reports the turn, and `answer` answers a
    pending approval.
    """

    do: Literal["ask", "saw", "end", "say", "run", "answer"]
    tool: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    next_turn: bool = True
    outcome: Outcome = "completed"
    output: Any = None
    approval: Literal["granted", "denied", "expired", "left"] = "granted"
    n: int = 0
    words: str = ""
    sub: bool = False
    over: Literal["completed", "failed", "cancelled", ""] = "completed"
    anew: bool = False
    reuse: bool = False
    ran: dict[str, Any] | None = None
    begins: bool = False


class Twins:
    """Runs steps on both; `variant` rebuilds the monitor after each, from a snapshot or from the log.

    `waiting` has each pending call and its event fields; `begun` is the last reported turn and its time; `taken` are
    the calls that are denied because of their id.
    """

    def __init__(
        self,
        stack: list[Rule],
        compiled: CompiledPolicy,
        variant: Variant = "live",
        context: RunContext | None = None,
    ) -> None:
        self.compiled = compiled
        self.context = context
        self.engine = Engine(stack, msgspec.to_builtins(context or RunContext()))
        self.monitor: Monitor = compiled.monitor(context)
        self.world = World(policy={})
        self.variant = variant
        self.record: list[Event] = []
        self.violated: set[str] = set()
        self.unanswered: dict[str, set[str]] = {}
        self.turn = 0
        self.run = 0
        self.base = self.offset = self.first_clock = 0
        self.over: str | None = ""
        self.seen: Counter[str] = Counter()
        self.asking: set[str] = set()
        self.waiting: list[tuple[Call, dict[str, Any], Step]] = []
        self.begun = (0, 0)
        self.taken: list[Call] = []

    def play(self, steps: list[Step]) -> None:
        """All the steps, and the end. Raises AssertionError if the two differ."""
        self._begin_run()
        for step in steps:
            self.take(step)
        self.settle()

    def take(self, step: Step) -> None:
        """One step. Raises AssertionError if the two differ."""
        if self.over is not None:
            self._begin_run()
        getattr(self, f"_{step.do}")(step)
        self._again()

    def settle(self) -> None:
        """The end, if it came now; the session may continue. Raises AssertionError if the two differ."""
        report = self.monitor.finish()
        statuses = {id: rule.status for id, rule in report.rules.items()}
        self.seen.update(statuses.values())
        complete = self.over not in ("failed", "cancelled")
        owed = [clause.id for clause in self.engine.clauses if complete and self.engine.owes(clause, self.world)]

        assert [violation.rule for violation in report.violations] == owed
        open = set().union(*self.unanswered.values())
        expected = {
            clause.id: self.engine.status(clause, self.world, self.violated, complete=complete)
            for clause in self.engine.clauses
        }
        assert statuses == {
            id: ("violated" if complete else "pending") if id in open and status != "violated" else status
            for id, status in expected.items()
        }

    def _again(self) -> None:
        if self.variant == "snapshot":
            self.monitor = self.compiled.restore(self.monitor.snapshot())
        elif self.variant == "fold":
            folded = self.compiled.monitor(self.context)
            for event in self.record:
                folded.observe(event)

            same = folded.snapshot() == self.monitor.snapshot()

            assert same or state(folded) == state(self.monitor)

            self.monitor = folded

    def _observe(self, event: Event, expected: list[str]) -> None:
        self.record.append(event)
        found = self.monitor.observe(event)
        self._violate(found)

        assert sorted(violation.rule for violation in found) == sorted(expected), event

    def _violate(self, found: Sequence[Violation], held: Call | None = None) -> None:
        """A rule that asks for approval is violated once nobody approves."""
        asking = {violation.rule for violation in found if held and violation.action == "request_approval"}
        self.violated |= {violation.rule for violation in found} - asking
        if held:
            self.unanswered[held.id] = self.unanswered.get(held.id, set()) | asking
        for violation in found:
            self.record.append(violated(violation))

    def _unapproved(self, call: Call) -> None:
        self.violated |= self.unanswered.pop(call.id, set())

    def _begin_run(self) -> None:
        self.waiting.clear()
        self.begun = (0, 0)
        self.run, self.over = self.run + 1, None
        self.base, self.first_clock = self.turn, self.world.clock
        for call in self.world.calls:
            self._unapproved(call)
        self._observe(ev.RunStarted(run_id=f"r{self.run}"), [])

    def _run(self, step: Step) -> None:
        self.seen["another run"] += 1
        self.over = step.over
        ends = {"completed": ev.RunCompleted, "failed": ev.RunFailed, "cancelled": ev.RunCancelled}
        if step.over:
            self._observe(ends[step.over](run_id=f"r{self.run}"), [])
        self.offset = self.turn if step.anew else 0

    def _flying(self) -> list[Call]:
        """The calls in flight of this run."""
        started = [c for c in self.world.started() if c.run == self.run and not c.lost]
        return [c for c in started if c.completed is None and c.failed is None]

    def _called(self, step: Step) -> tuple[Call, dict[str, Any]]:
        """A call and its event fields; its id may be one of an earlier run."""
        parent, before = self._flying()[-1:] if step.sub else [], self.turn
        if not parent:
            self.turn += step.next_turn or self.turn == self.base
        turn = parent[0].turn if parent else self.turn
        self.seen["subagent"] += bool(parent)
        at = self.world.tick()
        id = f"c{at - self.first_clock}"
        call = Call(id=id, tool=step.tool, input=step.input, turn=turn, requested=at, run=self.run)
        self.world.calls.append(call)
        fields = {"tool_call_id": id, "tool_name": call.tool, "tool_input": call.input, "turn": turn - self.offset}
        if step.begins and self.turn > before:
            self.begun = (self.turn, self.world.tick())
            self._observe(ev.TurnStarted(turn=self.turn - self.offset), [])
        waiting = {waits.id for waits, _, _ in self.waiting}
        earlier = [c for c in self.world.calls if c.run == self.run and c is not call and c.id not in waiting]
        if step.reuse and earlier:
            self.seen["an id again"] += 1
            call.id = fields["tool_call_id"] = earlier[step.n % len(earlier)].id
        return call, fields | {"parent_tool_call_id": parent[0].id if parent else None}

    def _last(self, call: Call) -> Call | None:
        """The last call with the id."""
        return next((c for c in reversed(self.world.calls) if c is not call and _same_id(c, call)), None)

    def _is_new(self, call: Call, last: Call | None) -> bool:
        """Whether the id is free: unused in this run, or of an earlier turn than the proposal's."""
        if last is None:
            return True
        turn, at = self.begun
        return last.ended is not None and not last.lost and last.ended < at and call.turn >= turn

    def _refused(self, call: Call) -> bool:
        """Whether the call was denied because of its id."""
        return any(call is taken for taken in self.taken)

    def _ask(self, step: Step) -> None:
        shown = step.tool in self.monitor.narrow([step.tool]) or not step.next_turn or step.sub
        call, fields = self._called(step)
        last = self._last(call)
        free = last is None or last.ended is not None
        self.record.append(ev.ToolCallRequested(**fields))
        if free:
            action = self._propose(call, fields)
        else:
            self.seen["an id refused"] += 1
            self.taken.append(call)
            self.world.calls.remove(call)
            action = self._propose(call, fields)

        assert shown or action in ("deny", "cancel"), f"narrow hid a call that is answered {action}"

        self._follow(action, call, fields, step)

    def _follow(self, action: str, call: Call, fields: dict[str, Any], step: Step) -> None:
        self.seen[action] += 1
        if action == "request_approval":
            call.shown |= self.asking
            held = self._approval(call)
            self._observe(ev.ToolApprovalRequested(**held, tool_input=call.input), [])
            self.waiting.append((call, fields, step))
            if step.approval != "left":
                self._answered(step)
        elif action in ("allow", "warn"):
            call.started = self.world.tick()
            self._observe(ev.ToolCallStarted(**fields), [])
            self._end_of(self._rewritten(call, fields, step), step)
        else:
            self._refuse(call)

    def _answer(self, step: Step) -> None:
        """Somebody answers the n-th pending call, or it expires."""
        if self.waiting:
            self.seen["a late answer"] += 1
            self.waiting.append(self.waiting.pop(step.n % len(self.waiting)))
            self._answered(step)

    def _answered(self, step: Step) -> None:
        call, fields, first_step = self.waiting.pop()
        held = self._approval(call)
        granted = ev.ToolApprovalGranted(**held, input_digest=input_digest(call.input))
        if step.approval == "granted":
            self._observe(granted, [])
            call.approved = True
            self.unanswered.pop(call.id, None)
            self._follow(self._propose(call, fields), call, fields, replace(first_step, approval="left"))
            return
        self.seen[step.approval] += 1
        call.approved, call.shown = False, frozenset()  # earlier approvals of it end too
        self._unapproved(call)
        self._observe((ev.ToolApprovalExpired if step.approval == "expired" else ev.ToolApprovalDenied)(**held), [])
        if step.reuse:  # a later answer than the other
            self._observe(granted, [])
            action = self._propose(call, fields)
            if action in ("allow", "warn"):  # the requirement was satisfied meanwhile
                self._follow(action, call, fields, first_step)
                return
        self._refuse(call)
        if step.begins:
            self._observe(granted, [])

    def _refuse(self, call: Call) -> None:
        denied = ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.tool, decision="deny")
        self._unapproved(call)
        if not self._refused(call):
            call.denied = self.world.tick()
            call.approved = False
        self._observe(denied, [] if self._refused(call) else self.engine.tripped_now(self.world))

    def _approval(self, call: Call) -> dict[str, Any]:
        return {
            "approval_id": f"a-{call.id}-{call.requested}-{len(call.shown)}",
            "tool_call_id": call.id,
            "tool_name": call.tool,
        }

    def _rewritten(self, call: Call, fields: dict[str, Any], step: Step) -> Call:
        """The call that runs: another one if it starts with another input than the allowed one."""
        ran = None if step.ran is None else replace(call, input=step.ran)
        if ran is None or _same(ran, call):
            return call
        self.seen["an input rewritten"] += 1
        call.lost = True
        return self._started(ran, {**fields, "tool_input": ran.input})

    def _started(self, call: Call, fields: dict[str, Any]) -> Call:
        """A call that was not allowed runs."""
        made = replace(call, requested=self.world.tick(), started=None, approved=False, shown=frozenset())
        self.world.calls = [*(c for c in self.world.calls if c is not call), made]
        self._observe(ev.ToolCallStarted(**fields), [id for id, _ in self.engine.evaluate(self.world, made)])
        made.started = self.world.tick()
        return made

    def _propose(self, call: Call, fields: dict[str, Any]) -> str:
        more = {"turn": fields["turn"], "parent_tool_call_id": fields["parent_tool_call_id"]}
        decision = self.monitor.propose(ToolCall(id=call.id, name=call.tool, input=call.input, **more))
        expected = self._expected(call)
        self.asking = {id for id, answer in expected if answer == "request_approval"}
        found = [(violation.rule, violation.action) for violation in decision.violations]
        self._violate(decision.violations, call if decision.action == "request_approval" else None)
        self.seen["objected" if found else "agreed"] += 1

        assert found == expected, call
        assert decision.action == strictest([action for _, action in expected])
        assert not decision.errors

        return decision.action

    def _expected(self, call: Call) -> list[tuple[str, str]]:
        return [("tool_call_id", "deny")] if self._refused(call) else self.engine.evaluate(self.world, call)

    def _saw(self, step: Step) -> None:
        before = self.turn
        call, fields = self._called(step)
        last = self._last(call)
        if last is not None and not self._is_new(call, last) and not last.lost and _same(last, call):
            self.world.calls.remove(call)
            fields["turn"] = last.turn - self.offset  # of the turn that proposed it; starts no other
            if self.begun[0] <= before:
                self.turn = before
            if last.denied is None or last.started is not None:
                self.seen["a start told again"] += 1
                self._observe(ev.ToolCallStarted(**fields), [])
                return
            self.seen["ran though refused"] += 1
            self._observe(ev.ToolCallStarted(**fields), [id for id, _ in self.engine.evaluate(self.world, last)])
            last.started = self.world.tick()
            self._end_of(last, step)
            return
        if last is not None and last.ended is None:
            last.lost = True
        self._end_of(self._started(call, fields), step)

    def _end(self, step: Step) -> None:
        if flying := self._flying():
            self._end_of(flying[step.n % len(flying)], step)

    def _end_of(self, call: Call, step: Step) -> None:
        self.seen[step.outcome] += 1
        if step.outcome == "in flight":
            return
        at = self.world.tick()
        common: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.tool}
        if step.outcome == "completed":
            call.completed, call.output = at, step.output
            self._observe(ev.ToolCallCompleted(**common, tool_output=step.output), [])
            return
        call.failed = at
        refused = step.outcome == "refused by the provider"
        event = ev.ToolCallDenied(**common, decision="deny") if refused else ev.ToolCallFailed(**common, error="boom")
        self._observe(event, self.engine.tripped_now(self.world))

    def _say(self, step: Step) -> None:
        self._observe(ev.MessageSent(role="user", content=step.words), [])
        self.world.user_texts.append(step.words)


def compiled(stack: list[Rule]) -> CompiledPolicy:
    """Compile a stack of documents. Raises PolicyError."""
    policies = [policy for document in stack for policy in parse_policies({"version": 1, **document})]
    merged = merge_policies(policies)
    if any(isinstance(net, Net) and net.name == VALIDATED for net in merged.nets):
        return compile_policy(merged, validators={VALIDATED: _validate}, on_results={VALIDATED: _count})
    return compile_policy(merged)


def _validate(call: Any, transition: Transition, state: NetState) -> bool:
    return valid(call.input, transition.name, state.marking, state.meta.get("supplied", 0))


def _count(call: Any, transition: Transition, output: Any, state: NetState) -> None:
    state.meta["supplied"] = state.meta.get("supplied", 0) + 1


def state(monitor: Monitor) -> Any:
    """A monitor's whole state as plain data, ignoring the order of sets."""
    return _ordered(msgspec.json.decode(monitor.snapshot()))


SETS = {"exercised", "violated", "denied", "reported", "exceeded", "warned", "supplied", "ever", "last", "texts"}


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: sorted(map(str, item)) if key in SETS and isinstance(item, list) else _ordered(item)
            for key, item in value.items()
        }
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _same_id(one: Call, other: Call) -> bool:
    return (one.run, one.id) == (other.run, other.id)


def _same(one: Call, other: Call) -> bool:
    """The same tool with the same input; 7.0 is 7."""
    return one.tool == other.tool and _text(one.input) == _text(other.input)


def _text(value: Any) -> str:
    """A value as text; only integers in two forms are equal."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)
