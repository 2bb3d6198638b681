"""One event of every type: the fields that an example shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

_AT = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_CALL = {"tool_call_id": "call-7", "tool_name": "Bash"}
_PUSH = {"tool_input": {"command": "git push"}}
_DIGEST = "1f1d3e7b8f6a4f0f1f0a9a5b0f6a1d52c0d5e2b7a0c94c8f0f1b6a7d8e9c0a1b"
_APPROVAL = {"approval_id": "run_5c1e.1", **_CALL, **_PUSH, "input_digest": _DIGEST, "policy_name": "team"}
_ERROR = {"code": "rate_limit", "message": "the provider asks for a pause of 20 seconds"}
_FOUND = {
    "policy": "team",
    "stack": "org + team",
    "rule": "deny-1",
    "kind": "deny",
    "action": "request_approval",
    "enforcement": "prevented",
    "message": "`Bash` was requested, and `$.command` runs `git push`",
}

EVERY: dict[str, Any] = {"run_id": "run_5c1e", "session_id": "ses_90ab", "seq": 12, "at": _AT}
"""Of each."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "run_started": {"model": "claude-opus-4-5", "metadata": {"gate": "all", "policy": "org + team"}},
    "message_sent": {"content": "Fix the failing test"},
    "message_received": {"content": "I run the tests first."},
    "message_streamed": {"delta": "I run the "},
    "turn_started": {"turn": 3},
    "turn_completed": {"turn": 3},
    "tool_call_requested": {**_CALL, **_PUSH, "turn": 3},
    "tool_call_started": {**_CALL, **_PUSH, "turn": 3, "parent_tool_call_id": "call-2"},
    "tool_call_completed": {**_CALL, "tool_output": "Everything up-to-date"},
    "tool_call_failed": {**_CALL, "error": {"exit_code": 128, "stderr": "fatal: no upstream branch"}},
    "tool_call_denied": {**_CALL, "tell_model": "Tool 'Bash' may not be used with this input."},
    "token_usage_updated": {
        "input_tokens": 5200,
        "output_tokens": 310,
        "cache_read_tokens": 4800,
        "cost_usd": 0.021,
        "model": "claude-opus-4-5",
    },
    "policy_violation": {
        **_FOUND,
        **_CALL,
        "details": {"expected": "no such call", "actual": _FOUND["message"], "turn": 3, "sequence_length": 4},
    },
    "net_joined": {"name": "require backup before delete", "net": "require backup before delete"},
    "net_left": {"name": "require backup before delete"},
    "budget_warning": {"limit": "max_cost_usd", "used": 1.62, "max": 2.0, "fraction": 0.81},
    "budget_reserved": {
        "budget": "org/team-month",
        "key": '$.labels.team="web"',
        "counts": "cost_usd",
        "asked_for": "start",
        "used": 212.4,
        "reserved": 6.0,
        "max": 500.0,
        "resets_at": datetime(2026, 4, 1, tzinfo=UTC),
    },
    "tool_approval_requested": {
        **_APPROVAL,
        "violation_kind": "deny",
        "reason": _FOUND["message"],
        "expires_at": _AT + timedelta(minutes=15),
        "violations": (_FOUND,),
    },
    "tool_approval_granted": {**_APPROVAL, "by": "ana"},
    "tool_approval_denied": {**_APPROVAL, "by": "ana", "reason": "not on a Friday"},
    "tool_approval_expired": {**_APPROVAL, "reason": "nobody answered in time"},
    "error_occurred": _ERROR,
    "error_recovered": _ERROR,
    "run_completed": {"output": "The test passes.", "usage": {"input_tokens": 48000, "output_tokens": 2100}},
    "run_failed": {"error": {"code": "provider_error", "message": "the client ended with exit code 1"}},
    "run_cancelled": {
        "reason": "policy `org`: 5,720 tokens; expected at most 5,000 tokens in one run",
        "evidence": {"rungs": [{"rung": "interrupt", "took_ms": 38.2, "ended": True}]},
    },
    "session_created": {"seq": 1},
    "session_started": {"provider_session_id": "6f0f1c2e-3b52-4a0e-9d57-2f6f1c0d8a11"},
    "session_paused": {},
    "session_resumed": {"provider_session_id": "6f0f1c2e-3b52-4a0e-9d57-2f6f1c0d8a11"},
    "session_completed": {},
    "session_failed": {},
    "session_cancelled": {},
    "record_pruned": {
        "seq": 214,
        "first_seq": 1,
        "last_seq": 213,
        "events": 213,
        "runs": 2,
        "head": _DIGEST,
        "by": "ops",
        "reason": "older than 90 days",
    },
}
"""By type; a type that is not here gets what its family has."""


def example_of(tag: str) -> dict[str, Any]:
    """The fields of an example."""
    own = EXAMPLES.get(tag, _APPROVAL if "approval" in tag else {})
    return {**EVERY, **own}
