"""From what the rules found about a call to one decision, and the steps that explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...stream.calls import Decision, ToolCall, Violation, tell_model_default


def decision_on(call: ToolCall, violations: Sequence[Violation], errors: tuple[str, ...]) -> Decision:
    """The decision on a call, by the strictest of its violations, which come first; those that refuse it carry the
    text that the model gets.
    """
    action = violations[0].action if violations else "allow"
    tell = None
    if action not in ("allow", "warn"):
        refusing = [v for v in violations if v.action == action]
        own = (v.tell_model for v in refusing if v.tell_model)
        tell = next(own, tell_model_default(call.name, refusing[0].cause))
        if action != "request_approval":
            violations = [_with_text(v, tell) if v.action == action else v for v in violations]
    return Decision(
        action=action,
        tool_call_id=call.id,
        tool_name=call.name,
        tool_input=call.input,
        violations=tuple(violations),
        tell_model=tell,
        errors=errors,
    )


def _with_text(violation: Violation, tell: str) -> Violation:
    return msgspec.structs.replace(violation, details={**violation.details, "tell_model": tell})


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
