"""Replays recorded runs: every decision with its steps."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies import CompiledPolicy, Decision, Monitor, Policy, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.errors import Violation
from proctor.policies.events.calls import ToolCall, call_of
from proctor.policies.events.run_context import RunContext, Tool, recorded_context

from ..kit.client_tools import recorded_tools


class Explained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement at one event: a call's `decision`, and the other `violations` by what happened."""

    seq: int
    event: str
    decision: Any = None
    violations: tuple[Violation, ...] = ()


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The policies a run was under, as its record has them, and what was known of the run around them.

    `tools` are its client's. `untold` names the policies whose checks in Python are not told again: of a check only
    its name is stored.
    """

    policies: tuple[dict[str, Any], ...]
    context: RunContext
    tools: tuple[Tool, ...] = ()
    untold: tuple[str, ...] = ()

    def compiled(self) -> CompiledPolicy:
        """The stack to evaluate with. Raises PolicyError if another version wrote it."""
        return compile_policy(self.stack())

    def stack(self) -> Policy:
        """The policies, merged. Raises PolicyError where another version wrote them."""
        return merge_policies(parse_policies({"policies": list(self.policies)}))


def recorded(events: Sequence[ev.Event]) -> Recorded:
    """The policies of the latest run of these events; none if none are stored with it."""
    starts = [event.metadata for event in events if isinstance(event, ev.RunStarted)]
    start = starts[-1] if starts else {}
    written = start.get("policies") or []
    members = [_without_checks(member) for member in (written if isinstance(written, list | tuple) else [written])]
    return Recorded(
        policies=tuple(member for member, _ in members),
        context=recorded_context(start.get("context")) or RunContext(),
        tools=recorded_tools(events),
        untold=tuple(str(member.get("name")) for member, untold in members if untold),
    )


def _without_checks(member: Any) -> tuple[Any, bool]:
    """A policy that can be read again, and whether it had checks; what is no policy stays as it is."""
    rules = member.get("rules") if isinstance(member, dict) else None
    if not isinstance(rules, list):
        return member, False
    kept = [rule for rule in rules if not (isinstance(rule, dict) and rule.get("type") == "check")]
    return {**member, "rules": kept}, len(kept) < len(rules)


def observed(compiled: CompiledPolicy, events: Sequence[ev.Event], context: RunContext) -> Monitor:
    """A monitor in the state these events lead to."""
    monitor = compiled.for_tools(recorded_tools(events)).monitor(context)
    for event in events:
        monitor.observe(event)
    return monitor


def explained(compiled: CompiledPolicy, events: Sequence[ev.Event], context: RunContext) -> Iterator[Explained]:
    """Fold recorded events and tell each decision with its steps; see `Refold`."""
    refold = Refold(compiled, context, recorded_tools(events))
    return (step for event in events if (step := refold.apply(event)) is not None)


class Refold:
    """Replays recorded events one by one; each decision comes with its steps.

    A call is proposed to a copy of the state that was there before it, so that what is told never changes
    what follows. A call that waited for a person is told again when it was approved.
    """

    def __init__(self, compiled: CompiledPolicy, context: RunContext, tools: tuple[Tool, ...]) -> None:
        self._compiled = compiled.for_tools(tools)
        self.monitor = self._compiled.monitor(context, explain=True)
        self._calls: dict[str, ToolCall] = {}

    def apply(self, event: ev.Event) -> Explained | None:
        """Replay the next event; returns what was evaluated at it, if anything was."""
        calls, before = self._calls, None
        match event:
            case ev.RunStarted():
                calls.clear()  # a call is known by its id within its run, until it is over
            case ev.ToolCallCompleted() | ev.ToolCallFailed():
                calls.pop(event.tool_call_id, None)
            case ev.ToolCallRequested() | ev.ToolCallStarted():
                call = call_of(event)
                if isinstance(event, ev.ToolCallRequested) or call.id not in calls:
                    before = self._proposed(call, event.at)
                    if call.id not in calls or before.action not in ("deny", "cancel"):
                        calls[call.id] = call
        violations = () if isinstance(event, ev.PolicyViolated | ev.BudgetWarned) else self.monitor.observe(event)
        if isinstance(event, ev.ToolApprovalGranted) and event.tool_call_id in calls:
            before = self._proposed(calls[event.tool_call_id], event.at)
        decided = {(each.policy, each.rule) for each in before.violations} if before is not None else set()
        others = tuple(each for each in violations if (each.policy, each.rule) not in decided)
        if before is None and not others:
            return None
        return Explained(seq=event.seq, event=event.type, decision=before, violations=others)

    def copy(self) -> Monitor:
        """A monitor in this state, to ask what would be without changing what follows."""
        return self._compiled.restore(self.monitor.snapshot(), explain=True)

    def _proposed(self, call: ToolCall, at: datetime | None) -> Decision:
        monitor = self.copy()
        if at is not None:
            monitor.tick(ev.at_ms(at))
        return monitor.propose(call)
