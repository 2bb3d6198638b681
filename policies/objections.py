"""What the monitor itself objects to, whatever the rules: an id used twice, an input that cannot be read."""

from __future__ import annotations

from .calls import Enforcement, ToolCall, Violation


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
