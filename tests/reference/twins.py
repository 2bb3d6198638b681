"""The compiled monitor and the naive engine over the same session, compared at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies import (
    Event,
    Monitor,
    RunContext,
    ToolCall,
    Violation,
    compile_policy,
    merge_policies,
    parse_policies,
)
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest
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
    """One thing that happens: a call proposed or seen, an end of the n-th call in flight, the user's words, or
    the end of the run, after which another run of the session begins.

    `sub`: the call is a sub-agent's, of the last call in flight. `over` is how the run ends, "" if it is lost;
    `anew`: the next one counts its responses from 1 again. In supervised sessions (`supervised.py`) `reuse` gives a
    call the id of an earlier one, `ran` is the input it starts with in place of the one allowed, `begins` says that
    the stream tells of the response, and `answer` answers an approval that was left.
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
    """Plays steps on both; `variant` makes the monitor anew after each, from a snapshot or from the record."""

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

    def play(self, steps: list[Step]) -> None:
        """All the steps, and the end. Raises AssertionError where the two differ."""
        self._begin_run()
        for step in steps:
            self.take(step)
        self.settle()

    def take(self, step: Step) -> None:
        """One step. Raises AssertionError where the two differ."""
        if self.over is not None:
            self._begin_run()
        getattr(self, f"_{step.do}")(step)
        self._again()

    def settle(self) -> None:
        """The end, if it came now; the session may go on. Raises AssertionError where the two differ."""
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
        """A rule that asks for a person is violated once nobody approves."""
        asking = {violation.rule for violation in found if held and violation.action == "request_approval"}
        self.violated |= {violation.rule for violation in found} - asking
        if held:
            self.unanswered[held.id] = self.unanswered.get(held.id, set()) | asking
        for violation in found:
            self.record.append(violated(violation))

    def _unapproved(self, call: Call) -> None:
        self.violated |= self.unanswered.pop(call.id, set())

    def _begin_run(self) -> None:
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
        """The calls in flight, of this run."""
        started = [c for c in self.world.started() if c.run == self.run and not c.lost]
        return [c for c in started if c.completed is None and c.failed is None]

    def _called(self, step: Step) -> tuple[Call, dict[str, Any]]:
        """A call, and how events tell of it; its id may be one of an earlier run."""
        parent = self._flying()[-1:] if step.sub else []
        if not parent:
            self.turn += step.next_turn or self.turn == self.base
        turn = parent[0].turn if parent else self.turn
        self.seen["sub-agent"] += bool(parent)
        at = self.world.tick()
        id = f"c{at - self.first_clock}"
        call = Call(id=id, tool=step.tool, input=step.input, turn=turn, requested=at, run=self.run)
        self.world.calls.append(call)
        fields = {"tool_call_id": id, "tool_name": call.tool, "tool_input": call.input, "turn": turn - self.offset}
        return call, fields | {"parent_tool_call_id": parent[0].id if parent else None}

    def _ask(self, step: Step) -> None:
        shown = step.tool in self.monitor.narrow([step.tool]) or not step.next_turn or step.sub
        call, fields = self._called(step)
        self.record.append(ev.ToolCallRequested(**fields))
        action = self._propose(call, fields)

        assert shown or action in ("deny", "cancel"), f"narrow hid a call that is answered {action}"

        if action == "request_approval":
            held: dict[str, Any] = {"approval_id": f"a-{call.id}", "tool_call_id": call.id, "tool_name": call.tool}
            self._observe(ev.ToolApprovalRequested(**held, tool_input=call.input), [])
            call.shown |= self.asking
            if step.approval == "granted":
                self._observe(ev.ToolApprovalGranted(**held, input_digest=input_digest(call.input)), [])
                call.approved = True
                self.unanswered.pop(call.id, None)
                action = self._propose(call, fields)
        self.seen[action] += 1
        if action in ("allow", "warn"):
            call.started = self.world.tick()
            self._observe(ev.ToolCallStarted(**fields), [])
            self._end_of(call, step)
        elif action in ("deny", "cancel") or step.approval == "denied":
            call.denied = self.world.tick()
            self._unapproved(call)
            denied = ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.tool, decision="deny")
            self._observe(denied, self.engine.tripped_now(self.world))

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
        return self.engine.judge(self.world, call)

    def _saw(self, step: Step) -> None:
        call, fields = self._called(step)
        expected = self.engine.judge(self.world, call)
        self._observe(ev.ToolCallStarted(**fields), [id for id, _ in expected])
        call.started = self.world.tick()
        self._end_of(call, step)

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
    """A stack of documents compiled. Raises PolicyError."""
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
    """A monitor's whole state as plain data, the order of sets aside."""
    return _ordered(msgspec.json.decode(monitor.snapshot()))


SETS = {"exercised", "violated", "denied", "reported", "exceeded", "warned", "supplied", "ever", "last", "texts"}


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: sorted(map(str, item)) if key in SETS and isinstance(item, list) else _ordered(item)
            for key, item in value.items()
        }
    return [_ordered(item) for item in value] if isinstance(value, list) else value
