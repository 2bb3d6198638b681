"""What to do about a violation."""

from __future__ import annotations

from .records import ViolationRecord

_LIMITS = "raise the limit, or find what the session spent it on"
_BY_KIND = {
    "net": "make the calls that put the missing tokens there first, or open the net to this call",
    "check": "see what the check looks at in the call's input",
    "circuit_breaker": "find out why the calls before it failed or were refused",
    "loop": "change the call's input, or do something else between",
    "max_parallel": "ask for fewer of these calls in one model response",
}
_OTHERWISE = "change the call, or allow it in the rule"


def expected(violation: ViolationRecord) -> str:
    """What the rule wanted, in words."""
    return str(violation.details.get("expected") or f"`{violation.rule}` to hold")


def actual(violation: ViolationRecord) -> str:
    """What happened instead, in words."""
    return str(violation.details.get("actual") or violation.message or "it did not")


def suggestion(violation: ViolationRecord) -> str:
    """What to do: the rule's own suggestion, or one for its kind."""
    own = violation.details.get("suggestion")
    if own:
        return str(own)
    if violation.kind.startswith("max_") and violation.kind != "max_parallel":
        return _LIMITS
    return _BY_KIND.get(violation.kind, _OTHERWISE)
