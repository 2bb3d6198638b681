"""The records a judgement leaves, and how far a violation found after the fact is enforced."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proctor.policies.policy import Limits
from proctor.policies.stream.calls import Enforcement, LimitWarning, ToolCall, Violation
from proctor.policies.stream.events import (
    BudgetWarned,
    PolicyViolated,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallStarted,
)

LIMITS = frozenset(Limits.__struct_fields__)
REFUSES_LATER = LIMITS | {"budget", "circuit_breaker"}
"""Kinds whose violation refuses every later call: with a gate, a deny needs no cancel."""

RECORDED = tuple(name for name in Violation.__struct_fields__ if name in PolicyViolated.__struct_fields__)
"""What of a violation its record has."""

SUPERVISION = "supervision"
"""Stands for a policy in a rule that holds without one: what was judged is what runs."""

EnforcementReach = Literal["record", "signal", "cancel", "escalate"]


def reach(violation: Violation, *, gates_all: bool) -> EnforcementReach:
    """What follows from a violation found on something that already happened.

    `record` it only, `signal` that somebody should approve, `cancel` the run, or `escalate` a deny to a
    cancel because nothing can be refused any more.
    """
    if violation.action == "cancel":
        return "cancel"
    if violation.action == "request_approval":
        return "signal"
    if violation.action != "deny" or violation.unpreventable == "warn":
        return "record"
    return "record" if gates_all and violation.kind in REFUSES_LATER else "escalate"


def labelled(violation: Violation, enforcement: Enforcement) -> Violation:
    """The same violation, saying how far its enforcement got."""
    return msgspec.structs.replace(violation, enforcement=enforcement)


def violated(violation: Violation, *, escalated: bool = False) -> PolicyViolated:
    """The record of a violation."""
    return PolicyViolated(**{name: getattr(violation, name) for name in RECORDED}, escalated=escalated)


def requested(call: ToolCall) -> ToolCallRequested:
    """The record that a call was requested."""
    return ToolCallRequested(**_described(call))


def started(call: ToolCall) -> ToolCallStarted:
    """The record that a call was permitted."""
    return ToolCallStarted(**_described(call))


def input_changed(ran: ToolCallStarted) -> Violation:
    """The violation of whoever changed a call's input after it was judged."""
    return Violation(
        policy=SUPERVISION,
        stack=SUPERVISION,
        rule="input_changed",
        kind="input_changed",
        action="cancel",
        enforcement="observed",
        message=f"`{ran.tool_name}` ran with another input than was judged",
        tool_call_id=ran.tool_call_id,
        tool_name=ran.tool_name,
    )


def denied(call: ToolCall, decision: str, tell_model: str) -> ToolCallDenied:
    """The record of a call that was refused."""
    return ToolCallDenied(tool_call_id=call.id, tool_name=call.name, decision=decision, tell_model=tell_model)


def warned(warning: LimitWarning) -> BudgetWarned:
    """The record of a limit coming near."""
    return BudgetWarned(limit=warning.limit, used=warning.used, max=warning.max, fraction=warning.fraction)


def _described(call: ToolCall) -> dict[str, Any]:
    return {
        "tool_call_id": call.id,
        "tool_name": call.name,
        "tool_input": call.input,
        "turn": call.turn,
        "parent_tool_call_id": call.parent_tool_call_id,
    }
