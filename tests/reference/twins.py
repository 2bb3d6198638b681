"""The compiled monitor and the naive engine over the same session, compared at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies import Event, Monitor, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.calls import input_digest
from proctor.policies.compiled import CompiledPolicy

from .engine import Engine
from .stacks import strictest
from .trace import Call, Rule, World

Outcome: TypeAlias = Literal["completed", "failed", "in flight", "refused by the provider"]
Variant: TypeAlias = Literal["live", "snapshot", "fold"]


@dataclass(frozen=True)
class Step:
    """One thing that happens: a call proposed or seen, an end of the n-th call in flight, or the user's words."""

    do: Literal["ask", "saw", "end", "say"]
    tool: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    next_turn: bool = True
    outcome: Outcome = "completed"
    output: Any = None
    approval: Literal["granted", "denied", "left"] = "granted"
    n: int = 0
    words: str = ""


class Twins:
    """Plays steps on both; `variant` makes the monitor anew after each, from a snapshot or from the record."""

    def __init__(self, stack: list[Rule], compiled: CompiledPolicy, variant: Variant = "live") -> None:
        self.compiled = compiled
        self.engine = Engine(stack)
        self.monitor: Monitor = self.compiled.monitor()
        self.world = World(policy={})
        self.variant = variant
        self.record: list[Event] = []
        self.violated: set[str] = set()
        self.turn = 0

    def play(self, steps: list[Step]) -> None:
        """All the steps, and the end. Raises AssertionError where the two differ."""
        for step in steps:
            getattr(self, f"_{step.do}")(step)
            self._again()
        report = self.monitor.finish()
        statuses = {id: rule.status for id, rule in report.rules.items()}

        assert statuses == {c.id: self.engine.status(c, self.world, self.violated) for c in self.engine.clauses}

    def _again(self) -> None:
        if self.variant == "snapshot":
            self.monitor = self.compiled.restore(self.monitor.snapshot())
        elif self.variant == "fold":
            folded = self.compiled.monitor()
            for event in self.record:
                folded.observe(event)

            assert state(folded) == state(self.monitor)

            self.monitor = folded

    def _observe(self, event: Event, expected: list[str]) -> None:
        self.record.append(event)
        found = [violation.rule for violation in self.monitor.observe(event)]
        self._violate(found)

        assert sorted(found) == sorted(expected), event

    def _violate(self, ids: list[str]) -> None:
        self.violated |= set(ids)
        for id in ids:
            self.record.append(ev.PolicyViolated(policy="", rule=id, kind="", action="deny", enforcement="observed"))

    def _called(self, step: Step) -> Call:
        self.turn += step.next_turn or self.turn == 0
        at = self.world.tick()
        call = Call(id=f"c{at}", tool=step.tool, input=step.input, turn=self.turn, asked=at)
        self.world.calls.append(call)
        return call

    def _ask(self, step: Step) -> None:
        shown = step.tool in self.monitor.narrow([step.tool]) or not step.next_turn
        call = self._called(step)
        self.record.append(ev.ToolCallRequested(**_tool_event(call)))
        action = self._propose(call)

        assert shown or action in ("deny", "cancel"), f"narrow hid a call that is answered {action}"

        if action == "request_approval":
            held: dict[str, Any] = {"approval_id": f"a-{call.id}", "tool_call_id": call.id, "tool_name": call.tool}
            self._observe(ev.ToolApprovalRequested(**held, tool_input=call.input), [])
            if step.approval == "granted":
                self._observe(ev.ToolApprovalGranted(**held, input_digest=input_digest(call.input)), [])
                call.approved = True
                action = self._propose(call)
        if action in ("allow", "warn"):
            call.started = self.world.tick()
            self._observe(ev.ToolCallStarted(**_tool_event(call)), [])
            self._end_of(call, step)
        elif action in ("deny", "cancel") or step.approval == "denied":
            call.denied = self.world.tick()
            denied = ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.tool, decision="deny")
            self._observe(denied, self.engine.tripped_now(self.world))

    def _propose(self, call: Call) -> str:
        decision = self.monitor.propose(ToolCall(id=call.id, name=call.tool, input=call.input, turn=call.turn))
        expected = self.engine.judge(self.world, call)
        found = [(violation.rule, violation.action) for violation in decision.violations]
        self._violate([id for id, _ in found])

        assert found == expected, call
        assert decision.action == strictest([action for _, action in expected])
        assert not decision.errors

        return decision.action

    def _saw(self, step: Step) -> None:
        call = self._called(step)
        expected = self.engine.judge(self.world, call)
        self._observe(ev.ToolCallStarted(**_tool_event(call)), [id for id, _ in expected])
        call.started = self.world.tick()
        self._end_of(call, step)

    def _end(self, step: Step) -> None:
        flying = [c for c in self.world.started() if c.completed is None and c.failed is None]
        if flying:
            self._end_of(flying[step.n % len(flying)], step)

    def _end_of(self, call: Call, step: Step) -> None:
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
        self.world.said.append(step.words)


def compiled(stack: list[Rule]) -> CompiledPolicy:
    """A stack of documents compiled. Raises PolicyError."""
    policies = [policy for document in stack for policy in parse_policies({"version": 1, **document})]
    return compile_policy(merge_policies(policies))


def _tool_event(call: Call) -> dict[str, Any]:
    return {"tool_call_id": call.id, "tool_name": call.tool, "tool_input": call.input, "turn": call.turn}


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
