"""Violations: of a rule or a limit, and of what the monitor itself objects to whatever the rules - an id used twice,
an input that cannot be read.
"""

from __future__ import annotations

from typing import Any

from ..rules.machine import Finding
from ..stack.limits import LimitEntry
from ..stream.calls import Action, Enforcement, ToolCall, Violation
from .compiled import CompiledPolicy
from .index import Compiled
from .session import Call


def of_rule(stack: CompiledPolicy, rule: Compiled, finding: Finding, call: Call | None) -> Violation:
    """What a rule found, about a call or not."""
    action = finding.action or rule.action
    return Violation(
        policy=rule.policy,
        stack=stack.name,
        rule=rule.id,
        kind=rule.kind,
        action=action,
        enforcement=_enforcement(action, call),
        message=finding.actual,
        details=_details(finding),
        reason=finding.reason or rule.reason,
        tell_model=finding.tell_model or rule.tell_model,
        unpreventable=rule.unpreventable,
        tool_call_id=call.id if call else None,
        tool_name=call.name if call else None,
    )


def of_limit(stack: CompiledPolicy, entry: LimitEntry, finding: Finding, call: Call | None) -> Violation:
    """A limit is exceeded, by a call or not."""
    return Violation(
        policy=entry.policy,
        stack=stack.name,
        rule=entry.name,
        kind=entry.name,
        action=entry.action,
        enforcement=_enforcement(entry.action, call),
        message=finding.actual,
        details=_details(finding),
        reason=entry.limit.reason,
        tell_model=entry.limit.tell_model,
        tool_call_id=call.id if call else None,
        tool_name=call.name if call else None,
    )


def raised(rule: Compiled, error: Exception) -> Finding:
    """A rule that raises refuses, whatever its action."""
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


def used_before(stack: str, call: ToolCall) -> Violation:
    """The id belongs to another call of the run."""
    return Violation(
        policy=stack,
        stack=stack,
        rule="tool_call_id",
        kind="tool_call_id",
        action="deny",
        enforcement="prevented",
        message="the id was used before, for another call",
        details={
            "expected": f"one call under the id `{call.id}`",
            "actual": "the id was used before, for another call",
            "tool_call_id": call.id,
        },
        tool_call_id=call.id,
        tool_name=call.name,
    )


def unreadable(stack: str, call: ToolCall, error: Exception, enforcement: Enforcement = "prevented") -> Violation:
    """The input cannot even be looked at, so it is not let through."""
    deep = isinstance(error, RecursionError)
    actual = "a value in a circle, or nested too deep" if deep else f"{type(error).__name__}: {str(error)[:200]}"
    return Violation(
        policy=stack,
        stack=stack,
        rule="input",
        kind="input",
        action="deny",
        enforcement=enforcement,
        message=actual,
        details={"expected": "an input that can be read", "actual": actual},
        tool_call_id=str(call.id),
        tool_name=str(call.name),
    )
