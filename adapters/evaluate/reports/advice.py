"""What a violation says: where it is, what was expected, what happened, what to do."""

from __future__ import annotations

from proctor.policies.policy import Limits

from ..results import ViolationRecord

_OTHERWISE = "change the call, or allow it in the rule"


def is_limit(violation: ViolationRecord) -> bool:
    """Whether a limit was exceeded: by a call, or by what an event in between reports."""
    return violation.kind in Limits.__struct_fields__


def place(violation: ViolationRecord) -> str:
    """Where it is, in words: a call, an event, or the end of the session."""
    if violation.tool_call_id is not None:
        return f"event {violation.seq}: {violation.tool_name} ({violation.tool_call_id})"
    return f"event {violation.seq}" if is_limit(violation) else "the end of the session"


def expected(violation: ViolationRecord) -> str:
    """What the rule wanted, in words."""
    return str(violation.details.get("expected") or f"`{violation.rule}` to hold")


def actual(violation: ViolationRecord) -> str:
    """What happened instead, in words."""
    return str(violation.message or violation.details.get("actual") or "it did not")


def suggestion(violation: ViolationRecord) -> str:
    """What to do: the rule's own suggestion, or a general one."""
    return str(violation.details.get("suggestion") or _OTHERWISE)
